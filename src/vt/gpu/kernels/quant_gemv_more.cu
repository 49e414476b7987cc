#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

GPU_KERNEL_BLOCKS(quant_gemv_4, QuantGemvArgs, kQuantGemvThreads, 2) { QuantGemv<4>(args).Run(); }
GPU_KERNEL_BLOCKS(quant_gemv_8, QuantGemvArgs, kQuantGemvThreads, 2) { QuantGemv<8>(args).Run(); }

}  // namespace vt::gpu
