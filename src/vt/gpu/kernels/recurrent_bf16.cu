#include "vt/gpu/tiles/recurrent_chunk_begin.h"
#include "vt/gpu/tiles/recurrent_net.h"

GPU_KERNEL(causal_conv_bf16, vt::gpu::ConvArgs, vt::gpu::kConvThreads) {
  vt::gpu::ConvRows<gpu::bf16>(args);
}
GPU_KERNEL(gated_delta_d128_bf16, vt::gpu::DeltaArgs, vt::gpu::kDeltaThreads) {
  vt::gpu::DeltaRows<gpu::bf16, 128>(args);
}
GPU_KERNEL(gated_delta_d256_bf16, vt::gpu::DeltaArgs, vt::gpu::kDeltaThreads) {
  vt::gpu::DeltaRows<gpu::bf16, 256>(args);
}
GPU_KERNEL(delta_net_bf16, vt::gpu::DeltaNetArgs, vt::gpu::kDeltaNetThreads) {
  vt::gpu::DeltaNet<gpu::bf16>(args).Run();
}
GPU_KERNEL(delta_begin_bf16, vt::gpu::DeltaChunkArgs, vt::gpu::kDeltaChunkThreads) {
  vt::gpu::DeltaBeginOf<gpu::bf16>(args);
}
GPU_KERNEL(delta_chunks_bf16, vt::gpu::DeltaChunkArgs, vt::gpu::kDeltaChunkThreads) {
  vt::gpu::DeltaChunksOf<gpu::bf16>(args);
}
