#include "vt/gpu/tiles/recurrent_chunk_begin.h"
#include "vt/gpu/tiles/recurrent_net.h"

GPU_KERNEL(causal_conv_f16, vt::gpu::ConvArgs, vt::gpu::kConvThreads) {
  vt::gpu::ConvRows<gpu::f16>(args);
}
GPU_KERNEL(gated_delta_d128_f16, vt::gpu::DeltaArgs, vt::gpu::kDeltaThreads) {
  vt::gpu::DeltaRows<gpu::f16, 128>(args);
}
GPU_KERNEL(gated_delta_d256_f16, vt::gpu::DeltaArgs, vt::gpu::kDeltaThreads) {
  vt::gpu::DeltaRows<gpu::f16, 256>(args);
}
GPU_KERNEL(delta_net_f16, vt::gpu::DeltaNetArgs, vt::gpu::kDeltaNetThreads) {
  vt::gpu::DeltaNet<gpu::f16>(args).Run();
}
GPU_KERNEL(delta_begin_f16, vt::gpu::DeltaChunkArgs, vt::gpu::kDeltaChunkThreads) {
  vt::gpu::DeltaBeginOf<gpu::f16>(args);
}
GPU_KERNEL(delta_chunks_f16, vt::gpu::DeltaChunkArgs, vt::gpu::kDeltaChunkThreads) {
  vt::gpu::DeltaChunksOf<gpu::f16>(args);
}
