// Attention of requests that bring one token (or few): a block per lane of the work list and head
// of keys.
//
// The heads of q that share a head of keys are the rows of the wave's matrix products. Each wave
// takes every waves()-th tile of 32 keys, its own keys and values in its own shared memory, so that
// waves wait for nobody until an item's end, where their sums are merged. Parts of one token meet
// in the workspace, where the block that comes last merges them.
#pragma once

#include "vt/gpu/tiles/attention_parts.h"

namespace vt::gpu {

// kSame: the cache holds T, which is copied; else values are converted on their way.
template <class T, int kDim, bool kSame>
struct DecodeTile {
  using M = ::gpu::Mma<T>;
  static_assert(M::kM == 16 && M::kK == kTileKeys && kDim % M::kK == 0);
  static constexpr int kBytes = sizeof(T);
  static constexpr int kKeyPitch = KeyPitch(kDim, kBytes);
  static constexpr int kValuePitch = ValuePitch(kDim, kBytes);
  static constexpr int kSteps = kDim / M::kK;        // of k, for scores
  static constexpr int kScores = kTileKeys / M::kN;  // C's of a tile's scores
  static constexpr int kSums = kDim / M::kN;         // C's of a row's sums
  static constexpr int kLaneRows = sizeof(typename M::Rows) / sizeof(float);
  static constexpr bool kKeepQ = KeepsQuery(kDim, kBytes, kLaneRows);
  // Plain arithmetic takes hundreds of instructions a product: one copy of it is enough.
  static constexpr int kUnroll = kBytes == 2 ? 64 : 1;
  static constexpr int kPack = Pack<T>::kCount;
  static constexpr int kPacks = kDim / kPack;  // a row
  static constexpr int kCopies = kTileKeys * kPacks / ::gpu::kWave;
  static constexpr int kScratchBytes = 16 * kTileKeys * kBytes;
  static constexpr int kQueryBytes = DecodeQueryBytes(kDim, kBytes);
  static constexpr int kKeyBytes = DecodeKeyBytes(kDim, kBytes);
  static constexpr int kWaveBytes = DecodeWaveBytes(kDim, kBytes, false);
  static constexpr int kWaveBytesOneBuffer = DecodeWaveBytes(kDim, kBytes, true);

  const AttentionArgs& a;
  int head, first_row, rows;  // of keys; of q in the group, of this block
  T *query, *keys, *values, *scratch;
  char* wave_base;
  int wave_bytes;

  GPU_FN explicit DecodeTile(const AttentionArgs& args) : a(args) {
    const int column = ::gpu::block() % (a.kv.kv_heads * a.row_tiles);
    head = column / a.row_tiles;
    first_row = column % a.row_tiles * 16;
    rows = ::gpu::min(16, a.group - first_row);
    char* base = ::gpu::shared();
    query = reinterpret_cast<T*>(base);
    wave_bytes = OneBuffer() ? kWaveBytesOneBuffer : kWaveBytes;
    if (!kKeepQ || a.q_direct == 0) base += kQueryBytes;
    wave_base = base;
    base += ::gpu::wave() * wave_bytes;
    scratch = reinterpret_cast<T*>(base);
    keys = reinterpret_cast<T*>(base + kScratchBytes);
    values = OneBuffer() ? keys : reinterpret_cast<T*>(base + kScratchBytes + kKeyBytes);
  }

  // Values take the place of keys: there is no room for both, or nothing to gain.
  GPU_FN bool OneBuffer() const { return !::gpu::kCopiesRunAhead || a.one_buffer != 0; }

  // The row of the cache of the tile's key that is this lane's.
  GPU_FN int RowOf(const DecodeItem& it, int tile) const {
    const int key =
        ::gpu::min(it.first + tile * kTileKeys + ::gpu::lane() % kTileKeys, it.last - 1);
    const int32_t* table =
        a.block_table + static_cast<int64_t>(it.request) * a.header->table_stride;
    if (a.block_shift >= 0) {
      return KeyRow(a.kv, table[key >> a.block_shift], head, key & (a.kv.block_size - 1));
    }
    return KeyRow(a.kv, table[key / a.kv.block_size], head, key % a.kv.block_size);
  }
  // A tile into shared memory; `rows_of_lanes`: what RowOf said in each lane.
  GPU_FN void Load(int rows_of_lanes, T* to, int pitch) const {
    const int row_bytes = a.kv.head_dim * (kSame ? kBytes : KvBytes(a.kv.dtype));
    const int lane = ::gpu::anew(::gpu::lane());  // of RDNA 3's registers hardly any is free here
#pragma unroll(kSame ? 4 : 2)
    for (int i = 0; i < kCopies; ++i) {
      const int index = i * ::gpu::kWave + lane;
      const int row = index / kPacks, column = index % kPacks * kPack;
      const char* from = a.kv.data + RowOffset(::gpu::shuffle(rows_of_lanes, row), row_bytes);
      CopyKvPack<T, kSame>(a.kv, from, column, to + row * pitch + column);
    }
  }
  GPU_FN void LoadKeys(int rows_of_lanes) const { Load(rows_of_lanes, keys, kKeyPitch); }
  GPU_FN void LoadValues(int rows_of_lanes) const {
    Load(rows_of_lanes + ValuesAfter(a.kv), values, kValuePitch);
  }

  GPU_FN const T* QueryRow(const DecodeItem& it) const {
    return static_cast<const T*>(a.q.base) + it.token * a.q.stride +
           static_cast<int64_t>(head * a.group + first_row) * a.kv.head_dim;
  }
  // Rows of q, padded with zeros, into shared memory.
  GPU_FN void StageQuery(const DecodeItem& it) const {
    const T* q = QueryRow(it);
    for (int i = ::gpu::thread(); i < 16 * kDim; i += ::gpu::threads()) {
      const int row = i / kDim, column = i % kDim;
      T v = ::gpu::from_float<T>(0);
      if (row < rows && column < a.kv.head_dim) v = q[row * a.kv.head_dim + column];
      query[row * kKeyPitch + column] = v;
    }
    ::gpu::sync();
  }
  GPU_FN typename M::A LoadQuery(int step) const {
    return M::load_a([&](int row) { return query + row * kKeyPitch + step * M::kK; });
  }

  // Each wave's maxima, sums of weights and sums, where its buffers were.
  GPU_FN float* Maxima(int wave) const {
    return reinterpret_cast<float*>(wave_base + wave * wave_bytes);
  }
  GPU_FN float* Weights(int wave) const { return Maxima(wave) + 16; }
  GPU_FN float* Sums(int wave) const { return Maxima(wave) + 32; }

  // `waits`: this is the block's first item, before wait_predecessor().
  GPU_FN void Run(const DecodeItem& it, bool waits) const {
    const int tiles = (it.last - it.first + kTileKeys - 1) / kTileKeys;
    int tile = ::gpu::wave();
    int cached = 0;
    // Keys of this very step stand at a request's end, and may not be there yet. (f32 has no other
    // kernel for requests of many tokens.)
    const bool early =
        waits && kBytes == 2 && it.first + (tile + 1) * kTileKeys <= it.last - a.new_tokens;
    if (waits && !early) ::gpu::wait_predecessor();
    if (tile < tiles) {
      cached = RowOf(it, tile);
      LoadKeys(cached);
      ::gpu::copy_commit();
      if (!OneBuffer()) LoadValues(cached);
      ::gpu::copy_commit();
    }
    if (early) ::gpu::wait_predecessor();
    typename M::A q[kKeepQ ? kSteps : 1];
    if (kKeepQ && a.q_direct != 0) {
      const T* base = QueryRow(it);
#pragma unroll
      for (int s = 0; s < (kKeepQ ? kSteps : 0); ++s) {
        // Rows past the last are copies of it, which nobody reads.
        q[s] = M::load_a(
            [&](int row) { return base + ::gpu::min(row, rows - 1) * a.kv.head_dim + s * M::kK; });
      }
    } else {
      StageQuery(it);
#pragma unroll
      for (int s = 0; s < (kKeepQ ? kSteps : 0); ++s) q[s] = LoadQuery(s);
      // Or clang makes one load of these and those above, of pointers to either kind of memory.
      if (kKeepQ) ::gpu::sync_wave();
    }

    typename M::Rows high = M::rows(-INFINITY), weight = M::rows(0);
    typename M::C sums[kSums];
#pragma unroll(kUnroll)
    for (int n = 0; n < kSums; ++n) sums[n] = M::zero();
    for (; tile < tiles; tile += ::gpu::waves()) {
      const int next = tile + ::gpu::waves();
      const int next_cached = next < tiles ? RowOf(it, next) : 0;
      ::gpu::copy_wait<1>();
      ::gpu::sync_wave();
      typename M::C scores[kScores];
#pragma unroll(kUnroll)
      for (int n = 0; n < kScores; ++n) scores[n] = M::zero();
#pragma unroll(kKeepQ ? kUnroll : 1)
      for (int s = 0; s < kSteps; ++s) {
        const typename M::A step = kKeepQ ? q[kKeepQ ? s : 0] : LoadQuery(s);
#pragma unroll(kUnroll)
        for (int n = 0; n < kScores; ++n) {
          M::mma(scores[n], step, M::load_b([&](int row) {
                   return keys + (n * M::kN + row) * kKeyPitch + s * M::kK;
                 }));
        }
      }
      ::gpu::sync_wave();
      if (OneBuffer()) {
        LoadValues(cached);
        ::gpu::copy_commit();
      } else if (next < tiles) {
        LoadKeys(next_cached);
      }
      ::gpu::copy_commit();

      const int left = it.last - (it.first + tile * kTileKeys);  // keys of this tile
      const float scale = a.softcap != 0 ? 1 : a.scale_log2;
      if (a.softcap != 0) {
#pragma unroll(kUnroll)
        for (int n = 0; n < kScores; ++n) {
          M::for_each(scores[n], [&](int, int, float& v) {
            v = a.softcap * 1.44269504f * CapTanh<T>(v * a.scale_log2);
          });
        }
      }
      typename M::Rows factor = M::rows(-INFINITY);
#pragma unroll(kUnroll)
      for (int n = 0; n < kScores; ++n) {
        M::for_each(scores[n], [&](int, int column, float& v) {
          v = n * M::kN + column < left ? v * scale : -INFINITY;
        });
        M::each_row(scores[n], factor, [](float& v, float& m) { m = ::gpu::max(m, v); });
      }
      factor = M::lanes_max(factor);
      M::each2(high, factor, [](float& old, float& f) {
        const float now = ::gpu::max(old, f);  // finite: a tile has a key
        f = ::gpu::exp2(old - now);
        old = now;
      });
      M::each2(weight, factor, [](float& w, float& f) { w *= f; });
#pragma unroll(kUnroll)
      for (int n = 0; n < kScores; ++n) {
        M::each_row(scores[n], high, [](float& v, float& m) { v = ::gpu::exp2(v - m); });
        M::each_row(scores[n], weight, [](float& v, float& w) { w += v; });
      }
#pragma unroll(kUnroll)
      for (int n = 0; n < kSums; ++n) {
        M::each_row(sums[n], factor, [](float& v, float& f) { v *= f; });
      }

      const typename M::A p = M::from_c(scores, scratch);
      if (OneBuffer()) {
        ::gpu::copy_wait<0>();
      } else {
        ::gpu::copy_wait<1>();
      }
      ::gpu::sync_wave();
#pragma unroll(kUnroll)
      for (int n = 0; n < kSums; ++n) {
        M::mma(sums[n], p,
               M::load_b_across([&](int k) { return values + k * kValuePitch + n * M::kN; }));
      }
      ::gpu::sync_wave();
      if (next < tiles) {
        if (OneBuffer()) {
          LoadKeys(next_cached);
          ::gpu::copy_commit();
        } else {
          LoadValues(next_cached);
        }
      }
      ::gpu::copy_commit();
      cached = next_cached;
    }

    // The wave's results, where its buffers were.
    ::gpu::copy_wait<0>();
    ::gpu::sync_wave();
    weight = M::lanes_sum(weight);
    // Addresses of them, which depend on the wave alone, would be in registers all the time.
    const int wave = ::gpu::anew(::gpu::wave());
    M::rows_for_each(high, [&](int row, float& v, bool leader) {
      if (leader) Maxima(wave)[row] = v;
    });
    M::rows_for_each(weight, [&](int row, float& v, bool leader) {
      if (leader) Weights(wave)[row] = v;
    });
    float* mine = Sums(wave);
#pragma unroll(kUnroll)
    for (int n = 0; n < kSums; ++n) {
      M::for_each(sums[n], [&](int row, int column, float& v) {
        if (row < rows) mine[row * kDim + n * M::kN + column] = v;
      });
    }
    ::gpu::sync();
    MergeWaves(it, ::gpu::min(::gpu::waves(), ::gpu::max(tiles, 1)));
  }

  // Of a row and column of this block's, over the waves that had tiles; with the sink, if any,
  // where this is all that the token has.
  struct Merged {
    float high, weight, sum;
  };
  GPU_FN Merged Over(const TokenParts& parts, int waves, int row, int column, bool sink) const {
    Merged m = {sink ? parts.Sink(row) : -INFINITY, 0, 0};
    for (int w = 0; w < waves; ++w) m.high = ::gpu::max(m.high, Maxima(w)[row]);
    if (m.high == -INFINITY) return m;  // no keys
    if (sink) m.weight = ::gpu::exp2(parts.Sink(row) - m.high);
    for (int w = 0; w < waves; ++w) {
      const float f = ::gpu::exp2(Maxima(w)[row] - m.high);
      m.weight += f * Weights(w)[row];
      m.sum += f * Sums(w)[row * kDim + column];
    }
    return m;
  }
  GPU_FN T* OutRow(const DecodeItem& it) const {
    return static_cast<T*>(a.out.base) + it.token * a.out.stride +
           static_cast<int64_t>(head * a.group + first_row) * a.kv.head_dim;
  }
  GPU_FN void MergeWaves(const DecodeItem& it, int waves) const {
    const int dim = a.kv.head_dim;
    const TokenParts parts{a, head, first_row, rows, dim};
    if (it.parts == 1) {
      T* out = OutRow(it);
      for (int i = ::gpu::thread(); i < rows * dim; i += ::gpu::threads()) {
        const Merged m = Over(parts, waves, i / dim, i % dim, parts.HasSinks());
        out[i] = ::gpu::from_float<T>(m.weight > 0 ? m.sum / m.weight : 0);
      }
      ::gpu::sync();  // before the next item's copies
      return;
    }
    const int64_t at = parts.Row(it, it.part);
    for (int i = ::gpu::thread(); i < rows * dim; i += ::gpu::threads()) {
      const Merged m = Over(parts, waves, i / dim, i % dim, false);
      a.partial_sums[at * dim + i] = m.sum;
      if (i % dim == 0) {
        a.partial_stats[2 * (at + i / dim)] = m.high;
        a.partial_stats[2 * (at + i / dim) + 1] = m.weight;
      }
    }
    if (parts.IsLast(it, reinterpret_cast<int*>(wave_base)))
      parts.Merge(it, OutRow(it), Maxima(0), Weights(0));
  }
};

template <class T, int kDim, bool kSame>
GPU_FN void AttentionDecode(const AttentionArgs& a) {
  ::gpu::launch_dependents();
  // The work list and the keys of earlier steps are there before wait_predecessor(): this launch
  // began after a write to the cache had done its own waiting, so that all before that has ended,
  // the step's beginning too. Some block of each launch has to wait for those after it.
  const int lane = ::gpu::block() / (a.kv.kv_heads * a.row_tiles);
  const int begin = a.list.lane_begin[lane], end = a.list.lane_begin[lane + 1];
  if (begin == end) {
    if (::gpu::block() == 0) ::gpu::wait_predecessor();
    return;
  }
  const DecodeTile<T, kDim, kSame> tile(a);
  for (int i = begin; i < end; ++i) {
    const DecodeItem item = a.list.items[i];  // in registers: copies would have it read again
    tile.Run(item, i == begin);
  }
}

}  // namespace vt::gpu
