// A loaded model that answers: weights on a device, tokenizer, chat template, KV cache, step
// runner.
//
//   auto llm = Llm::Load({.model = "model.gguf"});
//   auto ids = (*llm)->EncodePrompt("Once upon a time");
//   (*llm)->Generate(0, *ids, params, [](const Token& t) { fputs(t.text.c_str(), stdout); return
//   true; });
//
// Sequence slots (0 .. max_num_seqs - 1) keep their KV cache between calls: what a prompt shares
// with the tokens already in its slot isn't computed again. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/engine/kv_blocks.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/engine/options.h"
#include "vllm/engine/step_runner.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"

namespace vllm::engine {

struct Token {
  int32_t id = 0;
  std::string text;  // became certain with this token; may be empty
};

struct Completion {
  std::vector<int32_t> ids;  // without the end token
  std::string text;
  enum class Finish : uint8_t { kStop, kLength, kCancelled } finish = Finish::kLength;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // decode: after the first token
};

class Llm {
 public:
  static base::Result<std::unique_ptr<Llm>> Load(LoadOptions options);
  ~Llm();

  const weights::Config& config() const { return model_->config; }
  const text::Tokenizer& tokenizer() const { return *model_->tokenizer; }
  bool has_tokenizer() const { return model_->tokenizer != nullptr; }
  const text::ChatTemplate* chat_template() const {
    return model_->chat_template.get();
  }  // nullptr: none
  const LoadOptions& options() const { return options_; }
  const vt::ir::Graph& graph() const { return model_->graph; }
  vt::Backend& backend() { return *model_->backend; }
  StepRunner& runner() { return *runner_; }

  // The prompt's ids: plain text (with the BOS token where the model has one), or a conversation by
  // its template.
  base::Result<std::vector<int32_t>> EncodePrompt(std::string_view text) const;
  base::Result<std::vector<int32_t>> EncodeChat(const text::ChatInput& chat) const;

  // Generates until an end token, max_tokens or the context's end. `on_token` returns false to
  // stop. Errors: kInvalidArgument for an empty prompt, ids outside the vocabulary or one longer
  // than the context.
  base::Result<Completion> Generate(int sequence, std::span<const int32_t> prompt,
                                    const SamplingParams& params,
                                    const std::function<bool(const Token&)>& on_token);

  // Logits after every token of `ids`, [ids, vocab]. REQUIRES: options.score_prompts. `on_row` gets
  // position and row.
  base::Status Score(std::span<const int32_t> ids,
                     const std::function<void(int64_t, std::span<const float>)>& on_row);

  // One step by hand; blocks are reserved here. For tests and tools. Rows as StepResult says.
  base::Result<StepResult> Step(std::span<const Chunk> chunks);
  // Forgets a slot's cache.
  void Reset(int sequence);

  bool IsEnd(int32_t id) const;

 private:
  Llm() = default;
  base::Status CheckPrompt(std::span<const int32_t> ids) const;

  LoadOptions options_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<KvBlocks> blocks_;
  std::vector<std::vector<int32_t>>
      cached_;  // [sequence]: ids whose keys and values are in the cache
};

}  // namespace vllm::engine
