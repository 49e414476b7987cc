// Parts of a token that several lanes of the work list have: their sums meet in the workspace,
// where the block that comes last adds them up.
#pragma once

#include "vt/gpu/tiles/attention_common.h"
#include "vt/gpu/tiles/last_block.h"

namespace vt::gpu {

struct TokenParts {
  const AttentionArgs& a;
  int head, first_row, rows, dim;  // of this block: head of keys, rows of q in its group, values

  GPU_FN bool HasSinks() const { return a.sinks != nullptr; }
  GPU_FN float Sink(int row) const { return SinkOf(a, head * a.group + first_row + row); }

  // Where row 0 of a part of a token stands: a lane has at most two parts of tokens that are in
  // other lanes too, one that ends it and one that begins it.
  GPU_FN int64_t Row(const DecodeItem& it, int part) const {
    const int lane = it.lane - it.part + part;
    return static_cast<int64_t>(2 * lane + (part == 0 ? 1 : 0)) * a.kv.kv_heads * a.group +
           head * a.group + first_row;
  }
  // After all sums of this part are stored: whether all parts are there, for this block to merge.
  // `shared`: an int of shared memory.
  GPU_FN bool IsLast(const DecodeItem& it, int* shared) const {
    // One token alone goes on from a lane to the next.
    return LastOf(a.counters + (it.lane - it.part) * a.kv.kv_heads * a.row_tiles +
                      head * a.row_tiles + first_row / a.tile_rows,
                  it.parts, shared);
  }
  // high, inverse: [tile_rows] of shared memory each. kValues: that a thread takes at once.
  template <int kValues = 4, class T>
  GPU_FN void Merge(const DecodeItem& it, T* out, float* high, float* inverse) const {
    for (int row = ::gpu::wave(); row < rows; row += ::gpu::waves()) {
      float m = -INFINITY, sum = 0;
      for (int p = ::gpu::lane(); p < it.parts; p += ::gpu::kWave) {
        m = ::gpu::max(m, ::gpu::load_volatile(&a.partial_stats[2 * (Row(it, p) + row)]));
      }
      m = ::gpu::wave_max(m);
      if (HasSinks()) m = ::gpu::max(m, Sink(row));
      for (int p = ::gpu::lane(); p < it.parts; p += ::gpu::kWave) {
        const float* stats = &a.partial_stats[2 * (Row(it, p) + row)];
        sum += ::gpu::exp2(::gpu::load_volatile(stats) - m) * ::gpu::load_volatile(stats + 1);
      }
      sum = ::gpu::wave_sum(sum);
      if (HasSinks()) sum += ::gpu::exp2(Sink(row) - m);
      if (::gpu::lane() == 0) {
        high[row] = m;
        inverse[row] = sum > 0 ? 1 / sum : 0;
      }
    }
    ::gpu::sync();
    // Several parts ahead: each load takes long to come.
    const int count = rows * dim, step = ::gpu::threads();
    for (int first = ::gpu::thread(); first < count; first += kValues * step) {
      float sums[kValues] = {};
#pragma unroll(kValues > 1 ? 8 : 4)
      for (int p = 0; p < it.parts; ++p) {
        const int64_t at = Row(it, p);
#pragma unroll
        for (int k = 0; k < kValues; ++k) {
          const int i = ::gpu::min(first + k * step, count - 1), row = i / dim;
          const float m = ::gpu::load_volatile(&a.partial_stats[2 * (at + row)]);
          sums[k] +=
              ::gpu::exp2(m - high[row]) * ::gpu::load_volatile(&a.partial_sums[at * dim + i]);
        }
      }
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const int i = first + k * step;
        if (i < count) out[i] = ::gpu::from_float<T>(sums[k] * inverse[i / dim]);
      }
    }
    ::gpu::sync();
  }
};

// What a row's parts have together, and each part's share of it; by a wave. `row_of(p)`: where part
// p's maximum and weight stand. `normed`: shares are of a whole of weight 1.
struct PartsTotal {
  float high, weight;
};
template <class F>
GPU_FN PartsTotal SharesOfParts(int parts, float sink, bool normed, F row_of, const float* stats,
                                float* shares) {
  const auto stat = [&](int p, int which) {
    return ::gpu::load_volatile(stats + 2 * row_of(p) + which);
  };
  const int own = ::gpu::min(::gpu::lane(), parts - 1);
  const float own_high = stat(own, 0), own_weight = stat(own, 1);
  float high = own_high;
  for (int p = ::gpu::lane() + ::gpu::kWave; p < parts; p += ::gpu::kWave)
    high = ::gpu::max(high, stat(p, 0));
  high = ::gpu::max(::gpu::wave_max(high), sink);
  float weight = ::gpu::lane() < parts ? ::gpu::exp2(own_high - high) * own_weight : 0;
  for (int p = ::gpu::lane() + ::gpu::kWave; p < parts; p += ::gpu::kWave)
    weight += ::gpu::exp2(stat(p, 0) - high) * stat(p, 1);
  weight = ::gpu::wave_sum(weight) + ::gpu::exp2(sink - high);
  const float factor = !normed ? 1 : weight > 0 ? 1 / weight : 0;
  for (int p = ::gpu::lane(); p < parts; p += ::gpu::kWave) {
    const float of_part = p < ::gpu::kWave ? own_high : stat(p, 0);
    shares[p] = ::gpu::exp2(of_part - high) * factor;
  }
  return {high, weight};
}

}  // namespace vt::gpu
