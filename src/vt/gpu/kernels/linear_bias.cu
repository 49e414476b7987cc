#include "vt/gpu/tiles/linear_bias.h"

namespace vt::gpu {

GPU_KERNEL(linear_bias_bf16, LinearBiasArgs, kLinearBiasThreads) { LinearBias<::gpu::bf16>(args); }
GPU_KERNEL(linear_bias_f16, LinearBiasArgs, kLinearBiasThreads) { LinearBias<::gpu::f16>(args); }
GPU_KERNEL(linear_bias_f32, LinearBiasArgs, kLinearBiasThreads) { LinearBias<float>(args); }

}  // namespace vt::gpu
