// The merge loop that byte-pair encoding and SentencePiece's score-driven variant share: again and
// again the pair of neighbours with the smallest rank, the leftmost among equals, becomes one
// symbol.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "vllm/text/model.h"

namespace vllm::text {

// Up to this many symbols a scan for the smallest rank beats a heap: the ranks fit a few cache
// lines.
inline constexpr size_t kScanLimit = 32;

// `rank(a, b, &rank, &result)`: whether symbols a and b, neighbours in the text, may be merged.
// On return the symbols are compacted: only live ones, in order.
template <typename Rank>
void MergeByScan(std::vector<Symbol>* symbols, const Rank& rank) {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  auto& s = *symbols;
  size_t n = s.size();
  uint32_t ranks[kScanLimit];
  int32_t results[kScanLimit];
  const auto update = [&](size_t i) {
    if (i + 1 >= n || !rank(s[i], s[i + 1], &ranks[i], &results[i])) ranks[i] = kNone;
  };
  for (size_t i = 0; i < n; ++i) update(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNone) break;
    s[best].id = results[best];
    s[best].end = s[best + 1].end;
    std::copy(s.begin() + best + 2, s.begin() + n, s.begin() + best + 1);
    std::copy(ranks + best + 2, ranks + n, ranks + best + 1);
    std::copy(results + best + 2, results + n, results + best + 1);
    --n;
    update(best);
    if (best > 0) update(best - 1);
  }
  s.resize(n);
}

template <typename Rank>
void MergeByHeap(std::vector<Symbol>* symbols, std::vector<Candidate>* heap, const Rank& rank) {
  auto& s = *symbols;
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  const auto candidate = [&](int32_t left, Candidate* c) {
    const int32_t right = left < 0 ? -1 : s[left].next;
    if (right < 0) return false;
    uint32_t r;
    if (!rank(s[left], s[right], &r, &c->result)) return false;
    c->order = uint64_t{r} << 32 | static_cast<uint32_t>(left);
    c->size = s[right].end - s[left].begin;
    return true;
  };
  const auto n = static_cast<int32_t>(s.size());
  for (int32_t i = 0; i < n; ++i) {
    s[i].prev = i - 1;
    s[i].next = i + 1 < n ? i + 1 : -1;
  }
  heap->clear();
  Candidate c;
  for (int32_t i = 0; i < n; ++i) {
    if (candidate(i, &c)) heap->push_back(c);
  }
  std::make_heap(heap->begin(), heap->end(), later);
  while (!heap->empty()) {
    std::pop_heap(heap->begin(), heap->end(), later);
    const Candidate top = heap->back();
    heap->pop_back();
    const auto left = static_cast<int32_t>(top.order & 0xFFFFFFFFu);
    const int32_t right = s[left].next;
    if (s[left].begin == s[left].end || right < 0 || s[right].end - s[left].begin != top.size)
      continue;
    s[left].id = top.result;
    s[left].end = s[right].end;
    s[left].next = s[right].next;
    s[right].begin = s[right].end;
    if (s[left].next >= 0) s[s[left].next].prev = left;
    for (const int32_t i : {s[left].prev, left}) {
      if (candidate(i, &c)) {
        heap->push_back(c);
        std::push_heap(heap->begin(), heap->end(), later);
      }
    }
  }
  std::erase_if(s, [](const Symbol& x) { return x.begin == x.end; });
}

template <typename Rank>
void MergeSymbols(std::vector<Symbol>* symbols, std::vector<Candidate>* heap, const Rank& rank) {
  if (symbols->size() <= kScanLimit) {
    MergeByScan(symbols, rank);
  } else {
    MergeByHeap(symbols, heap, rank);
  }
}

}  // namespace vllm::text
