// What the sampler keeps on the device for each running choice: a slot of the state group
// "sampler". A slot is i32 words:
//
//   [0]                    the token sampled last; [1..3] reserved
//   [history_offset()]     the token at each position of prompt and output
//   [mask_offset()]        a bit an id, low bit first: set = allowed
//   [breakers_offset()]    a bit an id likewise: set = ends a repeated sequence (DRY)
//   [lists_offset()]       two lists, one after the other; their lengths in words stand in the row
//                          of parameters (sampling.h):
//                            bias: {id, f32 bits of the bias, until}, in effect for draws at output
//                              positions below `until`
//                            bad words: {n, id 1, ..., id n}: id n may not follow the others
//
// Whether the two sets of bits count says the row (use_mask, use_breakers): what stands there may
// be an earlier choice's.
// The sampler itself writes word 0 and the history of what it draws; the host writes the rest, once
// a choice.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"

namespace vt::ir {

struct SamplerLayout {
  int64_t vocabulary = 0;
  int64_t history = 0;   // positions: the longest prompt and output together
  int64_t lists = 4096;  // words

  // Offsets and sizes in words.
  static constexpr int64_t last_token_offset() { return 0; }
  static constexpr int64_t history_offset() { return 4; }
  int64_t mask_offset() const { return history_offset() + history; }
  int64_t mask_words() const { return (vocabulary + 31) / 32; }
  int64_t breakers_offset() const { return mask_offset() + mask_words(); }
  int64_t lists_offset() const { return breakers_offset() + mask_words(); }
  // Whole lines of 64 bytes.
  int64_t words() const { return (lists_offset() + lists + 15) / 16 * 16; }
  int64_t bytes() const { return words() * 4; }

  bool operator==(const SamplerLayout&) const = default;
};

struct TokenBias {
  int32_t id = 0;
  float bias = 0;  // added to the logit; -inf bans
  int32_t until = std::numeric_limits<int32_t>::max();
};

// The words at lists_offset(), and how many each list has.
struct PackedLists {
  std::vector<int32_t> words;
  int32_t bias_words = 0, bad_word_words = 0;
};

// Errors: kInvalidArgument when the lists need more words than a slot has.
base::Result<PackedLists> PackLists(const SamplerLayout& layout, std::span<const TokenBias> bias,
                                    std::span<const std::vector<int32_t>> bad_words);

// The mask_words() words at mask_offset() or breakers_offset(). REQUIRES: ids inside the
// vocabulary.
std::vector<int32_t> PackMask(const SamplerLayout& layout, std::span<const int32_t> ids);

// Whether the id's bit is set; not for ids outside the vocabulary.
inline bool HasBit(const int32_t* mask, int64_t id, int64_t vocabulary) {
  return id >= 0 && id < vocabulary && (static_cast<uint32_t>(mask[id / 32]) >> (id % 32) & 1) != 0;
}

}  // namespace vt::ir
