// Attention over a latent cache, whose vectors are keys and, their first v_dim numbers, values: a
// block per lane of the work list and tile of 16 heads, for decoding and for prompts alike.
//
// Sums of 16 rows of 512 values are too many for one wave: each has a part of the columns. A tile
// of 32 vectors is brought to shared memory once; each wave makes the scores of half the keys over
// half of k, they meet, and each then takes the softmax of all of them (which is little) and its
// columns of the values. Parts of a token are added up by the next launch (attention_join.h).
#pragma once

#include "vt/gpu/args_latent.h"
#include "vt/gpu/tiles/attention_parts.h"

namespace vt::gpu {

// Four values as they are stored.
template <class T>
struct alignas(4 * sizeof(T)) FourOf {
  T v[4];
};

// kDim, kValues: head_dim and v_dim, padded. kSame: the cache holds T, which is copied.
template <class T, int kDim, int kValues, bool kSame>
struct LatentTile {
  using M = ::gpu::Mma<T>;
  static_assert(M::kM == 16 && M::kK == kTileKeys && kDim % M::kK == 0 && kValues <= kDim);
  static constexpr int kBytes = sizeof(T);
  static constexpr int kPitch = ValuePitch(kDim, kBytes);
  static constexpr int kScores = kTileKeys / M::kN;
  static constexpr int kHalfSteps = kDim / M::kK / 2, kHalfScores = kScores / 2;
  static_assert(kLatentWaves == 4 && kHalfSteps * 2 * M::kK == kDim && kHalfScores * 2 == kScores);
  static constexpr int kSums = kValues / kLatentWaves / M::kN;
  static_assert(kSums * M::kN * kLatentWaves == kValues);
  static_assert(16 * kValues * 4 <= LatentStageBytes(kDim, kBytes));
  static constexpr int kUnroll = kBytes == 2 ? 64 : 1;
  static constexpr int kPack = Pack<T>::kCount;
  static constexpr int kPacks = kDim / kPack;  // a row
  static constexpr int kScoreFloats = 16 * kLatentScorePitch;

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
    scratch = reinterpret_cast<T*>(scores + 2 * kScoreFloats) + ::gpu::wave() * 16 * kTileKeys;
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
  // Vectors [begin, end) of a tile; those past the item's last are copies of it.
  GPU_FN void Load(const DecodeItem& it, int tile, T* to, int begin, int end) const {
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
    for (int row = begin + ::gpu::wave(); row < end; row += ::gpu::waves()) {
      const char* from = a.kv.data + RowOffset(::gpu::shuffle(row_of_lane, row), row_bytes);
#pragma unroll
      for (int i = 0; i < (kPacks + ::gpu::kWave - 1) / ::gpu::kWave; ++i) {
        const int pack = i * ::gpu::kWave + ::gpu::lane(), column = pack * kPack;
        if (pack < kPacks) CopyKvPack<T, kSame>(a.kv, from, column, to + row * kPitch + column);
      }
    }
  }

  // This wave's scores of a tile: of half its keys, and half the sum.
  GPU_FN void Score(const T* keys) const {
    const int half = ::gpu::wave() / 2, first = ::gpu::wave() % 2 * kHalfScores;
    const T* q = query + half * kHalfSteps * M::kK;
    const T* k = keys + half * kHalfSteps * M::kK + first * M::kN * kPitch;
    typename M::C c[kHalfScores];
#pragma unroll
    for (int n = 0; n < kHalfScores; ++n) c[n] = M::zero();
#pragma unroll(kBytes == 2 && ::gpu::kCopiesRunAhead ? 3 : 1)
    for (int s = 0; s < kHalfSteps; ++s) {
      const typename M::A rows = M::load_a([&](int row) { return q + row * kPitch + s * M::kK; });
#pragma unroll
      for (int n = 0; n < kHalfScores; ++n) {
        M::mma(c[n], rows,
               M::load_b([&](int row) { return k + (n * M::kN + row) * kPitch + s * M::kK; }));
      }
    }
#pragma unroll
    for (int n = 0; n < kHalfScores; ++n) {
      M::for_each(c[n], [&](int row, int column, float& v) {
        scores[half * kScoreFloats + row * kLatentScorePitch + (first + n) * M::kN + column] = v;
      });
    }
  }

  struct Sums {
    typename M::C v[kSums];
    typename M::Rows high, weight;
  };
  // `left`: keys from this tile's first on.
  GPU_FN void Add(Sums& sums, const T* values, int left) const {
    typename M::C p[kScores];
    typename M::Rows factor = M::rows(-INFINITY);
#pragma unroll(kUnroll)
    for (int n = 0; n < kScores; ++n) {
      // In powers of two, -infinity past the last key.
      M::for_each(p[n], [&](int row, int column, float& v) {
        const int key = n * M::kN + column, at = row * kLatentScorePitch + key;
        v = (scores[at] + scores[kScoreFloats + at]) * a.scale_log2;
        if (a.softcap != 0) v = a.softcap * 1.44269504f * CapTanh<T>(v);
        if (key >= left) v = -INFINITY;
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

  // `waits`: this is the block's first item, before wait_predecessor().
  GPU_FN void Run(const DecodeItem& it, bool waits) const {
    const int tiles = (it.last - it.first + kTileKeys - 1) / kTileKeys;
    // Vectors of the first tile that earlier steps wrote need not wait.
    int early = 0;
    if (waits) {
      if (tiles > 0 && it.last > it.cached) {
        early = ::gpu::max(0, ::gpu::min(kTileKeys, it.cached - it.first));
      } else if (tiles > 0) {
        early = kTileKeys;
      }
      if (early > 0) Load(it, 0, stages, 0, early);
      ::gpu::wait_predecessor();
    }
    StageQuery(it);
    if (tiles > 0) Load(it, 0, stages, early, kTileKeys);
    ::gpu::copy_commit();
    Sums sums;
    sums.high = M::rows(-INFINITY);
    sums.weight = M::rows(0);
#pragma unroll(kUnroll)
    for (int n = 0; n < kSums; ++n) sums.v[n] = M::zero();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const T* keys = stages + (Ahead() ? tile % 2 : 0) * kTileKeys * kPitch;
      const bool more = tile + 1 < tiles;
      ::gpu::copy_wait<0>();
      ::gpu::sync();  // and nobody reads the last tile's vectors and scores any more
      if (Ahead() && more)
        Load(it, tile + 1, stages + (tile + 1) % 2 * kTileKeys * kPitch, 0, kTileKeys);
      ::gpu::copy_commit();
      Score(keys);
      ::gpu::sync();
      Add(sums, keys, it.last - it.first - tile * kTileKeys);
      if (Ahead() || !more) continue;
      ::gpu::sync();
      Load(it, tile + 1, stages, 0, kTileKeys);
      ::gpu::copy_commit();
    }
    ::gpu::copy_wait<0>();
    ::gpu::sync();  // the sums take the place of vectors
    sums.weight = M::lanes_sum(sums.weight);
    Store(it, sums);
  }

  GPU_FN void Store(const DecodeItem& it, Sums& sums) const {
    const int dim = a.v_dim;
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
    T* out = static_cast<T*>(a.out.base) + it.token * a.out.stride +
             static_cast<int64_t>(parts.first_row) * dim;
    constexpr int kFours = kValues / 4;
    const bool fours = a.aligned != 0 && dim % 4 == 0;
#pragma unroll 4
    for (int i = ::gpu::thread(); i < 16 * kFours; i += ::gpu::threads()) {
      const int row = i / kFours, column = i % kFours * 4;
      if (row >= parts.rows || column >= dim) continue;
      const auto v = *reinterpret_cast<const FourOf<float>*>(gathered + row * kValues + column);
      if (!whole) {
        *reinterpret_cast<FourOf<float>*>(a.partial_sums + (at + row) * a.part_pitch + column) = v;
        continue;
      }
      FourOf<T> four;
#pragma unroll
      for (int j = 0; j < 4; ++j) four.v[j] = ::gpu::from_float<T>(v.v[j]);
      T* to = out + row * dim + column;
      if (fours) {
        *reinterpret_cast<FourOf<T>*>(to) = four;
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (column + j < dim) to[j] = four.v[j];
      }
    }
  }
};

template <class T, int kDim, int kValues, bool kSame>
GPU_FN void AttentionLatent(const AttentionArgs& a) {
  const bool early = a.list_is_there != 0;
  if (!early) ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const int lane = ::gpu::block() / a.row_tiles;
  // With where it begins, not behind it.
  DecodeItem item = LoadListed(a.list.lane_first + lane);
  const int begin = a.list.lane_begin[lane], end = a.list.lane_begin[lane + 1];
  if (begin == end) {
    if (::gpu::block() == 0) ::gpu::wait_predecessor();
    return;
  }
  const LatentTile<T, kDim, kValues, kSame> tile(a);
  for (int i = begin;;) {
    tile.Run(item, early && i == begin);
    if (++i == end) return;
    item = a.list.items[i];  // in registers: copies would have it read again
    ::gpu::sync();           // before copies over the last item's sums
  }
}

}  // namespace vt::gpu
