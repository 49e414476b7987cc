#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

GPU_KERNEL_BLOCKS(quant_experts, QuantExpertArgs, kQuantGemvThreads, 2) {
  QuantGemv<1>(args.linear).RunExperts<false>(args);
}
GPU_KERNEL_BLOCKS(quant_experts_sum, QuantExpertArgs, kQuantGemvThreads, 2) {
  QuantGemv<1>(args.linear).RunExperts<true>(args);
}

GPU_KERNEL_BLOCKS(quant_experts_up, QuantExpertUpArgs, kQuantGemvThreads, 2) {
  QuantGemv<1>(args.experts.linear).RunExpertsUp(args);
}

}  // namespace vt::gpu
