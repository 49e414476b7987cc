// Attention of requests that bring many tokens: a block per tile of queries, whose rows are tokens
// times heads that share a head of keys; each wave has 16 kTiles of the rows and sees all keys,
// which the block brings to shared memory 32 at a time, one such tile ahead.
#pragma once

#include "vt/gpu/tiles/attention_common.h"

namespace vt::gpu {

template <class T, int kDim, bool kSame>
struct PrefillTile {
  using M = ::gpu::Mma<T>;
  static_assert(M::kM == 16 && M::kK == kTileKeys && kDim % M::kK == 0);
  static constexpr int kBytes = sizeof(T);
  static constexpr int kLaneRows = sizeof(typename M::Rows) / sizeof(float);
  static constexpr int kTiles = PrefillTiles(kDim, kLaneRows);
  static constexpr int kWaveRows = 16 * kTiles;
  static constexpr int kKeyPitch = KeyPitch(kDim, kBytes);
  static constexpr int kValuePitch = ValuePitch(kDim, kBytes);
  static constexpr int kKeyBytes = kTileKeys * kKeyPitch * kBytes;
  static constexpr int kStageBytes = PrefillStageBytes(kDim, kBytes);
  static constexpr int kScratchBytes = 16 * kTileKeys * kBytes;
  static constexpr int kSteps = kDim / M::kK;
  static constexpr int kScores = kTileKeys / M::kN;
  static constexpr int kSums = kDim / M::kN;
  // Whether sums are scaled even by 1: a branch around so many costs registers that are not there.
  static constexpr bool kAlwaysScales = kLaneRows * kSums > 64;
  static constexpr int kPack = Pack<T>::kCount;
  static constexpr int kPacks = kDim / kPack;  // a row

  const AttentionArgs& a;
  const QueryTile tile;  // in registers: copies would have it read again
  int head;              // of keys
  int first_head;        // of q
  int rows;              // of this tile
  int table_row;         // where the block table of its request begins
  T* query;
  char* stages;
  T* scratch;
  int32_t* limits;  // [rows][2]: first key that the row sees, and the one after its last

  GPU_FN PrefillTile(const AttentionArgs& args, const QueryTile& t, int column) : a(args), tile(t) {
    const int parts = a.group / a.tile_heads;
    head = column / parts;
    first_head = head * a.group + column % parts * a.tile_heads;
    rows = (tile.end - tile.begin) * a.tile_heads;
    table_row = tile.request * a.header->table_stride;
    const int all_rows = ::gpu::waves() * kWaveRows;
    char* base = ::gpu::shared();
    query = reinterpret_cast<T*>(base);
    base += all_rows * kKeyPitch * kBytes;
    stages = base;
    base += (a.one_stage != 0 ? 1 : 2) * kStageBytes;
    scratch = reinterpret_cast<T*>(base + ::gpu::wave() * kScratchBytes);
    base += ::gpu::waves() * kScratchBytes;
    limits = reinterpret_cast<int32_t*>(base);
  }

  GPU_FN int TokenOf(int row) const {
    return ::gpu::min(tile.begin + row / a.tile_heads, tile.end - 1);
  }
  GPU_FN const T* QueryRow(int row) const {
    return static_cast<const T*>(a.q.base) + TokenOf(row) * a.q.stride +
           static_cast<int64_t>(first_head + row % a.tile_heads) * a.kv.head_dim;
  }
  GPU_FN void LoadQuery() const {
    const int all_rows = ::gpu::waves() * kWaveRows;
    for (int row = ::gpu::thread(); row < all_rows; row += ::gpu::threads()) {
      const int position = a.positions[TokenOf(row)];
      limits[2 * row] = FirstKey(a.window, position);
      limits[2 * row + 1] = a.causal != 0 ? ::gpu::min(position + 1, tile.last) : tile.last;
    }
    for (int i = ::gpu::thread(); i < all_rows * kPacks; i += ::gpu::threads()) {
      const int row = i / kPacks, column = i % kPacks * kPack;
      const T* from = QueryRow(row);
      T* to = query + row * kKeyPitch + column;
      const bool inside = column < a.kv.head_dim;
      if (a.aligned != 0) {
        ::gpu::copy_async(to, from + (inside ? column : 0), inside ? 16 : 0);
      } else {
        for (int j = 0; j < kPack; ++j) {
          to[j] = inside ? from[column + j] : ::gpu::from_float<T>(0);
        }
      }
    }
  }

  // The wave's rows of q, once they are there, become its operands, which a lane then loads 16
  // bytes at a time in the registers' order.
  using Word = Pack<uint32_t>;
  static constexpr int kWords = sizeof(typename M::A) / sizeof(Word);
  static_assert(kWords * sizeof(Word) == sizeof(typename M::A));
  GPU_FN Word* Fragments() const {
    return reinterpret_cast<Word*>(query + ::gpu::wave() * kWaveRows * kKeyPitch);
  }
  GPU_FN void MakeFragments() const {
    typename M::A q[kTiles][kSteps];
    const T* mine = query + ::gpu::wave() * kWaveRows * kKeyPitch;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        q[m][s] = M::load_a([&](int row) { return mine + (16 * m + row) * kKeyPitch + s * M::kK; });
      }
    }
    ::gpu::sync_wave();
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        Word words[kWords];
        __builtin_memcpy(words, &q[m][s], sizeof words);
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          Fragments()[((m * kSteps + s) * kWords + i) * ::gpu::kWave + ::gpu::lane()] = words[i];
        }
      }
    }
    ::gpu::sync_wave();
  }
  GPU_FN typename M::A Fragment(int m, int s) const {
    Word words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = Fragments()[((m * kSteps + s) * kWords + i) * ::gpu::kWave + ::gpu::lane()];
    }
    typename M::A q;
    __builtin_memcpy(&q, words, sizeof q);
    return q;
  }

  // The row of the cache of this tile's key that is this lane's.
  GPU_FN int RowOf(int start) const {
    const int key = ::gpu::min(start + ::gpu::lane() % kTileKeys, tile.last - 1);
    const int32_t* table = a.block_table + table_row;
    if (a.block_shift >= 0) {
      return KeyRow(a.kv, table[key >> a.block_shift], head, key & (a.kv.block_size - 1));
    }
    return KeyRow(a.kv, table[key / a.kv.block_size], head, key % a.kv.block_size);
  }
  GPU_FN void LoadStage(int rows_of_lanes, char* stage) const {
    const int bytes = kSame ? kBytes : KvBytes(a.kv.dtype);
    const int row_bytes = a.kv.head_dim * bytes;
    // A multiple of kPacks threads: each stays in its column.
    const int column = ::gpu::thread() % kPacks * kPack;
    const bool inside = column < a.kv.head_dim;
    const char* data = a.kv.data + (kSame && inside ? column * kBytes : 0);
    const int values_after = ValuesAfter(a.kv) * row_bytes;  // less than a block
    const int step = ::gpu::threads() / kPacks;
#pragma unroll 1
    for (int row = ::gpu::thread() / kPacks; row < kTileKeys; row += step) {
      T* keys = reinterpret_cast<T*>(stage) + row * kKeyPitch + column;
      T* values = reinterpret_cast<T*>(stage + kKeyBytes) + row * kValuePitch + column;
      const uint64_t from = RowOffset(::gpu::shuffle(rows_of_lanes, row), row_bytes);
      if constexpr (kSame) {
        ::gpu::copy_async(keys, data + from, inside ? 16 : 0);
        ::gpu::copy_async(values, data + from + values_after, inside ? 16 : 0);
      } else {
        Pack<T> key_pack, value_pack;
        if (inside) {
          key_pack = LoadKvPack<T>(data + from, column, a.kv.dtype);
          value_pack = LoadKvPack<T>(data + from + values_after, column, a.kv.dtype);
        } else {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            key_pack.v[j] = value_pack.v[j] = ::gpu::from_float<T>(0);
          }
        }
        *reinterpret_cast<Pack<T>*>(keys) = key_pack;
        *reinterpret_cast<Pack<T>*>(values) = value_pack;
      }
    }
    ::gpu::copy_commit();
  }

  struct Sums {
    typename M::C v[kTiles][kSums];
    typename M::Rows high[kTiles], weight[kTiles];
  };

  GPU_FN bool Capped() const { return a.softcap != 0 || a.scale_log2 < 0; }
  GPU_FN float Sink(int row) const { return SinkOf(a, first_head + row % a.tile_heads); }

  // One tile of keys for the wave's rows. `masked`: some row may not see some key.
  GPU_FN void Step(Sums& sums, int start, const char* stage, bool masked) const {
    const T* keys = reinterpret_cast<const T*>(stage);
    const T* values = reinterpret_cast<const T*>(stage + kKeyBytes);
    const int first_row = ::gpu::wave() * kWaveRows;
    typename M::C scores[kTiles][kScores];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kScores; ++n) scores[m][n] = M::zero();
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      typename M::A q[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        q[m] = Fragment(m, s);
      }
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        const typename M::B k =
            M::load_b([&](int row) { return keys + (n * M::kN + row) * kKeyPitch + s * M::kK; });
#pragma unroll
        for (int m = 0; m < kTiles; ++m) M::mma(scores[m][n], q[m], k);
      }
    }
    // A cap comes before the mask and the scale; without one the scale is part of the power.
    const bool capped = Capped();
    const float scale = capped ? 1 : a.scale_log2;
    typename M::A p[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if (capped) {
#pragma unroll
        for (int n = 0; n < kScores; ++n) {
          M::for_each(scores[m][n], [&](int, int, float& v) {
            v *= a.scale_log2;
            if (a.softcap != 0) v = a.softcap * 1.44269504f * CapTanh<T>(v);
          });
        }
      }
      if (masked) {
#pragma unroll
        for (int n = 0; n < kScores; ++n) {
          M::for_each(scores[m][n], [&](int row, int column, float& v) {
            const int key = start + n * M::kN + column;
            const int32_t* limit = limits + 2 * (first_row + 16 * m + row);
            const int first = limit[0], last = limit[1];
            const bool seen = (key >= first) & (key < last);
            v = seen ? v : -INFINITY;
          });
        }
      }
      typename M::Rows factor = M::rows(-INFINITY);
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        M::each_row(scores[m][n], factor, [](float& v, float& h) { h = ::gpu::max(h, v); });
      }
      factor = M::lanes_max(factor);
      bool changed = false;
      M::each2(sums.high[m], factor, [&](float& old, float& f) {
        const float now = ::gpu::max(old, f);
        changed |= now != old;
        f = now == old ? 1 : ::gpu::exp2((old - now) * scale);
        old = now;
      });
      if (kAlwaysScales || ::gpu::any(changed)) {
        M::each2(sums.weight[m], factor, [](float& w, float& f) { w *= f; });
#pragma unroll
        for (int n = 0; n < kSums; ++n) {
          M::each_row(sums.v[m][n], factor, [](float& v, float& f) { v *= f; });
        }
      }
      // A row that has seen no key yet has only weights of 0.
      typename M::Rows shift = sums.high[m];
      M::each(shift, [&](float& h) { h = h == -INFINITY ? 0 : -h * scale; });
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        M::each_row(scores[m][n], shift,
                    [&](float& v, float& h) { v = ::gpu::exp2(v * scale + h); });
        M::each_row(scores[m][n], sums.weight[m], [](float& v, float& w) { w += v; });
      }
      p[m] = M::from_c(scores[m], scratch);
    }
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      const typename M::B v =
          M::load_b_across([&](int k) { return values + k * kValuePitch + n * M::kN; });
#pragma unroll
      for (int m = 0; m < kTiles; ++m) M::mma(sums.v[m][n], p[m], v);
    }
  }

  GPU_FN void Store(Sums& sums) const {
    const int dim = a.kv.head_dim;
    // By way of the wave's rows of q, which nobody else has read.
    T* mine = query + ::gpu::wave() * kWaveRows * kKeyPitch;
    ::gpu::sync_wave();
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      typename M::Rows inverse = M::lanes_sum(sums.weight[m]);
      if (a.sinks != nullptr) {
        const float scale = Capped() ? 1 : a.scale_log2;
        typename M::Rows sinks = sums.high[m];
        M::rows_for_each(sinks, [&](int row, float& v, bool) {
          v = ::gpu::exp2(Sink(::gpu::wave() * kWaveRows + 16 * m + row) - v * scale);
        });
        M::each2(inverse, sinks, [](float& w, float& s) { w += s; });
      }
      M::each(inverse, [](float& w) { w = w > 0 ? 1 / w : 0; });
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        M::each_row(sums.v[m][n], inverse, [](float& v, float& w) { v *= w; });
        M::for_each(sums.v[m][n], [&](int row, int column, float& v) {
          mine[(16 * m + row) * kKeyPitch + n * M::kN + column] = ::gpu::from_float<T>(v);
        });
      }
    }
    ::gpu::sync_wave();
    for (int i = ::gpu::lane(); i < kWaveRows * kPacks; i += ::gpu::kWave) {
      const int in_wave = i / kPacks, column = i % kPacks * kPack;
      const int row = ::gpu::wave() * kWaveRows + in_wave;
      if (row >= rows || column >= dim) continue;
      T* out = static_cast<T*>(a.out.base) + TokenOf(row) * a.out.stride +
               static_cast<int64_t>(first_head + row % a.tile_heads) * dim + column;
      const T* from = mine + in_wave * kKeyPitch + column;
      if (a.aligned != 0) {
        *reinterpret_cast<Pack<T>*>(out) = *reinterpret_cast<const Pack<T>*>(from);
      } else {
        for (int j = 0; j < kPack; ++j) out[j] = from[j];
      }
    }
  }

  GPU_FN void Run() const {
    const bool ahead = a.one_stage == 0;
    int cached = RowOf(tile.first);
    LoadQuery();
    if (ahead) {
      LoadStage(cached, stages);
      cached = RowOf(tile.first + kTileKeys);
    }
    ::gpu::copy_commit();
    ::gpu::copy_wait<0>();
    ::gpu::sync();
    MakeFragments();
    Sums sums;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      sums.high[m] = M::rows(-INFINITY);
      sums.weight[m] = M::rows(0);
#pragma unroll
      for (int n = 0; n < kSums; ++n) sums.v[m][n] = M::zero();
    }
    const int wave_row = ::gpu::wave() * kWaveRows, last_row = wave_row + kWaveRows - 1;
    const bool has_rows = wave_row < rows;
    int stage = 0;
    for (int start = tile.first; start < tile.last; start += kTileKeys) {
      const int next = start + kTileKeys, wanted = ahead ? next : start;
      if (ahead) ::gpu::copy_wait<0>();
      ::gpu::sync();
      if (wanted < tile.last) {
        LoadStage(cached, stages + (ahead ? (stage ^ 1) * kStageBytes : 0));
        cached = RowOf(wanted + kTileKeys);
      }
      if (!ahead) {
        ::gpu::copy_wait<0>();
        ::gpu::sync();
      }
      // Tokens ascend with rows: the first row begins and ends first. Read again for each tile, for
      // registers are short.
      if (has_rows && start < limits[2 * last_row + 1] && next > limits[2 * wave_row]) {
        Step(sums, start, stages + stage * kStageBytes,
             start < limits[2 * last_row] || next > limits[2 * wave_row + 1]);
      }
      if (ahead) stage ^= 1;
    }
    if (has_rows) Store(sums);
  }
};

template <class T, int kDim, bool kSame>
GPU_FN void AttentionPrefill(const AttentionArgs& a) {
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const int columns = a.kv.kv_heads * (a.group / a.tile_heads);
  const int tile = ::gpu::block() / columns;
  if (tile >= *a.list.tile_count) return;
  PrefillTile<T, kDim, kSame>(a, a.list.tiles[tile], ::gpu::block() % columns).Run();
}

}  // namespace vt::gpu
