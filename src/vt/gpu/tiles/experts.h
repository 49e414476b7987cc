// Around the experts' matrices: the router's choice, the order of rows, the weighted sum.
#pragma once

#include "vt/gpu/args_experts.h"
#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

// Better: larger, then of the lower index. NaN counts as -infinity does.
struct Choice {
  float value;
  int index;
};
GPU_FN bool Better(const Choice& a, const Choice& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

// A wave; scores and ranks of all experts in `room`, lane l has experts l, l + kWave, ..
class RouterTile {
 public:
  GPU_FN RouterTile(const RouterArgs& args, float* room)
      : a_(args), scores_(room), ranks_(scores_ + args.experts), groups_(ranks_ + args.experts) {}

  GPU_FN void Run(int token, const float* logits) {
    Score(logits);
    ::gpu::sync_wave();
    if (a_.groups > 1) KeepBestGroups();
    Choose(token);
  }

 private:
  template <class F>
  GPU_FN void ForMine(F f) const {
    for (int e = ::gpu::lane(); e < a_.experts; e += ::gpu::kWave) f(e);
  }
  GPU_FN static float Lowest() { return -::gpu::float_of(0x7f800000); }
  GPU_FN static float NumberOf(float v) { return v == v ? v : Lowest(); }
  // sqrt(softplus(v)). Small e^v by the series of log(1 + e), which keeps its digits.
  GPU_FN static float RootOf(float v) {
    const float e = ::gpu::exp(v);
    const float small = e * (1 - e * (0.5f - e * (0.333333333f - e * 0.25f)));
    return ::gpu::sqrt(v > 20 ? v : e < 0.02f ? small : ::gpu::log(1 + e));
  }

  GPU_FN void Score(const float* logits) {
    float high = Lowest(), sum = 0;
    if (a_.sigmoid == 0 && a_.root == 0) {
      ForMine([&](int e) { high = ::gpu::max(high, NumberOf(logits[e])); });
      high = ::gpu::wave_max(high);
      // No logit to go by: all scores are 0.
      const bool finite = high > Lowest() && high < -Lowest();
      ForMine([&](int e) {
        const float s = finite ? ::gpu::exp(logits[e] - high) : 0;
        scores_[e] = s;
        if (s == s) sum += s;
      });
      sum = ::gpu::wave_sum(sum);
      if (!finite) sum = 1;
    }
    ForMine([&](int e) {
      const float s = a_.root != 0      ? RootOf(logits[e])
                      : a_.sigmoid != 0 ? 1 / (1 + ::gpu::exp(-logits[e]))
                                        : scores_[e] / sum;
      scores_[e] = s;
      ranks_[e] = NumberOf(a_.bias != nullptr ? s + a_.bias[e] : s);
    });
  }

  // A lane a group: its two best, then how many groups are better.
  GPU_FN void KeepBestGroups() {
    const int size = a_.experts / a_.groups;
    for (int g = ::gpu::lane(); g < a_.groups; g += ::gpu::kWave) {
      float first = Lowest(), second = Lowest();
      for (int e = g * size; e < (g + 1) * size; ++e) {
        const float v = ranks_[e];
        second = ::gpu::max(second, ::gpu::min(first, v));
        first = ::gpu::max(first, v);
      }
      groups_[g] = NumberOf(a_.group_max != 0 ? first : first + second);
    }
    ::gpu::sync_wave();
    ForMine([&](int e) {
      const Choice mine = {groups_[e / size], e / size};
      int better = 0;
      for (int g = 0; g < a_.groups; ++g) better += Better({groups_[g], g}, mine) ? 1 : 0;
      if (better >= a_.top_groups) ranks_[e] = Lowest();
    });
    ::gpu::sync_wave();
  }

  // Up to so many ranks in registers, as integers of the same order: 0 is one that has been taken.
  // Straight code without branches: what waits for it is everything.
  struct Held {
    static constexpr int kMost = 512, kLane = kMost / ::gpu::kWave;
    uint32_t v[kLane];

    GPU_FN Held(const float* ranks, int experts) {
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        const int e = i * ::gpu::kWave + ::gpu::lane();
        const uint32_t bits = e < experts ? ::gpu::bits_of(ranks[e] + 0.0f) : ~0u;
        v[i] = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
      }
    }
    // The index of the largest, the lowest of equal ones; `none` without any.
    GPU_FN int Take(int none) {
      uint32_t most = 0;
#pragma unroll
      for (int i = 0; i < kLane; ++i) most = v[i] > most ? v[i] : most;
      most = ::gpu::wave_max(most);
      int first = none;
#pragma unroll
      for (int i = kLane - 1; i >= 0; --i)
        if (most != 0 && v[i] == most) first = i * ::gpu::kWave + ::gpu::lane();
      first = static_cast<int>(~::gpu::wave_max(~static_cast<uint32_t>(first)));
#pragma unroll
      for (int i = 0; i < kLane; ++i)
        if (i * ::gpu::kWave + ::gpu::lane() == first) v[i] = 0;
      return first;
    }
  };
  // The best of those that come after the last one.
  GPU_FN Choice After(const Choice& last) const {
    Choice best = {Lowest(), a_.experts};
    ForMine([&](int e) {
      const Choice c = {ranks_[e], e};
      if (Better(last, c) && Better(c, best)) best = c;
    });
#pragma unroll
    for (int m = ::gpu::kWave / 2; m > 0; m /= 2) {
      const Choice other = {::gpu::shuffle_xor(best.value, m), ::gpu::shuffle_xor(best.index, m)};
      if (Better(other, best)) best = other;
    }
    return best;
  }

  GPU_FN void Choose(int token) {
    Choice last = {-Lowest(), -1};
    float sum = 0, weight = 0, scale = 1;  // lane j has the weight and scale of choice j
    Held held(ranks_, a_.experts);
    for (int j = 0; j < a_.chosen; ++j) {
      Choice best = a_.experts <= Held::kMost ? Choice{0, held.Take(a_.experts)} : After(last);
      if (a_.table != nullptr) {
        const float e = a_.table[static_cast<int64_t>(a_.tokens[token]) * a_.chosen + j];
        best.index = ::gpu::max(0, ::gpu::min(static_cast<int>(e), a_.experts - 1));
      }
      last = best;
      const float score = best.index < a_.experts ? scores_[best.index] : 0;
      const float w = score == score ? score : 0;
      sum += w;
      if (::gpu::lane() == j % ::gpu::kWave) {
        a_.ids[token * a_.chosen + j] = best.index;
        weight = w;
        if (a_.normalise == 0)
          a_.weights[token * a_.chosen + j] = w * a_.scale * ScaleOf(best.index);
        if (j < ::gpu::kWave) scale = ScaleOf(best.index);
      }
    }
    if (a_.normalise == 0) return;
    const float by = sum > 0 ? a_.scale / sum : 0;
    if (a_.chosen <= ::gpu::kWave) {
      if (::gpu::lane() < a_.chosen)
        a_.weights[token * a_.chosen + ::gpu::lane()] = weight * by * scale;
      return;
    }
    ::gpu::sync_wave();
    for (int j = ::gpu::lane(); j < a_.chosen; j += ::gpu::kWave) {
      const int e = a_.ids[token * a_.chosen + j];
      const float score = scores_[e];
      a_.weights[token * a_.chosen + j] = (score == score ? score : 0) * by * ScaleOf(e);
    }
  }

  GPU_FN float ScaleOf(int e) const {
    return a_.scales != nullptr && e < a_.experts ? a_.scales[e] : 1.0f;
  }

  const RouterArgs& a_;
  float *scores_, *ranks_, *groups_;
};

GPU_FN void Router(const RouterArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int token = ::gpu::block();
  if (token >= CountOf(a.header, a.count)) return;
  RouterTile(a, reinterpret_cast<float*>(::gpu::shared()))
      .Run(token, RowOf<const float>(a.logits, token));
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
