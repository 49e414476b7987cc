#include "vllm/engine/sampler_settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vllm::engine {
namespace {

using vt::ir::SamplerLayout;
using vt::ir::SamplingRow;
using vt::ir::TokenBias;

SamplingRow RowOf(const SamplingParams& p, uint64_t seed, int64_t prompt_length) {
  SamplingRow row;
  row.temperature = p.temperature;
  row.top_k = static_cast<float>(std::max(p.top_k, 0));
  row.top_p = p.top_p;
  row.min_p = p.min_p;
  row.seed = seed;
  row.typical_p = p.typical_p;
  row.top_n_sigma = std::max(p.top_n_sigma, 0.0f);
  row.repetition_penalty = p.repetition_penalty;
  row.presence_penalty = p.presence_penalty;
  row.frequency_penalty = p.frequency_penalty;
  row.dry_multiplier = p.dry_multiplier;
  row.dry_base = p.dry_base;
  row.dry_allowed_length = p.dry_allowed_length;
  row.dry_last_n = p.dry_penalty_last_n;
  row.xtc_probability = p.xtc_probability;
  row.xtc_threshold = p.xtc_threshold;
  row.prompt_length = static_cast<int32_t>(prompt_length);
  return row;
}

// The request's own biases, then what min_tokens bans.
std::vector<TokenBias> BiasOf(const SamplingParams& p, std::span<const int32_t> end_ids) {
  std::vector<TokenBias> bias;
  for (const auto& [id, value] : p.logit_bias) bias.push_back({id, value});
  if (p.min_tokens <= 0) return bias;
  const auto until =
      static_cast<int32_t>(std::min<int64_t>(p.min_tokens, std::numeric_limits<int32_t>::max()));
  std::vector<int32_t> ends(p.stop_token_ids);
  if (!p.ignore_eos) ends.insert(ends.end(), end_ids.begin(), end_ids.end());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (const int32_t id : ends) bias.push_back({id, -INFINITY, until});
  return bias;
}

}  // namespace

base::Result<SamplerSettings> MakeSamplerSettings(const SamplingParams& params, uint64_t seed,
                                                  int64_t prompt_length,
                                                  std::span<const int32_t> end_ids,
                                                  const SamplerLayout& layout) {
  SamplerSettings s;
  s.row = RowOf(params, seed, prompt_length);
  const bool dry = params.dry_multiplier != 0 && params.dry_penalty_last_n != 0;
  std::vector<int32_t> ends;
  for (const int32_t id : end_ids) {
    if (id >= 0 && id < layout.vocabulary) ends.push_back(id);
  }
  base::Result<vt::ir::PackedLists> lists =
      vt::ir::PackLists(layout, BiasOf(params, ends), params.bad_words);
  if (!lists) return lists.error();
  s.row.bias_words = lists->bias_words;
  s.row.bad_word_words = lists->bad_word_words;
  s.row.use_breakers = dry && !params.dry_breakers.empty();
  s.row.use_mask = !params.allowed_token_ids.empty();
  // One range of words, of which what nobody uses at the beginning is left out.
  s.words_offset = layout.lists_offset();
  s.words = std::move(lists->words);
  const auto put_before = [&](int64_t offset, std::span<const int32_t> ids) {
    const std::vector<int32_t> mask = vt::ir::PackMask(layout, ids);
    s.words.insert(s.words.begin(), mask.begin(), mask.end());
    s.words_offset = offset;
  };
  if (s.row.use_breakers || s.row.use_mask)
    put_before(layout.breakers_offset(), params.dry_breakers);
  if (s.row.use_mask) put_before(layout.mask_offset(), params.allowed_token_ids);
  s.needs_history = params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                    params.frequency_penalty != 0 || dry || !params.bad_words.empty();
  s.history_offset = SamplerLayout::history_offset();
  return s;
}

}  // namespace vllm::engine
