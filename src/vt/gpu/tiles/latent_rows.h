// Into the latent cache, and linears of which each head has a matrix of its own.
#pragma once

#include "vt/gpu/args_latent.h"
#include "vt/gpu/tiles/attention_common.h"

namespace vt::gpu {

// Value i of `x`, whose values are rotated in pairs. `turns`: (cos, sin) of each pair.
template <class T>
GPU_FN float Rotated(const T* x, const float* turns, int dim, bool interleaved, int i) {
  const int half = dim / 2;
  const bool second = interleaved ? i % 2 != 0 : i >= half;
  const int pair = interleaved ? i / 2 : second ? i - half : i;
  const int step = interleaved ? 1 : half;
  const float mine = ::gpu::to_float(x[i]);
  const float other = ::gpu::to_float(x[second ? i - step : i + step]);
  const float c = turns[2 * pair], s = turns[2 * pair + 1];
  return second ? mine * c + other * s : mine * c - other * s;
}

template <class T>
GPU_FN void LatentWrite(const LatentWriteArgs& a) {
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const int token = ::gpu::block();
  if (token >= a.header->tokens) return;
  const int slot = a.slots[token];
  if (slot < 0) return;
  const T* x = RowOf<T>(a.x, token);
  const int dim = a.kv.head_dim, rest = dim - a.rank;
  float scale = 1;
  if (a.norm.weight != nullptr) {
    float squares = 0;
    for (int i = ::gpu::thread(); i < a.rank; i += ::gpu::threads()) {
      const float v = ::gpu::to_float(x[i]);
      squares += v * v;
    }
    squares = ::gpu::block_sum(squares, reinterpret_cast<float*>(::gpu::shared()));
    scale = ::gpu::rsqrt(squares / static_cast<float>(a.rank) + a.norm.eps);
  }
  char* row = a.kv.data + RowOffset(slot, dim * KvBytes(a.kv.dtype));
  for (int i = ::gpu::thread(); i < a.rank; i += ::gpu::threads()) {
    float v = ::gpu::to_float(x[i]);
    if (a.norm.weight != nullptr) v *= scale * (a.norm.weight[i] + a.norm.offset);
    StoreKv(row, i, a.kv.dtype, v);
  }
  if (rest == 0) return;
  const float* turns = a.table + static_cast<int64_t>(a.positions[token]) * rest;
  for (int i = ::gpu::thread(); i < rest; i += ::gpu::threads()) {
    const float v = Rotated(x + a.rank, turns, rest, a.interleaved != 0, i);
    StoreKv(row, a.rank + i, a.kv.dtype, v);
  }
}

// kMany: each wave has 16 tokens and 32 columns; else 16 of both and a part of k.
template <class T, bool kMany>
struct HeadLinearTile {
  using M = ::gpu::Mma<T>;
  static constexpr int kTokens = HeadTokens(kMany), kColumns = HeadColumns(kMany);
  static constexpr int kWaveColumns = kMany ? 32 : 16;
  static constexpr int kTiles = kWaveColumns / M::kN;
  static constexpr int kPack = Pack<T>::kCount;

  const HeadLinearArgs& a;
  int head, first_token, tile, pitch;
  T* staged;
  float* sums;

  GPU_FN explicit HeadLinearTile(const HeadLinearArgs& args) : a(args) {
    const int tiles = a.column_tiles + (a.table != nullptr ? 1 : 0);
    tile = ::gpu::block() % tiles;
    head = ::gpu::block() / tiles % a.heads;
    first_token = ::gpu::block() / tiles / a.heads * kTokens;
    pitch = a.staged_pitch;
    staged = reinterpret_cast<T*>(::gpu::shared());
    sums = reinterpret_cast<float*>(staged + kTokens * pitch);
  }
  GPU_FN const T* X(int token) const { return RowOf<T>(a.x, token * a.heads + head); }
  GPU_FN T* Y(int token) const { return RowOf<T>(a.y, token * a.heads + head); }
  GPU_FN const T* Weight(int column) const {
    return static_cast<const T*>(a.w) +
           static_cast<int64_t>(head * a.n + ::gpu::min(column, a.n - 1)) * a.pitch;
  }

  GPU_FN void Prefetch() const {
    if (kMany || tile >= a.column_tiles) return;
    constexpr int kLine = 128 / sizeof(T);
    const int lines = (a.pitch + kLine - 1) / kLine;
    for (int i = ::gpu::thread(); i < kColumns * lines; i += ::gpu::threads())
      ::gpu::prefetch(Weight(tile * kColumns + i / lines) + i % lines * kLine);
  }
  GPU_FN void Rotate() const {
    const int rest = a.x.width - a.k;
    for (int i = ::gpu::thread(); i < kTokens * rest; i += ::gpu::threads()) {
      const int token = first_token + i / rest, column = i % rest;
      if (token >= a.header->tokens) break;
      const float* turns = a.table + static_cast<int64_t>(a.positions[token]) * rest;
      Y(token)
      [a.n + column] =
          ::gpu::from_float<T>(Rotated(X(token) + a.k, turns, rest, a.interleaved != 0, column));
    }
  }
  // Rows of x with zeros behind them, and for tokens that are not there.
  GPU_FN void Stage() const {
    const int padded = (a.k + 31) / 32 * 32;
    for (int i = ::gpu::thread(); i < kTokens * padded; i += ::gpu::threads()) {
      const int token = first_token + i / padded, column = i % padded;
      const bool inside = column < a.k && token < a.header->tokens;
      staged[i / padded * pitch + column] = inside ? X(token)[column] : ::gpu::from_float<T>(0);
    }
    ::gpu::sync();
  }
  GPU_FN void Run() const {
    if (first_token >= a.header->tokens) return;
    if (tile >= a.column_tiles) return Rotate();
    Stage();
    const int wave = ::gpu::wave();
    const T* rows = staged + (kMany ? wave % 2 * 16 : 0) * pitch;
    const int first = tile * kColumns + (kMany ? wave / 2 * kWaveColumns : 0);
    typename M::C c[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) c[n] = M::zero();
    const int steps = (a.k + M::kK - 1) / M::kK;
#pragma unroll 4
    for (int s = kMany ? 0 : wave; s < steps; s += kMany ? 1 : ::gpu::waves()) {
      const typename M::A x = M::load_a([&](int row) { return rows + row * pitch + s * M::kK; });
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        M::mma(c[n], x,
               M::load_b([&](int row) { return Weight(first + n * M::kN + row) + s * M::kK; }));
      }
    }
    if constexpr (kMany) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        M::for_each(c[n], [&](int row, int column, float& v) {
          const int token = first_token + wave % 2 * 16 + row;
          const int at = first + n * M::kN + column;
          if (token < a.header->tokens && at < a.n) Y(token)[at] = ::gpu::from_float<T>(v);
        });
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      M::for_each(c[n], [&](int row, int column, float& v) {
        sums[(wave * 16 + row) * 16 + n * M::kN + column] = v;
      });
    }
    ::gpu::sync();
    for (int i = ::gpu::thread(); i < 16 * 16; i += ::gpu::threads()) {
      const int token = first_token + i / 16, at = first + i % 16;
      if (token >= a.header->tokens || at >= a.n) continue;
      float v = 0;
      for (int w = 0; w < ::gpu::waves(); ++w) v += sums[w * 256 + i];
      Y(token)[at] = ::gpu::from_float<T>(v);
    }
  }
};

template <class T, bool kMany>
GPU_FN void HeadLinear(const HeadLinearArgs& a) {
  const HeadLinearTile<T, kMany> tile(a);
  ::gpu::launch_dependents();
  tile.Prefetch();
  ::gpu::wait_predecessor();
  tile.Run();
}

}  // namespace vt::gpu
