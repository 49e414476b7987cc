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

// What a token waits for is the number of loads that stand behind one another: weights are there
// before its vector is, and where it goes is asked for beside it.
template <class T>
GPU_FN void LatentWrite(const LatentWriteArgs& a) {
  constexpr int kHeld = 8;  // values of a thread; more are read again
  ::gpu::launch_dependents();
  const int token = ::gpu::block(), step = ::gpu::threads();
  const bool norms = a.norm.weight != nullptr;
  float x[kHeld], w[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = ::gpu::thread() + j * step;
    w[j] = norms && i < a.rank ? a.norm.weight[i] : 0;
  }
  ::gpu::wait_predecessor();
  const int tokens = a.header->tokens, slot = a.slots[token];
  const int dim = a.kv.head_dim, rest = dim - a.rank;
  const int position = rest > 0 ? a.positions[token] : 0;
  const T* from = RowOf<T>(a.x, token);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = ::gpu::thread() + j * step;
    x[j] = i < a.rank ? ::gpu::to_float(from[i]) : 0;
  }
  // No branch around what follows: loads would stand behind it.
  const bool keeps = token < tokens && slot >= 0;
  char* row = a.kv.data + RowOffset(keeps ? slot : 0, dim * KvBytes(a.kv.dtype));
  if (rest > 0) {
    const float* turns = a.table + static_cast<int64_t>(keeps ? position : 0) * rest;
    for (int i = ::gpu::thread(); i < rest; i += step) {
      const float v = Rotated(from + a.rank, turns, rest, a.interleaved != 0, i);
      if (keeps) StoreKv(row, a.rank + i, a.kv.dtype, v);
    }
  }
  float scale = 1;
  if (norms) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) squares += x[j] * x[j];
    for (int i = ::gpu::thread() + kHeld * step; i < a.rank; i += step) {
      const float v = ::gpu::to_float(from[i]);
      squares += v * v;
    }
    squares = ::gpu::block_sum(squares, reinterpret_cast<float*>(::gpu::shared()));
    scale = ::gpu::rsqrt(squares / static_cast<float>(a.rank) + a.norm.eps);
  }
  const auto store = [&](int i, float v, float weight) {
    if (keeps) StoreKv(row, i, a.kv.dtype, norms ? v * scale * (weight + a.norm.offset) : v);
  };
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = ::gpu::thread() + j * step;
    if (i < a.rank) store(i, x[j], w[j]);
  }
  for (int i = ::gpu::thread() + kHeld * step; i < a.rank; i += step)
    store(i, ::gpu::to_float(from[i]), norms ? a.norm.weight[i] : 0);
}

// kMany: each wave has 16 tokens and 32 columns; else 16 of both and a part of k, and asks for its
// first weights before it waits for x.
template <class T, bool kMany>
struct HeadLinearTile {
  using M = ::gpu::Mma<T>;
  static constexpr int kTokens = HeadTokens(kMany), kColumns = HeadColumns(kMany);
  static constexpr int kWaveColumns = kMany ? 32 : 16;
  static constexpr int kTiles = kWaveColumns / M::kN;
  static constexpr int kHeld = 4;  // steps of k of a wave that are under way

  const HeadLinearArgs& a;
  int head, first_token, tile, pitch;
  T* staged;
  float* sums;
  typename M::BRows weights[kTiles];
  typename M::B held[kMany ? 1 : kHeld][kTiles];

  GPU_FN HeadLinearTile(const HeadLinearArgs& args, int block) : a(args) {
    const int tiles = a.column_tiles + (a.table != nullptr ? 1 : 0);
    tile = block % tiles;
    head = block / tiles % a.heads;
    first_token = block / tiles / a.heads * kTokens;
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

  GPU_FN int Steps() const { return (a.k + M::kK - 1) / M::kK; }
  // Of this wave's steps from its `turn`th on.
  GPU_FN void LoadWeights(int turn) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int s = (turn + i) * ::gpu::waves() + ::gpu::wave();
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        held[i][n] = M::load_b_stream(weights[n], s < Steps() ? s * M::kK : 0, s < Steps());
      }
    }
  }
  // Before x is there.
  GPU_FN void Begin() {
    if (kMany || tile >= a.column_tiles) return;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
      weights[n] = M::rows_of_b([&](int row) { return Weight(tile * kColumns + n * M::kN + row); });
    LoadWeights(0);
    constexpr int kLine = 128 / sizeof(T);
    const int first = kHeld * ::gpu::waves() * M::kK;
    const int lines = (a.pitch - first + kLine - 1) / kLine;
    for (int i = ::gpu::thread(); i < kColumns * lines; i += ::gpu::threads())
      ::gpu::prefetch(Weight(tile * kColumns + i / lines) + first + i % lines * kLine);
  }
  GPU_FN void Rotate() const {
    const int rest = a.x.width - a.k;
    for (int i = ::gpu::thread(); i < kTokens * rest; i += ::gpu::threads()) {
      const int token = first_token + i / rest, column = i % rest;
      if (token >= a.most_tokens) break;
      const int position =
          ::gpu::load_volatile(a.positions + token);  // beside the header's tokens, not behind them
      if (token >= a.header->tokens) break;
      const float* turns = a.table + static_cast<int64_t>(position) * rest;
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
  GPU_FN void Run() {
    if (tile >= a.column_tiles) return Rotate();
    if constexpr (kMany) {
      RunMany();
    } else if (a.direct != 0) {
      RunFew<true>();
    } else {
      RunFew<false>();
    }
  }

 private:
  GPU_FN void RunMany() const {
    if (first_token >= a.header->tokens) return;
    Stage();
    const int wave = ::gpu::wave();
    const T* rows = staged + wave % 2 * 16 * pitch;
    const int first = tile * kColumns + wave / 2 * kWaveColumns;
    typename M::C c[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) c[n] = M::zero();
    const int steps = Steps();
#pragma unroll 4
    for (int s = 0; s < steps; ++s) {
      const typename M::A x = M::load_a([&](int row) { return rows + row * pitch + s * M::kK; });
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        M::mma(c[n], x,
               M::load_b([&](int row) { return Weight(first + n * M::kN + row) + s * M::kK; }));
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      M::for_each(c[n], [&](int row, int column, float& v) {
        const int token = first_token + wave % 2 * 16 + row;
        const int at = first + n * M::kN + column;
        if (token < a.header->tokens && at < a.n) Y(token)[at] = ::gpu::from_float<T>(v);
      });
    }
  }
  // Rows past the last are copies of it, or what another step left: nobody reads what they give.
  // kDirect: as a.direct. What may be in either memory would be read by slower instructions.
  template <bool kDirect>
  GPU_FN void RunFew() {
    if (!kDirect) Stage();
    const typename M::ARows rows = M::rows_of_a([&](int row) -> const T* {
      return kDirect ? X(::gpu::min(first_token + row, a.most_tokens - 1)) : staged + row * pitch;
    });
    typename M::C c[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) c[n] = M::zero();
    const int steps = Steps();
#pragma unroll 1
    for (int turn = 0; turn * ::gpu::waves() < steps; turn += kHeld) {
      if (turn > 0) LoadWeights(turn);
      typename M::A x[kHeld];
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        // Steps past the last have weights of zero, and finite numbers for x: its own first ones.
        const int s = (turn + i) * ::gpu::waves() + ::gpu::wave();
        x[i] = M::load_a(rows, s < steps ? s * M::kK : 0);
      }
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) M::mma(c[n], x[i], held[i][n]);
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      M::for_each(c[n], [&](int row, int column, float& v) {
        sums[(::gpu::wave() * 16 + row) * 16 + n * M::kN + column] = v;
      });
    }
    const int tokens = a.header->tokens;
    ::gpu::sync();
    for (int i = ::gpu::thread(); i < 16 * 16; i += ::gpu::threads()) {
      const int token = first_token + i / 16, at = tile * kColumns + i % 16;
      if (token >= tokens || at >= a.n) continue;
      float v = 0;
      for (int w = 0; w < ::gpu::waves(); ++w) v += sums[w * 256 + i];
      Y(token)[at] = ::gpu::from_float<T>(v);
    }
  }
};

// `block` of the grid of these.
template <class T, bool kMany>
GPU_FN void HeadLinear(const HeadLinearArgs& a, int block) {
  HeadLinearTile<T, kMany> tile(a, block);
  ::gpu::launch_dependents();
  tile.Begin();
  ::gpu::wait_predecessor();
  tile.Run();
}

// What stands before attention; neither part reads what the other writes.
template <class T>
GPU_FN void LatentQueryWrite(const LatentQueryArgs& a) {
  if (::gpu::block() < a.writes) return LatentWrite<T>(a.write);
  HeadLinear<T, false>(a.query, ::gpu::block() - a.writes);
}

}  // namespace vt::gpu
