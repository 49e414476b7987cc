// Finds tool calls in a model's answer as it comes.
//
//   auto parser = MakeToolParser(ToolFormat::kHermes, names);
//   parser->Push(text, out); ...; parser->Finish(out);
//
// What comes out is the same wherever the text is cut. Text outside calls is content; white space
// around calls is dropped. A call is announced when its name is known, and its arguments stream as
// the model writes them; what turns out to be no call before it was announced is content after all,
// as it was written. One object a choice; not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::server {

enum class ToolFormat {
  kHermes,      // <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  kLlama3Json,  // the whole answer: [<|python_tag|>]{"name": ..., "parameters": {...}}[; {...}]
  kMistral,     // [TOOL_CALLS][{"name": ..., "arguments": ...}], or [TOOL_CALLS]name[ARGS]{...}
  kHarmony      // gpt-oss's channels: thoughts are told apart, without tools too
};

struct ToolDelta {
  int index = 0;
  std::string name;       // with the first delta of a call
  std::string arguments;  // further text of its arguments
};

struct ToolOutput {
  std::string content;
  std::string reasoning;
  std::vector<ToolDelta> calls;  // after `content`
};

class ToolParser {
 public:
  virtual ~ToolParser() = default;
  virtual ToolOutput Push(std::string_view text) = 0;
  virtual ToolOutput Finish() = 0;
  virtual int calls() const = 0;  // announced so far
  virtual bool cut() const = 0;   // the last of them has not got all of its arguments
};

// `names`: the tools offered. The llama3 form has no marks of its own, so there only an offered
// name makes a call.
std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format, std::vector<std::string> names);

std::unique_ptr<ToolParser> MakeHarmonyParser(std::vector<std::string> names);
std::unique_ptr<ToolParser> MakeMistralParser();

// "hermes", "llama3_json", "mistral", "openai" (harmony, by vLLM's name).
std::optional<ToolFormat> ToolFormatNamed(std::string_view name);
// The format that a chat template tells its model to write, by the marks in it.
std::optional<ToolFormat> ToolFormatOf(std::string_view chat_template);
// Whether the format's marks are control tokens, which then must not be hidden.
bool NeedsSpecialTokens(ToolFormat format);

}  // namespace vllm::server
