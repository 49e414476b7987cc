#include "vt/gpu/tiles/linear_stream.h"

namespace vt::gpu {

// linear_stream_<input>_<rows of x at most>_<type>. direct: x is read where it stands.
#define KERNEL(name, rows, shape, type, ...)                                                   \
  GPU_KERNEL(linear_stream_##name##_##rows##_##type, SkinnyArgs, kStreamWaves* ::gpu::kWave) { \
    StreamLinear<::gpu::type, shape, __VA_ARGS__>(args);                                       \
  }
#define KERNELS(name, type, ...)                 \
  KERNEL(name, 1, kStreamOne, type, __VA_ARGS__) \
  KERNEL(name, 8, kStreamFew, type, __VA_ARGS__) \
  KERNEL(name, 16, kStreamMore, type, __VA_ARGS__)
#define TYPE(type)                              \
  KERNELS(direct, type, false)                  \
  KERNELS(staged, type, true)                   \
  KERNELS(norm, type, true, LinearInput::kNorm) \
  KERNELS(sandwich, type, true, LinearInput::kNormAddNorm)
TYPE(bf16)
TYPE(f16)
#undef TYPE
#undef KERNELS
#undef KERNEL

}  // namespace vt::gpu
