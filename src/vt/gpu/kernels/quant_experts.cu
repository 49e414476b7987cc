#include "vt/gpu/quant_sets.h"
#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

using enum QuantFormat;

GPU_KERNEL_BLOCKS(quant_experts, QuantExpertArgs, kQuantGemvThreads, 2) {
  QuantGemv<QuantSet<VT_QUANT_ALL>, 1, true>(args.linear).RunExperts<false>(args);
}

#define KERNEL(suffix, ...)                                                                   \
  GPU_KERNEL_BLOCKS(quant_experts_sum##suffix, QuantExpertArgs, kQuantGemvThreads, 3) {       \
    QuantGemv<QuantSet<__VA_ARGS__>, 1, false, true>(args.linear).RunExperts<true>(args);     \
  }                                                                                           \
  GPU_KERNEL_BLOCKS(quant_experts_up##suffix, QuantExpertUpArgs, kQuantExpertsUpThreads, 2) { \
    QuantGemv<QuantSet<__VA_ARGS__>, 1, true>(args.experts.linear).RunExpertsUp(args);        \
  }
VT_QUANT_SETS(KERNEL)
#undef KERNEL
GPU_KERNEL_BLOCKS(quant_experts_sum, QuantExpertArgs, kQuantGemvThreads, 2) {
  QuantGemv<QuantSet<VT_QUANT_ALL>, 1, false, true>(args.linear).RunExperts<true>(args);
}
GPU_KERNEL(quant_experts_up, QuantExpertUpArgs, kQuantExpertsUpThreads) {
  QuantGemv<QuantSet<VT_QUANT_ALL>, 1, true>(args.experts.linear).RunExpertsUp(args);
}

}  // namespace vt::gpu
