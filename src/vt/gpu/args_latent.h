// Arguments of the kernels of latent attention beside AttentionArgs: one vector a token in the
// cache, and matrices of heads around it.
#pragma once

#include "vt/gpu/args_attention.h"

namespace vt::gpu {

// A block a token: the first `rank` values, normed where there is a weight, and the others,
// rotated where there is a table, into the cache.
struct LatentWriteArgs {
  const Header* header = nullptr;
  Rows x;
  KvLayer kv;
  const int32_t *positions = nullptr, *slots = nullptr;
  const float* table = nullptr;  // [positions][(head_dim - rank) / 2] (cos, sin)
  HeadNorm norm;
  int32_t rank = 0;
  int32_t interleaved = 0;
};

// y of a head: x w^T, then the rotated rest of its x.
struct HeadLinearArgs {
  const Header* header = nullptr;
  Rows x, y;  // rows of heads
  const void* w = nullptr;
  int32_t pitch = 0, staged_pitch = 0;  // values between rows of w, and of staged rows of x
  int32_t heads = 0, n = 0, k = 0;
  int32_t column_tiles = 0;  // of a head, without the one that rotates
  int32_t most_tokens = 1;   // of the bucket
  int32_t direct = 0;        // rows of x are read where they are: aligned, with whole steps of k
  const int32_t* positions = nullptr;
  const float* table = nullptr;  // [positions][(x.width - k) / 2] (cos, sin), or none
  int32_t interleaved = 0;
};
// Both in one launch: the first `writes` blocks write.
struct LatentQueryArgs {
  HeadLinearArgs query;
  LatentWriteArgs write;
  int32_t writes = 0;
};
// Tokens and columns of a block: with few tokens its waves share the sums of 16 by 16.
constexpr int HeadTokens(bool many) { return many ? 32 : 16; }
constexpr int HeadColumns(bool many) { return many ? 64 : 16; }
// Values between staged rows of x; waves' sums follow them.
constexpr int HeadPitch(int k, int size) { return (k + 31) / 32 * 32 + 16 / size; }
constexpr int HeadBytes(int k, int size, bool many) {
  return HeadTokens(many) * HeadPitch(k, size) * size + (many ? 0 : 4 * 16 * 16 * 4);
}

// --- attention: a block of kLatentWaves has 16 heads of a token, whose columns of values its waves
// share. Rows of the cache serve as keys and, across, as values. Scores are there twice: halves of
// their sums.
inline constexpr int kLatentWaves = 4;
inline constexpr int kLatentScorePitch = kTileKeys + 4;
constexpr int LatentStageBytes(int dim, int size) {
  return kTileKeys * ValuePitch(dim, size) * size;
}
constexpr int LatentBytes(int dim, int size, int stages) {
  return 16 * ValuePitch(dim, size) * size + stages * LatentStageBytes(dim, size) +
         2 * 16 * kLatentScorePitch * 4 + kLatentWaves * 16 * kTileKeys * size;
}

// --- adding up parts of tokens: values of a head that a block takes, and values between parts.
inline constexpr int kJoinThreads = 256;
inline constexpr int kJoinColumns = 128;
constexpr int JoinBlocks(int v_dim) { return (v_dim + kJoinColumns - 1) / kJoinColumns; }
constexpr int LatentPartPitch(int v_dim) { return (v_dim + 3) / 4 * 4; }

}  // namespace vt::gpu
