#include "vt/gpu/tiles/quant_from.h"

namespace vt::gpu {

// The same, whose results are heads of q, k and v.
GPU_KERNEL_BLOCKS(quant_heads_f32, QuantHeadsArgs, kQuantGemvThreads, 2) {
  QuantHeads<float>(args);
}
GPU_KERNEL_BLOCKS(quant_heads_bf16, QuantHeadsArgs, kQuantGemvThreads, 2) {
  QuantHeads<::gpu::bf16>(args);
}
GPU_KERNEL_BLOCKS(quant_heads_f16, QuantHeadsArgs, kQuantGemvThreads, 2) {
  QuantHeads<::gpu::f16>(args);
}

}  // namespace vt::gpu
