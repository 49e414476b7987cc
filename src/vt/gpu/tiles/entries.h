// Caches of which windows of tokens leave an entry: making entries, choosing among them, attention
// over them and a window of tokens.
#pragma once

#include "vt/gpu/args_entries.h"
#include "vt/gpu/tiles/attention_common.h"
#include "vt/gpu/tiles/request_of.h"

namespace vt::gpu {

// Where a token of the step stands in its request.
struct TokenPlace {
  int request, position;
};
GPU_FN TokenPlace PlaceOf(const Header* h, const StepTokens& t, int token) {
  return {RequestOf(t.query_start, h->requests, token), t.positions[token]};
}

GPU_FN int RowBytes(const Pages& p) { return p.kv.head_dim * KvBytes(p.kv.dtype); }
GPU_FN char* PageRow(const Header* h, const Pages& p, int request, int position) {
  const int size = p.kv.block_size;
  const int block = p.table[request * h->table_stride + position / size];
  return p.kv.data + RowOffset(block * size + position % size, RowBytes(p));
}
// The rows of an entry are of one block.
GPU_FN char* EntryRow(const Header* h, const EntryPlaces& e, int request, int entry) {
  return PageRow(h, e.pages, request, (entry + 1) * e.ratio - e.rows);
}
GPU_FN int EntryOffset(const EntryPlaces& e, int i) {
  return i / e.piece * RowBytes(e.pages) + (e.begin + i % e.piece) * KvBytes(e.pages.kv.dtype);
}

// --- making

// The sum of a channel's values by the softmax of its gates, token by token.
struct ChannelSum {
  float high, total, sum;
  GPU_FN void Add(float gate, float value) {
    const float next = ::gpu::max(high, gate);
    const float kept = ::gpu::exp(high - next), share = ::gpu::exp(gate - next);
    high = next;
    total = total * kept + share;
    sum = sum * kept + share * value;
  }
};

GPU_FN void Compress(const CompressArgs& a) {
  const int token = ::gpu::block();
  if (token >= a.header->tokens) return;
  const TokenPlace place = PlaceOf(a.header, a.tokens, token);
  const int ratio = a.entries.ratio, first = place.position + 1 - ratio;
  if ((place.position + 1) % ratio != 0) return;
  auto* out = reinterpret_cast<float*>(::gpu::shared());
  const int width = a.overlap != 0 ? 2 * a.dim : a.dim;
  float squares = 0;
  for (int c = ::gpu::thread(); c < a.dim; c += ::gpu::threads()) {
    ChannelSum s = {-::gpu::float_of(0x7f7fffff), 0, 0};
    const auto add = [&](int begin, int column) {
      for (int j = 0; j < ratio; ++j) {
        const char* row = PageRow(a.header, a.raw, place.request, begin + j);
        s.Add(LoadKv(row, a.gates + column, a.raw.kv.dtype) + a.bias[j * width + column],
              LoadKv(row, a.values + column, a.raw.kv.dtype));
      }
    };
    add(first, width - a.dim + c);
    if (a.overlap != 0 && first >= ratio) add(first - ratio, c);
    out[c] = s.sum / s.total;
    squares += out[c] * out[c];
  }
  squares = ::gpu::block_sum(squares, out + a.dim);
  const float scale = ::gpu::rsqrt(squares / static_cast<float>(a.dim) + a.eps);
  for (int c = ::gpu::thread(); c < a.dim; c += ::gpu::threads()) out[c] *= scale * a.norm[c];
  ::gpu::sync();
  const int kept = a.dim - a.rotary, half = a.rotary / 2;
  char* row = EntryRow(a.header, a.entries, place.request, first / ratio);
  const float* turns = a.table + static_cast<int64_t>(first) * a.rotary;
  for (int c = ::gpu::thread(); c < a.dim; c += ::gpu::threads()) {
    float v = out[c];
    if (c >= kept) {
      const int i = c - kept;
      const bool second = a.interleaved != 0 ? i % 2 != 0 : i >= half;
      const int pair = a.interleaved != 0 ? i / 2 : i % half, step = a.interleaved != 0 ? 1 : half;
      const float other = out[second ? c - step : c + step];
      v = v * turns[2 * pair] + (second ? other : -other) * turns[2 * pair + 1];
    }
    StoreKv(row + EntryOffset(a.entries, c), 0, a.entries.pages.kv.dtype, v);
  }
}

// --- choosing

// Floats as words that compare likewise; NaN is the least.
GPU_FN uint32_t KeyOf(float v) {
  if (v != v) return 0;
  const uint32_t bits = ::gpu::bits_of(v);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// A thread an entry; scores are made anew in each of the passes, which find a digit of the last
// chosen one's each.
template <class T>
struct IndexTile {
  const IndexArgs& a;
  int token, complete;
  TokenPlace place;
  float *q, *weights;
  int *flags, *equals, *bins, *found;

  GPU_FN explicit IndexTile(const IndexArgs& args) : a(args), token(::gpu::block()) {
    q = reinterpret_cast<float*>(::gpu::shared());
    weights = q + a.heads * a.dim;
    flags = reinterpret_cast<int*>(weights + a.heads);
    equals = flags + kIndexThreads;
    bins = equals + kIndexThreads;
    found = bins + kIndexBins;
  }
  GPU_FN void Run() {
    if (token >= a.header->tokens) return;
    place = PlaceOf(a.header, a.tokens, token);
    complete = (place.position + 1) / a.entries.ratio;
    int* ids = a.ids + static_cast<int64_t>(token) * a.top_k;
    if (complete <= a.top_k) {
      for (int i = ::gpu::thread(); i < a.top_k; i += ::gpu::threads())
        ids[i] = i < complete ? i : -1;
      return;
    }
    for (int i = ::gpu::thread(); i < a.heads * a.dim; i += ::gpu::threads())
      q[i] = ::gpu::to_float(RowOf<T>(a.q, token * a.heads + i / a.dim)[i % a.dim]);
    for (int h = ::gpu::thread(); h < a.heads; h += ::gpu::threads())
      weights[h] = RowOf<const float>(a.weights, token)[h];
    ::gpu::sync();
    int left = a.top_k;
    uint32_t last = 0;
    for (int shift = 24; shift >= 0; shift -= 8) last |= Digit(last, shift, left) << shift;
    Write(last, left, ids);
  }

 private:
  GPU_FN uint32_t Key(int entry) const {
    const char* row = EntryRow(a.header, a.entries, place.request, entry);
    float score = 0;
    for (int first = 0; first < a.heads; first += kIndexHeads) {
      float dots[kIndexHeads] = {};
      for (int i = 0; i < a.dim; ++i) {
        const float k = LoadKv(row + EntryOffset(a.entries, i), 0, a.entries.pages.kv.dtype);
#pragma unroll
        for (int h = 0; h < kIndexHeads; ++h)
          dots[h] += first + h < a.heads ? q[(first + h) * a.dim + i] * k : 0.0f;
      }
#pragma unroll
      for (int h = 0; h < kIndexHeads; ++h)
        score += first + h < a.heads ? weights[first + h] * ::gpu::max(dots[h], 0.0f) : 0.0f;
    }
    return KeyOf(score);
  }
  // The digit at `shift` of the left-th largest key among those that agree with `prefix` above it;
  // `left` becomes its rank among those that have this digit too.
  GPU_FN uint32_t Digit(uint32_t prefix, int shift, int& left) {
    for (int i = ::gpu::thread(); i < kIndexBins; i += ::gpu::threads()) bins[i] = 0;
    ::gpu::sync();
    for (int e = ::gpu::thread(); e < complete; e += ::gpu::threads()) {
      const uint32_t key = Key(e);
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8))
        ::gpu::atomic_add(&bins[key >> shift & 255], 1);
    }
    ::gpu::sync();
    if (::gpu::thread() == 0) {
      int digit = kIndexBins - 1;
      for (; digit > 0 && bins[digit] < left; --digit) left -= bins[digit];
      found[0] = digit;
      found[1] = left;
    }
    ::gpu::sync();
    left = found[1];
    const auto digit = static_cast<uint32_t>(found[0]);
    ::gpu::sync();
    return digit;
  }
  // Entries above `last` and the first `ties` equal to it, rising.
  GPU_FN void Write(uint32_t last, int ties, int* ids) {
    int written = 0, tied = 0;
    for (int base = 0; base < complete; base += ::gpu::threads()) {
      const int entry = base + ::gpu::thread();
      const uint32_t key = entry < complete ? Key(entry) : 0;
      flags[::gpu::thread()] = entry < complete && key > last ? 1 : 0;
      equals[::gpu::thread()] = entry < complete && key == last ? 1 : 0;
      ::gpu::sync();
      int before = 0, same = tied, all = 0, all_same = tied;
      for (int i = 0; i < ::gpu::threads(); ++i) {
        const int taken = flags[i] + (equals[i] != 0 && all_same < ties ? 1 : 0);
        all_same += equals[i];
        if (i < ::gpu::thread()) before += taken;
        if (i < ::gpu::thread()) same += equals[i];
        all += taken;
      }
      const bool mine =
          flags[::gpu::thread()] != 0 || (equals[::gpu::thread()] != 0 && same < ties);
      if (mine) ids[written + before] = entry;
      written += all;
      tied = all_same;
      ::gpu::sync();
    }
  }
};

// --- attention

template <class T>
struct EntryAttentionTile {
  const EntryAttentionArgs& a;
  float q[kEntryLaneValues], sum[kEntryLaneValues];
  int window_at[kEntryLaneValues], entry_at[kEntryLaneValues];  // of this lane's values in rows
  float high, total;

  GPU_FN explicit EntryAttentionTile(const EntryAttentionArgs& args) : a(args) {}
  GPU_FN bool Mine(int k) const { return ::gpu::lane() + k * ::gpu::kWave < a.dim; }

  GPU_FN void Key(const char* row, const int (&at)[kEntryLaneValues], int32_t type) {
    float v[kEntryLaneValues], dot = 0;
#pragma unroll
    for (int k = 0; k < kEntryLaneValues; ++k) {
      v[k] = Mine(k) ? LoadKv(row + at[k], 0, type) : 0.0f;
      dot += q[k] * v[k];
    }
    const float score = ::gpu::wave_sum(dot) * a.scale;
    const float next = ::gpu::max(high, score);
    const float kept = ::gpu::exp(high - next), share = ::gpu::exp(score - next);
    high = next;
    total = total * kept + share;
#pragma unroll
    for (int k = 0; k < kEntryLaneValues; ++k) sum[k] = sum[k] * kept + share * v[k];
  }

  GPU_FN void Run() {
    const int groups = (a.heads + kEntryWaves - 1) / kEntryWaves;
    const int token = ::gpu::block() / groups;
    const int head = ::gpu::block() % groups * kEntryWaves + ::gpu::wave();
    if (token >= a.header->tokens || head >= a.heads) return;
    const TokenPlace place = PlaceOf(a.header, a.tokens, token);
    const T* row = RowOf<T>(a.q, token * a.heads + head);
#pragma unroll
    for (int k = 0; k < kEntryLaneValues; ++k) {
      const int i = ::gpu::lane() + k * ::gpu::kWave;
      q[k] = Mine(k) ? ::gpu::to_float(row[i]) : 0.0f;
      sum[k] = 0;
      window_at[k] = i * KvBytes(a.window.kv.dtype);
      entry_at[k] = a.entries.ratio > 0 && Mine(k) ? EntryOffset(a.entries, i) : 0;
    }
    high = a.sinks[head];
    total = 1;
    for (int p = ::gpu::max(0, place.position + 1 - a.window_tokens); p <= place.position; ++p)
      Key(PageRow(a.header, a.window, place.request, p), window_at, a.window.kv.dtype);
    const int complete = a.entries.ratio > 0 ? (place.position + 1) / a.entries.ratio : 0;
    const int count = a.ids != nullptr ? a.top_k : complete;
    for (int e = 0; e < count; ++e) {
      const int entry = a.ids != nullptr ? a.ids[static_cast<int64_t>(token) * a.top_k + e] : e;
      if (entry < 0 || entry >= complete) continue;
      Key(EntryRow(a.header, a.entries, place.request, entry), entry_at, a.entries.pages.kv.dtype);
    }
    T* out = RowOf<T>(a.y, token) + head * a.dim;
    for (int k = 0; k < kEntryLaneValues; ++k) {
      if (Mine(k)) out[::gpu::lane() + k * ::gpu::kWave] = ::gpu::from_float<T>(sum[k] / total);
    }
  }
};

}  // namespace vt::gpu
