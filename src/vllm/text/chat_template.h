// A model's chat template: OpenAI-shaped messages in, the prompt's text out.
//
// The template language is Jinja2 as transformers runs it (immutable sandbox, trim_blocks,
// lstrip_blocks, loop controls, generation tags, tojson = Python's json.dumps, raise_exception,
// strftime_now); the engine is jinja_*.h. Use: Parse once when the model is loaded, Render a
// request. Templates disagree about message shapes (null content, content parts, tool arguments as
// text or object, the developer role), so Parse renders small conversations with sentinels and
// Render reshapes each message to what this template takes: see TemplateTraits.
//
// A parsed template is immutable: Render is const and safe from any number of threads.
#pragma once

#include <boost/json/value.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace vllm::text {

namespace jinja {
class Template;
}

struct TemplateOptions {
  std::string bos_token;  // empty: undefined in the template, as in transformers
  std::string eos_token;
  std::map<std::string, std::string>
      special_tokens;  // "pad_token", "unk_token", ...: template variables by name
  // Stands between the parts of a message that the template takes as one string.
  std::string between_parts = "\n";
  // A tool's text that is JSON is given to the template as the value that it says, none as {}.
  bool json_tool_results = false;
};

struct ChatInput {
  boost::json::array
      messages;              // each {"role", "content", "tool_calls", ...}, as in the OpenAI schema
  boost::json::value tools;  // array or null; [] equals null
  boost::json::value documents;  // array or null
  bool add_generation_prompt = true;
  // The last message is left open, so that the model goes on with it. Excludes
  // add_generation_prompt.
  bool continue_final_message = false;
  boost::json::object kwargs;  // chat_template_kwargs: further variables (enable_thinking, ...)
  // What strftime_now sees, in local time. Taken once a request, so that a prompt cannot straddle
  // midnight.
  std::chrono::system_clock::time_point now;
  // Marks in the texts of messages, and the text that stands there instead as if the template had
  // written it: what the tokenizer makes special tokens of.
  std::vector<std::pair<std::string, std::string>> places = {};
};

// A run of prompt text with one origin. The concatenation of all runs is what Render returns.
struct PromptSegment {
  std::string text;
  // False for text that came out of the request: message content, names, tool arguments, tool and
  // document descriptions. A tokenizer that must not let a client write control tokens matches
  // special tokens only inside runs with true; it must not otherwise cut the text there, or
  // ordinary tokens at the seams change.
  bool from_template = true;
};

// What the template takes, found by rendering small conversations with sentinels.
struct TemplateTraits {
  struct Role {
    bool accepted = false;     // a turn of this role renders and its text arrives
    bool takes_text = false;   // ... with content as a string
    bool takes_parts = false;  // ... with content as a list of {"type": "text"} parts, all of them
    std::string refusal;       // the template's own sentence where it raised
  };
  Role system, user, assistant, tool;

  bool own_developer = false;     // has a branch for role "developer"; else it is shown as "system"
  bool takes_tools = false;       // prints the definitions in `tools`
  bool no_tools_as_list = false;  // fails without tools unless it is shown an empty list
  bool takes_tool_calls = false;
  bool arguments_as_object = true;  // of tool calls; else as JSON text

  // How content that is null (or empty) beside tool calls must be shown.
  enum class EmptyContent { kNull, kEmptyString, kAbsent };
  EmptyContent beside_tool_calls = EmptyContent::kEmptyString;

  bool takes_images = false;  // a part of this type changes the prompt
  bool takes_audio = false;
  bool takes_video = false;
};

class ChatTemplate {
 public:
  // `name` stands in errors (the file). Errors: kCorrupt with line and column for text that is not
  // a template, kUnsupported for tags that a chat template cannot have (include, import, extends).
  static base::Result<std::unique_ptr<ChatTemplate>> Parse(std::string source, std::string name,
                                                           TemplateOptions options = {});
  ~ChatTemplate();

  // The prompt. Errors: kInvalidArgument for a conversation that the template or the message schema
  // refuses (with the template's own sentence where it raised one: an HTTP 400), kResourceExhausted
  // for a template that loops or grows without end.
  //
  // Messages are reshaped to the template's traits: parts are joined where it takes a string, a
  // string becomes one part where it takes parts only; `tool_calls: []` and `tools: []` equal
  // absent; role "developer" becomes "system" and "function" becomes "tool" where the template has
  // no branch of its own; other roles are refused by name.
  base::Result<std::string> Render(const ChatInput& input) const;

  // The same prompt in runs by origin. The origin follows a string through printing, concatenation,
  // slicing, strip, split, replace, join, tojson and macros; through other operations (upper,
  // format, indent, ...) the result counts as request text when any of its input did.
  base::Result<std::vector<PromptSegment>> RenderSegments(const ChatInput& input) const;

  const TemplateTraits& traits() const { return traits_; }
  const std::string& source() const { return source_; }

 private:
  ChatTemplate() = default;
  base::Result<boost::json::array> Shape(const ChatInput& input) const;

  std::string source_, name_;
  TemplateOptions options_;
  TemplateTraits traits_;
  std::unique_ptr<jinja::Template> template_;
};

}  // namespace vllm::text
