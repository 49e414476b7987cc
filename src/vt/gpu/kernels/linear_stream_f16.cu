#include "vt/gpu/tiles/linear_stream.h"

namespace vt::gpu {

// linear_stream_<input>_<rows of x at most>. direct: x is read where it stands.
#define KERNEL(name, rows, ...)                                                             \
  GPU_KERNEL(linear_stream_##name##_##rows##_f16, SkinnyArgs, kStreamWaves* ::gpu::kWave) { \
    StreamLinear<::gpu::f16, rows, __VA_ARGS__>(args);                                      \
  }
#define KERNELS(name, ...)     \
  KERNEL(name, 1, __VA_ARGS__) \
  KERNEL(name, 8, __VA_ARGS__) \
  KERNEL(name, 16, __VA_ARGS__)
KERNELS(direct, false)
KERNELS(staged, true)
KERNELS(norm, true, LinearInput::kNorm)
KERNELS(sandwich, true, LinearInput::kNormAddNorm)
#undef KERNELS
#undef KERNEL

}  // namespace vt::gpu
