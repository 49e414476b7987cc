// The one place where tokens become what a client sees: UTF-8, stop strings, log-probability bytes.
//
// Pieces joined are the same text whether taken one by one or at once. A piece that could be the
// beginning of a stop string waits until it is certain. One object a choice; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vllm/engine/request.h"
#include "vllm/text/detokenizer.h"
#include "vllm/text/tokenizer.h"

namespace vllm::engine {

// A token's log-probability in words.
struct TextLogprob {
  std::string token;  // its text; bytes that are not UTF-8 alone as U+FFFD
  std::string bytes;  // its exact bytes
  int32_t id = -1;
  float logprob = 0;
  std::vector<TextLogprob> top;  // of the best ones; each without `top`
};
TextLogprob Describe(const text::Tokenizer& tokenizer, const TokenLogprobs& logprobs);

class OutputText {
 public:
  // `tokenizer` may be nullptr: then there is no text. `prompt_tail`: the last ids of the prompt
  // (eight suffice). Stop strings count only from `params.min_tokens` tokens on.
  OutputText(const text::Tokenizer* tokenizer, const SamplingParams& params,
             std::span<const int32_t> prompt_tail);

  struct Piece {
    std::string text;
    bool stopped = false;  // a stop string ended the text here: the choice is over (finish "stop"),
                           // the engine must be told to cancel it; nothing more may be pushed
    std::string stop;      // which one
  };
  // `is_end`: the token is an end token or stop id, whose text is not shown (a stop id's is when
  // include_stop_str_in_output).
  Piece Push(int32_t token, bool is_end = false);
  // The text still held back; call once when the choice finished without a stop string.
  std::string Finish();

  int64_t tokens() const { return tokens_; }  // pushed so far

 private:
  Piece Release(std::string fresh, bool all);

  std::optional<text::IncrementalDetokenizer> detokenizer_;
  std::vector<std::string> stop_;
  std::vector<int32_t> shown_ends_;  // stop ids whose text is shown
  bool include_stop_ = false;
  int64_t min_tokens_ = 0, tokens_ = 0;
  std::string held_;  // decoded, not yet certain
};

}  // namespace vllm::engine
