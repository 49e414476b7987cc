// Many requests at once: continuous batching over one model on one device.
//
//   auto engine = Engine::Load(options, sink);          // loads, sizes the KV cache, warms up
//   auto id = (*engine)->Submit({.prompt = ids});       // any thread
//   ... sink.Deliver(outputs) ...                       // the engine's thread
//   (*engine)->Cancel(*id);
//
// One thread schedules, runs steps and hands out tokens. Submit, Cancel, stats and the accessors of
// the model are safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "vllm/engine/media.h"
#include "vllm/engine/options.h"
#include "vllm/engine/request.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"

namespace vllm::engine {

class EngineLoop;
struct ClassHead;
struct LoadedModel;
struct EngineStats;

class Engine {
 public:
  // `sink` must outlive the engine. Errors: as LoadModel; kResourceExhausted when the model or
  // max_model_len does not fit, with the sum that is needed and the largest length that would fit.
  static base::Result<std::unique_ptr<Engine>> Load(LoadOptions options, OutputSink& sink);
  ~Engine();  // aborts what runs

  // Errors: kInvalidArgument (a field of the sampling, an empty prompt, ids outside the vocabulary,
  // a prompt that leaves no room for a token in max_model_len or in the KV cache),
  // kResourceExhausted (the queue is full: --max-queue-size), kUnavailable (draining or dead). No
  // output follows. `taken`, if any, is told the id before anything is delivered for it; it is
  // called under a lock of the engine and must call nothing of it.
  base::Result<RequestId> Submit(Request request, const std::function<void(RequestId)>& taken = {});
  // Ends a request (choice -1) or one of its choices; its blocks are free within a step. With
  // `deliver`, a last output with kAbort comes for each choice that had not finished; else nothing
  // more comes, except what was being delivered. Unknown ids are ignored.
  void Cancel(RequestId request, int32_t choice = -1, bool deliver = false);

  // No further requests; returns when all have finished or `seconds` have passed (then the rest is
  // aborted, with output).
  void Drain(double seconds);

  // A consistent copy of the counters.
  EngineStats Stats() const;

  // The model. tokenizer and chat_template may be nullptr.
  const LoadOptions& options() const;  // with max_model_len and the rest settled
  const text::Tokenizer* tokenizer() const;
  const text::ChatTemplate* chat_template() const;
  int64_t vocabulary() const;
  int64_t hidden_size() const;
  Pooling pooling()
      const;  // of embeddings, as the model's files say; the last token's where they don't
  bool encoder() const;                 // gives vectors of whole texts, and no text
  const weights::Audio& audio() const;  // what the model hears
  int64_t classes() const;  // of an encoder that scores texts in place of embedding them; 0: none
  const ClassHead& class_head() const;        // and what they are
  const std::string& description() const;     // "llama, 30 layers, 134.5 M weights in 91.7 MiB"
  const std::string& memory_summary() const;  // weights, KV cache, activations, a line

  // The prompt's ids: plain text (with the BOS token where the model has one; text that begins with
  // it gets no second), or a conversation by its template. kInvalidArgument where there is none.
  base::Result<std::vector<int32_t>> EncodePrompt(std::string_view text,
                                                  bool add_special_tokens = true) const;
  base::Result<std::vector<int32_t>> EncodeChat(const text::ChatInput& chat) const;

 private:
  Engine() = default;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<EngineLoop> loop_;
  LoadOptions options_;
};

}  // namespace vllm::engine
