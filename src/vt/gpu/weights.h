// Rows of a checkpoint tensor as the device holds them.
#pragma once

#include <span>

#include "vt/gpu/quant_layout.h"

namespace vt::gpu {

// Any stored format in; f32 in one long vector, rows of the value type with a padded pitch, or the
// planes of a quantised matrix out.
class PackedRows {
 public:
  using Plane = QuantLayout::Plane;
  static PackedRows Vector(const WeightView& src);
  static PackedRows Matrix(const WeightView& src, ir::DType value_type);
  static PackedRows Quantised(const WeightView& src);

  // Rows [begin, begin + count) to `out`, plane after plane.
  void Write(int64_t begin, int64_t count, std::byte* out) const;
  // Tells the source that these rows will not be read again.
  void Release(int64_t begin, int64_t end) const;

  // Where the rows of each plane stand on the device.
  std::span<const Plane> planes() const { return {planes_.data(), plane_count_}; }

  int64_t rows = 0, row_bytes = 0;  // of all planes

 private:
  void WriteQuantised(int64_t begin, int64_t count, std::byte* out) const;

  WeightView src_;
  ir::DType type_ = ir::DType::kF32;
  int64_t columns_ = 0, pitch_ = 0;
  std::array<Plane, 4> planes_ = {};
  size_t plane_count_ = 1;
};

}  // namespace vt::gpu
