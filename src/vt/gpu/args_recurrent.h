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
  int32_t most_tokens = 0x7fffffff;  // pieces of more are another kernel's
  float eps = 0;
};

// Pieces of more than kDeltaChunk tokens, a chunk at a time: tiles/recurrent_chunk.h.
inline constexpr int kDeltaChunk = 64, kDeltaSlotTokens = kDeltaChunk / 2;
inline constexpr int kDeltaChunkDim = 128;  // most of k_dim, which is a multiple of kDeltaChunkStep
inline constexpr int kDeltaChunkStep = 32, kDeltaChunkColumns = 32, kDeltaChunkThreads = 256;
struct DeltaChunkArgs {
  DeltaArgs delta;
  char* work = nullptr;  // a slot a chunk: heads, then key heads
  int64_t slot_bytes = 0;
};
// Rows in shared memory, one bank after the other.
inline constexpr int DeltaPitch(int values, int bytes) { return values + 16 / bytes; }
// 16-bit operands that are not the rows themselves come with what their rounding leaves over.
inline constexpr int DeltaSplits(int bytes) { return bytes == 4 ? 1 : 2; }
inline constexpr int64_t DeltaHeadBytes(int bytes) {
  return 2 * DeltaSplits(bytes) * kDeltaChunk * kDeltaChunk * bytes + 4 * kDeltaChunk * 4;
}
inline constexpr int64_t DeltaKeyBytes(int bytes) { return kDeltaChunkDim * kDeltaChunk * bytes; }
inline constexpr unsigned kDeltaBeginShared =
    (2 * kDeltaChunk * DeltaPitch(kDeltaChunk, 4) + 4 * kDeltaChunk) * 4;
inline constexpr unsigned DeltaChunkShared(int bytes) {
  const int split = DeltaPitch(kDeltaChunkDim, bytes) + 3 * DeltaPitch(kDeltaChunk, bytes);
  return static_cast<unsigned>(kDeltaChunkColumns * bytes * DeltaSplits(bytes) * split);
}

// With the filter and SiLU before, the norm and the gate behind. A block has columns of a head; a
// thread has a channel of its query and one of its key: k_dim is kDeltaNetThreads.
inline constexpr int kDeltaNetThreads = 128, kDeltaNetColumns = 8, kDeltaNetMostWidth = 4;
inline constexpr int DeltaNetColumns(int wave) {  // of a block
  return kDeltaNetThreads / wave * kDeltaNetColumns;
}
struct DeltaNetArgs {
  DeltaArgs delta;
  const float* w = nullptr;  // of the filter, [channels][width]
  int32_t width = 0;
  Rows z;                       // a row a head
  const float* norm = nullptr;  // [v_dim]
  float norm_eps = 0, norm_offset = 0;
  // [tokens][v_heads]: a head's columns, and a sum of squares for each kDeltaNetColumns of them.
  float* work = nullptr;
  int32_t head_floats = 0;
  int32_t* counters = nullptr;  // [requests][k_heads], zero between launches
};

}  // namespace vt::gpu
