// Chat and plain completions, streamed or whole.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vllm/server/session.h"

namespace vllm::server {

struct GenerateOptions {
  AnswerHead head;
  engine::SamplingParams sampling;  // as shown: skip_special_tokens may differ from the request's
  const text::Tokenizer* tokenizer = nullptr;
  bool stream = false;
  bool echo = false;
  bool show_prompt_logprobs = false;  // prompt_logprobs was asked for, not only echo with logprobs
  bool no_output = false;             // max_tokens 0: the prompt alone is scored
  std::optional<ToolFormat> tools;
  std::vector<std::string> tool_names;
};

struct GeneratePrompt {
  std::vector<int32_t> ids;
  std::string echo;  // its text, when it is echoed
};

class GenerateSession : public Session {
 public:
  GenerateSession(std::shared_ptr<Reply> reply, GenerateOptions options,
                  std::vector<GeneratePrompt> prompts);

  void Begin() override;
  bool Take(size_t part, engine::Output& output) override;
  void Flush() override;

 private:
  struct Choice {
    std::unique_ptr<ChoiceText> text;
    std::optional<ChunkWriter> writer;  // of a stream
    WholeChoice whole;                  // of a stream: only finish_reason and call_ids
    std::vector<int32_t> fresh_ids;     // not yet in a chunk
    bool begun = false, finished = false;
  };

  void TakePrompt(size_t part, engine::Output& output);
  void Emit(size_t part, Choice& choice, Delta delta);
  void Finish(Choice& choice, const engine::Output& output, const Delta& delta);
  void Fail(const std::string& message);
  size_t Choices() const { return static_cast<size_t>(options_.sampling.n); }

  GenerateOptions options_;
  std::vector<GeneratePrompt> prompts_;
  std::vector<WholePrompt> whole_prompts_;
  std::vector<std::vector<PromptEntry>> entries_;  // of each prompt, with log-probabilities
  std::vector<int64_t> cached_;
  std::vector<Choice> choices_;
  size_t open_;
  Usage usage_;
  std::string frames_;  // not yet sent
};

// A prompt's tokens with their log-probabilities and their places in `text`. `scored` is what the
// engine gave: of ids[1..].
std::vector<PromptEntry> PromptEntries(const text::Tokenizer& tokenizer,
                                       const std::vector<int32_t>& ids,
                                       const std::vector<engine::TokenLogprobs>& scored,
                                       std::string_view text);

// "call_" and 24 letters or digits; of Mistral's format nine letters or digits alone.
std::string NewCallId(std::optional<ToolFormat> format);
// `prefix` and 32 hexadecimal digits.
std::string NewId(std::string_view prefix);
// The answer of a list as far as into its "data": the id begins with `prefix`.
std::string ListBegin(std::string_view prefix, std::string_view model);

}  // namespace vllm::server
