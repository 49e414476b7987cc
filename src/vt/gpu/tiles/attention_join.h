// Parts of tokens that several lanes of the work list have, added up by a launch of their own: a
// block takes kJoinColumns values of a head. One block for all that a lane has, as the last of the
// parts would be, would have to read more than a multiprocessor can in the time.
#pragma once

#include "vt/gpu/args_latent.h"
#include "vt/gpu/tiles/attention_parts.h"

namespace vt::gpu {

template <class T>
struct AttentionJoinTile {
  static constexpr int kFours = kJoinColumns / 4;  // threads side by side
  static constexpr int kSlots = kJoinThreads / kFours;
  static constexpr int kAhead = 8;  // parts of a thread that are under way

  const AttentionArgs& a;
  int head, column;  // of this thread's four values

  GPU_FN explicit AttentionJoinTile(const AttentionArgs& args, int block) : a(args) {
    head = block / a.join_blocks;
    column = block % a.join_blocks * kJoinColumns + ::gpu::thread() % kFours * 4;
  }

  GPU_FN void Run(const DecodeJoin& join) const {
    const TokenParts parts{a, 0, head, 1, a.v_dim};
    DecodeItem it = {};
    it.lane = join.lane;
    const int pitch = a.part_pitch, slot = ::gpu::thread() / kFours;
    const int at = ::gpu::min(column, pitch - 4);
    Pack<float> sums[kAhead];
    float highs[kAhead];
    const auto load = [&](int first) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t row = parts.Row(it, ::gpu::min(first + i * kSlots, join.parts - 1));
        highs[i] = a.partial_stats[2 * row];
        sums[i] = *reinterpret_cast<const Pack<float>*>(a.partial_sums + row * pitch + at);
      }
    };
    load(slot);
    // Each wave for itself: the maximum, and the weight of all parts.
    float high = -INFINITY, weight = 0;
    for (int p = ::gpu::lane(); p < join.parts; p += ::gpu::kWave)
      high = ::gpu::max(high, a.partial_stats[2 * parts.Row(it, p)]);
    high = ::gpu::wave_max(high);  // finite: each part has a key
    for (int p = ::gpu::lane(); p < join.parts; p += ::gpu::kWave) {
      const float* stats = a.partial_stats + 2 * parts.Row(it, p);
      weight += ::gpu::exp2(stats[0] - high) * stats[1];
    }
    weight = ::gpu::wave_sum(weight);
    float total[4] = {};
#pragma unroll 1
    for (int first = slot; first < join.parts; first += kAhead * kSlots) {
      if (first != slot) load(first);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i * kSlots >= join.parts) continue;
        const float f = ::gpu::exp2(highs[i] - high);
#pragma unroll
        for (int j = 0; j < 4; ++j) total[j] += f * sums[i].v[j];
      }
    }
    auto* gathered = reinterpret_cast<Pack<float>*>(::gpu::shared());
    gathered[::gpu::thread()] = {{total[0], total[1], total[2], total[3]}};
    ::gpu::sync();
    const int mine = ::gpu::thread();
    const int value = column - ::gpu::thread() % kFours * 4 + mine;
    if (mine < kJoinColumns && value < a.v_dim) {
      const auto* of_slots = reinterpret_cast<const float*>(::gpu::shared());
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) sum += of_slots[s * kJoinColumns + mine];
      T* out = static_cast<T*>(a.out.base) + join.token * a.out.stride +
               static_cast<int64_t>(head) * a.v_dim;
      out[value] = ::gpu::from_float<T>(weight > 0 ? sum / weight : 0);
    }
    ::gpu::sync();  // before the next token's sums
  }
};

template <class T>
GPU_FN void AttentionJoin(const AttentionArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int of_token = a.group * a.join_blocks;
  const int step = ::gpu::blocks() / of_token;
  const int first = ::gpu::block() / of_token;
  DecodeJoin join = LoadListed(a.list.joins + first);  // with the count: not behind it
  const int count = *a.list.join_count;
  if (first >= count) return;
  const AttentionJoinTile<T> tile(a, ::gpu::block() % of_token);
  for (int j = first;;) {
    tile.Run(join);
    j += step;
    if (j >= count) return;
    join = a.list.joins[j];
  }
}

}  // namespace vt::gpu
