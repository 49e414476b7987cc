#include "vt/gpu/tiles/linear_skinny.h"

namespace vt::gpu {

// linear_<input>_<tiles of 16 rows of x>x<tiles of weights>. direct: x is read where it stands.
GPU_KERNEL(linear_direct_1x1_f32, SkinnyArgs, 512) { SkinnyLinear<float, 1, 1, false>(args); }
GPU_KERNEL(linear_direct_1x2_f32, SkinnyArgs, 512) { SkinnyLinear<float, 1, 2, false>(args); }
GPU_KERNEL(linear_direct_2x2_f32, SkinnyArgs, 512) { SkinnyLinear<float, 2, 2, false>(args); }
GPU_KERNEL(linear_direct_4x2_f32, SkinnyArgs, 512) { SkinnyLinear<float, 4, 2, false>(args); }
GPU_KERNEL(linear_staged_1x1_f32, SkinnyArgs, 512) { SkinnyLinear<float, 1, 1, true>(args); }
GPU_KERNEL(linear_staged_1x2_f32, SkinnyArgs, 512) { SkinnyLinear<float, 1, 2, true>(args); }
GPU_KERNEL(linear_norm_1x1_f32, SkinnyArgs, 512) {
  SkinnyLinear<float, 1, 1, true, LinearInput::kNorm>(args);
}
GPU_KERNEL(linear_norm_1x2_f32, SkinnyArgs, 512) {
  SkinnyLinear<float, 1, 2, true, LinearInput::kNorm>(args);
}
GPU_KERNEL(linear_sandwich_1x1_f32, SkinnyArgs, 512) {
  SkinnyLinear<float, 1, 1, true, LinearInput::kNormAddNorm>(args);
}
GPU_KERNEL(linear_sandwich_1x2_f32, SkinnyArgs, 512) {
  SkinnyLinear<float, 1, 2, true, LinearInput::kNormAddNorm>(args);
}

}  // namespace vt::gpu
