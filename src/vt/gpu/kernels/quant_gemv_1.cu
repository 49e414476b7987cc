#include "vt/gpu/quant_sets.h"
#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

using enum QuantFormat;

// quant_gemv_<rows of x at once><formats>.
#define KERNEL(suffix, ...)                                                      \
  GPU_KERNEL_BLOCKS(quant_gemv_1##suffix, QuantGemvArgs, kQuantGemvThreads, 3) { \
    QuantGemv<QuantSet<__VA_ARGS__>, 1, true>(args).Run();                       \
  }
VT_QUANT_SETS(KERNEL)
#undef KERNEL
GPU_KERNEL_BLOCKS(quant_gemv_1, QuantGemvArgs, kQuantGemvThreads, 2) {
  QuantGemv<QuantSet<VT_QUANT_ALL>, 1, true>(args).Run();
}

}  // namespace vt::gpu
