#include "vt/gpu/quant_sets.h"
#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

using enum QuantFormat;

#define KERNEL(suffix, ...)                                                      \
  GPU_KERNEL_BLOCKS(quant_gemv_8##suffix, QuantGemvArgs, kQuantGemvThreads, 2) { \
    QuantGemv<QuantSet<__VA_ARGS__>, 8, true>(args).Run();                       \
  }
VT_QUANT_SETS_OF_INTEGERS(KERNEL)
#undef KERNEL
GPU_KERNEL_BLOCKS(quant_gemv_8, QuantGemvArgs, kQuantGemvThreads, 2) {
  QuantGemv<QuantSet<VT_QUANT_ALL_INTEGERS>, 8, true>(args).Run();
}

}  // namespace vt::gpu
