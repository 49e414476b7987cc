// The work list of a step (args_attention.h): a block a list.
#pragma once

#include "vt/gpu/tiles/attention_common.h"

namespace vt::gpu {

// Who makes a list: the threads of a block, or of its first wave alone, who need not meet.
template <bool kWaveAlone>
struct Team {
  GPU_FN static int rank() { return ::gpu::thread(); }
  GPU_FN static int size() { return kWaveAlone ? ::gpu::kWave : ::gpu::threads(); }
};

// Sum of `v` over the threads of the team before this one; `total` is that over all. `scratch`: an
// int a wave of shared memory, free again when this returns.
template <bool kWaveAlone>
GPU_FN int SumBefore(int v, int* scratch, int& total) {
  int sum = v;
  for (int d = 1; d < ::gpu::kWave; d *= 2) {
    const int other = ::gpu::shuffle(sum, ::gpu::lane() < d ? ::gpu::lane() : ::gpu::lane() - d);
    if (::gpu::lane() >= d) sum += other;
  }
  if (kWaveAlone) {
    total = ::gpu::shuffle(sum, ::gpu::kWave - 1);
    return sum - v;
  }
  if (::gpu::lane() == ::gpu::kWave - 1) scratch[::gpu::wave()] = sum;
  ::gpu::sync();
  int before = sum - v;
  total = 0;
  for (int w = 0; w < ::gpu::waves(); ++w) {
    if (w < ::gpu::wave()) before += scratch[w];
    total += scratch[w];
  }
  ::gpu::sync();
  return before;
}

// Keys [first, last) that tokens [begin, end) of a request see.
struct KeyRange {
  int first, last;
};
GPU_FN KeyRange KeysOf(const AttentionListSpec& s, int request, int begin, int end) {
  KeyRange k = {0, s.seq_lens[request]};
  if (s.causal != 0) k.last = ::gpu::min(k.last, s.positions[end - 1] + 1);
  k.first = ::gpu::min(FirstKey(s.window, s.positions[begin]), k.last);
  return k;
}

// Tiles of keys of one token; at least one, so that somebody writes its row.
GPU_FN int KeyTiles(KeyRange k) {
  return ::gpu::max(1, (k.last - k.first + kTileKeys - 1) / kTileKeys);
}

struct RequestWork {
  int begin, tokens;
  int decode_tiles;  // of keys, over all its tokens; 0 where it brings too many
};
GPU_FN RequestWork WorkOf(const AttentionListSpec& s, int request, int requests, int tokens) {
  RequestWork w = {0, 0, 0};
  if (request >= requests) return w;
  w.begin = s.query_start[request];
  w.tokens = ::gpu::min(s.query_start[request + 1], tokens) - w.begin;
  if (w.tokens > s.decode_tokens) return w;
  for (int t = w.begin; t < w.begin + w.tokens; ++t) {
    w.decode_tiles += KeyTiles(KeysOf(s, request, t, t + 1));
  }
  return w;
}

GPU_FN int CostClass(const QueryTile& t, int most_keys) {
  const int keys = t.last - t.first;
  return kCostClasses - 1 -
         static_cast<int>(static_cast<int64_t>(keys) * (kCostClasses - 1) / most_keys);
}

// How the tiles of keys of requests of few tokens are dealt to lanes.
struct Dealing {
  int lane_tiles;  // of a lane
  bool apart;      // a lane has one token alone

  // Tiles that a token takes of the row that is cut into lanes.
  GPU_FN int Room(int tiles) const {
    return apart ? (tiles + lane_tiles - 1) / lane_tiles * lane_tiles : tiles;
  }
};

// Lanes of the same length; where that costs a lane little more, each token begins in one of its
// own: a second one would begin only when the first one is done. And tokens of few tiles are better
// off in one lane each than where they must wait for one another.
template <bool kWaveAlone>
GPU_FN Dealing DealingOf(const AttentionListSpec& s, int requests, int tokens, int all_tiles,
                         int* scratch) {
  using T = Team<kWaveAlone>;
  const int lanes = s.list.lanes, even = (all_tiles + lanes - 1) / lanes;
  const auto lane_tiles = [&](int more) {
    return ::gpu::max(s.least_tiles, (even + more + s.lane_step - 1) / s.lane_step * s.lane_step);
  };
  if (tokens > lanes) return {lane_tiles(0), false};
#pragma unroll 1
  for (int i = s.whole_tiles > 0 ? -1 : 0; i < 4; ++i) {
    const int most = i < 0 ? s.whole_tiles : lane_tiles((1 << i) / 2 * s.lane_step);
    int needed = 0, cut = 0;
    for (int r = T::rank(); r < requests; r += T::size()) {
      const RequestWork w = WorkOf(s, r, requests, tokens);
      const int end = w.decode_tiles == 0 ? w.begin : w.begin + w.tokens;
      for (int t = w.begin; t < end; ++t) {
        const int lanes_of_token = (KeyTiles(KeysOf(s, r, t, t + 1)) + most - 1) / most;
        needed += lanes_of_token;
        cut += lanes_of_token - 1;
      }
    }
    int total;
    SumBefore<kWaveAlone>(i < 0 ? cut : needed, scratch, total);
    if (total <= (i < 0 ? 0 : lanes)) return {most, true};
  }
  return {lane_tiles(0), false};
}

// Requests of few tokens: the tiles of keys of all their tokens stand in one row, which is cut into
// lanes.
template <bool kWaveAlone>
GPU_FN void ListDecodes(const AttentionListSpec& s, int requests, int tokens, int* scratch) {
  using T = Team<kWaveAlone>;
  const int rounds = (requests + T::size() - 1) / T::size();
  int all_tiles = 0;
  for (int i = 0; i < rounds; ++i) {
    const int r = i * T::size() + T::rank();
    int total;
    SumBefore<kWaveAlone>(WorkOf(s, r, requests, tokens).decode_tiles, scratch, total);
    all_tiles += total;
  }
  const int lanes = s.list.lanes;
  const Dealing dealing = DealingOf<kWaveAlone>(s, requests, tokens, all_tiles, scratch);
  const int lane_tiles = dealing.lane_tiles;
  int tiles_before = 0, items_before = 0, joins_before = 0;
  for (int i = 0; i < rounds; ++i) {
    const int r = i * T::size() + T::rank();
    const RequestWork w = WorkOf(s, r, requests, tokens);
    int total;
    const int end = w.decode_tiles == 0 ? w.begin : w.begin + w.tokens;
    int room = 0;
    for (int t = w.begin; t < end; ++t) room += dealing.Room(KeyTiles(KeysOf(s, r, t, t + 1)));
    int start = tiles_before + SumBefore<kWaveAlone>(room, scratch, total);
    tiles_before += total;
    int parts = 0, joined = 0;
    for (int t = w.begin, at = start; t < end; ++t) {
      const int tiles = KeyTiles(KeysOf(s, r, t, t + 1));
      const int of_token = (at + tiles - 1) / lane_tiles - at / lane_tiles + 1;
      parts += of_token;
      joined += of_token > 1 ? 1 : 0;
      at += dealing.Room(tiles);
    }
    int item = items_before + SumBefore<kWaveAlone>(parts, scratch, total);
    items_before += total;
    int join = joins_before + SumBefore<kWaveAlone>(joined, scratch, total);
    joins_before += total;
    const int cached = w.tokens > 0 ? s.seq_lens[r] - w.tokens : 0;
    for (int t = w.begin; t < end; ++t) {
      const KeyRange keys = KeysOf(s, r, t, t + 1);
      const int tiles = KeyTiles(keys), lane = start / lane_tiles;
      const int token_parts = (start + tiles - 1) / lane_tiles - lane + 1;
      const bool is_long = keys.last - keys.first > static_cast<int64_t>(s.long_keys) * token_parts;
      for (int p = 0; p < token_parts; ++p, ++item) {
        const int from = ::gpu::max(start, (lane + p) * lane_tiles) - start;
        const int to = ::gpu::min(start + tiles, (lane + p + 1) * lane_tiles) - start;
        DecodeItem it;
        it.token = t;
        it.request = r;
        it.first = keys.first + from * kTileKeys;
        it.last = ::gpu::min(keys.last, keys.first + to * kTileKeys);
        it.part = p;
        it.parts = token_parts;
        it.lane = lane + p;
        it.cached = is_long ? ~cached : cached;
        s.list.items[item] = it;
        if (p > 0 || start == lane * lane_tiles) {
          s.list.lane_begin[lane + p] = item;
          s.list.lane_first[lane + p] = it;
        }
      }
      if (token_parts > 1) s.list.joins[join++] = {t, lane, token_parts, 0};
      start += dealing.Room(tiles);
    }
  }
  const int used = (tiles_before + lane_tiles - 1) / lane_tiles;
  for (int i = used + T::rank(); i <= lanes; i += T::size()) {
    s.list.lane_begin[i] = items_before;
  }
  if (T::rank() == 0) *s.list.join_count = joins_before;
}

// The same of one token alone, as most steps of one request have, by a wave: all that counts others
// would be waited for.
GPU_FN void ListOneToken(const AttentionListSpec& s) {
  const KeyRange keys = KeysOf(s, 0, 0, 1);
  const int tiles = KeyTiles(keys), cached = s.seq_lens[0] - 1, lanes = s.list.lanes;
  const int even = (tiles + lanes - 1) / lanes;
  const int lane_tiles =
      tiles <= s.whole_tiles
          ? s.whole_tiles
          : ::gpu::max(s.least_tiles, (even + s.lane_step - 1) / s.lane_step * s.lane_step);
  const int parts = (tiles + lane_tiles - 1) / lane_tiles;
  const bool is_long = keys.last - keys.first > static_cast<int64_t>(s.long_keys) * parts;
  for (int p = ::gpu::lane(); p <= lanes; p += ::gpu::kWave) {
    s.list.lane_begin[p] = ::gpu::min(p, parts);
    if (p >= parts) continue;
    DecodeItem it;
    it.token = it.request = 0;
    it.first = keys.first + p * lane_tiles * kTileKeys;
    it.last = ::gpu::min(keys.last, it.first + lane_tiles * kTileKeys);
    it.part = it.lane = p;
    it.parts = parts;
    it.cached = is_long ? ~cached : cached;
    s.list.items[p] = s.list.lane_first[p] = it;
  }
  if (::gpu::lane() != 0) return;
  if (parts > 1) s.list.joins[0] = {0, 0, parts, 0};
  *s.list.join_count = parts > 1 ? 1 : 0;
}

// Requests of many tokens. Which of equally costly tiles goes first does not matter.
GPU_FN void ListTiles(const AttentionListSpec& s, int requests, int tokens, int* scratch) {
  int* classes = scratch + ::gpu::waves();  // [kCostClasses + 1]
  int* most = classes + kCostClasses;
  for (int i = ::gpu::thread(); i < kCostClasses; i += ::gpu::threads()) classes[i] = 0;
  const int rounds = (requests + ::gpu::threads() - 1) / ::gpu::threads();
  int count = 0, longest = 1;
  for (int i = 0; i < rounds; ++i) {
    const int r = i * ::gpu::threads() + ::gpu::thread();
    const RequestWork w = WorkOf(s, r, requests, tokens);
    const int mine =
        w.tokens > s.decode_tokens ? (w.tokens + s.tile_tokens - 1) / s.tile_tokens : 0;
    int total;
    const int at = count + SumBefore<false>(mine, scratch, total);
    for (int j = 0; j < mine; ++j) {
      QueryTile t;
      t.request = r;
      t.begin = w.begin + j * s.tile_tokens;
      t.end = ::gpu::min(t.begin + s.tile_tokens, w.begin + w.tokens);
      const KeyRange keys = KeysOf(s, r, t.begin, t.end);
      t.first = keys.first;
      t.last = keys.last;
      t.reserved[0] = t.reserved[1] = t.reserved[2] = 0;
      s.list.unsorted[at + j] = t;
      longest = ::gpu::max(longest, keys.last - keys.first);
    }
    count += total;
  }
  // Over the block, by way of waves: lengths are below 2^24, where floats are exact enough to sort.
  const float longest_of_wave = ::gpu::wave_max(static_cast<float>(longest));
  if (::gpu::lane() == 0) scratch[::gpu::wave()] = static_cast<int>(longest_of_wave);
  ::gpu::sync();
  if (::gpu::thread() == 0) {
    int m = 1;
    for (int w = 0; w < ::gpu::waves(); ++w) m = ::gpu::max(m, scratch[w]);
    *most = m + 1;
    *s.list.tile_count = count;
  }
  ::gpu::sync();
  for (int i = ::gpu::thread(); i < count; i += ::gpu::threads()) {
    ::gpu::atomic_add(&classes[CostClass(s.list.unsorted[i], *most)], 1);
  }
  ::gpu::sync();
  int before = 0;
  for (int begin = 0; begin < kCostClasses; begin += ::gpu::threads()) {
    const int c = begin + ::gpu::thread();
    int total;
    const int at = before + SumBefore<false>(c < kCostClasses ? classes[c] : 0, scratch, total);
    if (c < kCostClasses) classes[c] = at;
    before += total;
  }
  ::gpu::sync();
  for (int i = ::gpu::thread(); i < count; i += ::gpu::threads()) {
    const QueryTile& t = s.list.unsorted[i];  // a copy would pass through memory
    s.list.tiles[::gpu::atomic_add(&classes[CostClass(t, *most)], 1)] = t;
  }
}

GPU_FN void AttentionBegin(const AttentionBeginArgs& a) {
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  auto* scratch = reinterpret_cast<int*>(::gpu::shared());
  const AttentionListSpec& s = a.lists[::gpu::block()];
  // Zero already, unless a step was cut off in its middle.
  for (int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread(); i < a.counter_count;
       i += ::gpu::blocks() * ::gpu::threads()) {
    a.counters[i] = 0;
  }
  if (s.list.items == nullptr) return;  // counters alone
  const int requests = a.header->requests, tokens = a.header->tokens;
  if (requests == 1 && tokens == 1 && s.decode_tokens > 0) {
    if (::gpu::wave() == 0) ListOneToken(s);
  } else if (requests > ::gpu::kWave) {
    ListDecodes<false>(s, requests, tokens, scratch);
  } else if (::gpu::wave() == 0) {
    ListDecodes<true>(s, requests, tokens, scratch);
  }
  if (s.tile_tokens > 0) {
    ::gpu::sync();
    ListTiles(s, requests, tokens, scratch);
  }
}

}  // namespace vt::gpu
