// An item of a token of many keys, by all blocks of its lane that have heads of q over one head of
// keys. A block a head would have each of them read all keys, which with eight heads a head is more
// than the cache all multiprocessors share gives. Here a block takes kHeads of the heads and a
// share of the item's keys: eight columns of matrix products whose rows are keys, or values, which
// go from memory to the product by way of registers. So all keys are read once.
//
// Each wave takes tiles of its own. A block's sums meet in shared memory, those of blocks in the
// workspace, where the one that comes last adds them up: they are then the item's, which is the
// token or a part of it as ever.
#pragma once

#include "vt/gpu/tiles/attention_heads.h"

namespace vt::gpu {

// The cache holds T.
template <class T, int kLanes>
struct LongItem {
  using One = AttentionRows<T, kLanes, 1, true>;
  using M = ::gpu::ThinMma<T>;
  using Words = ::gpu::Pack<uint32_t>;
  static constexpr int kDim = kLanes * 8;  // head_dim itself
  static constexpr int kWaves = kRowThreads / ::gpu::kWave;
  static constexpr int kHeads = LongHeads(::gpu::kWave);
  static constexpr int kSteps = kDim / 32;          // of k, for scores
  static constexpr int kChunks = kDim / 64;         // of values
  static constexpr int kTiles = kDim > 64 ? 1 : 2;  // of 16 keys that a wave takes at once
  static constexpr int kKeys = kTiles * M::kM;
  // Whether there are registers for a tile's values beside its keys.
  static constexpr bool kApart = kDim <= 128;
  static constexpr int kQueryPitch = KeyPitch(kDim, sizeof(T));
  // Sums of a block pass through shared memory by half chunks: four values of each eight.
  static constexpr int kPass = kHeads * 32, kPasses = 2 * kChunks;
  static constexpr int kSums = kHeads * kDim;
  static constexpr int kMostParts = LongParts(kHeads);  // shares are no more than heads
  static_assert(sizeof(T) == 2 && kDim % 64 == 0 && kHeads <= M::kN && kHeads <= kWaves);

  // Waves make q and new keys of a head each as a block of one row does.
  One rows;
  const AttentionArgs& a;
  int head, first_row, heads;  // of keys; of q in its group, of this block
  int shares, share;           // of an item's keys: blocks of its lane, this block
  int group;                   // of blocks that share an item, among those of a lane

  GPU_FN LongItem(const AttentionRowArgs& args, int column)
      : rows(args, column / args.read.row_tiles, 0), a(args.read) {
    const int block = column % a.row_tiles;
    head = column / a.row_tiles;
    shares = a.long_shares;
    share = block % shares;
    const int tile = block / shares;  // blocks past the last have nothing to do
    group = head * a.long_tiles + tile;
    first_row = tile * kHeads;
    heads = ::gpu::min(kHeads, a.group - first_row);
  }

  // The row of the cache of the tile's key that is this lane's.
  GPU_FN int RowOf(const DecodeItem& it, int last, const int32_t* table, int tile) const {
    const int key = ::gpu::min(it.first + tile * kKeys + ::gpu::lane() % kKeys, last - 1);
    const int block = rows.BlockOf(key);
    return KeyRow(a.kv, table[block], head, key - block * a.kv.block_size);
  }
  // Eight values from `at` on of a row that starts at p.
  GPU_FN Words Load(const char* p, int at) const {
    return ::gpu::load_stream(reinterpret_cast<const Words*>(p + at * sizeof(T)));
  }
  GPU_FN const char* RowAt(int rows_of_lanes, int key) const {
    return a.kv.data + RowOffset(::gpu::shuffle(rows_of_lanes, key), kDim * sizeof(T));
  }
  // `rows_of_lanes`: what RowOf said in each lane.
  GPU_FN void LoadKeys(int rows_of_lanes, Words (&k)[kTiles][kSteps][2]) const {
#pragma unroll
    for (int u = 0; u < kTiles; ++u) {
      const char* of[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) of[i] = RowAt(rows_of_lanes, u * M::kM + M::row(2 * i));
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int i = 0; i < 2; ++i) k[u][s][i] = Load(of[i], s * 32 + M::k_at());
      }
    }
  }
  // Where the values of this lane's four keys of a tile stand.
  struct Across {
    const char* row[4];
  };
  GPU_FN Across AcrossOf(int rows_of_lanes, int tile) const {
    Across across;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      across.row[i] = RowAt(rows_of_lanes + ValuesAfter(a.kv), tile * M::kM + M::across_k(i));
    }
    return across;
  }
  GPU_FN void LoadChunk(const Across& from, int chunk, Words (&v)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = Load(from.row[i], chunk * 64 + M::across_at());
  }
  GPU_FN void LoadValues(int rows_of_lanes, Words (&v)[kTiles][kChunks][4]) const {
#pragma unroll
    for (int u = 0; u < kTiles; ++u) {
      const Across from = AcrossOf(rows_of_lanes, u);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) LoadChunk(from, c, v[u][c]);
    }
  }

  template <int kA, int kB, int kC>
  GPU_FN static void Clear(Words (&w)[kA][kB][kC]) {
#pragma unroll
    for (int i = 0; i < kA; ++i) {
#pragma unroll
      for (int j = 0; j < kB; ++j) {
#pragma unroll
        for (int l = 0; l < kC; ++l) w[i][j][l] = {{0, 0, 0, 0}};
      }
    }
  }

  // --- shared memory
  GPU_FN static float* Stats(int wave) {  // [heads] of (maximum, weight)
    return reinterpret_cast<float*>(::gpu::shared()) + wave * kHeads * 2;
  }
  static constexpr int kStatsBytes = LongStatsBytes(::gpu::kWave);
  GPU_FN static char* AfterStats() { return ::gpu::shared() + kStatsBytes; }
  GPU_FN static T* Query(int of) { return reinterpret_cast<T*>(AfterStats()) + of * kQueryPitch; }
  // Where a pass has four values of each eight of a chunk: no two of a wave's stores collide.
  GPU_FN static int SlotOf(int of_head, int eight) {
    return of_head * 32 + (eight ^ (of_head & 6)) * 4;
  }

  // --- the workspace
  GPU_FN int GroupOf(int index) const { return index * a.kv.kv_heads * a.long_tiles + group; }
  GPU_FN int64_t Part(int index, int part) const {
    return static_cast<int64_t>(GroupOf(index)) * (shares + 1) + part;
  }
  GPU_FN float* PartSums(int64_t part) const { return a.group_sums + part * kSums; }
  GPU_FN float* PartStats(int64_t part) const { return a.group_stats + part * (2 * kHeads); }

  // q of this wave's head, for all waves. Its new keys, if it makes them, are a part of their own:
  // `of`.
  GPU_FN void MakeHead(const DecodeItem& it, int last, int position, bool makes, int64_t of,
                       bool waits) {
    const int wave = ::gpu::wave();
    rows.parts.first_row = first_row + ::gpu::min(wave, heads - 1);
    rows.parts.rows = 1;
    const KvWriteArgs& write = rows.args.write;
    const HeadMaker<kLanes> maker(write, write.q_norm, write.q_table, position, rows.Writes());
    if (waits) rows.Wait();
    Eight asked[1];
    rows.AskForQuery(it, asked);
    const int new_row = it.token + last - position;
    typename One::NewKey key_asked = {};
    if (makes) key_asked = rows.AskForNew(new_row);
    float q[1][8];
    ValuesOf<T>(asked[0], q[0]);
    if (rows.Writes()) maker.Make(q[0]);
    const int at = rows.at;
    Words w;
#pragma unroll
    for (int i = 0; i < 4; ++i) w.v[i] = ::gpu::pack2(q[0][2 * i], q[0][2 * i + 1], T{});
    if (::gpu::lane() < kLanes && wave < kHeads) *reinterpret_cast<Words*>(Query(wave) + at) = w;
    if (!makes) return;
    HeadMaker<kLanes> key_maker(write, write.k_norm, write.k_table, last, true);
#pragma unroll
    for (int j = 0; j < 8; ++j) q[0][j] *= a.scale_log2;
    typename One::Gathered g;
#pragma unroll 1
    for (int n = last;;) {
      rows.AddNew(key_asked, key_maker, n == position && rows.parts.first_row == 0 && wave == 0, q,
                  g);
      if (++n >= it.last) break;
      key_maker = HeadMaker<kLanes>(write, write.k_norm, write.k_table, n, true);
      key_asked = rows.AskForNew(new_row + n - last);
    }
    if (wave >= kHeads) return;
    if (::gpu::lane() == 0) {
      PartStats(of)[2 * wave] = g.high;
      PartStats(of)[2 * wave + 1] = g.weight;
    }
    if (::gpu::lane() < kLanes) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pass = at / 64 * 2 + half;
        const float* x = g.sums[0] + 4 * half;
        *reinterpret_cast<Pack<float>*>(PartSums(of) + pass * kPass +
                                        SlotOf(wave, at % 64 / 8)) = {{x[0], x[1], x[2], x[3]}};
      }
    }
  }

  // `index`: of the item in the list. The others as of AttentionRows' Run.
  GPU_FN void Run(const DecodeItem& it, int index, const int32_t* table, bool first, bool early) {
    if (heads <= 0) {
      if (first) rows.Wait();
      return;
    }
    const bool writes = rows.Writes();
    const int position = writes ? a.positions[it.token] : 0;
    const int last = writes ? ::gpu::min(it.last, ::gpu::max(it.first, CachedKeys(it))) : it.last;
    const int tiles = (last - it.first + kKeys - 1) / kKeys;
    const int step = kWaves * shares;
    // Of few tiles all blocks have some.
    int tile = ::gpu::wave() * shares + share;
    if (!writes) early = early && it.first + (tile + 1) * kKeys <= last - a.new_tokens;
    if (first && !early) rows.Wait();
    int row = 0;
    Words k[kTiles][kSteps][2], v[kTiles][kChunks][4];
    if (tile < tiles) {
      row = RowOf(it, last, table, tile);
      LoadKeys(row, k);
      if constexpr (kApart) LoadValues(row, v);
    } else {
      // Or the registers would be taken for the last item's, and kept from other uses until then.
      Clear(k);
      Clear(v);
    }
    const bool news = writes && last < it.last;
    MakeHead(it, last, position, news && share == shares - 1, Part(index, shares), first && early);
    ::gpu::sync();

    // Of this lane's two heads.
    float high[2] = {-INFINITY, -INFINITY}, weight[2] = {};
    typename M::C sums[kChunks][4];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int m = 0; m < 4; ++m) sums[c][m] = M::zero();
    }
#pragma unroll 1
    while (tile < tiles) {
      ::gpu::sync_wave();  // or q would be kept in registers, of which there are none left
      const int next = tile + step;
      typename M::C scores[kTiles];
#pragma unroll
      for (int u = 0; u < kTiles; ++u) {
        scores[u] = M::zero();
        Across from = {};
        if constexpr (!kApart) from = AcrossOf(row, u);
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          const Words q = *reinterpret_cast<const Words*>(
              Query(::gpu::min(M::thin_row(), kHeads - 1)) + s * 32 + M::k_at());
          M::mma(scores[u], k[u][s][0], k[u][s][1], q);
          // In the place of those keys.
          if constexpr (!kApart) {
            if (s % 2 == 1) LoadChunk(from, s / 2, v[u][s / 2]);
          }
        }
      }
      const int next_row = RowOf(it, last, table, ::gpu::min(next, tiles - 1));
      if constexpr (kApart) {
        if (next < tiles) LoadKeys(next_row, k);
      }

      float most[2] = {high[0], high[1]};
      float p[kTiles][4];
#pragma unroll
      for (int u = 0; u < kTiles; ++u) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float s = scores[u].v[i] * a.scale_log2;
          if (a.softcap != 0) s = rows.Capped(s);
          if (it.first + tile * kKeys + u * M::kM + M::row(i) >= last) s = -INFINITY;
          p[u][i] = s;
          most[i % 2] = ::gpu::max(most[i % 2], s);
        }
      }
      M::over_rows(most, [](float x, float y) { return ::gpu::max(x, y); });
      float factor[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factor[j] = ::gpu::exp2(high[j] - most[j]);  // finite: a tile has a key
        high[j] = most[j];
        weight[j] *= factor[j];
      }
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int m = 0; m < 4; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[c][m].v[i] *= factor[i % 2];
        }
      }
#pragma unroll
      for (int u = 0; u < kTiles; ++u) {
        typename M::C weights;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          weights.v[i] = ::gpu::exp2(p[u][i] - high[i % 2]);
          weight[i % 2] += weights.v[i];
        }
        const typename M::B shared_out = M::turned(weights);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) M::mma_across(sums[c], v[u][c], shared_out);
      }
      // Loads that might not be would keep what is in their registers.
      if (next >= tiles) break;
      if constexpr (kApart) {
        LoadValues(next_row, v);
      } else {
        LoadKeys(next_row, k);
      }
      row = next_row;
      tile = next;
    }
    M::over_rows(weight, [](float x, float y) { return x + y; });
    Meet(high, weight, sums, Part(index, share));
    if (LastOf(a.group_counters + GroupOf(index), shares, reinterpret_cast<int*>(::gpu::shared())))
      Finish(it, Part(index, 0), shares + (news ? 1 : 0));
  }

  // The block's sums, into a part of the workspace.
  GPU_FN void Meet(const float (&high)[2], const float (&weight)[2],
                   const typename M::C (&sums)[kChunks][4], int64_t part) const {
    const int wave = ::gpu::wave();
    const bool mine[2] = {M::column(0) < kHeads, M::column(1) < kHeads};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (!M::leads() || !mine[j]) continue;
      Stats(wave)[2 * M::column(j)] = high[j];
      Stats(wave)[2 * M::column(j) + 1] = weight[j];
    }
    ::gpu::sync();  // q has been read, too
    float factor[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float most = -INFINITY;
#pragma unroll
      for (int w = 0; w < kWaves; ++w)
        most = ::gpu::max(most, Stats(w)[2 * ::gpu::min(M::column(j), kHeads - 1)]);
      factor[j] = most == -INFINITY ? 0 : ::gpu::exp2(high[j] - most);
    }
    if (::gpu::thread() < kHeads) {
      const int of = 2 * ::gpu::thread();
      float most = -INFINITY, sum = 0;
#pragma unroll
      for (int w = 0; w < kWaves; ++w) most = ::gpu::max(most, Stats(w)[of]);
      const float base = most == -INFINITY ? 0 : most;  // there may be no keys
#pragma unroll
      for (int w = 0; w < kWaves; ++w) sum += ::gpu::exp2(Stats(w)[of] - base) * Stats(w)[of + 1];
      PartStats(part)[of] = most;
      PartStats(part)[of + 1] = sum;
    }
    float* area = reinterpret_cast<float*>(AfterStats());
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const typename M::C(&c)[4] = sums[pass / 2];
      const int m = pass % 2 * 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float f = factor[j];
        if (mine[j]) {
          *reinterpret_cast<Pack<float>*>(area + wave * kPass +
                                          SlotOf(M::column(j), M::across_at() / 8)) = {
              {f * c[m].v[j], f * c[m].v[2 + j], f * c[m + 1].v[j], f * c[m + 1].v[2 + j]}};
        }
      }
      ::gpu::sync();
      if (const int i = ::gpu::thread(); i < kPass) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWaves; ++w) sum += area[w * kPass + i];
        PartSums(part)[pass * kPass + i] = sum;
      }
      ::gpu::sync();
    }
  }

  // All blocks' sums together, by the block that comes last: they are the item's.
  GPU_FN void Finish(const DecodeItem& it, int64_t first_part, int count) {
    constexpr int kPitch = 16, kPacks = (kSums / 4 + kRowThreads - 1) / kRowThreads;
    static_assert(kMostParts <= kPitch);
    float* to_add = reinterpret_cast<float*>(::gpu::shared());  // [heads][kPitch]
    const bool whole = it.parts == 1;
    rows.parts.first_row = first_row;
    rows.parts.rows = heads;
    const TokenParts& parts = rows.parts;
    const int64_t row = whole ? 0 : parts.Row(it, it.part);
    if (const int of = ::gpu::wave(); of < heads) {
      const float sink = whole && parts.HasSinks() ? parts.Sink(of) : -INFINITY;
      const PartsTotal total = SharesOfParts(
          count, sink, whole, [&](int p) { return (first_part + p) * kHeads + of; }, a.group_stats,
          to_add + of * kPitch);
      if (!whole && ::gpu::lane() == 0) {
        a.partial_stats[2 * (row + of)] = total.high;
        a.partial_stats[2 * (row + of) + 1] = total.weight;
      }
    }
    Pack<float> x[kMostParts][kPacks];
#pragma unroll
    for (int p = 0; p < kMostParts; ++p) {
      const auto* from =
          reinterpret_cast<const Pack<float>*>(PartSums(first_part + ::gpu::min(p, count - 1)));
#pragma unroll
      for (int n = 0; n < kPacks; ++n) {
        x[p][n] = ::gpu::load_volatile(
            from + ::gpu::min(::gpu::thread() + n * kRowThreads, kSums / 4 - 1));
      }
    }
    ::gpu::sync();
    T* out = static_cast<T*>(a.out.base) + it.token * a.out.stride +
             static_cast<int64_t>(head * a.group + first_row) * kDim;
#pragma unroll
    for (int n = 0; n < kPacks; ++n) {
      // Back from passes to heads.
      const int at = 4 * (::gpu::thread() + n * kRowThreads), pass = at / kPass,
                of = at % kPass / 32, eight = at % 32 / 4 ^ (of & 6);
      if (at >= kSums || of >= heads) continue;
      float sum[4] = {};
#pragma unroll
      for (int p = 0; p < kMostParts; ++p) {
        const float s = p < count ? to_add[of * kPitch + p] : 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += s * x[p][n].v[i];
      }
      const int column = pass / 2 * 64 + eight * 8 + pass % 2 * 4;
      if (whole) {
        rows.StoreFour(out + of * kDim + column, sum);
      } else {
        *reinterpret_cast<Pack<float>*>(a.partial_sums + (row + of) * kDim +
                                        column) = {{sum[0], sum[1], sum[2], sum[3]}};
      }
    }
    if (whole) {
      ::gpu::sync();  // before the next item's q
    } else if (parts.IsLast(it, reinterpret_cast<int*>(::gpu::shared()))) {
      rows.template Join<8, kPacks>(it, out);
    }
  }
};

}  // namespace vt::gpu
