#include "vllm/engine/sampling_params.h"

#include <cmath>
#include <span>

#include "base/strings.h"

namespace vllm::engine {
namespace {

// Collects the first field that is out of its range.
class Check {
 public:
  // `range` reads after "must be": "in (0, 1]".
  template <typename T>
  void That(bool holds, const char* field, const char* range, T got) {
    if (holds || !status_.ok()) return;
    Fail(fmt::format("{} must be {}, got {}", field, range, got));
  }
  void Ids(const char* field, std::span<const int32_t> ids, int64_t vocabulary) {
    for (const int32_t id : ids) {
      if (id >= 0 && id < vocabulary) continue;
      if (status_.ok())
        Fail(fmt::format("{} has the token id {}, which is not in [0, {})", field, id, vocabulary));
    }
  }
  void Fail(std::string message) {
    if (status_.ok()) status_ = base::Error{base::Code::kInvalidArgument, std::move(message)};
  }
  const base::Status& status() const { return status_; }

 private:
  base::Status status_;
};

bool In(float x, float low, float high) { return x >= low && x <= high; }  // false of NaN

}  // namespace

base::Status Validate(const SamplingParams& p, int64_t vocabulary) {
  constexpr int64_t kMostTokens = int64_t{1} << 31;
  Check c;
  c.That(In(p.temperature, 0, 1e6f), "temperature", "in [0, 1000000]", p.temperature);
  c.That(p.top_k >= -1, "top_k", "-1 or 0 (all) or more", p.top_k);
  c.That(In(p.top_p, 0, 1) && p.top_p > 0, "top_p", "in (0, 1]", p.top_p);
  c.That(In(p.min_p, 0, 1), "min_p", "in [0, 1]", p.min_p);
  c.That(In(p.typical_p, 0, 1) && p.typical_p > 0, "typical_p", "in (0, 1]", p.typical_p);
  c.That(std::isfinite(p.top_n_sigma), "top_n_sigma", "a number", p.top_n_sigma);
  c.That(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty), "repetition_penalty",
         "a number above 0", p.repetition_penalty);
  c.That(In(p.presence_penalty, -2, 2), "presence_penalty", "in [-2, 2]", p.presence_penalty);
  c.That(In(p.frequency_penalty, -2, 2), "frequency_penalty", "in [-2, 2]", p.frequency_penalty);
  c.That(In(p.dry_multiplier, 0, 1e6f), "dry_multiplier", "in [0, 1000000]", p.dry_multiplier);
  c.That(In(p.dry_base, 1, 1e6f), "dry_base", "in [1, 1000000]", p.dry_base);
  c.That(p.dry_allowed_length >= 1, "dry_allowed_length", "at least 1", p.dry_allowed_length);
  c.That(p.dry_penalty_last_n >= -1, "dry_penalty_last_n", "-1 (the whole context) or more",
         p.dry_penalty_last_n);
  c.Ids("dry_breakers", p.dry_breakers, vocabulary);
  c.That(In(p.xtc_probability, 0, 1), "xtc_probability", "in [0, 1]", p.xtc_probability);
  c.That(In(p.xtc_threshold, 0, 1), "xtc_threshold", "in [0, 1]", p.xtc_threshold);
  for (const auto& [id, bias] : p.logit_bias) {
    c.Ids("logit_bias", {&id, 1}, vocabulary);
    c.That(In(bias, -100, 100), "logit_bias", "of values in [-100, 100]", bias);
  }
  c.Ids("allowed_token_ids", p.allowed_token_ids, vocabulary);
  for (const auto& word : p.bad_words) {
    if (word.empty()) c.Fail("bad_words must not hold an empty sequence: leave it out");
    c.Ids("bad_words", word, vocabulary);
  }
  c.That(p.max_tokens >= 0 && p.max_tokens <= kMostTokens, "max_tokens", "in [0, 2147483648]",
         p.max_tokens);
  c.That(p.min_tokens >= 0, "min_tokens", "at least 0", p.min_tokens);
  if (p.min_tokens > p.max_tokens) {
    c.Fail(fmt::format("min_tokens must be at most max_tokens ({}), got {}", p.max_tokens,
                       p.min_tokens));
  }
  c.Ids("stop_token_ids", p.stop_token_ids, vocabulary);
  c.That(p.n >= 1 && p.n <= kMaxChoices, "n", fmt::format("in [1, {}]", kMaxChoices).c_str(), p.n);
  const std::string logprobs = fmt::format("in [0, {}], or -1 for none", kMaxLogprobs);
  c.That(p.logprobs >= -1 && p.logprobs <= kMaxLogprobs, "logprobs", logprobs.c_str(), p.logprobs);
  c.That(p.prompt_logprobs >= -1 && p.prompt_logprobs <= kMaxLogprobs, "prompt_logprobs",
         logprobs.c_str(), p.prompt_logprobs);
  for (const std::string& stop : p.stop) {
    if (stop.empty()) c.Fail("stop must not hold an empty string: leave it out");
  }
  return c.status();
}

}  // namespace vllm::engine
