// Chat templates for models in Mistral's own format, whose tekken.json names the version of the
// format that they were trained on and brings no template. They write what mistral-common encodes.
#pragma once

#include <string>

#include "base/result.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"

namespace vllm::text {

// The template for a tokenizer whose instruct_format() has a version, and in `options` how it wants
// messages. Errors: kUnsupported for another version than v3, v7, v11, v13 and v15, or where the
// tokenizer lacks what the format is made of.
base::Result<std::string> MistralTemplate(const Tokenizer& tokenizer, TemplateOptions* options);

}  // namespace vllm::text
