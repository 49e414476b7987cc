// A loaded model that answers, in the caller's own thread: for programs that serve nobody else.
//
//   auto llm = Llm::Load({.model = "model.gguf"});
//   auto ids = (*llm)->EncodePrompt("Once upon a time");
//   (*llm)->Generate(*ids, params, [](const Token& t) { fputs(t.text.c_str(), stdout); return true;
//   });
//
// What a prompt shares with earlier ones isn't computed again. Not thread-safe. Many requests at
// once: engine.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/engine/engine_loop.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/engine/options.h"
#include "vllm/engine/request.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"

namespace vllm::engine {

struct Token {
  int32_t id = 0;    // -1: text that was held back, without a token of its own
  std::string text;  // became certain with this token; may be empty
};

struct Completion {
  std::vector<int32_t> ids;  // without the end token
  std::string text;
  FinishReason finish = FinishReason::kLength;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // decode: after the first token
};

// A step by hand: `tokens` stand at positions start.. of sequence `sequence`, of which there are
// max_num_seqs. Rows are chosen greedily. The state of recurrent layers is that behind the
// sequence's last chunk, whatever `start`; at 0 it begins anew. So it is with windows, from which
// one can go back only as far as memory allowed.
struct Chunk {
  int sequence = 0;
  int64_t start = 0;
  std::vector<int32_t> tokens = {};
  enum class Logits : uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
  std::shared_ptr<const Media> media = {};  // of Encode
};

class Llm : private OutputSink {
 public:
  static base::Result<std::unique_ptr<Llm>> Load(LoadOptions options);
  ~Llm() override;

  const weights::Config& config() const { return model_->config; }
  const text::Tokenizer& tokenizer() const { return *model_->tokenizer; }
  bool has_tokenizer() const { return model_->tokenizer != nullptr; }
  const text::ChatTemplate* chat_template() const {
    return model_->chat_template.get();
  }  // nullptr: none
  const LoadOptions& options() const { return options_; }
  const vt::ir::Graph& graph() const { return model_->graph; }
  vt::Backend& backend() { return *model_->backend; }
  StepRunner& runner() { return *model_->runner; }

  // As in admission.h.
  base::Result<std::vector<int32_t>> EncodePrompt(std::string_view text) const;
  base::Result<std::vector<int32_t>> EncodeChat(const text::ChatInput& chat) const;

  // Generates one choice. `on_token` (optional) returns false to stop. Errors: kInvalidArgument, as
  // Engine::Submit.
  base::Result<Completion> Generate(std::span<const int32_t> prompt, const SamplingParams& params,
                                    const std::function<bool(const Token&)>& on_token,
                                    std::shared_ptr<Media> media = {});

  // Logits after every token of `ids`. REQUIRES: options.score_prompts. `on_row` gets position and
  // row.
  base::Status Score(std::span<const int32_t> ids,
                     const std::function<void(int64_t, std::span<const float>)>& on_row);

  // Encodes what a sequence of Step hears, of which this is the whole prompt.
  base::Status Encode(std::span<const int32_t> prompt, Media& media);

  // For tests and tools. Logits and tokens of the wanted rows in the order of the chunks, valid
  // until the next but one step.
  struct StepOutput {
    int64_t outputs = 0;
    const float* logits = nullptr;    // [outputs, vocab]
    const int32_t* tokens = nullptr;  // [outputs]
  };
  base::Result<StepOutput> Step(std::span<const Chunk> chunks);
  // Gives back the KV blocks and the slot of a sequence of Step.
  void Reset(int sequence);

 private:
  Llm() = default;
  void Deliver(std::span<Output> outputs) override;
  void EngineDied(const std::string& why) override { died_ = why; }

  LoadOptions options_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<EngineLoop> loop_;
  struct ByHand {
    std::vector<int32_t> blocks;
    WindowTable window;
    int32_t slot = -1;  // of recurrent models
  };
  std::vector<ByHand> by_hand_;  // [sequence]: of Step
  std::vector<Output> outputs_;  // of Generate, not looked at yet
  std::string died_;
};

}  // namespace vllm::engine
