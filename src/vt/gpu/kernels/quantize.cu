#include "vt/gpu/tiles/quantize.h"

namespace vt::gpu {

GPU_KERNEL(quantize_f32, QuantizeArgs, kQuantizeThreads) { QuantizeRows<float>(args); }
GPU_KERNEL(quantize_bf16, QuantizeArgs, kQuantizeThreads) { QuantizeRows<::gpu::bf16>(args); }
GPU_KERNEL(quantize_f16, QuantizeArgs, kQuantizeThreads) { QuantizeRows<::gpu::f16>(args); }
GPU_KERNEL(quantize_norm_f32, QuantizeNormArgs, kQuantizeNormThreads) { QuantizeNorm<float>(args); }
GPU_KERNEL(quantize_norm_bf16, QuantizeNormArgs, kQuantizeNormThreads) {
  QuantizeNorm<::gpu::bf16>(args);
}
GPU_KERNEL(quantize_norm_f16, QuantizeNormArgs, kQuantizeNormThreads) {
  QuantizeNorm<::gpu::f16>(args);
}

}  // namespace vt::gpu
