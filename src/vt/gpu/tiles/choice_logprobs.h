// top_logprobs: the log-probability and rank of a row's token and its best ids, of the raw logits.
#pragma once

#include "vt/gpu/tiles/choice_pick.h"

namespace vt::gpu {

GPU_FN bool IsToken(const ChoiceArgs& a, int row) {
  return a.tokens[row] >= 0 && a.tokens[row] < a.vocabulary;
}

// Blocks of chunks: the best, the sum of exponentials, how many come before the token, and maxima.
GPU_FN void ScanLogprobs(const ChoiceArgs& a) {
  ::gpu::launch_dependents();
  const int row = ::gpu::block_y(), chunk = ::gpu::block();
  const bool live = row < a.header->outputs && ChoiceRow(a, row).logprobs() >= 0;
  ::gpu::wait_predecessor();
  if (!live || !IsToken(a, row)) return;
  const float* x = a.logits + row * a.stride;
  const int token = a.tokens[row];
  const float mine = Value(x[token]);
  const int begin = chunk * kChoiceChunk, end = ::gpu::min(a.vocabulary, begin + kChoiceChunk);
  constexpr int kFours = kChoiceChunk / 4 / kChoiceScanThreads;
  ::gpu::Pack<float> v[kFours];
  const int group = begin / 4 + ::gpu::thread();
#pragma unroll
  for (int i = 0; i < kFours; ++i)
    v[i] = LoadFour(x, group + i * ::gpu::threads(), end, a.aligned != 0);
  const auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int id = 4 * (group + i * ::gpu::threads()) + j;
        if (id < end) f(id, v[i].v[j]);
      }
    }
  };
  Best high = NoBest();
  int before = 0;
  each([&](int id, float l) {
    if (l > high.value) high = {l, id};
    before += l > mine || (l == mine && id < token) ? 1 : 0;
  });
  const float most = ::gpu::wave_max(high.value);
  if (::gpu::lane() == 0) a.maxima[(row * a.chunks + chunk) * a.scan_waves + ::gpu::wave()] = most;
  high = BlockBest(high);
  // An infinite best shares all the probability with its equals.
  double sum = 0;
  each([&](int, float l) { sum += l == high.value ? 1.0f : ::gpu::exp(l - high.value); });
  sum = BlockSum(sum);
  before = BlockSum(before);
  if (::gpu::thread() == 0)
    a.parts[row * a.chunks + chunk] = {high.value, high.id, 0, 0, sum, before, 0};
}

GPU_FN void ListLogprobs(const ChoiceArgs& a) {
  ::gpu::launch_dependents();
  const int row = ::gpu::block();
  const int most = ChoiceRow(a, row).logprobs();
  const bool live = row < a.header->outputs && most >= 0;
  ::gpu::wait_predecessor();
  if (!live || !IsToken(a, row)) return;
  Best best = NoBest();
  for (int c = ::gpu::thread(); c < a.chunks; c += ::gpu::threads())
    best = Better(best, {a.parts[row * a.chunks + c].high, a.parts[row * a.chunks + c].id});
  best = BlockBest(best);
  const float high = best.value;
  double sum = 0;
  int before = 0;
  for (int c = ::gpu::thread(); c < a.chunks; c += ::gpu::threads()) {
    const ChoicePart& p = a.parts[row * a.chunks + c];
    sum += p.high == high ? p.sum : p.sum * ::gpu::exp(p.high - high);
    before += p.above;
  }
  sum = BlockSum(sum);
  before = BlockSum(before);
  const double logarithm = LogDouble(sum);
  const auto logprob = [&](float l) {
    if (l == MinusInfinity()) return l;
    const double below = l == high ? 0 : static_cast<double>(l) - static_cast<double>(high);
    return static_cast<float>(below - logarithm);
  };
  const float* x = a.logits + row * a.stride;
  float* values = a.values + row * a.values_stride;
  int32_t* ids = a.ids + row * kChoiceBest;
  if (::gpu::thread() == 0) {
    values[0] = logprob(Value(x[a.tokens[row]]));
    values[1] = static_cast<float>(before + 1);
  }
  const int wanted = ::gpu::min(::gpu::min(most, kChoiceBest), a.vocabulary);
  Filter f(x, a.vocabulary, a.aligned != 0, 1, high, best.id, MinusInfinity());
  if (wanted > 0) {
    const int parts = a.chunks * a.scan_waves;
    f.ListBest(wanted, a.maxima + row * parts, parts);
    f.Keep({false, wanted, 0, 0}, false);
  }
  for (int i = ::gpu::thread(); i < kChoiceBest; i += ::gpu::threads()) {
    const bool listed = i < wanted;
    values[2 + i] = listed ? logprob(f.list().score[i]) : MinusInfinity();
    ids[i] = listed ? f.list().id[i] : -1;
  }
}

}  // namespace vt::gpu
