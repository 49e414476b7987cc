// Attention over a paged cache, tile by tile with a running softmax.
//
// K is stored transposed in its block, so that 16 keys of one dimension are neighbours: scores need
// no horizontal sums, in decode and in prefill alike. A tile of keys is converted to f32 scratch
// once and used by all its queries: the tokens of the tile times the heads that share the KV head.
#pragma once

#include "vt/cpu/kernels.h"
#include "vt/cpu/row_kernels.h"
#include "vt/cpu/simd.h"

namespace vt::cpu {
namespace {

constexpr int kSpan = 16;                  // keys that lie together in a block
constexpr int kSpanVectors = kSpan / kNr;  // 2 or 1
constexpr int kSpans = kAttentionKeys / kSpan;
constexpr int kQueryStep = 4;  // rows in registers

inline int64_t ElementBytes(const KvLayer& kv) { return kv.half ? 2 : 4; }
inline std::byte* KeysOf(const KvLayer& kv, int64_t block, int64_t head) {
  const int64_t head_values = kv.head_dim * (kv.pitch + kv.block_size);
  return kv.data + block * kv.block_bytes + head * head_values * ElementBytes(kv);
}

inline void StoreElement(const KvLayer& kv, std::byte* base, int64_t i, float x) {
  if (kv.half) {
    const uint16_t h = kv.brain ? BrainBits(x) : HalfBits(x);
    __builtin_memcpy(base + 2 * i, &h, 2);
  } else {
    __builtin_memcpy(base + 4 * i, &x, 4);
  }
}

void KvWriteToken(const KvLayer& kv, const float* k, const float* v, int64_t slot) {
  const int64_t block = slot / kv.block_size, offset = slot % kv.block_size;
  if (kv.latent) {
    std::byte* row = kv.data + block * kv.block_bytes;
    for (int64_t d = 0; d < kv.head_dim; ++d) StoreElement(kv, row, offset * kv.head_dim + d, k[d]);
    return;
  }
  for (int64_t h = 0; h < kv.kv_heads; ++h) {
    std::byte* keys = KeysOf(kv, block, h);
    std::byte* values = keys + kv.head_dim * kv.pitch * ElementBytes(kv);
    for (int64_t d = 0; d < kv.head_dim; ++d) {
      StoreElement(kv, keys, d * kv.pitch + offset, k[h * kv.head_dim + d]);
      StoreElement(kv, values, offset * kv.head_dim + d, v[h * kv.head_dim + d]);
    }
  }
}

inline float LoadElement(const KvLayer& kv, const std::byte* base, int64_t i) {
  if (kv.half) {
    uint16_t h;
    __builtin_memcpy(&h, base + 2 * i, 2);
    if (!kv.brain) return HalfBitsToFloat(h);
    const uint32_t u = static_cast<uint32_t>(h) << 16;
    float b;
    __builtin_memcpy(&b, &u, 4);
    return b;
  }
  float f;
  __builtin_memcpy(&f, base + 4 * i, 4);
  return f;
}
inline vf LoadElements(const KvLayer& kv, const std::byte* base, int64_t i) {
  if (!kv.half) return LoadAs<vf>(base + 4 * i);
  return kv.brain ? LoadBf16(base + 2 * i) : LoadHalf(base + 2 * i);
}

void KvReadRow(const KvLayer& kv, int64_t slot, int64_t begin, int64_t count, float* out) {
  const std::byte* block = kv.data + slot / kv.block_size * kv.block_bytes;
  const int64_t first = slot % kv.block_size * kv.head_dim + begin;
  int64_t i = 0;
  for (; i + kNr <= count; i += kNr) Store(out + i, LoadElements(kv, block, first + i));
  for (; i < count; ++i) out[i] = LoadElement(kv, block, first + i);
}
void KvStoreRow(const KvLayer& kv, int64_t slot, int64_t begin, int64_t count, const float* x) {
  std::byte* block = kv.data + slot / kv.block_size * kv.block_bytes;
  const int64_t first = slot % kv.block_size * kv.head_dim + begin;
  for (int64_t i = 0; i < count; ++i) StoreElement(kv, block, first + i, x[i]);
}

struct KeySpan {
  int64_t first;  // position of lane 0
  int64_t count;  // valid lanes
};

struct TileScratch {
  float* q;       // [rows][head_dim, of a latent cache pitch_d], scaled
  float* o;       // [rows][pitch_o]
  float* scores;  // [rows][kAttentionKeys]
  float* max;     // [rows]
  float* sum;     // [rows]
  float* k;       // [spans][head_dim][16]
  float* v;       // [kAttentionKeys][pitch_d]
  int64_t pitch_d, pitch_o, pitch_q;
};

inline void LoadSpan(const AttentionArgs& a, const AttentionTile& t, const KeySpan& s, int index,
                     const TileScratch& m) {
  const KvLayer& kv = a.kv;
  const int64_t d_count = kv.head_dim;
  const int64_t block = t.block_table[s.first / kv.block_size], offset = s.first % kv.block_size;
  const std::byte* keys = kv.data + block * kv.block_bytes;
  if (!kv.latent) keys = KeysOf(kv, block, t.kv_head);
  const std::byte* values = kv.latent ? keys : keys + d_count * kv.pitch * ElementBytes(kv);
  float* k = m.k + index * d_count * kSpan;
  for (int64_t d = 0; d < d_count && !kv.latent; ++d) {
    for (int i = 0; i < kSpanVectors; ++i) {
      Store(k + d * kSpan + i * kNr, LoadElements(kv, keys, d * kv.pitch + offset + i * kNr));
    }
  }
  for (int64_t j = 0; j < s.count; ++j) {
    float* v = m.v + (index * kSpan + j) * m.pitch_d;
    int64_t d = 0;
    for (; d + kNr <= d_count; d += kNr)
      Store(v + d, LoadElements(kv, values, (offset + j) * d_count + d));
    for (; d < d_count; ++d) v[d] = LoadElement(kv, values, (offset + j) * d_count + d);
    for (; d < m.pitch_d; ++d) v[d] = 0;
  }
  // Lanes without a key have weight 0, and 0 times what happens to lie there must be 0.
  for (int64_t j = s.count; j < kSpan; ++j) {
    for (int64_t d = 0; d < m.pitch_d; ++d) m.v[(index * kSpan + j) * m.pitch_d + d] = 0;
  }
}

// scores[row .. row + 4][16 keys] of one span.
inline void SpanScores(int64_t head_dim, const float* q, const float* k, float* out) {
  vf acc[kQueryStep][kSpanVectors] = {};
  for (int64_t d = 0; d < head_dim; ++d) {
    vf c[kSpanVectors];
    for (int i = 0; i < kSpanVectors; ++i) c[i] = Load(k + d * kSpan + i * kNr);
#pragma GCC unroll 4
    for (int r = 0; r < kQueryStep; ++r) {
      const vf s = Splat(q[r * head_dim + d]);
      for (int i = 0; i < kSpanVectors; ++i) acc[r][i] += c[i] * s;
    }
  }
  for (int r = 0; r < kQueryStep; ++r) {
    for (int i = 0; i < kSpanVectors; ++i) Store(out + r * kAttentionKeys + i * kNr, acc[r][i]);
  }
}

// The same of a latent cache, whose vectors lie key by key.
inline void LatentScores(int64_t pitch, const float* q, const float* rows, float* out) {
  for (int j = 0; j < kSpan; ++j, rows += pitch) {
    vf acc[kQueryStep] = {};
    for (int64_t d = 0; d < pitch; d += kNr) {
      const vf c = Load(rows + d);
#pragma GCC unroll 4
      for (int r = 0; r < kQueryStep; ++r) acc[r] += c * Load(q + r * pitch + d);
    }
    for (int r = 0; r < kQueryStep; ++r) out[r * kAttentionKeys + j] = Sum(acc[r]);
  }
}

// Masks and exponentiates a row of scores; rescales what was summed before.
inline void SoftmaxTile(const AttentionArgs& a, int64_t position, const KeySpan* spans, int count,
                        int64_t row, const TileScratch& m) {
  const float low = -__builtin_inff();
  float* s = m.scores + row * kAttentionKeys;
  vi lane;
  for (int i = 0; i < kNr; ++i) lane[i] = i;
  const int64_t last = a.causal ? position : INT32_MAX;
  const int64_t first = a.First(position);
  vf max = Splat(low);
  for (int b = 0; b < count; ++b) {
    int64_t end = spans[b].first + spans[b].count - 1;
    if (end > last) end = last;
    for (int i = 0; i < kSpanVectors; ++i) {
      float* p = s + b * kSpan + i * kNr;
      vf x = Load(p);
      if (a.softcap > 0) x = Tanh(x / a.softcap) * a.softcap;
      const vi key = lane + SplatInt(static_cast<int32_t>(spans[b].first + i * kNr));
      const vi keep = (key <= static_cast<int32_t>(end)) & (key >= static_cast<int32_t>(first));
      x = keep ? x : Splat(low);
      Store(p, x);
      max = Max(x, max);
    }
  }
  const float old = m.max[row];
  float now = MaxLane(max);
  if (now < old) now = old;
  if (now == low) {  // nothing to see yet
    for (int i = 0; i < count * kSpan; ++i) s[i] = 0;
    return;
  }
  vf sum = {};
  for (int i = 0; i < count * kSpan; i += kNr) {
    const vf e = Exp(Load(s + i) - now);
    Store(s + i, e);
    sum += e;
  }
  if (now != old) {
    const float keep = Exp(Splat(old - now))[0];
    m.sum[row] *= keep;
    float* o = m.o + row * m.pitch_o;
    for (int64_t d = 0; d < m.pitch_o; d += kNr) Store(o + d, Load(o + d) * keep);
    m.max[row] = now;
  }
  m.sum[row] += Sum(sum);
}

// o[4 rows][pitch_o] += p v[keys][pitch_d].
inline void WeightedValues(int64_t keys, int64_t pitch_d, int64_t pitch_o, const float* p,
                           const float* v, float* o) {
  for (int64_t d = 0; d < pitch_o; d += 2 * kNr) {
    vf acc[kQueryStep][2];
    for (int r = 0; r < kQueryStep; ++r) {
      acc[r][0] = Load(o + r * pitch_o + d);
      acc[r][1] = Load(o + r * pitch_o + d + kNr);
    }
    for (int64_t j = 0; j < keys; ++j) {
      const vf c0 = Load(v + j * pitch_d + d), c1 = Load(v + j * pitch_d + d + kNr);
#pragma GCC unroll 4
      for (int r = 0; r < kQueryStep; ++r) {
        const vf s = Splat(p[r * kAttentionKeys + j]);
        acc[r][0] += c0 * s;
        acc[r][1] += c1 * s;
      }
    }
    for (int r = 0; r < kQueryStep; ++r) {
      Store(o + r * pitch_o + d, acc[r][0]);
      Store(o + r * pitch_o + d + kNr, acc[r][1]);
    }
  }
}

void Attend(const AttentionArgs& a, const AttentionTile& t, std::byte* scratch) {
  const int64_t head_dim = a.kv.head_dim, value_dim = a.value_dim;
  const int64_t group = a.heads / a.kv.kv_heads;
  const int64_t tokens = t.token_end - t.token_begin, rows = tokens * group;
  const int64_t padded = (rows + kQueryStep - 1) / kQueryStep * kQueryStep;
  TileScratch m;
  const auto padded_dim = [](int64_t d) { return (d + 2 * kNr - 1) / (2 * kNr) * (2 * kNr); };
  m.pitch_d = padded_dim(head_dim);
  m.pitch_o = padded_dim(value_dim);
  m.pitch_q = a.kv.latent ? m.pitch_d : head_dim;
  float* next = reinterpret_cast<float*>(scratch);
  const auto take = [&next](int64_t n) {
    float* p = next;
    next += n;
    return p;
  };
  m.q = take(padded * m.pitch_q);
  m.o = take(padded * m.pitch_o);
  m.scores = take(padded * kAttentionKeys);
  m.max = take(padded);
  m.sum = take(padded);
  m.k = take(a.kv.latent ? 0 : kAttentionKeys * head_dim);
  m.v = take(kAttentionKeys * m.pitch_d);

  int64_t lowest = INT32_MAX, highest = 0;
  for (int64_t i = 0; i < padded; ++i) {
    m.max[i] = -__builtin_inff();
    m.sum[i] = 0;
    if (a.sinks != nullptr && t.first) {
      m.max[i] = a.sinks[t.kv_head * group + i % group];
      m.sum[i] = 1;
    }
    float* o = m.o + i * m.pitch_o;
    for (int64_t d = 0; d < m.pitch_o; ++d) o[d] = 0;
    float* q = m.q + i * m.pitch_q;
    for (int64_t d = head_dim; d < m.pitch_q; ++d) q[d] = 0;
    if (i < rows) {
      const int64_t token = t.token_begin + i / group, head = t.kv_head * group + i % group;
      ScaleRow(a.q + token * a.q_stride + head * head_dim, a.scale, 0, head_dim, q);
      const int64_t position = t.positions[token];
      lowest = position < lowest ? position : lowest;
      highest = position > highest ? position : highest;
    } else {
      for (int64_t d = 0; d < head_dim; ++d) q[d] = 0;
    }
  }

  int64_t key = t.key_begin, end = t.key_end;
  if (a.causal && highest + 1 < end) end = highest + 1;
  if (a.First(lowest) > key) key = a.First(lowest);
  // Spans begin at a multiple of 16 within their block.
  key -= key % a.kv.block_size % kSpan;
  while (key < end) {
    KeySpan spans[kSpans];
    int count = 0;
    for (; count < kSpans && key < end; ++count) {
      int64_t stop = (key / a.kv.block_size + 1) * a.kv.block_size;
      if (stop > key + kSpan) stop = key + kSpan;
      if (stop > end) stop = end;
      spans[count] = {key, stop - key};
      LoadSpan(a, t, spans[count], count, m);
      key = stop;
    }
    for (int64_t r = 0; r < rows; r += kQueryStep) {
      float* s = m.scores + r * kAttentionKeys;
      const float* q = m.q + r * m.pitch_q;
      for (int b = 0; b < count; ++b) {
        if (a.kv.latent) {
          LatentScores(m.pitch_d, q, m.v + b * kSpan * m.pitch_d, s + b * kSpan);
        } else {
          SpanScores(head_dim, q, m.k + b * head_dim * kSpan, s + b * kSpan);
        }
      }
      for (int64_t i = r; i < r + kQueryStep; ++i) {
        const int64_t token = t.token_begin + (i < rows ? i : rows - 1) / group;
        SoftmaxTile(a, t.positions[token], spans, count, i, m);
      }
      WeightedValues(count * kSpan, m.pitch_d, m.pitch_o, s, m.v, m.o + r * m.pitch_o);
    }
  }

  for (int64_t i = 0; i < rows; ++i) {
    const float* o = m.o + i * m.pitch_o;
    if (t.partial != nullptr) {
      float* p = t.partial + i * (value_dim + 2);
      p[0] = m.max[i];
      p[1] = m.sum[i];
      for (int64_t d = 0; d < value_dim; ++d) p[2 + d] = o[d];
      continue;
    }
    const int64_t token = t.token_begin + i / group, head = t.kv_head * group + i % group;
    ScaleRow(o, m.sum[i] > 0 ? 1.0f / m.sum[i] : 0.0f, 0, value_dim,
             a.out + token * a.out_stride + head * value_dim);
  }
}

void AttentionJoin(const float* partial, int64_t parts, int64_t part_stride, int64_t value_dim,
                   float* out) {
  float max = -__builtin_inff();
  for (int64_t i = 0; i < parts; ++i)
    max = partial[i * part_stride] > max ? partial[i * part_stride] : max;
  float sum = 0;
  for (int64_t d = 0; d < value_dim; ++d) out[d] = 0;
  if (max == -__builtin_inff()) return;
  for (int64_t i = 0; i < parts; ++i) {
    const float* p = partial + i * part_stride;
    const float w = Exp(Splat(p[0] - max))[0];
    if (w == 0) continue;
    sum += w * p[1];
    Map2(out, p + 2, value_dim, out, [=](vf a, vf b) { return a + b * w; });
  }
  ScaleRow(out, 1.0f / sum, 0, value_dim, out);
}

}  // namespace
}  // namespace vt::cpu
