// Mask, biases, bad words and penalties: work proportional to the lists and the history, but for
// one copy of the logits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "vt/cpu/sampler.h"

namespace vt::cpu {
namespace {

using ir::SamplerLayout;
using ir::SamplingRow;

void ApplyMask(std::vector<float>& x, const int32_t* mask) {
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t w = 0; w * 32 < n; ++w) {
    const auto bits = std::bit_cast<uint32_t>(mask[w]);
    if (bits == ~0u) continue;
    const int64_t end = std::min<int64_t>(n - w * 32, 32);
    for (int64_t i = 0; i < end; ++i) {
      if ((bits >> i & 1) == 0) x[static_cast<size_t>(w * 32 + i)] = -INFINITY;
    }
  }
}

// x[id], or a place where writing harms nobody.
float& At(std::vector<float>& x, int32_t id, float& nowhere) {
  return id >= 0 && static_cast<size_t>(id) < x.size() ? x[static_cast<size_t>(id)] : nowhere;
}

void AddBias(std::vector<float>& x, std::span<const int32_t> list, const SamplingRow& row) {
  float nowhere = 0;
  for (size_t i = 0; i + 2 < list.size(); i += 3) {
    if (row.position < static_cast<uint32_t>(list[i + 2]))
      At(x, list[i], nowhere) += std::bit_cast<float>(list[i + 1]);
  }
}

void BanWords(std::vector<float>& x, std::span<const int32_t> list, const int32_t* history,
              int64_t length) {
  float nowhere = 0;
  for (size_t i = 0; i < list.size();) {
    const int64_t count = list[i];
    if (count < 1 || i + static_cast<size_t>(count) >= list.size()) return;  // not a list of ours
    const int32_t* word = &list[i + 1];
    i += 1 + static_cast<size_t>(count);
    const int64_t before = count - 1;
    if (before <= length && std::equal(word, word + before, history + length - before))
      At(x, word[before], nowhere) = -INFINITY;
  }
}

}  // namespace

void Sampler::Penalise(const SamplingRow& row, const int32_t* history, int64_t length) {
  const auto n = static_cast<int32_t>(work_.size());
  const auto known = [&](int32_t id) { return id >= 0 && id < n; };
  if (row.repetition_penalty > 0 && row.repetition_penalty != 1) {
    for (int64_t i = 0; i < length; ++i) {
      if (!known(history[i])) continue;
      const auto id = static_cast<size_t>(history[i]);
      if (counts_[id]++ > 0) continue;
      float& v = work_[id];
      v = v > 0 ? v / row.repetition_penalty : v * row.repetition_penalty;
    }
    for (int64_t i = 0; i < length; ++i) {
      if (known(history[i])) counts_[static_cast<size_t>(history[i])] = 0;
    }
  }
  if (row.frequency_penalty == 0 && row.presence_penalty == 0) return;
  const int64_t begin = std::clamp<int64_t>(row.prompt_length, 0, length);
  for (int64_t i = begin; i < length; ++i) {
    if (known(history[i])) ++counts_[static_cast<size_t>(history[i])];
  }
  for (int64_t i = begin; i < length; ++i) {
    if (!known(history[i])) continue;
    const auto id = static_cast<size_t>(history[i]);
    if (counts_[id] == 0) continue;
    work_[id] -= row.frequency_penalty * static_cast<float>(counts_[id]) + row.presence_penalty;
    counts_[id] = 0;
  }
}

// Every repeat's length at once: the Z-function of the history read backwards. z[i] is how many
// tokens, read backwards, stand alike before positions n and n - i.
void Sampler::Dry(const SamplingRow& row, const int32_t* history, int64_t length,
                  const int32_t* breakers) {
  if (row.dry_multiplier == 0 || row.dry_base < 1 || row.dry_last_n == 0) return;
  const int64_t n = row.dry_last_n > 0 ? std::min<int64_t>(length, row.dry_last_n) : length;
  const auto vocabulary = static_cast<int32_t>(work_.size());
  const auto back = [&](int64_t i) { return history[length - 1 - i]; };
  const auto breaks = [&](int32_t id) {
    return row.use_breakers && ir::HasBit(breakers, id, vocabulary);
  };
  const int32_t shortest = std::max(row.dry_allowed_length, 1);
  int64_t limit = 0;  // tokens since the last breaker
  while (limit < n && !breaks(back(limit))) ++limit;
  if (limit < shortest) return;
  repeats_.assign(static_cast<size_t>(n), 0);
  std::vector<int32_t>& z = repeats_;
  int64_t left = 0, right = 0;  // the match that reaches furthest: [left, right)
  for (int64_t i = 1; i < n; ++i) {
    int64_t match = i < right ? std::min<int64_t>(right - i, z[static_cast<size_t>(i - left)]) : 0;
    while (i + match < n && back(match) == back(i + match)) ++match;
    if (i + match > right) {
      left = i;
      right = i + match;
    }
    z[static_cast<size_t>(i)] = static_cast<int32_t>(match);
  }
  const auto each = [&](auto visit) {  // (id that would continue, length)
    for (int64_t i = 1; i < n; ++i) {
      const int64_t repeat = std::min<int64_t>(z[static_cast<size_t>(i)], limit);
      const int32_t next = back(i - 1);
      if (repeat >= shortest && next >= 0 && next < vocabulary && !breaks(next))
        visit(static_cast<size_t>(next), static_cast<int32_t>(repeat));
    }
  };
  each([&](size_t id, int32_t repeat) { counts_[id] = std::max(counts_[id], repeat); });
  each([&](size_t id, int32_t) {
    if (counts_[id] == 0) return;
    work_[id] -= ir::DryPenalty(row, counts_[id]);
    counts_[id] = 0;
  });
}

void Sampler::Process(const float* logits, int64_t vocabulary, const SamplingRow& row,
                      const int32_t* slot, const SamplerLayout& layout) {
  work_.resize(static_cast<size_t>(vocabulary));
  counts_.resize(static_cast<size_t>(vocabulary));
  for (int64_t i = 0; i < vocabulary; ++i) {
    work_[static_cast<size_t>(i)] = logits[i] == logits[i] ? logits[i] : -INFINITY;
  }
  if (row.use_mask) ApplyMask(work_, slot + layout.mask_offset());
  const int32_t* history = slot + SamplerLayout::history_offset();
  const int64_t length = std::clamp<int64_t>(row.length, 0, layout.history);
  // The lists follow one another; counts that do not fit the slot are nobody's.
  const int64_t counts[] = {row.bias_words, row.bad_word_words};
  int64_t sum = 0;
  bool whole = true;
  for (const int64_t c : counts) {
    whole = whole && c >= 0;
    sum += c;
  }
  const int32_t* lists = slot + layout.lists_offset();
  if (!whole || sum > layout.lists) return;
  AddBias(work_, {lists, static_cast<size_t>(counts[0])}, row);
  BanWords(work_, {lists + counts[0], static_cast<size_t>(counts[1])}, history, length);
  Penalise(row, history, length);
  Dry(row, history, length, slot + layout.breakers_offset());
}

}  // namespace vt::cpu
