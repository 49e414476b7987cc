// How a quantised matrix stands on the device (args_quant.h): sizes, and repacking from a file's
// blocks.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "vt/device/backend.h"
#include "vt/gpu/args_quant.h"

namespace vt::gpu {

// Nothing for types that are not held as stored.
std::optional<QuantFormat> QuantFormatOf(ir::DType t);

struct QuantLayout {
  struct Plane {
    int64_t offset = 0, row_bytes = 0;
  };
  std::array<Plane, 4> planes;  // low, high, block, super
  int64_t bytes = 0;            // of the matrix, a multiple of 16

  static QuantLayout Of(QuantFormat format, int64_t rows, int64_t columns);
  QuantPlanes At(const void* data) const;
};
std::string QuantLayoutName(ir::DType t);  // "gpu.Q4_K"

// Row `row` of the view, its part of each plane where `planes` says.
void RepackQuantRow(const WeightView& src, int64_t row, const std::array<std::byte*, 4>& planes);

}  // namespace vt::gpu
