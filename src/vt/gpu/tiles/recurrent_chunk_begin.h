// What a chunk of the gated delta rule needs beside the state, a block a chunk and head: see
// recurrent_chunk.h.
#pragma once

#include "vt/gpu/tiles/recurrent_chunk.h"

namespace vt::gpu {

template <class T>
struct DeltaBegin {
  using M = ::gpu::Mma<T>;
  using C = typename M::C;
  static constexpr int kWaves = kDeltaChunkThreads / ::gpu::kWave;
  static constexpr int kTokenTiles = kDeltaChunk / M::kM, kShare = kWaves / kTokenTiles;
  static constexpr int kColumns = kDeltaChunk / kShare;  // of a wave
  static constexpr int kPitch = DeltaPitch(kDeltaChunk, sizeof(float));
  static constexpr int kPack = ::gpu::Pack<T>::kCount;

  const DeltaArgs& d;
  const DeltaKept<T> kept;
  int head, key, first, count;               // the chunk's tokens
  float *system, *solved;                    // [chunk][kPitch]: A and (I + A)^-1
  float *decay, *write, *of_key, *of_query;  // [chunk]: g, w, 1 / |k|, 1 / |q|

  GPU_FN DeltaBegin(const DeltaChunkArgs& a, int slot, int h, int begin, int n)
      : d(a.delta),
        kept(a, slot, h, KeyHead(a.delta, h)),
        head(h),
        key(KeyHead(a.delta, h)),
        first(begin),
        count(n) {
    system = reinterpret_cast<float*>(::gpu::shared());
    solved = system + kDeltaChunk * kPitch;
    decay = solved + kDeltaChunk * kPitch;
    write = decay + kDeltaChunk;
    of_key = write + kDeltaChunk;
    of_query = of_key + kDeltaChunk;
  }

  GPU_FN const T* Query(int token) const {
    return RowOf<T>(d.qkv, first + ::gpu::min(token, count - 1)) + key * d.k_dim;
  }
  GPU_FN const T* Key(int token) const { return Query(token) + d.k_heads * d.k_dim; }

  // Norms and gates, and what becomes of them.
  GPU_FN void Factors() const {
    const int i = ::gpu::thread();
    float* steps = solved;  // log decays
    if (i < kDeltaChunk) {
      const int token = first + ::gpu::min(i, count - 1);
      const float rate = d.log_a != 0 ? -::gpu::exp(d.big_a[head]) : d.big_a[head];
      const float x = ::gpu::to_float(RowOf<T>(d.a, token)[head]) + d.dt[head];
      steps[i] = i < count ? rate * SoftplusOf(x) : 0.0f;
      write[i] = i < count ? SigmoidOf(::gpu::to_float(RowOf<T>(d.b, token)[head])) : 0.0f;
    }
    for (int t = ::gpu::wave(); t < kDeltaChunk; t += ::gpu::waves()) {
      const T *q = Query(t), *k = Key(t);
      float qq = 0, kk = 0;
      for (int j = ::gpu::lane(); j < d.k_dim; j += ::gpu::kWave) {
        const float x = ::gpu::to_float(q[j]), y = ::gpu::to_float(k[j]);
        qq += x * x;
        kk += y * y;
      }
      qq = ::gpu::wave_sum(qq);
      kk = ::gpu::wave_sum(kk);
      if (::gpu::lane() != 0) continue;
      of_query[t] = ::gpu::rsqrt(qq + d.eps) * ::gpu::rsqrt(static_cast<float>(d.k_dim));
      of_key[t] = ::gpu::rsqrt(kk + d.eps);
    }
    ::gpu::sync();
    if (i < kDeltaChunk) {
      float sum = 0;
      for (int j = 0; j <= i; ++j) sum += steps[j];
      decay[i] = sum;
    }
    ::gpu::sync();
    if (i >= kDeltaChunk) return;
    const float last = decay[kDeltaChunk - 1], kept_here = ::gpu::exp(decay[i]);
    kept.factors[i] = kept_here * of_key[i];
    kept.factors[kDeltaChunk + i] = kept_here * of_query[i];
    kept.factors[2 * kDeltaChunk + i] = ::gpu::exp(last - decay[i]) * of_key[i];
    if (i == 0) kept.factors[3 * kDeltaChunk] = ::gpu::exp(last);
  }

  // A and P, both below the diagonal.
  GPU_FN void Products() const {
    constexpr int kTiles = kColumns / M::kN;
    const int row0 = ::gpu::wave() % kTokenTiles * M::kM;
    const int column0 = ::gpu::wave() / kTokenTiles * kColumns;
    C of_keys[kTiles], of_queries[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) of_keys[n] = of_queries[n] = M::zero();
    for (int at = 0; at < d.k_dim && column0 < row0 + M::kM; at += M::kK) {
      const typename M::A k = M::load_a([&](int i) { return Key(row0 + i) + at; });
      const typename M::A q = M::load_a([&](int i) { return Query(row0 + i) + at; });
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const typename M::B b = M::load_b([&](int i) { return Key(column0 + n * M::kN + i) + at; });
        M::mma(of_keys[n], k, b);
        M::mma(of_queries[n], q, b);
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      M::for_each(of_keys[n], [&](int row, int column, float& v) {
        const int i = row0 + row, j = column0 + n * M::kN + column;
        const float e = ::gpu::exp(::gpu::min(decay[i] - decay[j], 0.0f)) * of_key[j];
        system[i * kPitch + j] = v * (e * of_key[i] * write[i]);
      });
      M::for_each(of_queries[n], [&](int row, int column, float& v) {
        const int i = row0 + row, j = column0 + n * M::kN + column;
        const float e = ::gpu::exp(::gpu::min(decay[i] - decay[j], 0.0f)) * of_key[j];
        StoreSplit(j <= i ? v * (e * of_query[i]) : 0.0f, kept.scores + i * kDeltaChunk + j,
                   DeltaKept<T>::kMatrix);
      });
    }
  }

  // Forward substitution, a thread a column, four rows at a time.
  GPU_FN void Solve() const {
    const int j = ::gpu::thread();
    if (j >= kDeltaChunk) return;
    const float w = write[j];
    for (int i = 0; i < kDeltaChunk; i += 4) {
      float x[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) x[r] = i + r == j ? 1.0f : 0.0f;
      for (int k = j / 4 * 4; k < i; k += 4) {
        float known[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) known[c] = solved[(k + c) * kPitch + j];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const auto row =
              *reinterpret_cast<const ::gpu::Pack<float>*>(system + (i + r) * kPitch + k);
#pragma unroll
          for (int c = 0; c < 4; ++c) x[r] -= row.v[c] * known[c];
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < r; ++c) x[r] -= system[(i + r) * kPitch + i + c] * x[c];
        solved[(i + r) * kPitch + j] = x[r];
        StoreSplit(x[r] * w, kept.inverse + (i + r) * kDeltaChunk + j, DeltaKept<T>::kMatrix);
      }
    }
  }

  // Of the first head that reads the key head.
  GPU_FN void KeysAcross() const {
    if (head > 0 && (d.tiled != 0 ? head >= d.k_heads : KeyHead(d, head - 1) == key)) return;
    for (int i = ::gpu::thread(); i < d.k_dim / kPack * kDeltaChunk; i += ::gpu::threads()) {
      const int token = i % kDeltaChunk, at = i / kDeltaChunk * kPack;
      const auto p = *reinterpret_cast<const ::gpu::Pack<T>*>(Key(token) + at);
#pragma unroll
      for (int j = 0; j < kPack; ++j) kept.keys[(at + j) * kDeltaChunk + token] = p.v[j];
    }
  }

  GPU_FN void Run() const {
    KeysAcross();
    Factors();
    Products();
    ::gpu::sync();
    Solve();
  }
};

template <class T>
GPU_FN void DeltaBeginOf(const DeltaChunkArgs& a) {
  const DeltaArgs& d = a.delta;
  const int slot = ::gpu::block();
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int request = RequestOf(d.state.query_start, d.header->requests,
                                slot * kDeltaSlotTokens + kDeltaSlotTokens - 1);
  const int first = d.state.query_start[request];
  const int count = ::gpu::min(d.state.query_start[request + 1], d.header->tokens) - first;
  const int begin = (slot - FirstSlot(first)) * kDeltaChunk;
  if (count <= kDeltaChunk || begin >= count) return;
  DeltaBegin<T>(a, slot, ::gpu::block_y(), first + begin, ::gpu::min(count - begin, kDeltaChunk))
      .Run();
}

}  // namespace vt::gpu
