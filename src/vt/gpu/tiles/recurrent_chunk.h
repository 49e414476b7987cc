// The gated delta rule of long pieces, kDeltaChunk tokens at a time on matrix cores (the WY form of
// the chunk's updates). With S the state before a chunk, g the sums of its tokens' log decays and
// w their write gates,
//   D = (I + A)^-1 diag(w) (V - diag(e^g) K S)     A[i][j] = w_i e^(g_i - g_j) k_i.k_j, j < i
//   y = diag(e^g) Q S + P D                        P[i][j] = e^(g_i - g_j) q_i.k_j, j <= i
//   S' = e^g_last S + K^T diag(e^(g_last - g)) D
// What needs no state is made for all chunks at once (recurrent_chunk_begin.h). Here a block takes
// some columns of a head's state, in registers, through a request's chunks. Of 16-bit operands
// there is a second part, what the first one's rounding leaves over.
//
// K and Q are the rows as they are; their norms are in the factors, so that nothing is rounded that
// was not. Rows past a piece's end are its last one again, with a write gate of 0.
#pragma once

#include "vt/gpu/tiles/recurrent_delta.h"

namespace vt::gpu {

// What is kept of a chunk: a head's two matrices and factors a token, and its keys across.
template <class T>
struct DeltaKept {
  static constexpr int kMatrix = kDeltaChunk * kDeltaChunk;
  static constexpr int kSplits = DeltaSplits(sizeof(T));
  static constexpr int64_t kHeadBytes = DeltaHeadBytes(sizeof(T));
  static constexpr int64_t kKeyBytes = DeltaKeyBytes(sizeof(T));

  T* inverse;      // [kSplits][chunk][chunk]: (I + A)^-1 diag(w)
  T* scores;       // [kSplits][chunk][chunk]: P
  float* factors;  // [4][chunk]: e^g / |k|, e^g / |q|, e^(g_last - g) / |k|; then e^g_last
  T* keys;         // [k_dim][chunk]

  GPU_FN DeltaKept(const DeltaChunkArgs& a, int slot, int head, int key) {
    char* base = a.work + slot * a.slot_bytes;
    inverse = reinterpret_cast<T*>(base + head * kHeadBytes);
    scores = inverse + kSplits * kMatrix;
    factors = reinterpret_cast<float*>(scores + kSplits * kMatrix);
    keys = reinterpret_cast<T*>(base + a.delta.v_heads * kHeadBytes + key * kKeyBytes);
  }
};

// A value as kSplits of its type, `apart` from each other.
template <class T>
GPU_FN void StoreSplit(float v, T* to, int apart) {
  to[0] = ::gpu::from_float<T>(v);
  if constexpr (DeltaKept<T>::kSplits == 2)
    to[apart] = ::gpu::from_float<T>(v - ::gpu::to_float(to[0]));
}

GPU_FN int KeyHead(const DeltaArgs& d, int head) {
  return d.tiled != 0 ? head % d.k_heads : head / (d.v_heads / d.k_heads);
}

// A piece of more than kDeltaChunk tokens has at most one chunk for each kDeltaSlotTokens: its
// chunks' slots begin at its first token's and touch no other piece's.
GPU_FN int FirstSlot(int first_token) { return first_token / kDeltaSlotTokens; }

template <class T>
struct DeltaChunks {
  using M = ::gpu::Mma<T>;
  using A = typename M::A;
  using C = typename M::C;
  static constexpr int kWaves = kDeltaChunkThreads / ::gpu::kWave;
  // Waves that share 16 tokens, and the tiles of columns that one of them has.
  static constexpr int kTokenTiles = kDeltaChunk / M::kM, kShare = kWaves / kTokenTiles;
  static constexpr int kOwn = kDeltaChunkColumns / M::kN / kShare;
  static constexpr int kKeySteps = kDeltaChunkDim / M::kK, kTokenSteps = kDeltaChunk / M::kK;
  // The state: each wave has some rows, all of the block's columns.
  static constexpr int kStateTiles = kDeltaChunkDim / M::kM / kWaves;
  static constexpr int kStateColumns = kDeltaChunkColumns / M::kN;
  static constexpr int kSplits = DeltaSplits(sizeof(T));
  static constexpr int kStatePitch = DeltaPitch(kDeltaChunkDim, sizeof(T));
  static constexpr int kTokenPitch = DeltaPitch(kDeltaChunk, sizeof(T));
  static constexpr int kStateSize = kDeltaChunkColumns * kStatePitch;
  static constexpr int kTokensSize = kDeltaChunkColumns * kTokenPitch;
  // Whether the next chunk's operands are loaded when this one's have been used.
  static constexpr bool kAhead = sizeof(A) <= 32;
  static_assert(kOwn > 0 && kStateTiles > 0);

  const DeltaChunkArgs& a;
  const DeltaArgs& d;
  int head, key, first_column, first, end;
  int token_tile, first_tile;  // of tokens and, of columns, this wave's
  T *state, *rest, *left, *delta;

  C s[kStateTiles][kStateColumns];
  C values[kOwn];
  A keys[kAhead ? kKeySteps : 1], queries[kAhead ? kKeySteps : 1];
  A inverse[kAhead ? kTokenSteps : 1], scores[kAhead ? kTokenSteps : 1];
  A across[kStateTiles][kAhead ? kTokenSteps : 1];

  GPU_FN DeltaChunks(const DeltaChunkArgs& args, int h, int column, int begin, int stop)
      : a(args), d(args.delta), head(h), first_column(column), first(begin), end(stop) {
    key = KeyHead(d, head);
    token_tile = ::gpu::wave() % kTokenTiles;
    first_tile = ::gpu::wave() / kTokenTiles * kOwn;
    state = reinterpret_cast<T*>(::gpu::shared());
    rest = state + kSplits * kStateSize;
    left = rest + kSplits * kTokensSize;
    delta = left + kSplits * kTokensSize;
  }

  GPU_FN int Token(int chunk, int row) const {
    return ::gpu::min(first + chunk * kDeltaChunk + token_tile * M::kM + row, end - 1);
  }
  GPU_FN DeltaKept<T> Kept(int chunk) const {
    return DeltaKept<T>(a, FirstSlot(first) + chunk, head, key);
  }

  // Operands, from global memory.
  GPU_FN A LoadRows(int chunk, int offset, int step) const {
    return M::load_a([&](int i) {
      return RowOf<T>(d.qkv, Token(chunk, i)) + offset + key * d.k_dim + step * M::kK;
    });
  }
  GPU_FN A LoadQuery(int chunk, int step) const { return LoadRows(chunk, 0, step); }
  GPU_FN A LoadKey(int chunk, int step) const { return LoadRows(chunk, d.k_heads * d.k_dim, step); }
  GPU_FN A LoadMatrix(const T* p, int row, int step) const {
    return M::load_a([&](int i) { return p + (row + i) * kDeltaChunk + step * M::kK; });
  }
  GPU_FN A LoadInverse(int chunk, int step, int split) const {
    return LoadMatrix(Kept(chunk).inverse + split * DeltaKept<T>::kMatrix, token_tile * M::kM,
                      step);
  }
  GPU_FN A LoadScores(int chunk, int step, int split) const {
    return LoadMatrix(Kept(chunk).scores + split * DeltaKept<T>::kMatrix, token_tile * M::kM, step);
  }
  GPU_FN int StateRow(int tile) const { return (tile * kWaves + ::gpu::wave()) * M::kM; }
  GPU_FN A LoadAcross(int chunk, int tile, int step) const {
    return LoadMatrix(Kept(chunk).keys, StateRow(tile), step);
  }
  GPU_FN void FetchRows(int chunk) {
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      M::for_each(values[n], [&](int row, int column, float& v) {
        const int c = first_column + (first_tile + n) * M::kN + column;
        const T* p = RowOf<T>(d.qkv, Token(chunk, row)) + 2 * d.k_heads * d.k_dim + head * d.v_dim;
        v = c < d.v_dim ? ::gpu::to_float(p[c]) : 0.0f;
      });
    }
    if constexpr (kAhead) {
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        if (i * M::kK >= d.k_dim) continue;
        keys[i] = LoadKey(chunk, i);
        queries[i] = LoadQuery(chunk, i);
      }
    }
  }
  GPU_FN void FetchInverse(int chunk) {
    if constexpr (kAhead) {
#pragma unroll
      for (int i = 0; i < kTokenSteps; ++i) inverse[i] = LoadInverse(chunk, i, 0);
    }
  }
  GPU_FN void FetchRest(int chunk) {
    if constexpr (kAhead) {
#pragma unroll
      for (int i = 0; i < kTokenSteps; ++i) {
        scores[i] = LoadScores(chunk, i, 0);
#pragma unroll
        for (int t = 0; t < kStateTiles; ++t) {
          if (StateRow(t) < d.k_dim) across[t][i] = LoadAcross(chunk, t, i);
        }
      }
    }
  }

  // f(row, column, value) for this lane's part of the state.
  template <class F>
  GPU_FN void EachOfState(F f) {
#pragma unroll
    for (int t = 0; t < kStateTiles; ++t) {
      if (StateRow(t) >= d.k_dim) continue;
#pragma unroll
      for (int n = 0; n < kStateColumns; ++n) {
        M::for_each(s[t][n], [&](int row, int column, float& v) {
          f(StateRow(t) + row, n * M::kN + column, v);
        });
      }
    }
  }
  GPU_FN int64_t StateBegin() const {
    return d.state_begin + static_cast<int64_t>(head) * d.k_dim * d.v_dim;
  }
  GPU_FN void Load(const float* slot) {
    const float* p = slot != nullptr ? slot + StateBegin() : nullptr;
    EachOfState([&](int row, int column, float& v) {
      const int c = first_column + column;
      v = p != nullptr && c < d.v_dim ? p[row * d.v_dim + c] : 0.0f;
    });
  }
  GPU_FN void Store(float* slot) {
    float* p = slot + StateBegin();
    EachOfState([&](int row, int column, float& v) {
      const int c = first_column + column;
      if (c < d.v_dim) p[row * d.v_dim + c] = v;
    });
  }
  // For the products: columns as rows.
  GPU_FN void Share() {
    EachOfState([&](int row, int column, float& v) {
      StoreSplit(v, state + column * kStatePitch + row, kStateSize);
    });
  }
  GPU_FN void Put(C& c, int tile, T* to) const {
    M::for_each(c, [&](int row, int column, float& v) {
      StoreSplit(
          v, to + ((first_tile + tile) * M::kN + column) * kTokenPitch + token_tile * M::kM + row,
          kTokensSize);
    });
  }
  // c += (x + over) times the block's rows of tokens, both with what is left over.
  GPU_FN static void Multiply(C& c, const A& x, const A& over, const T* tokens, int tile,
                              int step) {
    const typename M::B b = LoadTokens(tokens, tile, step);
    M::mma(c, x, b);
    if constexpr (kSplits == 2) {
      M::mma(c, x, LoadTokens(tokens + kTokensSize, tile, step));
      M::mma(c, over, b);
    }
  }
  GPU_FN static typename M::B LoadTokens(const T* from, int tile, int step) {
    return M::load_b([&](int i) { return from + (tile * M::kN + i) * kTokenPitch + step * M::kK; });
  }

  GPU_FN void Step(int chunk, bool more) {
    const float* factors = Kept(chunk).factors;
    const auto factor = [&](int which) {
      typename M::Rows r = M::rows(0);
      M::rows_for_each(r, [&](int row, float& v, bool) {
        v = factors[which * kDeltaChunk + token_tile * M::kM + row];
      });
      return r;
    };
    typename M::Rows f = factor(0);
    C known[kOwn], out[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; ++n) known[n] = out[n] = M::zero();
    ::gpu::sync();  // the state is there
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      if (i * M::kK >= d.k_dim) continue;
      const A k = kAhead ? keys[kAhead ? i : 0] : LoadKey(chunk, i);
      const A q = kAhead ? queries[kAhead ? i : 0] : LoadQuery(chunk, i);
#pragma unroll
      for (int n = 0; n < kOwn; ++n) {
#pragma unroll
        for (int p = 0; p < kSplits; ++p) {
          const typename M::B b = M::load_b([&](int j) {
            return state + p * kStateSize + ((first_tile + n) * M::kN + j) * kStatePitch +
                   i * M::kK;
          });
          M::mma(known[n], k, b);
          M::mma(out[n], q, b);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      M::each_row(known[n], f, [](float& v, float& x) { v *= -x; });
      M::add(known[n], values[n]);
      Put(known[n], n, rest);
    }
    f = factor(2);
    A over[kSplits == 2 ? kTokenSteps : 1];
#pragma unroll
    for (int i = 0; i < kTokenSteps; ++i) {
      if constexpr (kSplits == 2) over[i] = LoadInverse(chunk, i, 1);
    }
    ::gpu::sync();
#pragma unroll
    for (int n = 0; n < kOwn; ++n) known[n] = M::zero();
#pragma unroll
    for (int i = 0; i < kTokenSteps; ++i) {
      const A x = kAhead ? inverse[kAhead ? i : 0] : LoadInverse(chunk, i, 0);
#pragma unroll
      for (int n = 0; n < kOwn; ++n)
        Multiply(known[n], x, over[kSplits == 2 ? i : 0], rest, first_tile + n, i);
    }
    if (more) FetchRows(chunk + 1);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      Put(known[n], n, delta);
      M::each_row(known[n], f, [](float& v, float& x) { v *= x; });
      Put(known[n], n, left);
    }
    if (more) FetchInverse(chunk + 1);
    f = factor(1);
    const float keep = factors[3 * kDeltaChunk];
#pragma unroll
    for (int i = 0; i < kTokenSteps; ++i) {
      if constexpr (kSplits == 2) over[i] = LoadScores(chunk, i, 1);
    }
    ::gpu::sync();
    EachOfState([&](int, int, float& v) { v *= keep; });
#pragma unroll
    for (int n = 0; n < kOwn; ++n) M::each_row(out[n], f, [](float& v, float& x) { v *= x; });
#pragma unroll
    for (int i = 0; i < kTokenSteps; ++i) {
#pragma unroll
      for (int t = 0; t < kStateTiles; ++t) {
        if (StateRow(t) >= d.k_dim) continue;
        const A x = kAhead ? across[t][kAhead ? i : 0] : LoadAcross(chunk, t, i);
#pragma unroll
        for (int n = 0; n < kStateColumns; ++n) {
#pragma unroll
          for (int p = 0; p < kSplits; ++p)
            M::mma(s[t][n], x, LoadTokens(left + p * kTokensSize, n, i));
        }
      }
      const A x = kAhead ? scores[kAhead ? i : 0] : LoadScores(chunk, i, 0);
#pragma unroll
      for (int n = 0; n < kOwn; ++n)
        Multiply(out[n], x, over[kSplits == 2 ? i : 0], delta, first_tile + n, i);
    }
    Share();
    if (more) FetchRest(chunk + 1);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      M::for_each(out[n], [&](int row, int column, float& v) {
        const int c = first_column + (first_tile + n) * M::kN + column;
        const int token = first + chunk * kDeltaChunk + token_tile * M::kM + row;
        if (token < end && c < d.v_dim)
          RowOf<T>(d.y, token * d.v_heads + head)[c] = ::gpu::from_float<T>(v);
      });
    }
  }

  GPU_FN void Run(int request) {
    const int chunks = (end - first + kDeltaChunk - 1) / kDeltaChunk;
    FetchRows(0);
    FetchInverse(0);
    FetchRest(0);
    Load(SlotToRead(d.state, request));
    Share();
    for (int c = 0; c < chunks; ++c) Step(c, c + 1 < chunks);
    if (float* slot = SlotToWrite(d.state, request)) Store(slot);
  }
};

// A piece that is long enough has a multiple of kDeltaChunk among its tokens' places in the step:
// the first one stands for it.
template <class T>
GPU_FN void DeltaChunksOf(const DeltaChunkArgs& a) {
  const DeltaArgs& d = a.delta;
  const int pieces = (d.v_dim + kDeltaChunkColumns - 1) / kDeltaChunkColumns;
  const int token = ::gpu::block_y() * kDeltaChunk, tokens = d.header->tokens;
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  if (token >= tokens) return;
  const int request = RequestOf(d.state.query_start, d.header->requests, token);
  const int first = d.state.query_start[request];
  const int end = ::gpu::min(d.state.query_start[request + 1], tokens);
  if (token - first >= kDeltaChunk || end - first <= kDeltaChunk) return;
  DeltaChunks<T>(a, ::gpu::block() / pieces, ::gpu::block() % pieces * kDeltaChunkColumns, first,
                 end)
      .Run(request);
}

}  // namespace vt::gpu
