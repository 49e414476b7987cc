#include "vt/gpu/tiles/linear_stream.h"

namespace vt::gpu {

// linear_stream_<input>_<rows of x at most>. direct: x is read where it stands. Two blocks of few
// rows are in a multiprocessor at once: the next kernel's asks for weights while this one's ends.
#define KERNEL(name, ...)                                                                        \
  GPU_KERNEL_BLOCKS(linear_stream_##name##_8_bf16, SkinnyArgs, kStreamWaves* ::gpu::kWave, 2) {  \
    StreamLinear<::gpu::bf16, 8, __VA_ARGS__>(args);                                             \
  }                                                                                              \
  GPU_KERNEL_BLOCKS(linear_stream_##name##_16_bf16, SkinnyArgs, kStreamWaves* ::gpu::kWave, 1) { \
    StreamLinear<::gpu::bf16, 16, __VA_ARGS__>(args);                                            \
  }
KERNEL(direct, false)
KERNEL(staged, true)
KERNEL(norm, true, LinearInput::kNorm)
KERNEL(sandwich, true, LinearInput::kNormAddNorm)
#undef KERNEL

}  // namespace vt::gpu
