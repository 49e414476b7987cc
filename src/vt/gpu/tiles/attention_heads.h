// Attention of one token's few heads that share a head of keys: plain arithmetic, a block per lane
// of the work list and up to kRows heads of q (attention_row.h).
//
// What a step of one or few requests waits for is how many instructions stand between a token's q
// and its sums. So nothing passes through shared memory before the end: kLanes lanes hold a key,
// eight of its numbers each, as many keys as the wave has room for at once and kDepth of them in
// turn. Each of their scores ends in a lane of its own, which takes the softmax of it alone.
//
// Keys and values of the step itself may be written here too: each block makes those that it needs
// for itself, and the one that has a token's last keys writes them.
#pragma once

#include "vt/gpu/tiles/attention_new.h"
#include "vt/gpu/tiles/attention_parts.h"
#include "vt/gpu/tiles/wave_sums.h"

namespace vt::gpu {

template <class T, int kLanes, int kRows, bool kSame>
struct AttentionRows {
  static constexpr int kN = 8;                            // numbers of a key a lane
  static constexpr int kAtOnce = ::gpu::kWave / kLanes;   // keys side by side
  static constexpr int kDepth = RowDepth(kLanes, kRows);  // keys of a lane in turn
  static constexpr int kKeys = kDepth * kAtOnce;          // a wave's tile
  static constexpr int kScores = kDepth * kRows;
  static constexpr int kCopies = kLanes / kScores;  // lanes that have the same score
  static_assert(sizeof(T) == 2 && kScores <= kLanes && kKeys <= ::gpu::kWave);
  static constexpr int kDim = kLanes * kN;

  const AttentionRowArgs& args;
  const AttentionArgs& a;
  TokenParts parts;
  const int at, key_of_lane;  // of this lane's numbers; of its keys among those side by side
  // Where the cache has this lane's numbers of row 0 as a key, as a value. (Lanes past head_dim
  // take the first numbers; those of q are zeros.)
  const char *key_base, *value_base;
  int row_bytes;
  int rows[kDepth];  // of the cache, of the tile that is being asked for
  Eight k[kDepth], v[kDepth];

  GPU_FN AttentionRows(const AttentionRowArgs& arguments, int head, int first_row)
      : args(arguments),
        a(arguments.read),
        parts{a, head, first_row, ::gpu::min(kRows, a.group - first_row), a.kv.head_dim},
        at(::gpu::lane() % kLanes * kN),
        key_of_lane(::gpu::lane() / kLanes) {
    const int bytes = kSame ? static_cast<int>(sizeof(T)) : KvBytes(a.kv.dtype);
    row_bytes = a.kv.head_dim * bytes;
    key_base = a.kv.data + (at < a.kv.head_dim ? at * bytes : 0);
    value_base = key_base + RowOffset(ValuesAfter(a.kv), row_bytes);
  }

  GPU_FN int BlockOf(int token) const {
    return a.block_shift >= 0 ? token >> a.block_shift : token / a.kv.block_size;
  }
  // The rows of the cache of a wave's tile: each lane finds one.
  GPU_FN void Find(const DecodeItem& it, int last, const int32_t* table, int tile) {
    const int key = ::gpu::min(it.first + tile * kKeys + ::gpu::lane() % kKeys, last - 1);
    const int block = BlockOf(key);
    const int row = KeyRow(a.kv, table[block], parts.head, key - block * a.kv.block_size);
#pragma unroll
    for (int i = 0; i < kDepth; ++i) rows[i] = ::gpu::shuffle(row, i * kAtOnce + key_of_lane);
  }
  GPU_FN void Load(const char* base, Eight (&to)[kDepth]) const {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const char* p = base + RowOffset(rows[i], row_bytes);
      if constexpr (kSame) {
        to[i].words = ::gpu::load_stream(reinterpret_cast<const ::gpu::Pack<uint32_t>*>(p));
      } else {
        const Pack<T> pack = LoadKvPack<T>(p, 0, a.kv.dtype);
        to[i].words = *reinterpret_cast<const ::gpu::Pack<uint32_t>*>(&pack);
      }
    }
  }

  // What the wave's next rounds of keys take, while there is nothing else to do.
  GPU_FN void BringNear(const DecodeItem& it, int last, const int32_t* table, int tiles) {
    constexpr int kRounds = 3;
    const int stop = ::gpu::min(tiles, kRounds * ::gpu::waves());
#pragma unroll 1
    for (int tile = ::gpu::wave() + ::gpu::waves(); tile < stop; tile += ::gpu::waves()) {
      Find(it, last, table, tile);
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        ::gpu::prefetch(key_base + RowOffset(rows[i], row_bytes));
        ::gpu::prefetch(value_base + RowOffset(rows[i], row_bytes));
      }
    }
  }

  GPU_FN bool Writes() const { return args.write.slots != nullptr; }

  GPU_FN void AskForQuery(const DecodeItem& it, Eight (&e)[kRows]) const {
    const T* base = static_cast<const T*>(a.q.base) + it.token * a.q.stride +
                    static_cast<int64_t>(parts.head * a.group + parts.first_row) * parts.dim;
#pragma unroll
    for (int h = 0; h < kRows; ++h) {
      // Rows past the last are copies of it, which nobody reads.
      e[h] = LoadEight(base + ::gpu::min(h, parts.rows - 1) * parts.dim, at, parts.dim,
                       a.aligned != 0);
    }
  }
  GPU_FN void MakeQuery(const Eight (&e)[kRows], const HeadMaker<kLanes>& maker,
                        float (&q)[kRows][kN]) const {
#pragma unroll
    for (int h = 0; h < kRows; ++h) {
      ValuesOf<T>(e[h], q[h]);
      if (Writes()) maker.Make(q[h]);
#pragma unroll
      for (int j = 0; j < kN; ++j) q[h][j] *= a.scale_log2;
    }
  }

  // Of lanes that have scores of one head: all keys of the tile. Lanes' bits, from the highest: key
  // side by side, key in turn, head, copy.
  GPU_FN static float MostOfHead(float s) {
#pragma unroll
    for (int m = ::gpu::kWave / 2; m >= kCopies * kRows; m /= 2)
      s = ::gpu::max(s, ::gpu::shuffle_xor(s, m));
    return s;
  }

  // What a wave has gathered.
  struct Gathered {
    // Of the head that this lane has scores of; each copy has the whole weight.
    float high = -INFINITY, weight = 0;
    float sums[kRows][kN] = {};
  };

  // A key of this very step as the linear gave it, and where it goes.
  struct NewKey {
    Eight k, v;
    int slot;
  };
  GPU_FN NewKey AskForNew(int row) const {
    const KvWriteArgs& w = args.write;
    const auto load = [&](const Rows& rows) {
      const T* head = static_cast<const T*>(rows.base) + row * rows.stride +
                      static_cast<int64_t>(parts.head) * parts.dim;
      return LoadEight(head, at, parts.dim, w.aligned != 0);
    };
    return {load(w.k), load(w.v), w.slots[row]};
  }
  // By a whole wave, whose first kLanes lanes count.
  GPU_FN void AddNew(const NewKey& from, const HeadMaker<kLanes>& maker, bool keeps,
                     const float (&q)[kRows][kN], Gathered& g) const {
    float x[kN], y[kN];
    ValuesOf<T>(from.k, x);
    ValuesOf<T>(from.v, y);
    maker.Make(x);
    const int slot = from.slot;
    const bool mine = keeps && slot >= 0 && key_of_lane == 0 && at < parts.dim;
    const int block = BlockOf(slot);
    const int cached = KeyRow(a.kv, block, parts.head, slot - block * a.kv.block_size);
    KeepEight<T, kSame>(a.kv, key_base + RowOffset(cached, row_bytes), mine, x);
    KeepEight<T, kSame>(a.kv, value_base + RowOffset(cached, row_bytes), mine, y);
    float s = -INFINITY;
#pragma unroll
    for (int h = 0; h < kRows; ++h) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) sum += q[h][j] * x[j];
#pragma unroll
      for (int m = kLanes / 2; m > 0; m /= 2) sum += ::gpu::shuffle_xor(sum, m);
      if (::gpu::lane() % kLanes / kCopies % kRows == h) s = sum;
    }
    if (a.softcap != 0) s = Capped(s);
    const float now = ::gpu::max(g.high, s), factor = ::gpu::exp2(g.high - now),
                p = ::gpu::exp2(s - now);
    g.high = now;
    g.weight *= factor;
    if (::gpu::lane() < kCopies * kRows) g.weight += p;
#pragma unroll
    for (int h = 0; h < kRows; ++h) {
      const float f = ::gpu::shuffle(factor, h * kCopies);
      const float of_head = ::gpu::shuffle(p, h * kCopies), share = key_of_lane == 0 ? of_head : 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) g.sums[h][j] = g.sums[h][j] * f + share * y[j];
    }
  }
  GPU_FN float Capped(float s) const { return a.softcap * 1.44269504f * CapTanh<T>(s); }

  // `first`: this is the block's first item, before wait_predecessor(); `early`: keys of earlier
  // steps may be asked for before it.
  GPU_FN void Run(const DecodeItem& it, const int32_t* table, bool first, bool early) {
    // Keys of this very step stand at a request's end: they are made here, or may not be written
    // yet.
    const int position = Writes() ? a.positions[it.token] : 0;
    const int last = Writes() ? ::gpu::min(it.last, ::gpu::max(it.first, CachedKeys(it))) : it.last;
    const int tiles = (last - it.first + kKeys - 1) / kKeys;
    int tile = ::gpu::wave();
    if (!Writes()) early = early && it.first + (tile + 1) * kKeys <= last - a.new_tokens;
    if (first && !early) Wait();
    if (tile < tiles) {
      Find(it, last, table, tile);
      Load(key_base, k);
      Load(value_base, v);
    } else {
      // Or the registers would be taken for the last item's, and kept from other uses until then.
#pragma unroll
      for (int i = 0; i < kDepth; ++i) k[i] = v[i] = {};
    }
    // What makes q and a new key is asked for before they are there. New keys are for a wave that
    // has least to do, and before its others: they come with q.
    const bool makes = Writes() && last < it.last && ::gpu::wave() == tiles % ::gpu::waves();
    const HeadMaker<kLanes> maker(args.write, args.write.q_norm, args.write.q_table, position,
                                  Writes());
    HeadMaker<kLanes> key_maker(args.write, args.write.k_norm, args.write.k_table, last, makes);
    if (first && early) {
      BringNear(it, last, table, tiles);
      Wait();
    }
    Eight asked[kRows];
    AskForQuery(it, asked);
    const int new_row = it.token + last - position;
    NewKey key_asked = {};
    if (makes) key_asked = AskForNew(new_row);
    float q[kRows][kN];
    MakeQuery(asked, maker, q);

    Gathered g;
    if (makes) {
#pragma unroll 1
      for (int n = last;;) {
        AddNew(key_asked, key_maker, n == position && parts.first_row == 0, q, g);
        if (++n >= it.last) break;
        key_maker = HeadMaker<kLanes>(args.write, args.write.k_norm, args.write.k_table, n, true);
        key_asked = AskForNew(new_row + n - last);
      }
    }
    const int score = ::gpu::lane() % kLanes / kCopies;  // which one is this lane's
    const int key = score / kRows * kAtOnce + key_of_lane;
#pragma unroll 1
    for (; tile < tiles; tile += ::gpu::waves()) {
      const int next = tile + ::gpu::waves();
      float products[kScores];
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        float x[kN];
        ValuesOf<T>(k[i], x);
#pragma unroll
        for (int h = 0; h < kRows; ++h) {
          float sum = 0;
#pragma unroll
          for (int j = 0; j < kN; ++j) sum += q[h][j] * x[j];
          products[i * kRows + h] = sum;
        }
      }
      if (next < tiles) {
        Find(it, last, table, next);
        Load(key_base, k);
      }

      float s = SumsOfWave<kLanes / 2>(products);
      if (a.softcap != 0) s = Capped(s);
      if (it.first + tile * kKeys + key >= last) s = -INFINITY;
      const float now = ::gpu::max(g.high, MostOfHead(s));  // finite: a tile has a key
      const float factor = ::gpu::exp2(g.high - now), p = ::gpu::exp2(s - now);
      g.high = now;
      g.weight = g.weight * factor + p;
#pragma unroll
      for (int h = 0; h < kRows; ++h) {
        const float f = ::gpu::shuffle(factor, h * kCopies);
#pragma unroll
        for (int j = 0; j < kN; ++j) g.sums[h][j] *= f;
      }
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        float x[kN];
        ValuesOf<T>(v[i], x);
#pragma unroll
        for (int h = 0; h < kRows; ++h) {
          const float f = ::gpu::shuffle(p, key_of_lane * kLanes + (i * kRows + h) * kCopies);
#pragma unroll
          for (int j = 0; j < kN; ++j) g.sums[h][j] += f * x[j];
        }
      }
      if (next < tiles) Load(value_base, v);
    }

    // The wave's results: of its keys side by side, then into shared memory.
#pragma unroll
    for (int m = ::gpu::kWave / 2; m >= kCopies * kRows; m /= 2)
      g.weight += ::gpu::shuffle_xor(g.weight, m);
#pragma unroll
    for (int m = kLanes; m < ::gpu::kWave; m *= 2) {
#pragma unroll
      for (int h = 0; h < kRows; ++h) {
#pragma unroll
        for (int j = 0; j < kN; ++j) g.sums[h][j] += ::gpu::shuffle_xor(g.sums[h][j], m);
      }
    }
    if (::gpu::lane() < kLanes) {
#pragma unroll
      for (int h = 0; h < kRows; ++h) {
        auto* to = reinterpret_cast<Pack<float>*>(Sums(::gpu::wave()) + h * kDim + at);
#pragma unroll
        for (int j = 0; j < kN; j += 4)
          to[j / 4] = {{g.sums[h][j], g.sums[h][j + 1], g.sums[h][j + 2], g.sums[h][j + 3]}};
      }
    }
    if (::gpu::lane() < kCopies * kRows && ::gpu::lane() % kCopies == 0) {
      Stats(::gpu::wave())[::gpu::lane() / kCopies] = g.high;
      Stats(::gpu::wave())[kRows + ::gpu::lane() / kCopies] = g.weight;
    }
    ::gpu::sync();
    Finish(it);
  }

  // With writes, who comes after this launch may count on all before it.
  GPU_FN void Wait() const {
    ::gpu::wait_predecessor();
    if (Writes()) ::gpu::launch_dependents();
  }

  // A wave's sums, then the maximum and the weight of each head.
  static constexpr int kWaveFloats = RowWaveFloats(kDim, kRows);
  GPU_FN static float* Sums(int wave) {
    return reinterpret_cast<float*>(::gpu::shared()) + wave * kWaveFloats;
  }
  GPU_FN static float* Stats(int wave) { return Sums(wave) + kRows * kDim; }

  // The waves' results together: they are the token's, or a part of it. Waves without keys have
  // zeros.
  GPU_FN void Finish(const DecodeItem& it) {
    constexpr int kWaves = kRowThreads / ::gpu::kWave;
    const int dim = parts.dim;
    const bool whole = it.parts == 1, sinks = whole && parts.HasSinks();
    T* out = static_cast<T*>(a.out.base) + it.token * a.out.stride +
             static_cast<int64_t>(parts.head * a.group + parts.first_row) * dim;
    const int64_t part = whole ? 0 : parts.Row(it, it.part);
#pragma unroll 1
    for (int i = ::gpu::thread(); i < parts.rows * kDim; i += kRowThreads) {
      const int row = i / kDim, column = i % kDim;
      if (column >= dim) continue;
      const float sink = sinks ? parts.Sink(row) : -INFINITY;
      float high = sink;
#pragma unroll
      for (int w = 0; w < kWaves; ++w) high = ::gpu::max(high, Stats(w)[row]);
      const float base = high == -INFINITY ? 0 : high;  // there may be no keys
      float weight = ::gpu::exp2(sink - base), sum = 0;
#pragma unroll
      for (int w = 0; w < kWaves; ++w) {
        const float f = ::gpu::exp2(Stats(w)[row] - base);
        weight += f * Stats(w)[kRows + row];
        sum += f * Sums(w)[i];
      }
      if (whole) {
        out[row * dim + column] = ::gpu::from_float<T>(weight > 0 ? sum / weight : 0);
        continue;
      }
      a.partial_sums[(part + row) * dim + column] = sum;
      if (column == 0) {
        a.partial_stats[2 * (part + row)] = high;
        a.partial_stats[2 * (part + row) + 1] = weight;
      }
    }
    if (whole) {
      ::gpu::sync();  // before the next item's sums
      return;
    }
    if (parts.IsLast(it, reinterpret_cast<int*>(::gpu::shared()))) Join(it, out);
  }

  // All parts together, by the block that comes last. What each of them counts stands in shared
  // memory, so that many of their sums can be under way: of kAhead parts, for kPacks packs of
  // values a thread.
  template <int kAhead = 16, int kPacks = 1>
  GPU_FN void Join(const DecodeItem& it, T* out) const {
    float* shares = Sums(0);  // [rows][parts]
    for (int row = ::gpu::wave(); row < parts.rows; row += ::gpu::waves()) {
      const float sink = parts.HasSinks() ? parts.Sink(row) : -INFINITY;
      SharesOfParts(
          it.parts, sink, true, [&](int p) { return parts.Row(it, p) + row; }, a.partial_stats,
          shares + row * it.parts);
    }
    ::gpu::sync();
    const int dim = parts.dim, count = parts.rows * dim / 4;
#pragma unroll 1
    for (int i = ::gpu::thread(); i < count; i += kPacks * kRowThreads) {
      float sums[kPacks][4] = {};
#pragma unroll 1
      for (int first = 0; first < it.parts; first += kAhead) {
        Pack<float> x[kAhead][kPacks];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          const int64_t row = parts.Row(it, ::gpu::min(first + j, it.parts - 1));
          const auto* of_part = reinterpret_cast<const Pack<float>*>(a.partial_sums + row * dim);
#pragma unroll
          for (int n = 0; n < kPacks; ++n)
            x[j][n] = ::gpu::load_volatile(of_part + ::gpu::min(i + n * kRowThreads, count - 1));
        }
#pragma unroll
        for (int n = 0; n < kPacks; ++n) {
          const int row = ::gpu::min(4 * (i + n * kRowThreads) / dim, parts.rows - 1);
#pragma unroll
          for (int j = 0; j < kAhead; ++j) {
            const float share = first + j < it.parts ? shares[row * it.parts + first + j] : 0;
#pragma unroll
            for (int v = 0; v < 4; ++v) sums[n][v] += share * x[j][n].v[v];
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kPacks; ++n) {
        if (const int at_pack = i + n * kRowThreads; at_pack < count)
          StoreFour(out + 4 * at_pack, sums[n]);
      }
    }
    ::gpu::sync();
  }
  GPU_FN static void StoreFour(T* out, const float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = ::gpu::from_float<T>(v[i]);
  }
};

}  // namespace vt::gpu
