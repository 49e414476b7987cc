// Arguments of the kernels of recurrent layers: the filter along a request's tokens, the gated
// delta rule, and both in one.
#pragma once

#include "vt/gpu/args.h"

namespace vt::gpu {

// Slots of one layer's state, and which of them a request reads and writes (graph.h: state_read,
// state_write).
struct RecurrentState {
  float* data = nullptr;
  int64_t slot_floats = 0;
  int32_t slots = 0;
  const int32_t *query_start = nullptr, *read = nullptr, *write = nullptr;
};

inline constexpr int kConvThreads = 128, kConvTokens = 16, kConvMostWidth = kConvTokens;
struct ConvArgs {
  const Header* header = nullptr;
  RecurrentState state;
  Rows x, y;
  const float* w = nullptr;  // [channels][width]
  int32_t channels = 0, width = 0;
  int32_t most_requests = 0;  // the first blocks of the grid in y; the others have pieces of tokens
};

// A wave has kDeltaColumns columns of one head's state, kDeltaAcross lanes a row.
inline constexpr int kDeltaColumns = 8, kDeltaAcross = 2, kDeltaThreads = 128;
inline constexpr int kDeltaMostDim = 256;  // of k_dim
struct DeltaArgs {
  const Header* header = nullptr;
  RecurrentState state;
  Rows qkv, a, b, y;  // y: a row a head
  const float *big_a = nullptr, *dt = nullptr;
  int32_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  int32_t state_begin = 0, log_a = 1, tiled = 0;
  float eps = 0;
};

// With the filter and SiLU before, the norm and the gate behind. A block has a key head and all
// heads that read it.
inline constexpr int kDeltaNetThreads = 512, kDeltaNetColumns = 16, kDeltaNetMostWidth = 4;
inline constexpr int kDeltaNetDim = 128;  // k_dim
struct DeltaNetArgs {
  DeltaArgs delta;
  const float* w = nullptr;  // of the filter, [channels][width]
  int32_t width = 0;
  Rows z;  // a row a head
  const float* norm = nullptr;  // [v_dim]
  float norm_eps = 0, norm_offset = 0;
};

}  // namespace vt::gpu
