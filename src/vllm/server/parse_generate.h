// Parsers shared between routes. Private to this room.
#pragma once

#include <boost/json/value.hpp>

#include "vllm/server/fields.h"
#include "vllm/server/protocol.h"

namespace vllm::server {

// The body as one JSON object.
Parsed<boost::json::object> ParseBody(std::string_view body);
// Sampling, streaming and the rest of GenerateFields; not logprobs, whose form differs.
void ReadGenerate(Fields& f, GenerateFields* g);
// messages, documents, chat_template_kwargs and the two ways to end the prompt.
void ReadConversation(Fields& f, text::ChatInput* chat);
// tools, checked.
void ReadTools(Fields& f, text::ChatInput* chat, std::vector<std::string>* names);
// A text, a list of texts, ids, or a list of lists of ids.
void ReadPrompts(Fields& f, std::string_view name, std::vector<Prompt>* prompts);

}  // namespace vllm::server
