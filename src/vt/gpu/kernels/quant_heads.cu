#include "vt/gpu/quant_sets.h"
#include "vt/gpu/tiles/quant_from.h"

namespace vt::gpu {

using enum QuantFormat;

// The same, whose results are heads of q, k and v: of the usual type of values by formats.
#define KERNEL(suffix, ...)                                                             \
  GPU_KERNEL_BLOCKS(quant_heads##suffix##_bf16, QuantHeadsArgs, kQuantGemvThreads, 3) { \
    QuantHeads<::gpu::bf16, QuantSet<__VA_ARGS__>>(args);                               \
  }
VT_QUANT_SETS(KERNEL)
#undef KERNEL
GPU_KERNEL_BLOCKS(quant_heads_f32, QuantHeadsArgs, kQuantGemvThreads, 2) {
  QuantHeads<float, QuantSet<VT_QUANT_ALL>>(args);
}
GPU_KERNEL_BLOCKS(quant_heads_bf16, QuantHeadsArgs, kQuantGemvThreads, 2) {
  QuantHeads<::gpu::bf16, QuantSet<VT_QUANT_ALL>>(args);
}
GPU_KERNEL_BLOCKS(quant_heads_f16, QuantHeadsArgs, kQuantGemvThreads, 2) {
  QuantHeads<::gpu::f16, QuantSet<VT_QUANT_ALL>>(args);
}

}  // namespace vt::gpu
