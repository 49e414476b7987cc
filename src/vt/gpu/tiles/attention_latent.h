// Attention over a latent cache, whose vectors are keys and, their first v_dim numbers, values: a
// block per lane of the work list and tile of 16 heads, for decoding and for prompts alike.
//
// Sums of 16 rows of 512 values are too many for one wave: each has a part of the columns. A tile
// of 32 vectors is brought to shared memory once; the waves share its scores, meet, and each then
// takes the softmax of all of them (which is little) and its columns of the values.
#pragma once

#include "vt/gpu/args_latent.h"
#include "vt/gpu/tiles/attention_parts.h"

namespace vt::gpu {

// kDim, kValues: head_dim and v_dim, padded. kSame: the cache holds T, which is copied.
template <class T, int kDim, int kValues, bool kSame>
struct LatentTile {
  using M = ::gpu::Mma<T>;
  static_assert(M::kM == 16 && M::kK == kTileKeys && kDim % M::kK == 0 && kValues <= kDim);
  static constexpr int kBytes = sizeof(T);
  static constexpr int kPitch = ValuePitch(kDim, kBytes);
  static constexpr int kSteps = kDim / M::kK;
  static constexpr int kScores = kTileKeys / M::kN;
  static constexpr int kSums = kValues / kLatentWaves / M::kN;
  static_assert(kSums * M::kN * kLatentWaves == kValues);
  static_assert(16 * kValues * 4 <= LatentStageBytes(kDim, kBytes));
  static constexpr int kUnroll = kBytes == 2 ? 64 : 1;
  static constexpr int kPack = Pack<T>::kCount;
  static constexpr int kPacks = kDim / kPack;  // a row

  const AttentionArgs& a;
  TokenParts parts;
  T *query, *stages, *scratch;
  float* scores;

  GPU_FN explicit LatentTile(const AttentionArgs& args)
      : a(args), parts{args, 0, ::gpu::block() % args.row_tiles * 16, 0, args.v_dim} {
    parts.rows = ::gpu::min(16, a.group - parts.first_row);
    query = reinterpret_cast<T*>(::gpu::shared());
    stages = query + 16 * kPitch;
    scores = reinterpret_cast<float*>(stages + (Ahead() ? 2 : 1) * kTileKeys * kPitch);
    scratch =
        reinterpret_cast<T*>(scores + 16 * kLatentScorePitch) + ::gpu::wave() * 16 * kTileKeys;
  }

  GPU_FN bool Ahead() const { return a.one_stage == 0; }

  GPU_FN void StageQuery(const DecodeItem& it) const {
    const T* q = static_cast<const T*>(a.q.base) + it.token * a.q.stride +
                 static_cast<int64_t>(parts.first_row) * a.kv.head_dim;
    for (int i = ::gpu::thread(); i < 16 * kPacks; i += ::gpu::threads()) {
      const int row = i / kPacks, column = i % kPacks * kPack;
      const bool inside = row < parts.rows && column < a.kv.head_dim;
      const T* from = q + row * a.kv.head_dim + column;
      T* to = query + row * kPitch + column;
      if (a.aligned != 0) {
        ::gpu::copy_async(to, inside ? from : q, inside ? 16 : 0);
      } else {
        for (int j = 0; j < kPack; ++j) to[j] = inside ? from[j] : ::gpu::from_float<T>(0);
      }
    }
  }
  // A tile of vectors; those past the item's last are copies of it.
  GPU_FN void Load(const DecodeItem& it, int tile, T* to) const {
    const int32_t* table =
        a.block_table + static_cast<int64_t>(it.request) * a.header->table_stride;
    const int size = a.kv.block_size;
    const int key =
        ::gpu::min(it.first + tile * kTileKeys + ::gpu::lane() % kTileKeys, it.last - 1);
    const int block = table[a.block_shift >= 0 ? key >> a.block_shift : key / size];
    const int in_block = a.block_shift >= 0 ? key & (size - 1) : key % size;
    const int row_of_lane = block * size + in_block;
    const int row_bytes = a.kv.head_dim * (kSame ? kBytes : KvBytes(a.kv.dtype));
    // A wave's rows: shuffles are of whole waves.
#pragma unroll 1
    for (int row = ::gpu::wave(); row < kTileKeys; row += ::gpu::waves()) {
      const char* from = a.kv.data + RowOffset(::gpu::shuffle(row_of_lane, row), row_bytes);
      for (int i = ::gpu::lane(); i < kPacks; i += ::gpu::kWave) {
        const int column = i * kPack;
        CopyKvPack<T, kSame>(a.kv, from, column, to + row * kPitch + column);
      }
    }
  }

  // This wave's scores of a tile, in powers of two, -infinity past the last key.
  GPU_FN void Score(const T* keys, int left) const {
#pragma unroll 1
    for (int n = ::gpu::wave(); n < kScores; n += ::gpu::waves()) {
      typename M::C c = M::zero();
#pragma unroll(kBytes == 2 && ::gpu::kCopiesRunAhead ? 6 : 1)
      for (int s = 0; s < kSteps; ++s) {
        M::mma(c, M::load_a([&](int row) { return query + row * kPitch + s * M::kK; }),
               M::load_b([&](int row) { return keys + (n * M::kN + row) * kPitch + s * M::kK; }));
      }
      M::for_each(c, [&](int row, int column, float& v) {
        v *= a.scale_log2;
        if (a.softcap != 0) v = a.softcap * 1.44269504f * CapTanh<T>(v);
        const int key = n * M::kN + column;
        scores[row * kLatentScorePitch + key] = key < left ? v : -INFINITY;
      });
    }
  }

  struct Sums {
    typename M::C v[kSums];
    typename M::Rows high, weight;
  };
  GPU_FN void Add(Sums& sums, const T* values) const {
    typename M::C p[kScores];
    typename M::Rows factor = M::rows(-INFINITY);
#pragma unroll(kUnroll)
    for (int n = 0; n < kScores; ++n) {
      M::for_each(p[n], [&](int row, int column, float& v) {
        v = scores[row * kLatentScorePitch + n * M::kN + column];
      });
      M::each_row(p[n], factor, [](float& v, float& m) { m = ::gpu::max(m, v); });
    }
    factor = M::lanes_max(factor);
    M::each2(sums.high, factor, [](float& old, float& f) {
      const float now = ::gpu::max(old, f);  // finite: a tile has a key
      f = ::gpu::exp2(old - now);
      old = now;
    });
    M::each2(sums.weight, factor, [](float& w, float& f) { w *= f; });
#pragma unroll(kUnroll)
    for (int n = 0; n < kScores; ++n) {
      M::each_row(p[n], sums.high, [](float& v, float& m) { v = ::gpu::exp2(v - m); });
      M::each_row(p[n], sums.weight, [](float& v, float& w) { w += v; });
    }
    const typename M::A weights = M::from_c(p, scratch);
#pragma unroll(kUnroll)
    for (int n = 0; n < kSums; ++n) {
      M::each_row(sums.v[n], factor, [](float& v, float& f) { v *= f; });
      const int column = (::gpu::wave() * kSums + n) * M::kN;
      M::mma(sums.v[n], weights,
             M::load_b_across([&](int k) { return values + k * kPitch + column; }));
    }
  }

  GPU_FN void Run(const DecodeItem& it) const {
    const int tiles = (it.last - it.first + kTileKeys - 1) / kTileKeys;
    StageQuery(it);
    if (tiles > 0) Load(it, 0, stages);
    ::gpu::copy_commit();
    Sums sums;
    sums.high = M::rows(-INFINITY);
    sums.weight = M::rows(0);
#pragma unroll(kUnroll)
    for (int n = 0; n < kSums; ++n) sums.v[n] = M::zero();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const T* keys = stages + (Ahead() ? tile % 2 : 0) * kTileKeys * kPitch;
      if (Ahead() && tile + 1 < tiles)
        Load(it, tile + 1, stages + (tile + 1) % 2 * kTileKeys * kPitch);
      ::gpu::copy_commit();
      ::gpu::copy_wait<1>();
      ::gpu::sync();
      Score(keys, it.last - it.first - tile * kTileKeys);
      ::gpu::sync();
      Add(sums, keys);
      ::gpu::sync();  // before the next tile's scores, and copies over these vectors
      if (!Ahead() && tile + 1 < tiles) Load(it, tile + 1, stages);
      if (!Ahead()) ::gpu::copy_commit();
    }
    ::gpu::copy_wait<0>();
    sums.weight = M::lanes_sum(sums.weight);
    Store(it, sums);
    ::gpu::sync();  // before the next item's copies
  }

  GPU_FN void Store(const DecodeItem& it, Sums& sums) const {
    const int dim = a.v_dim;
    T* out = static_cast<T*>(a.out.base) + it.token * a.out.stride +
             static_cast<int64_t>(parts.first_row) * dim;
    const bool whole = it.parts == 1;
    const int64_t at = whole ? 0 : parts.Row(it, it.part);
    if (!whole && ::gpu::wave() == 0) {
      M::rows_for_each(sums.high, [&](int row, float& v, bool leader) {
        if (leader && row < parts.rows) a.partial_stats[2 * (at + row)] = v;
      });
      M::rows_for_each(sums.weight, [&](int row, float& v, bool leader) {
        if (leader && row < parts.rows) a.partial_stats[2 * (at + row) + 1] = v;
      });
    }
    M::each(sums.weight, [](float& w) { w = w > 0 ? 1 / w : 0; });
    // By way of shared memory: addresses of all sums would take more registers than the sums.
    float* gathered = reinterpret_cast<float*>(stages);
#pragma unroll(kUnroll)
    for (int n = 0; n < kSums; ++n) {
      const int first = (::gpu::wave() * kSums + n) * M::kN;
      if (whole) M::each_row(sums.v[n], sums.weight, [](float& v, float& w) { v *= w; });
      M::for_each(sums.v[n], [&](int row, int column, float& v) {
        gathered[row * kValues + first + column] = v;
      });
    }
    ::gpu::sync();
    for (int i = ::gpu::thread(); i < parts.rows * dim; i += ::gpu::threads()) {
      const float v = gathered[i / dim * kValues + i % dim];
      if (whole) {
        out[i] = ::gpu::from_float<T>(v);
      } else {
        a.partial_sums[at * dim + i] = v;
      }
    }
    if (!whole && parts.IsLast(it, reinterpret_cast<int*>(scores)))
      parts.Merge(it, out, scores, scores + 16);
  }
};

template <class T, int kDim, int kValues, bool kSame>
GPU_FN void AttentionLatent(const AttentionArgs& a) {
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const int lane = ::gpu::block() / a.row_tiles;
  const int begin = a.list.lane_begin[lane], end = a.list.lane_begin[lane + 1];
  if (begin == end) return;
  const LatentTile<T, kDim, kValues, kSame> tile(a);
  for (int i = begin; i < end; ++i) {
    const DecodeItem item = a.list.items[i];  // in registers: copies would have it read again
    tile.Run(item);
  }
}

}  // namespace vt::gpu
