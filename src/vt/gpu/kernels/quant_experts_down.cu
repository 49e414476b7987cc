#include "vt/gpu/quant_sets.h"
#include "vt/gpu/tiles/quant_experts_down.h"

namespace vt::gpu {

using enum QuantFormat;

#define KERNEL(suffix, ...)                                                                \
  GPU_KERNEL(quant_experts_down##suffix, QuantExpertArgs, kQuantDownWaves* ::gpu::kWave) { \
    ExpertsDown<QuantSet<__VA_ARGS__>>(args);                                              \
  }
VT_QUANT_SETS(KERNEL)
#undef KERNEL
GPU_KERNEL(quant_experts_down, QuantExpertArgs, kQuantDownWaves* ::gpu::kWave) {
  ExpertsDown<QuantSet<VT_QUANT_ALL>>(args);
}

}  // namespace vt::gpu
