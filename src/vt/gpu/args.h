// What all kernels' arguments are made of: plain data, the same on host and device. Each family of
// kernels has its own args_<family>.h beside this.
#pragma once

#include <cstdint>

namespace vt::gpu {

// The start of the packed input buffer (device/step_layout.h): sizes of this very step.
struct Header {
  int32_t tokens, requests, outputs;
  int32_t table_stride;  // entries a row of each block table has in this step
};

// How many rows a value has in a step: `times` for each token (request, output row), or just
// `times`.
enum class Of : int32_t { kOne, kTokens, kRequests, kOutputs };
struct Count {
  Of of = Of::kOne;
  int32_t times = 1;
};

// Rows of `width` values: row i stands at base + (i / inner) * stride + (i % inner) * width.
struct Rows {
  void* base = nullptr;
  int64_t stride = 0;  // values
  int32_t inner = 1;
  int32_t width = 0;
};

// A layer of a paged state: block b is at data + b * block_bytes and holds keys
// [kv_heads][block_size][head_dim], then values in the same order.
struct KvLayer {
  char* data = nullptr;
  int64_t block_bytes = 0;
  int32_t block_size = 16, kv_heads = 1, head_dim = 64;
  int32_t dtype = 0;  // KvType
};
enum KvType : int32_t { kKvF32, kKvF16, kKvBF16, kKvF8 };

}  // namespace vt::gpu
