// Internal to chat_template.cc: one rendering of messages taken as they are, and the probing of a
// template.
#pragma once

#include <boost/json/value.hpp>
#include <memory>

#include "base/result.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/jinja_interpreter.h"

namespace vllm::text {

struct RawInput {
  boost::json::array messages;
  boost::json::value tools, documents;
  bool add_generation_prompt = false;
  const boost::json::object* kwargs = nullptr;
  std::chrono::system_clock::time_point now;
};

// Renders without reshaping. Errors as ChatTemplate::Render's.
base::Result<std::shared_ptr<const jinja::Str>> RenderRaw(const jinja::Template& t,
                                                          const std::string& name,
                                                          const TemplateOptions& options,
                                                          const RawInput& input,
                                                          const jinja::Budget& budget = {});

TemplateTraits ProbeTemplate(const jinja::Template& t, const TemplateOptions& options);

// Does a turn of this role, which the OpenAI schema does not have, arrive in the prompt?
bool ShowsRole(const jinja::Template& t, const TemplateOptions& options, const std::string& role);

// Messages in the shape that the template takes. Errors name the message and the field.
base::Result<boost::json::array> ShapeMessages(const jinja::Template& t,
                                               const TemplateOptions& options,
                                               const TemplateTraits& traits,
                                               const boost::json::array& messages);

}  // namespace vllm::text
