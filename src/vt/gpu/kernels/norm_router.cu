#include "vt/gpu/tiles/norm_router.h"
#include "vt/gpu/tiles/router_rows.h"

namespace vt::gpu {

GPU_KERNEL(norm_router_f32, NormRouterArgs, kNormRouterThreads) { NormRouter<float>(args); }
GPU_KERNEL(norm_router_bf16, NormRouterArgs, kNormRouterThreads) { NormRouter<::gpu::bf16>(args); }
GPU_KERNEL(norm_router_f16, NormRouterArgs, kNormRouterThreads) { NormRouter<::gpu::f16>(args); }

GPU_KERNEL_REGISTERS(norm_router_rows_f32, NormRouterArgs, kNormRouterThreads, 128) {
  RouterRow<float>::Run(args);
}
GPU_KERNEL_REGISTERS(norm_router_rows_bf16, NormRouterArgs, kNormRouterThreads, 64) {
  RouterRow<::gpu::bf16>::Run(args);
}
GPU_KERNEL_REGISTERS(norm_router_rows_f16, NormRouterArgs, kNormRouterThreads, 72) {
  RouterRow<::gpu::f16>::Run(args);
}

}  // namespace vt::gpu
