#include "vt/gpu/tiles/quant_expand.h"

namespace vt::gpu {

GPU_KERNEL(quant_expand_f32, QuantExpandArgs, kQuantExpandThreads) { ExpandRows<float>(args); }
GPU_KERNEL(quant_expand_bf16, QuantExpandArgs, kQuantExpandThreads) {
  ExpandRows<::gpu::bf16>(args);
}
GPU_KERNEL(quant_expand_f16, QuantExpandArgs, kQuantExpandThreads) { ExpandRows<::gpu::f16>(args); }

}  // namespace vt::gpu
