// Arguments of the kernels of caches with entries and of residuals of several streams
// (ir::CompressAttrs, EntryAttrs, HyperAttrs).
#pragma once

#include "vt/gpu/args.h"

namespace vt::gpu {

// A layer's state, of which each token has a row.
struct Pages {
  KvLayer kv;
  const int32_t* table = nullptr;  // [requests][Header::table_stride]
};
struct StepTokens {
  const int32_t *positions = nullptr, *query_start = nullptr;
};
// Where entries are: `rows` rows of a window of `ratio` tokens hold `piece` values each.
struct EntryPlaces {
  Pages pages;
  int32_t ratio = 0, rows = 1, piece = 0, begin = 0;
};

// A block a token; those whose token ends no window have nothing to do. Shared memory: dim floats,
// one a wave.
inline constexpr int kCompressThreads = 256;
struct CompressArgs {
  const Header* header = nullptr;
  StepTokens tokens;
  Pages raw;
  EntryPlaces entries;
  const float *bias = nullptr, *norm = nullptr;
  const float* table = nullptr;  // [positions][rotary / 2] (cos, sin)
  int32_t dim = 0, rotary = 0, interleaved = 0, overlap = 0;
  int32_t values = 0, gates = 0;
  float eps = 0;
};

// A block a token. Shared memory: the token's queries as floats, their weights, two ints a thread
// and kIndexBins + 2.
inline constexpr int kIndexThreads = 256, kIndexBins = 256, kIndexHeads = 8;
struct IndexArgs {
  const Header* header = nullptr;
  StepTokens tokens;
  EntryPlaces entries;
  Rows q, weights;  // rows of q: heads; weights are f32
  int32_t* ids = nullptr;
  int32_t heads = 1, dim = 0, top_k = 1;
};
constexpr int IndexBytes(int heads, int dim) {
  return 4 * (heads * dim + heads + 2 * kIndexThreads + kIndexBins + 2);
}

// A wave a head of a token.
inline constexpr int kEntryWaves = 4, kEntryLaneValues = 16;
struct EntryAttentionArgs {
  const Header* header = nullptr;
  StepTokens tokens;
  Pages window;
  EntryPlaces entries;  // ratio 0: none
  Rows q, y;            // rows of heads
  const float* sinks = nullptr;
  const int32_t* ids = nullptr;  // [tokens][top_k], or none: all entries
  int32_t heads = 1, dim = 0, top_k = 0, window_tokens = 0;
  float scale = 1;
};

// A block a row. Shared memory: a float a mix, one a wave.
inline constexpr int kHyperThreads = 256;
struct HyperCollapseArgs {
  const Header* header = nullptr;
  Count count;
  Rows x, mix, y;  // rows of x: streams; mix is f32
  float* gates = nullptr;
  const float *base = nullptr, *scale = nullptr;
  int32_t streams = 1, dim = 0, rounds = 0;
  float eps = 0, norm_eps = 0;
};
struct HyperExpandArgs {
  const Header* header = nullptr;
  Count count;
  Rows x, y, out;  // rows of x and out: streams
  const float* gates = nullptr;
  int32_t streams = 1, dim = 0;
};

}  // namespace vt::gpu
