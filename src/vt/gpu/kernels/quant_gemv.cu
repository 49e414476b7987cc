#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

// quant_gemv_<rows of x at once>.
GPU_KERNEL_BLOCKS(quant_gemv_1, QuantGemvArgs, kQuantGemvThreads, 2) { QuantGemv<1>(args).Run(); }
GPU_KERNEL_BLOCKS(quant_gemv_2, QuantGemvArgs, kQuantGemvThreads, 2) { QuantGemv<2>(args).Run(); }

}  // namespace vt::gpu
