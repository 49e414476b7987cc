// safetensors files: 8 bytes of header length, a JSON header, then the tensors without holes (the
// format: huggingface/safetensors). Parsing only; data stays in the mapped file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

struct SafetensorsTensor {
  std::string name;
  vt::ir::DType dtype = vt::ir::DType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  uint64_t offset = 0;         // from the file's begin
  uint64_t bytes = 0;          // 0 for a tensor with an empty dimension
};

// Tensors in file order. Errors name the tensor and field: kCorrupt for ranges that leave the file,
// overlap, leave a hole or disagree with the shape; kUnsupported for data types that aren't
// implemented (F8_E5M2 and so on). F8_E8M0, which only scales have, is u8.
base::Result<std::vector<SafetensorsTensor>> ParseSafetensors(std::span<const std::byte> file);

// model.safetensors.index.json: tensor name -> file name. File names with a folder in them are
// refused.
base::Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view json);

}  // namespace vllm::weights
