// Rows of a quantised matrix as values: of a table, or all of them for a library's product. A
// thread has a block.
#pragma once

#include "vt/gpu/tiles/quant_block.h"

namespace vt::gpu {

template <class T>
GPU_FN void ExpandRows(const QuantExpandArgs& a) {
  ::gpu::launch_dependents();
  const int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
  const int row = i / a.blocks, b = i % a.blocks;
  ::gpu::wait_predecessor();
  if (row >= CountOf(a.header, a.count)) return;
  T* to = RowOf<T>(a.y, row) + 32 * b;
  const int from = a.index != nullptr ? a.index[row] : row;
  if (from < 0 || from >= a.w.rows) {
#pragma unroll
    for (int j = 0; j < 32; ++j) to[j] = ::gpu::from_float<T>(0);
    return;
  }
  WithFormat(a.w.format, [&](auto tag) {
    constexpr QuantFormat kF = decltype(tag)::kFormat;
    WriteValues<kF, true>(QuantRow<kF>(a.w.planes, from, a.blocks).Load(b), b, to);
  });
}

}  // namespace vt::gpu
