#include "vt/gpu/tiles/linear_skinny.h"

namespace vt::gpu {

// linear_<tiles of 16 rows of x>x<tiles of weights>; staged: x in shared memory.
GPU_KERNEL(linear_direct_1x1_bf16, SkinnyArgs, 512) {
  SkinnyLinear<::gpu::bf16, 1, 1, false>(args);
}
GPU_KERNEL(linear_direct_1x2_bf16, SkinnyArgs, 512) {
  SkinnyLinear<::gpu::bf16, 1, 2, false>(args);
}
GPU_KERNEL(linear_direct_2x2_bf16, SkinnyArgs, 512) {
  SkinnyLinear<::gpu::bf16, 2, 2, false>(args);
}
GPU_KERNEL(linear_direct_4x2_bf16, SkinnyArgs, 512) {
  SkinnyLinear<::gpu::bf16, 4, 2, false>(args);
}
GPU_KERNEL(linear_staged_1x1_bf16, SkinnyArgs, 512) { SkinnyLinear<::gpu::bf16, 1, 1, true>(args); }
GPU_KERNEL(linear_staged_1x2_bf16, SkinnyArgs, 512) { SkinnyLinear<::gpu::bf16, 1, 2, true>(args); }

}  // namespace vt::gpu
