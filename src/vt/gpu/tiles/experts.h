// Around the experts' matrices: a router of its own, the order of rows, the weighted sum.
#pragma once

#include "vt/gpu/args_experts.h"
#include "vt/gpu/tiles/router.h"
#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

GPU_FN void Router(const RouterArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int token = ::gpu::block();
  if (token >= CountOf(a.header, a.count)) return;
  const float* logits = RowOf<const float>(a.logits, token);
  if (a.in_lanes != 0) {
    ChooseInLanes(a, logits, token);
  } else {
    RouterTile(a, reinterpret_cast<float*>(::gpu::shared())).Run(token, logits);
  }
}

// The sum of the lanes up to this one.
GPU_FN int WaveScan(int v) {
#pragma unroll
  for (int d = 1; d < ::gpu::kWave; d *= 2) {
    const int other = ::gpu::shuffle(v, ::gpu::max(::gpu::lane() - d, 0));
    if (::gpu::lane() >= d) v += other;
  }
  return v;
}
// The sum of the threads before this one, and of all in `total`. `scratch`: an int a wave, free
// again after the next sync(); a wave has as many lanes as the block has waves, at least.
GPU_FN int BlockScan(int v, int* scratch, int& total) {
  const int sum = WaveScan(v);
  if (::gpu::lane() == ::gpu::kWave - 1) scratch[::gpu::wave()] = sum;
  ::gpu::sync();
  const int waves =
      WaveScan(::gpu::lane() < ::gpu::waves() ? scratch[::gpu::lane()] : 0);  // up to this one
  total = ::gpu::shuffle(waves, ::gpu::kWave - 1);
  const int before = ::gpu::shuffle(waves, ::gpu::max(::gpu::wave() - 1, 0));
  return sum - v + (::gpu::wave() > 0 ? before : 0);
}

// A counting sort; of experts + 1 buckets, the last of them for ids that are no expert's, shared
// memory has the first row, where the next one goes, and the first tile.
class ExpertSort {
 public:
  GPU_FN explicit ExpertSort(const ExpertSortArgs& args)
      : a_(args),
        buckets_(args.experts + 1),
        scratch_(reinterpret_cast<int*>(::gpu::shared())),
        first_(scratch_ + 2 * kExpertSortScratch),
        next_(first_ + buckets_),
        tile_(next_ + buckets_) {}

  GPU_FN void Run() {
    const int pairs = CountOf(a_.header, a_.count), me = ::gpu::thread(), step = ::gpu::threads();
    for (int e = me; e < buckets_; e += step) next_[e] = 0;
    ::gpu::sync();
    ForEach(pairs, [&](int, int bucket) { ::gpu::atomic_add(&next_[bucket], 1); });
    ::gpu::sync();
    int rows = 0, tiles = 0;
    for (int base = 0; base < buckets_; base += step) {
      const int e = base + me, count = e < buckets_ ? next_[e] : 0;
      int of_rows, of_tiles;
      const int row = rows + BlockScan(count, scratch_, of_rows);
      const int tile = tiles + BlockScan((count + a_.rows - 1) / a_.rows,
                                         scratch_ + kExpertSortScratch, of_tiles);
      if (e < buckets_) {
        first_[e] = next_[e] = row;
        tile_[e] = tile;
      }
      rows += of_rows;
      tiles += of_tiles;
      ::gpu::sync();
    }
    for (int t = me; t < a_.most_tiles; t += step) a_.tiles[t] = t < tiles ? Tile(t, rows) : None();
    // next_ moves; Tile reads first_.
    ForEach(pairs, [&](int p, int bucket) { a_.order[::gpu::atomic_add(&next_[bucket], 1)] = p; });
  }

 private:
  GPU_FN static QuantExpertTile None() { return {}; }
  // The last bucket that begins at `t` or before.
  GPU_FN QuantExpertTile Tile(int t, int rows) const {
    int e = 0;
    for (int end = buckets_; end - e > 1;) {
      const int middle = (e + end) / 2;
      if (tile_[middle] <= t) {
        e = middle;
      } else {
        end = middle;
      }
    }
    const int first = first_[e] + (t - tile_[e]) * a_.rows;
    const int end = e + 1 < buckets_ ? first_[e + 1] : rows;
    return {e < a_.experts ? e : -1, first, ::gpu::min(a_.rows, end - first), 0};
  }
  // f(pair, its bucket), several of a thread under way at once.
  template <class F>
  GPU_FN void ForEach(int pairs, F f) const {
    constexpr int kMany = 8;
    const int step = ::gpu::threads();
#pragma unroll 1
    for (int p = ::gpu::thread(); p < pairs; p += kMany * step) {
      int ids[kMany];
#pragma unroll
      for (int i = 0; i < kMany; ++i)
        ids[i] = p + i * step < pairs ? a_.ids[p + i * step] : a_.experts;
#pragma unroll
      for (int i = 0; i < kMany; ++i)
        if (p + i * step < pairs)
          f(p + i * step, ids[i] >= 0 && ids[i] < a_.experts ? ids[i] : a_.experts);
    }
  }

  const ExpertSortArgs& a_;
  int buckets_;
  int *scratch_, *first_, *next_, *tile_;
};

GPU_FN void SortExperts(const ExpertSortArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  ExpertSort(a).Run();
}

// A thread 16 bytes of a row's values.
template <class T>
GPU_FN void SumExperts(const ExpertSumArgs& a) {
  constexpr int kN = kChunk<T>, kMany = 4;
  ::gpu::launch_dependents();
  const int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
  const int chunks = (a.width + kN - 1) / kN, row = i / chunks, at = i % chunks * kN;
  ::gpu::wait_predecessor();
  if (row >= CountOf(a.header, a.count)) return;
  const float* weights = a.weights + row * a.chosen;
  float sum[kN] = {};
  const auto add = [&](float weight, const auto& v) {
#pragma unroll
    for (int n = 0; n < kN; ++n) sum[n] += weight * ::gpu::to_float(v[n]);
  };
  if (a.packed == 0) {
    const int n = ::gpu::min(kN, a.width - at);
#pragma unroll 1
    for (int j = 0; j < a.chosen; ++j) {
      float v[kN];
      RowRefOf<T, false>(a.x, row * a.chosen + j).load(at, n, v);
      add(weights[j], v);
    }
    RowRefOf<T, false>(a.y, row).store(at, n, sum);
    return;
  }
#pragma unroll 1
  for (int j = 0; j < a.chosen; j += kMany) {
    ::gpu::Pack<T> v[kMany];
    float by[kMany];
#pragma unroll
    for (int m = 0; m < kMany; ++m) {
      if (j + m >= a.chosen) break;
      v[m] = *reinterpret_cast<const ::gpu::Pack<T>*>(
          RowOf<const T>(a.x.rows, row * a.chosen + j + m) + at);
      by[m] = weights[j + m];
    }
#pragma unroll
    for (int m = 0; m < kMany; ++m)
      if (j + m < a.chosen) add(by[m], v[m].v);
  }
  StoreValues<true>(RowOf<T>(a.y.rows, row) + at, kN, sum);
}

}  // namespace vt::gpu
