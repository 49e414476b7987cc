#include "vt/gpu/tiles/norm_router.h"

namespace vt::gpu {

GPU_KERNEL(norm_router_f32, NormRouterArgs, kNormRouterThreads) { NormRouter<float>(args); }
GPU_KERNEL(norm_router_bf16, NormRouterArgs, kNormRouterThreads) { NormRouter<::gpu::bf16>(args); }
GPU_KERNEL(norm_router_f16, NormRouterArgs, kNormRouterThreads) { NormRouter<::gpu::f16>(args); }

}  // namespace vt::gpu
