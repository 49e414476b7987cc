// See LinearBiasArgs.
#pragma once

#include "vt/gpu/args_linear.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

template <class T>
GPU_FN void LinearBias(const LinearBiasArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread(), row = ::gpu::block_y();
  if (i >= a.segment.rows || row >= CountOf(a.header, a.count)) return;
  const float v = a.segment.bias[i];
  if (a.out_f32 != 0) {
    RowOf<float>(a.out, row)[a.segment.column + i] = v;
  } else {
    RowOf<T>(a.out, row)[a.segment.column + i] = ::gpu::from_float<T>(v);
  }
}

}  // namespace vt::gpu
