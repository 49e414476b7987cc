// Weights of safetensors that are stored as integers or small floats beside their scales: "weight"
// tensors in a block format (vt/ir/dtype.h), whose rows are made from what is stored when they are
// read. Files stay mapped; nothing is expanded to floats.
//
// What becomes what, for a module x (K must be a multiple of 32):
//   AWQ, GPTQ   x.qweight, qzeros, scales, g_idx   4 bits: Q4_1, or Q4_0 where all zeros are the
//   compressed  x.weight_packed, weight_scale,     middle; 8 bits: Q8_0
//     -tensors  weight_zero_point, weight_shape
//               x.weight (i8), weight_scale        Q8_0
//   FP8         x.weight (f8), weight_scale, weight_scale_inv or x.scale, of the tensor, a row or a
//               block: F8_32
//   MXFP4       x_blocks and x_scales, x.weight_packed (u8) and weight_scale, or x.weight (i8) and
//               x.scale: MXFP4
// Scales of the Q formats are halves. Those that are stored as halves stay as they are, as do
// bfloat16's from 2^-17 on; others are off by 2^-11 of themselves at most (below 2^-14: by 2^-25).
// A minimum of Q4_1, which is a scale times a zero, is rounded likewise.
//
// Scales of activations and of cached keys and values are dropped: values that are not rounded need
// none.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/weights/checkpoint.h"
#include "vllm/weights/quantisation.h"

namespace vllm::weights {

// How a weight is stored that others read in blocks of `type`.
struct QuantisedTensor {
  // Codes of a row one after another; of eight (four) rows of k in a word of GPTQ; of eight rows'
  // k in a word of AWQ, in its order.
  enum class Order : uint8_t { kRows, kGptq, kAwq };
  std::string name;
  vt::ir::DType type = vt::ir::DType::kQ4_0;
  int64_t rows = 0, columns = 0;
  Order order = Order::kRows;
  int bits = 4;
  uint8_t flip = 0;  // bits of codes that are turned over
  TensorPiece codes, scales, zeros;
  bool has_zeros = false, zeros_less_one = false;
  // The scale of (row, k) is that of (row / row_step) * row_stride + (k / step) * stride.
  vt::ir::DType scale_type = vt::ir::DType::kF16;  // u8: a power of two
  int64_t row_step = 1, row_stride = 0, step = 1, stride = 0;
  int64_t groups = 1;  // in a row
  // The bytes of one row in blocks.
  int64_t RowBytes() const { return vt::ir::Bytes(type, columns); }
};

using BytesOfPiece = std::function<std::span<const std::byte>(const TensorPiece&)>;

// Replaces what is stored of quantised modules by their weights, each of one piece whose file is
// -1 - i for result[i], with offsets in its blocks. Errors name the stored tensor: kCorrupt for
// shapes and types that don't fit together, kNotFound for a missing part, kUnsupported for what
// isn't implemented.
base::Result<std::vector<QuantisedTensor>> JoinQuantised(
    const Quantisation& how, const BytesOfPiece& bytes_of,
    std::map<std::string, TensorInfo>& tensors);

// Blocks of rows [first, first + count). Errors: kCorrupt for a scale that is no finite number, or
// a zero that isn't what it is said to be.
base::Status MakeBlocks(const QuantisedTensor& tensor, const BytesOfPiece& bytes_of, int64_t first,
                        int64_t count, std::byte* out);

}  // namespace vllm::weights
