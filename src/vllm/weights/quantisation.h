// How a safetensors model is quantised: config.json's quantization_config in one shape.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vllm::weights {

// Which tensors are quantised, and to what, is in their names and types; here is what those don't
// say. Modules that a configuration leaves out are those whose weights are stored plain.
struct Quantisation {
  enum class Method : uint8_t { kNone, kFp8, kAwq, kGptq, kCompressedTensors, kMxfp4 };
  Method method = Method::kNone;
  int bits = 0;  // of AWQ and GPTQ
  // Values of a row that share a scale, 0 for all of it: of AWQ and GPTQ the one; of
  // compressed-tensors those of its groups of modules.
  std::vector<int64_t> groups;
  bool symmetric = false;                     // of GPTQ: all zeros are the middle code
  bool zeros_less_one = true;                 // GPTQ's first version stores them so
  int64_t block_rows = 0, block_columns = 0;  // of 8-bit floats; 0: no blocks
};

// Of a config.json's text part; kNone for a model that isn't quantised. Errors, with the field's
// name: kUnsupported for methods, bits and formats that are not implemented, kCorrupt for wrong
// types.
base::Result<Quantisation> ReadQuantisation(const boost::json::object& config);

}  // namespace vllm::weights
