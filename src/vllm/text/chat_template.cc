#include "vllm/text/chat_template.h"

#include <algorithm>

#include "base/strings.h"
#include "vllm/text/chat_template_probe.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text {
namespace json = boost::json;
using base::Code;
using base::Error;
using base::Result;

namespace {

// Stands after the text of a message that is to be continued, so that its place in the prompt can
// be found. The blank at its end tells whether the template trims messages.
constexpr std::string_view kContinueMark = "\x02<continue here>\x02 ";

constexpr std::string_view kOwnVariables[] = {"messages", "tools", "documents",
                                              "add_generation_prompt"};

Error Explain(const jinja::Failure& f, const std::string& name) {
  if (f.type == "TemplateError")
    return {f.code, "the chat template refuses this conversation: " + f.message};
  std::string where = "chat template";
  if (!name.empty()) where += " " + name;
  if (f.line > 0) where += fmt::format(", line {}, column {}", f.line, f.column);
  return {f.code, fmt::format("{}: {}: {}", where, f.type, f.message)};
}

// Message text counts as the request's, but for the words that steer the template.
jinja::Value MessageValue(const json::value& message, jinja::Budget& budget) {
  if (!message.is_object()) return jinja::FromJson(message, true, budget);
  auto d = std::make_shared<jinja::Dict>();
  for (const auto& kv : message.get_object()) {
    const bool steers = kv.key() == "role";
    d->Set(jinja::Value::String(std::string(kv.key()), true),
           jinja::FromJson(kv.value(), !steers, budget));
  }
  return jinja::MakeDict(std::move(d), budget);
}

// Adds the mark to the last text of the last message; gives that text.
Result<std::string> MarkLastText(json::array& messages) {
  const Error none{Code::kInvalidArgument,
                   "continue_final_message needs a last message with text content"};
  if (messages.empty() || !messages.back().is_object()) return none;
  json::value* content = messages.back().get_object().if_contains("content");
  if (content != nullptr && content->is_array()) {
    json::array& parts = content->get_array();
    content = nullptr;
    for (auto it = parts.rbegin(); it != parts.rend() && content == nullptr; ++it) {
      if (it->is_object()) content = it->get_object().if_contains("text");
    }
  }
  if (content == nullptr || !content->is_string()) return none;
  json::string& s = content->get_string();
  std::string text(s.data(), s.size());
  s.append(kContinueMark);
  return text;
}

std::string_view Trimmed(std::string_view s, bool left) {
  while (!s.empty()) {
    const size_t p = jinja::PreviousChar(s, s.size());
    size_t i = p;
    if (!jinja::IsSpace(jinja::NextChar(s, i))) break;
    s = s.substr(0, p);
  }
  while (left && !s.empty()) {
    size_t i = 0;
    if (!jinja::IsSpace(jinja::NextChar(s, i))) break;
    s.remove_prefix(i);
  }
  return s;
}

// Where the prompt ends when its last message is to be continued. npos: the message does not
// appear.
size_t ContinueAt(std::string_view prompt, std::string_view message) {
  const std::string_view mark = kContinueMark.substr(0, kContinueMark.size() - 1);
  const size_t at = prompt.rfind(mark);
  if (at == std::string_view::npos ||
      prompt.find(Trimmed(message, true)) == std::string_view::npos) {
    return std::string_view::npos;
  }
  // Blanks at the end of the message go where the template would trim them.
  if (prompt.substr(at, kContinueMark.size()) == kContinueMark) return at;
  return Trimmed(prompt.substr(0, at), false).size();
}

}  // namespace

Result<std::shared_ptr<const jinja::Str>> RenderRaw(const jinja::Template& t,
                                                    const std::string& name,
                                                    const TemplateOptions& options,
                                                    const RawInput& input,
                                                    const jinja::Budget& budget) {
  try {
    jinja::Interpreter in(t, input.now, budget);
    const uint64_t before = in.budget().bytes;
    for (const auto& [key, value] : options.special_tokens)
      in.Set(key, jinja::Value::String(value));
    if (!options.bos_token.empty()) in.Set("bos_token", jinja::Value::String(options.bos_token));
    if (!options.eos_token.empty()) in.Set("eos_token", jinja::Value::String(options.eos_token));
    if (input.kwargs != nullptr) {
      for (const auto& kv : *input.kwargs)
        in.Set(kv.key(), jinja::FromJson(kv.value(), true, in.budget()));
    }
    std::vector<jinja::Value> messages;
    for (const json::value& m : input.messages) messages.push_back(MessageValue(m, in.budget()));
    in.Set("messages", jinja::MakeSeq(jinja::Kind::kList, std::move(messages), in.budget()));
    in.Set("tools", jinja::FromJson(input.tools, true, in.budget()));
    in.Set("documents", jinja::FromJson(input.documents, true, in.budget()));
    in.Set("add_generation_prompt", jinja::Value::Bool(input.add_generation_prompt));
    // A long conversation may cost more than a short one; each template looks at every message a
    // few times.
    const uint64_t size = before - in.budget().bytes;
    in.budget().bytes += 64 * size;
    in.budget().steps += 4 * size;
    return in.Run();
  } catch (const jinja::Failure& f) {
    return Explain(f, name);
  } catch (const std::exception& e) {
    return Error{Code::kResourceExhausted, fmt::format("chat template {}: {}", name, e.what())};
  }
}

ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string source, std::string name,
                                                          TemplateOptions options) {
  constexpr size_t kMaxSource = size_t{512}
                                << 10;  // published ones stay under 20 KiB; a token takes 130 bytes
  if (source.size() > kMaxSource) {
    return Error{Code::kCorrupt, fmt::format("chat template {}: {} bytes are over the limit of {}",
                                             name, source.size(), kMaxSource)};
  }
  if (!jinja::ValidUtf8(source))
    return Error{Code::kCorrupt, fmt::format("chat template {}: not valid UTF-8", name)};
  auto t = std::unique_ptr<ChatTemplate>(new ChatTemplate());
  try {
    t->template_ = jinja::ParseTemplate(source);
  } catch (const jinja::Failure& f) {
    return Explain(f, name);
  }
  t->source_ = std::move(source);
  t->name_ = std::move(name);
  t->options_ = std::move(options);
  t->traits_ = ProbeTemplate(*t->template_, t->options_);
  return t;
}

Result<json::array> ChatTemplate::Shape(const ChatInput& input) const {
  if (input.messages.empty()) return Error{Code::kInvalidArgument, "messages must not be empty"};
  if (input.add_generation_prompt && input.continue_final_message) {
    return Error{Code::kInvalidArgument,
                 "add_generation_prompt and continue_final_message exclude each other"};
  }
  for (const std::string_view own : kOwnVariables) {
    if (input.kwargs.contains(own)) {
      return Error{Code::kInvalidArgument,
                   fmt::format("chat_template_kwargs must not set '{}'", own)};
    }
  }
  for (const auto& [field, value] :
       {std::pair<const char*, const json::value*>{"tools", &input.tools},
        {"documents", &input.documents}}) {
    if (!value->is_null() && !value->is_array()) {
      return Error{Code::kInvalidArgument, fmt::format("'{}' must be an array", field)};
    }
  }
  return ShapeMessages(*template_, options_, traits_, input.messages);
}

Result<std::vector<PromptSegment>> ChatTemplate::RenderSegments(const ChatInput& input) const {
  Result<json::array> messages = Shape(input);
  if (!messages) return messages.error();
  std::string continued;
  if (input.continue_final_message) {
    Result<std::string> text = MarkLastText(*messages);
    if (!text) return text.error();
    continued = std::move(*text);
  }
  RawInput raw;
  raw.messages = std::move(*messages);
  const bool no_tools = input.tools.is_null() || input.tools.get_array().empty();
  if (!no_tools) {
    raw.tools = input.tools;
  } else if (traits_.no_tools_as_list) {
    raw.tools = json::array();
  }
  raw.documents = input.documents;
  raw.add_generation_prompt = input.add_generation_prompt;
  raw.kwargs = &input.kwargs;
  raw.now = input.now;
  Result<std::shared_ptr<const jinja::Str>> rendered = RenderRaw(*template_, name_, options_, raw);
  if (!rendered) return rendered.error();
  const jinja::Str& s = **rendered;
  size_t size = s.text.size();
  if (input.continue_final_message) {
    size = ContinueAt(s.text, continued);
    if (size == std::string::npos) {
      return Error{Code::kInvalidArgument,
                   "continue_final_message: the chat template changes the last message, so it "
                   "cannot be continued"};
    }
  }
  std::vector<PromptSegment> segments;
  size_t done = 0;
  const auto add = [&](size_t end, bool from_template) {
    end = std::min(end, size);
    if (end > done) segments.push_back({s.text.substr(done, end - done), from_template});
    done = std::max(done, end);
  };
  for (const jinja::Span& span : s.request) {
    add(span.begin, true);
    add(span.end, false);
  }
  add(size, true);
  return segments;
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  Result<std::vector<PromptSegment>> segments = RenderSegments(input);
  if (!segments) return segments.error();
  std::string text;
  for (const PromptSegment& s : *segments) text += s.text;
  return text;
}

}  // namespace vllm::text
