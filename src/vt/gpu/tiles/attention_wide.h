// Attention of heads of more than 256 values, for decoding and for prompts: a block per lane of the
// work list and tile of 16 rows of a group, or per tile of queries.
//
// Sums of 16 rows of 512 values are too many for one wave: kWideParts waves share the columns. They
// share the scores of a tile of 32 keys, meet, and each then takes the softmax of all of them
// (which is little) and its columns of the values. Keys and values come in turn, each to its own
// buffer while the others are being used, or to one where there is no room for two.
#pragma once

#include "vt/gpu/args_wide.h"
#include "vt/gpu/tiles/attention_parts.h"

namespace vt::gpu {

// kSame: the cache holds T, which is copied.
template <class T, bool kSame>
struct WideTile {
  using M = ::gpu::Mma<T>;
  static constexpr int kBytes = sizeof(T);
  static constexpr int kColumns = WideColumns(kBytes);
  static constexpr int kChunks = kWideDim / kColumns;  // of keys, and of values
  static constexpr int kQueryPitch = KeyPitch(kWideDim, kBytes);
  static constexpr int kKeyPitch = KeyPitch(kColumns, kBytes);
  static constexpr int kValuePitch = ValuePitch(kColumns, kBytes);
  static constexpr int kBufferBytes = WideBufferBytes(kBytes);
  static constexpr int kSteps = kColumns / M::kK;
  static constexpr int kScores = kTileKeys / M::kN;
  static constexpr int kSums = kColumns / kWideParts / M::kN;
  static_assert(M::kM == 16 && M::kK == kTileKeys && kScores <= kWideParts);
  static_assert(kSums * M::kN * kWideParts == kColumns);
  // Plain arithmetic takes hundreds of instructions a product: one copy of it is enough.
  static constexpr int kUnroll = kBytes == 2 ? 64 : 1;
  static constexpr int kPack = Pack<T>::kCount;
  static constexpr int kPacks = kColumns / kPack;       // a row of a buffer
  static constexpr int kQueryPacks = kWideDim / kPack;  // a row of q

  const AttentionArgs& a;
  const bool by_tiles;
  const int index;         // in the list
  const TokenParts parts;  // rows: of a token
  // Of this wave: of the columns, and the first of its rows of the block.
  const int part, first_row;
  T *query, *scratch;
  char* buffers;
  float* scores;
  int32_t* limits;  // [rows][2]: first key that the row sees, and the one after its last

  GPU_FN WideTile(const AttentionWideArgs& args, int of_list, const TokenParts& token)
      : a(args.read),
        by_tiles(args.by_tiles != 0),
        index(of_list),
        parts(token),
        part(::gpu::wave() % kWideParts),
        first_row(::gpu::wave() / kWideParts * 16) {
    const int row_tiles = ::gpu::waves() / kWideParts;
    char* base = ::gpu::shared();
    query = reinterpret_cast<T*>(base);
    buffers = base + 16 * row_tiles * kQueryPitch * kBytes;
    base += args.held_bytes;
    scratch = reinterpret_cast<T*>(base) + ::gpu::wave() * 16 * kTileKeys;
    base += ::gpu::waves() * 16 * kTileKeys * kBytes;
    scores = reinterpret_cast<float*>(base);
    limits = reinterpret_cast<int32_t*>(scores + 16 * row_tiles * kWideScorePitch);
  }

  // What the list says: read again in the end, for registers are short.
  struct Work {
    DecodeItem it;
    int end;  // of the tokens from it.token on
  };
  GPU_FN Work Listed() const {
    if (by_tiles) {
      const QueryTile& t = a.list.tiles[index];
      return {{t.begin, t.request, t.first, t.last, 0, 1, 0, 0}, t.end};
    }
    const DecodeItem it = a.list.items[index];
    return {it, it.token + 1};
  }
  GPU_FN int RowsOf(const Work& w) const { return (w.end - w.it.token) * parts.rows; }
  GPU_FN int TokenOf(const Work& w, int row) const {
    return ::gpu::min(w.it.token + row / parts.rows, w.end - 1);
  }

  GPU_FN bool Ahead() const { return ::gpu::kCopiesRunAhead && a.one_buffer == 0; }
  GPU_FN int AllRows() const { return ::gpu::waves() / kWideParts * 16; }
  GPU_FN int HeadOf(int row) const {  // of q
    return parts.head * a.group + parts.first_row + row % parts.rows;
  }

  // Rows past the last are copies, which nobody reads.
  GPU_FN void LoadQuery(const Work& w) const {
    const int dim = parts.dim;
    for (int row = ::gpu::thread(); row < AllRows(); row += ::gpu::threads()) {
      const int position = a.positions[TokenOf(w, row)];
      limits[2 * row] = ::gpu::max(w.it.first, FirstKey(a.window, position));
      limits[2 * row + 1] = a.causal != 0 ? ::gpu::min(position + 1, w.it.last) : w.it.last;
    }
    for (int i = ::gpu::thread(); i < AllRows() * kQueryPacks; i += ::gpu::threads()) {
      const int row = i / kQueryPacks, column = i % kQueryPacks * kPack;
      const bool inside = column < dim;
      const T* from = static_cast<const T*>(a.q.base) + TokenOf(w, row) * a.q.stride +
                      static_cast<int64_t>(HeadOf(row)) * dim + (inside ? column : 0);
      T* to = query + row * kQueryPitch + column;
      if (a.aligned != 0) {
        ::gpu::copy_async(to, from, inside ? 16 : 0);
      } else {
        for (int j = 0; j < kPack; ++j) to[j] = inside ? from[j] : ::gpu::from_float<T>(0);
      }
    }
  }

  // Of each tile come chunks of keys, then those of values: 2 kChunks.
  struct Stream {
    int request, first, last;  // keys
    int rows_of_lanes;         // of the tile of the chunk that is next to be loaded
  };
  // The row of the cache of the key that is this lane's, of the tile from `start` on.
  GPU_FN int RowOf(const Stream& s, int start) const {
    const int key = ::gpu::min(start + ::gpu::lane() % kTileKeys, s.last - 1);
    const int32_t* table = a.block_table + static_cast<int64_t>(s.request) * a.header->table_stride;
    if (a.block_shift >= 0) {
      return KeyRow(a.kv, table[key >> a.block_shift], parts.head, key & (a.kv.block_size - 1));
    }
    return KeyRow(a.kv, table[key / a.kv.block_size], parts.head, key % a.kv.block_size);
  }
  GPU_FN char* BufferOf(int chunk) const {
    return buffers + (Ahead() ? chunk % 2 * kBufferBytes : 0);
  }
  // Chunk 2 kChunks is the first of the next tile.
  GPU_FN void Load(Stream& s, int start, int chunk) const {
    if (chunk == 2 * kChunks) {
      start += kTileKeys;
      chunk = 0;
    }
    if (start < s.last) {
      const bool values = chunk >= kChunks;
      const int first = chunk % kChunks * kColumns, pitch = values ? kValuePitch : kKeyPitch;
      const int row_bytes = parts.dim * (kSame ? kBytes : KvBytes(a.kv.dtype));
      const int rows_of_lanes = s.rows_of_lanes + (values ? ValuesAfter(a.kv) : 0);
      T* to = reinterpret_cast<T*>(BufferOf(chunk));
      // A wave's rows: shuffles are of whole waves.
#pragma unroll 1
      for (int row = ::gpu::wave(); row < kTileKeys; row += ::gpu::waves()) {
        const char* from = a.kv.data + RowOffset(::gpu::shuffle(rows_of_lanes, row), row_bytes);
#pragma unroll(kSame || !::gpu::kCopiesRunAhead ? 4 : 1)
        for (int i = 0; i < (kPacks + ::gpu::kWave - 1) / ::gpu::kWave; ++i) {
          const int column = (i * ::gpu::kWave + ::gpu::lane()) * kPack;
          if (kPacks % ::gpu::kWave != 0 && column >= kColumns) continue;
          CopyKvPack<T, kSame>(a.kv, from, first + column, to + row * pitch + column);
        }
      }
      if (chunk == 2 * kChunks - 1 && start + kTileKeys < s.last)
        s.rows_of_lanes = RowOf(s, start + kTileKeys);
    }
    ::gpu::copy_commit();
  }
  // Around the use of a chunk, which has come.
  GPU_FN void Begin(Stream& s, int start, int chunk) const {
    if (Ahead()) Load(s, start, chunk + 1);
  }
  GPU_FN void End(Stream& s, int start, int chunk) const {
    if (!Ahead()) {
      ::gpu::sync();
      Load(s, start, chunk + 1);
    }
    ::gpu::copy_wait<0>();
    ::gpu::sync();
  }

  // This wave's scores of a tile: of its rows and the keys from part * kN on.
  GPU_FN void Score(typename M::C& score, int chunk) const {
    const T* q = query + first_row * kQueryPitch + chunk * kColumns;
    const T* keys = reinterpret_cast<const T*>(BufferOf(chunk)) + part * M::kN * kKeyPitch;
#pragma unroll(kBytes == 2 ? 2 : 1)
    for (int s = 0; s < kSteps; ++s) {
      M::mma(score, M::load_a([&](int row) { return q + row * kQueryPitch + s * M::kK; }),
             M::load_b([&](int row) { return keys + row * kKeyPitch + s * M::kK; }));
    }
  }
  // In powers of two, -infinity where the row does not see the key.
  GPU_FN void PutScore(typename M::C& score, int start) const {
    M::for_each(score, [&](int row, int column, float& v) {
      v *= a.scale_log2;
      if (a.softcap != 0) v = a.softcap * 1.44269504f * CapTanh<T>(v);
      const int of_block = first_row + row, of_tile = part * M::kN + column, key = start + of_tile;
      const bool seen = (key >= limits[2 * of_block]) & (key < limits[2 * of_block + 1]);
      scores[of_block * kWideScorePitch + of_tile] = seen ? v : -INFINITY;
    });
  }

  struct Sums {
    typename M::C v[kChunks][kSums];
    typename M::Rows high, weight;
  };
  // Weights of the tile's keys, from the scores.
  GPU_FN typename M::A Weights(Sums& sums) const {
    typename M::C p[kScores];
    typename M::Rows factor = M::rows(-INFINITY);
#pragma unroll(kUnroll)
    for (int n = 0; n < kScores; ++n) {
      M::for_each(p[n], [&](int row, int column, float& v) {
        v = scores[(first_row + row) * kWideScorePitch + n * M::kN + column];
      });
      M::each_row(p[n], factor, [](float& v, float& m) { m = ::gpu::max(m, v); });
    }
    factor = M::lanes_max(factor);
    M::each2(sums.high, factor, [](float& old, float& f) {
      const float now = ::gpu::max(old, f);
      f = now == old ? 1 : ::gpu::exp2(old - now);
      old = now;
    });
    // A row that has seen no key yet has only weights of 0.
    typename M::Rows high = sums.high;
    M::each(high, [](float& h) { h = h == -INFINITY ? 0 : h; });
    M::each2(sums.weight, factor, [](float& w, float& f) { w *= f; });
#pragma unroll(kUnroll)
    for (int n = 0; n < kScores; ++n) {
      M::each_row(p[n], high, [](float& v, float& m) { v = ::gpu::exp2(v - m); });
      M::each_row(p[n], sums.weight, [](float& v, float& w) { w += v; });
    }
#pragma unroll(kUnroll)
    for (int j = 0; j < kChunks; ++j) {
#pragma unroll(kUnroll)
      for (int n = 0; n < kSums; ++n)
        M::each_row(sums.v[j][n], factor, [](float& v, float& f) { v *= f; });
    }
    return M::from_c(p, scratch);
  }
  // What this wave has of a chunk's columns.
  GPU_FN int ColumnOf(int n) const { return (part * kSums + n) * M::kN; }
  GPU_FN void Add(typename M::C (&sums)[kSums], const typename M::A& weights, int chunk) const {
    const T* values = reinterpret_cast<const T*>(BufferOf(chunk));
    const int columns = parts.dim - (chunk - kChunks) * kColumns;
    // A few at a time, for registers are short: all would be loaded before the first is used.
    constexpr int kGroup = 32 / M::kN;
#pragma unroll(kUnroll)
    for (int group = 0; group < kSums; group += kGroup) {
      if (ColumnOf(group) >= columns) continue;
#pragma unroll(kUnroll)
      for (int n = group; n < group + kGroup; ++n) {
        M::mma(sums[n], weights,
               M::load_b_across([&](int k) { return values + k * kValuePitch + ColumnOf(n); }));
      }
    }
  }

  GPU_FN void Run() const {
    Stream s;
    bool has_rows;
    {
      const Work w = Listed();
      s = {w.it.request, w.it.first, w.it.last, 0};
      if (s.first < s.last) s.rows_of_lanes = RowOf(s, s.first);
      has_rows = first_row < RowsOf(w);
      LoadQuery(w);
    }
    Load(s, s.first, 0);
    ::gpu::copy_wait<0>();
    ::gpu::sync();
    Sums sums;
    sums.high = M::rows(-INFINITY);
    sums.weight = M::rows(0);
#pragma unroll(kUnroll)
    for (int j = 0; j < kChunks; ++j) {
#pragma unroll(kUnroll)
      for (int n = 0; n < kSums; ++n) sums.v[j][n] = M::zero();
    }
#pragma unroll 1
    for (int start = s.first; start < s.last; start += kTileKeys) {
      // Tokens ascend with rows: the first row begins and ends first.
      const bool sees = has_rows && start < limits[2 * (first_row + 15) + 1] &&
                        start + kTileKeys > limits[2 * first_row];
      typename M::C score = M::zero();
#pragma unroll 1
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        Begin(s, start, chunk);
        if (sees && part < kScores) {
          Score(score, chunk);
          if (chunk == kChunks - 1) PutScore(score, start);
        }
        End(s, start, chunk);
      }
      typename M::A weights;
      if (sees) weights = Weights(sums);
#pragma unroll 1
      for (int chunk = kChunks; chunk < 2 * kChunks; ++chunk) {
        Begin(s, start, chunk);
        if (sees) Add(sums.v[chunk - kChunks], weights, chunk);
        End(s, start, chunk);
      }
    }
    Store(sums);
  }

  GPU_FN void Store(Sums& sums) const {
    const Work w = Listed();
    const DecodeItem& it = w.it;
    const bool whole = it.parts == 1;
    const int64_t at = whole ? 0 : parts.Row(it, it.part);
    sums.weight = M::lanes_sum(sums.weight);
    if (whole) {
      if (parts.HasSinks()) {
        typename M::Rows sinks = sums.high;
        M::rows_for_each(sinks, [&](int row, float& v, bool) {
          v = ::gpu::exp2(SinkOf(a, HeadOf(first_row + row)) - v);
        });
        M::each2(sums.weight, sinks, [](float& x, float& y) { x += y; });
      }
      M::each(sums.weight, [](float& x) { x = x > 0 ? 1 / x : 0; });
    } else if (part == 0) {
      M::rows_for_each(sums.high, [&](int row, float& v, bool leader) {
        if (leader && row < parts.rows) a.partial_stats[2 * (at + row)] = v;
      });
      M::rows_for_each(sums.weight, [&](int row, float& v, bool leader) {
        if (leader && row < parts.rows) a.partial_stats[2 * (at + row) + 1] = v;
      });
    }
    // By way of shared memory, where q and the buffers were.
    float* gathered = reinterpret_cast<float*>(query);
#pragma unroll(kUnroll)
    for (int j = 0; j < kChunks; ++j) {
#pragma unroll(kUnroll)
      for (int n = 0; n < kSums; ++n) {
        if (whole) M::each_row(sums.v[j][n], sums.weight, [](float& v, float& w) { v *= w; });
        M::for_each(sums.v[j][n], [&](int row, int column, float& v) {
          gathered[(first_row + row) * kWideSumPitch + j * kColumns + ColumnOf(n) + column] = v;
        });
      }
    }
    ::gpu::sync();
    const int dim = parts.dim;
    for (int i = ::gpu::thread(); i < RowsOf(w) * kQueryPacks; i += ::gpu::threads()) {
      const int row = i / kQueryPacks, column = i % kQueryPacks * kPack;
      if (column >= dim) continue;
      const float* from = gathered + row * kWideSumPitch + column;
      if (!whole) {
        for (int j = 0; j < kPack; ++j) a.partial_sums[(at + row) * dim + column + j] = from[j];
        continue;
      }
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < kPack; ++j) pack.v[j] = ::gpu::from_float<T>(from[j]);
      T* out = static_cast<T*>(a.out.base) + TokenOf(w, row) * a.out.stride +
               static_cast<int64_t>(HeadOf(row)) * dim + column;
      if (a.aligned != 0) {
        *reinterpret_cast<Pack<T>*>(out) = pack;
      } else {
        for (int j = 0; j < kPack; ++j) out[j] = pack.v[j];
      }
    }
    if (!whole && parts.IsLast(it, reinterpret_cast<int*>(scores))) {
      T* out = static_cast<T*>(a.out.base) + it.token * a.out.stride +
               static_cast<int64_t>(HeadOf(0)) * dim;
      parts.Merge(it, out, scores, scores + 16);
    }
    ::gpu::sync();  // before the next item's copies
  }
};

template <class T, bool kSame>
GPU_FN void AttentionWide(const AttentionWideArgs& args) {
  const AttentionArgs& a = args.read;
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const bool by_tiles = args.by_tiles != 0;
  // Of the list's lanes or tiles, and of heads of keys and the rows of their groups.
  const int of_head = by_tiles ? a.group / a.tile_heads : a.row_tiles;
  const int column = ::gpu::block() % (a.kv.kv_heads * of_head);
  const int place = ::gpu::block() / (a.kv.kv_heads * of_head);
  const int rows = by_tiles ? a.tile_heads : 16, first_row = column % of_head * rows;
  if (by_tiles && place >= *a.list.tile_count) return;
  const TokenParts parts = {a, column / of_head, first_row, ::gpu::min(rows, a.group - first_row),
                            a.kv.head_dim};
  const int end = by_tiles ? place + 1 : a.list.lane_begin[place + 1];
#pragma unroll 1
  for (int i = by_tiles ? place : a.list.lane_begin[place]; i < end; ++i)
    WideTile<T, kSame>(args, i, parts).Run();
}

}  // namespace vt::gpu
