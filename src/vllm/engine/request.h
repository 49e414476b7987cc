// What goes into the engine and what comes out of it, in tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vllm/engine/sampling_params.h"

namespace vllm::engine {

using RequestId = uint64_t;  // unique while the engine lives; 0 is none

// Which hidden states make an embedding: the last token's (causal models: it has seen all), the
// mean over the prompt, or the first token's. Of an encoder with a head for classes its scores.
enum class Pooling : uint8_t { kLast, kMean, kFirst };

struct Media;  // media.h

struct Request {
  enum class Kind : uint8_t { kGenerate, kEmbed };
  Kind kind = Kind::kGenerate;
  std::vector<int32_t> prompt;
  SamplingParams sampling;           // of kGenerate
  int32_t priority = 0;              // of --scheduling-policy priority: lower runs first
  std::string cache_salt = {};       // requests share cached prefixes only with the same salt
  double timeout_seconds = 0;        // after submission; 0: none
  Pooling pooling = Pooling::kLast;  // of kEmbed
  // Of a pair for an encoder: tokens of the first text, segment 0; the others are of segment 1.
  int64_t first_segment = INT64_MAX;
  std::shared_ptr<Media> media = {};  // sound; null: text alone

  bool embeds() const { return kind == Kind::kEmbed; }
  int32_t choices() const { return embeds() ? 1 : sampling.n; }
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kTimeout, kError };

// Log-probabilities of one token and of the best ones at its place, raw: of the softmax of the
// logits as the model gave them, before temperature, penalties and bias.
struct TokenLogprobs {
  int32_t token = -1;
  float logprob = 0;
  int32_t rank = 1;                            // 1: the most probable
  std::vector<std::pair<int32_t, float>> top;  // falling
};

// What is rarely there.
struct OutputExtra {
  TokenLogprobs logprobs;                      // of `token`, when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of prompt tokens 1.., once, with the first output
  std::vector<float> embedding;                // of kEmbed, not normalised
  std::string error;                           // of kError
};

// One token of one choice, or its end, or both.
struct Output {
  RequestId request = 0;
  int32_t choice = 0;
  int32_t token = -1;  // -1: none. An end token or stop id is delivered, with finish kStop
  FinishReason finish = FinishReason::kNone;
  int64_t cached_tokens = 0;  // of the prompt, that were found in the prefix cache
  std::unique_ptr<OutputExtra> extra = {};
};

// Receives what steps give. Called from the engine's thread, once a step with all its outputs, in
// the order of tokens for each choice; must be quick (hand over, don't work) and must not call
// Engine methods other than Submit and Cancel. After a choice's finish nothing more comes for it.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void Deliver(std::span<Output> outputs) = 0;
  // The engine cannot go on (a device error); all requests will be finished with kError at once.
  virtual void EngineDied(const std::string& why) = 0;
};

}  // namespace vllm::engine
