#include "vt/gpu/tiles/linear_skinny.h"

namespace vt::gpu {

// Those of linear_skinny_bf16.cu for large matrices.
#define KERNEL(name, ...)                                                               \
  GPU_KERNEL_BLOCKS(linear_##name##_1x2_deep_bf16, SkinnyArgs, kLinearDeepThreads, 2) { \
    SkinnyLinear<::gpu::bf16, 1, 2, __VA_ARGS__, true>(args);                           \
  }
KERNEL(direct, false, LinearInput::kPlain)
KERNEL(staged, true, LinearInput::kPlain)
KERNEL(norm, true, LinearInput::kNorm)
KERNEL(sandwich, true, LinearInput::kNormAddNorm)
#undef KERNEL

}  // namespace vt::gpu
