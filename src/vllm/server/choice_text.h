// One choice's answer as it becomes certain: text, tool calls and log-probabilities in step with
// each other. Streamed and whole answers are made from the same steps, so they are equal.
//
// Log-probabilities: one entry a token whose text is in the answer; the end token has none, nor
// have the tokens that a stop string cut off. An entry comes with its token's text or later.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "vllm/engine/output_text.h"
#include "vllm/server/tool_parser.h"

namespace vllm::server {

struct Entry {
  engine::TextLogprob logprob;
  int64_t offset = 0;  // characters of the answer in front of it
};

struct Delta {
  std::string content;
  std::string reasoning;
  std::vector<ToolDelta> calls;
  std::vector<Entry> entries;
  bool stopped = false;  // by a stop string
  std::string stop;      // which one
  bool empty() const {
    return content.empty() && reasoning.empty() && calls.empty() && entries.empty();
  }
};

class ChoiceText {
 public:
  // `tools` may be nullptr. `offset`: characters of an echoed prompt.
  ChoiceText(const text::Tokenizer* tokenizer, const engine::SamplingParams& params,
             std::span<const int32_t> prompt_tail, std::unique_ptr<ToolParser> tools,
             int64_t offset = 0);

  // What this token makes certain. `logprobs` may be nullptr.
  Delta Push(int32_t token, bool is_end, const engine::TokenLogprobs* logprobs);
  // The rest, when no stop string ended it.
  Delta Finish();

  int tool_calls() const { return tools_ == nullptr ? 0 : tools_->calls(); }
  bool call_cut() const { return tools_ != nullptr && tools_->cut(); }

 private:
  struct Waiting {
    Entry entry;
    size_t start;  // byte of the answer's text
  };
  void Release(std::string text, bool all, Delta& delta);

  const text::Tokenizer* tokenizer_;
  engine::OutputText text_;
  std::unique_ptr<ToolParser> tools_;
  bool skip_special_;
  std::deque<Waiting> waiting_;
  size_t decoded_ = 0, released_ = 0;  // bytes
  int64_t characters_;
};

// Characters that begin in `bytes`.
int64_t CountCharacters(std::string_view bytes);

}  // namespace vllm::server
