#include "vt/ir/sampler_layout.h"

#include <bit>

#include "base/strings.h"

namespace vt::ir {

base::Result<PackedLists> PackLists(const SamplerLayout& layout, std::span<const TokenBias> bias,
                                    std::span<const std::vector<int32_t>> bad_words) {
  size_t bad = 0;
  for (const auto& word : bad_words) bad += word.empty() ? 0 : 1 + word.size();
  const size_t total = 3 * bias.size() + bad;
  if (total > static_cast<size_t>(layout.lists)) {
    return base::Error{
        base::Code::kInvalidArgument,
        fmt::format("logit_bias, bad_words and min_tokens together need {} words of the sampler's "
                    "state, but a request has {}: shorten them",
                    total, layout.lists)};
  }
  PackedLists packed;
  packed.words.reserve(total);
  for (const TokenBias& b : bias) {
    packed.words.insert(packed.words.end(), {b.id, std::bit_cast<int32_t>(b.bias), b.until});
  }
  for (const auto& word : bad_words) {
    if (word.empty()) continue;
    packed.words.push_back(static_cast<int32_t>(word.size()));
    packed.words.insert(packed.words.end(), word.begin(), word.end());
  }
  packed.bias_words = static_cast<int32_t>(3 * bias.size());
  packed.bad_word_words = static_cast<int32_t>(bad);
  return packed;
}

std::vector<int32_t> PackMask(const SamplerLayout& layout, std::span<const int32_t> ids) {
  std::vector<int32_t> mask(static_cast<size_t>(layout.mask_words()));
  for (const int32_t id : ids) {
    const auto word = static_cast<size_t>(id / 32);
    mask[word] = std::bit_cast<int32_t>(std::bit_cast<uint32_t>(mask[word]) | (1u << (id % 32)));
  }
  return mask;
}

}  // namespace vt::ir
