#include "vt/gpu/tiles/quant_from.h"

namespace vt::gpu {

// One row of values.
GPU_KERNEL_BLOCKS(quant_gemv_from_f32, QuantFromArgs, kQuantGemvThreads, 2) {
  QuantGemvFrom<float>(args);
}
GPU_KERNEL_BLOCKS(quant_gemv_from_bf16, QuantFromArgs, kQuantGemvThreads, 2) {
  QuantGemvFrom<::gpu::bf16>(args);
}
GPU_KERNEL_BLOCKS(quant_gemv_from_f16, QuantFromArgs, kQuantGemvThreads, 2) {
  QuantGemvFrom<::gpu::f16>(args);
}

}  // namespace vt::gpu
