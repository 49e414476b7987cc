#include "vt/gpu/quant_sets.h"
#include "vt/gpu/tiles/quant_from.h"

namespace vt::gpu {

using enum QuantFormat;

// One row of values.
#define KERNEL(suffix, ...)                                                         \
  GPU_KERNEL_BLOCKS(quant_gemv_from##suffix, QuantFromArgs, kQuantFromThreads, 1) { \
    QuantGemvFrom<QuantSet<__VA_ARGS__>>(args);                                     \
  }
VT_QUANT_SETS(KERNEL)
#undef KERNEL
GPU_KERNEL_BLOCKS(quant_gemv_from, QuantFromArgs, kQuantFromThreads, 1) {
  QuantGemvFrom<QuantSet<VT_QUANT_ALL>>(args);
}

}  // namespace vt::gpu
