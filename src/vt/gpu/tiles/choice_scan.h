// The first pass of sample: blocks of kChoiceChunk ids of a row. Processes the logits of rows that
// ask for it, and finds the chunk's best logit; of rows without filters the best score with noise,
// of others what the second pass begins with.
#pragma once

#include "vt/gpu/tiles/choice_process.h"

namespace vt::gpu {

inline constexpr int kScanFours = 4;  // of a thread: kChoiceChunk / 4 / kChoiceScanThreads

GPU_FN void ScanRow(const ChoiceArgs& a) {
  ::gpu::launch_dependents();
  const int row = ::gpu::block_y(), chunk = ::gpu::block();
  const ChoiceRow r(a, row);
  const bool live = All(row < a.header->outputs, r.forced() < 0);
  const bool processed = IsProcessed(a, r), draws = !r.greedy();
  const bool filters = draws && r.filters(a.vocabulary);
  ::gpu::wait_predecessor();
  if (!live) return;
  const int begin = chunk * kChoiceChunk, end = ::gpu::min(a.vocabulary, begin + kChoiceChunk);
  const float* x = a.logits + row * a.stride;
  bool aligned = a.aligned != 0;
  if (processed) {
    float* work = a.work + row * a.work_stride;
    int* marks = reinterpret_cast<int*>(::gpu::shared() + kChoiceScratch);
    ChunkProcessor(a, r, SlotAt(a.slots, r.slot()), work, marks, begin, end).Run(x);
    x = work;
    aligned = true;
  }

  ::gpu::Pack<float> v[kScanFours];
  const int group = begin / 4 + ::gpu::thread();
#pragma unroll
  for (int i = 0; i < kScanFours; ++i)
    v[i] = LoadFour(x, group + i * ::gpu::threads(), end, aligned);
  Best high = NoBest();
  const auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kScanFours; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) f(4 * (group + i * ::gpu::threads()) + j, v[i].v[j]);
    }
  };
  each([&](int id, float l) {
    if (l > high.value) high = {l, id};
  });
  if (filters && r.top_k(a.vocabulary)) {
    const float most = ::gpu::wave_max(high.value);
    if (::gpu::lane() == 0)
      a.maxima[(row * a.chunks + chunk) * a.scan_waves + ::gpu::wave()] = most;
  }
  high = BlockBest(high);

  Best noised = NoBest();
  double sum = 0;
  if (draws && high.value > MinusInfinity()) {
    const float inverse = r.inverse();
    if (!filters) {
#pragma unroll
      for (int i = 0; i < kScanFours; ++i) {
        const int g = group + i * ::gpu::threads();
        const Random4 bits = r.Bits(static_cast<uint32_t>(g));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float score = ::gpu::product(v[i].v[j], inverse);
          if (score > MinusInfinity())
            noised = Better(noised, {score + NoiseOf(bits.word[j]), 4 * g + j});
        }
      }
      noised = BlockBest(noised);
    } else if (r.top_p()) {
      const float best = ::gpu::product(high.value, inverse);
      float part = 0;
      each([&](int, float l) {
        const float score = ::gpu::product(l, inverse);
        if (score > MinusInfinity()) part += ::gpu::exp(score - best);
      });
      sum = BlockSum(static_cast<double>(part));
    }
  }
  if (::gpu::thread() == 0)
    a.parts[row * a.chunks + chunk] = {high.value, high.id, noised.value, noised.id, sum, 0, 0};
}

}  // namespace vt::gpu
