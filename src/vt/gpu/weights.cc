#include "vt/gpu/weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "vt/gpu/context.h"
#include "vt/ir/quant.h"

namespace vt::gpu {

PackedRows PackedRows::Vector(const WeightView& src) {
  PackedRows p = Matrix(src, ir::DType::kF32);
  p.pitch_ = src.columns;
  p.row_bytes = p.planes_[0].row_bytes = src.columns * 4;
  return p;
}

PackedRows PackedRows::Matrix(const WeightView& src, ir::DType value_type) {
  PackedRows p;
  p.src_ = src;
  p.type_ = value_type;
  p.rows = src.rows;
  p.columns_ = src.columns;
  p.pitch_ = PitchOf(src.columns);
  p.row_bytes = p.planes_[0].row_bytes = p.pitch_ * ir::Info(value_type).bytes;
  return p;
}

PackedRows PackedRows::Quantised(const WeightView& src) {
  PackedRows p;
  p.src_ = src;
  p.type_ = src.format;
  p.rows = src.rows;
  p.columns_ = src.columns;
  p.planes_ = QuantLayout::Of(*QuantFormatOf(src.format), src.rows, src.columns).planes;
  p.plane_count_ = p.planes_.size();
  for (const Plane& plane : p.planes_) p.row_bytes += plane.row_bytes;
  return p;
}

void PackedRows::WriteQuantised(int64_t begin, int64_t count, std::byte* out) const {
  std::array<std::byte*, 4> to;
  for (size_t i = 0; i < 4; ++i) {
    to[i] = out;
    out += count * planes_[i].row_bytes;
  }
  for (int64_t r = begin; r < begin + count; ++r) {
    RepackQuantRow(src_, r, to);
    for (size_t i = 0; i < 4; ++i) to[i] += planes_[i].row_bytes;
  }
}

void PackedRows::Write(int64_t begin, int64_t count, std::byte* out) const {
  if (plane_count_ > 1) return WriteQuantised(begin, count, out);
  const int64_t source_bytes = ir::Bytes(src_.format, columns_);
  const int64_t bytes = columns_ * ir::Info(type_).bytes;
  const std::byte* from = src_.data + begin * source_bytes;
  if (src_.format == type_ && pitch_ == columns_) {
    std::memcpy(out, from, static_cast<size_t>(count * bytes));
    return;
  }
  std::vector<float> floats(static_cast<size_t>(columns_));
  for (int64_t r = 0; r < count; ++r, from += source_bytes, out += row_bytes) {
    if (src_.format == type_) {
      std::memcpy(out, from, static_cast<size_t>(bytes));
    } else {
      ir::Dequantize(src_.format, from, floats.data(), columns_);
      ir::Quantize(type_, floats.data(), out, columns_);
    }
    std::memset(out + bytes, 0, static_cast<size_t>(row_bytes - bytes));
  }
}

void PackedRows::Release(int64_t begin, int64_t end) const {
  const int64_t source_bytes = ir::Bytes(src_.format, columns_);
  if (src_.release) src_.release(begin * source_bytes, end * source_bytes);
}

}  // namespace vt::gpu
