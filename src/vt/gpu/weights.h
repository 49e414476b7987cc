// Rows of a checkpoint tensor as the device holds them.
#pragma once

#include "vt/device/backend.h"

namespace vt::gpu {

// Any stored format in; f32 in one long vector, or rows of the value type with a padded pitch, out.
class PackedRows {
 public:
  static PackedRows Vector(const WeightView& src);
  static PackedRows Matrix(const WeightView& src, ir::DType value_type);

  // Rows [begin, begin + count) to `out`.
  void Write(int64_t begin, int64_t count, std::byte* out) const;
  // Tells the source that these rows will not be read again.
  void Release(int64_t begin, int64_t end) const;

  int64_t rows = 0, row_bytes = 0;

 private:
  WeightView src_;
  ir::DType type_ = ir::DType::kF32;
  int64_t columns_ = 0, pitch_ = 0;
};

}  // namespace vt::gpu
