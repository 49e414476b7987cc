#include "vllm/engine/output_text.h"

#include <algorithm>

#include "vllm/text/unicode.h"

namespace vllm::engine {
namespace {

TextLogprob One(const text::Tokenizer& tokenizer, int32_t id, float logprob) {
  TextLogprob t;
  t.id = id;
  t.logprob = logprob;
  if (tokenizer.HasToken(id)) t.bytes = tokenizer.TokenBytes(id);
  text::AppendLossy(t.bytes, &t.token);
  return t;
}

// The longest end of `text` that is a beginning, but not the whole, of one of `stops`.
size_t Undecided(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n) {
      if (text[text.size() - n] != stop[0]) continue;
      if (text.substr(text.size() - n) == std::string_view(stop).substr(0, n)) longest = n;
    }
  }
  return longest;
}

}  // namespace

TextLogprob Describe(const text::Tokenizer& tokenizer, const TokenLogprobs& logprobs) {
  TextLogprob t = One(tokenizer, logprobs.token, logprobs.logprob);
  t.top.reserve(logprobs.top.size());
  for (const auto& [id, logprob] : logprobs.top) t.top.push_back(One(tokenizer, id, logprob));
  return t;
}

OutputText::OutputText(const text::Tokenizer* tokenizer, const SamplingParams& params,
                       std::span<const int32_t> prompt_tail)
    : include_stop_(params.include_stop_str_in_output), min_tokens_(params.min_tokens) {
  for (const std::string& stop : params.stop) {
    if (!stop.empty()) stop_.push_back(stop);
  }
  if (include_stop_) shown_ends_ = params.stop_token_ids;
  if (tokenizer == nullptr) return;
  detokenizer_.emplace(*tokenizer, params.skip_special_tokens);
  detokenizer_->Prime(prompt_tail);
}

OutputText::Piece OutputText::Push(int32_t token, bool is_end) {
  ++tokens_;
  const bool hidden =
      is_end && std::find(shown_ends_.begin(), shown_ends_.end(), token) == shown_ends_.end();
  std::string fresh;
  if (detokenizer_ && !hidden) fresh = detokenizer_->Push(token);
  if (stop_.empty()) return {std::move(fresh), false, {}};
  return Release(std::move(fresh), false);
}

std::string OutputText::Finish() {
  std::string fresh = detokenizer_ ? detokenizer_->Finish() : "";
  return Release(std::move(fresh), true).text;
}

// What ends first is found first, so that the cuts between pieces change nothing.
OutputText::Piece OutputText::Release(std::string fresh, bool all) {
  const size_t before = held_.size();
  held_ += fresh;
  if (tokens_ >= min_tokens_ && held_.size() > before) {
    size_t best_end = std::string::npos, best_start = 0;
    const std::string* found = nullptr;
    for (const std::string& stop : stop_) {
      const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
      size_t start = held_.find(stop, from);
      while (start != std::string::npos && start + stop.size() <= before) {
        start = held_.find(stop, start + 1);
      }
      if (start == std::string::npos) continue;
      const size_t end = start + stop.size();
      if (end > best_end && found != nullptr) continue;
      if (found == nullptr || end < best_end || start < best_start) {
        best_end = end;
        best_start = start;
        found = &stop;
      }
    }
    if (found != nullptr) {
      Piece piece{held_.substr(0, include_stop_ ? best_end : best_start), true, *found};
      held_.clear();
      return piece;
    }
  }
  const size_t keep = all ? 0 : Undecided(held_, stop_);
  Piece piece;
  piece.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return piece;
}

}  // namespace vllm::engine
