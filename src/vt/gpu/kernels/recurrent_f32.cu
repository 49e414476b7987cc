#include "vt/gpu/tiles/recurrent_chunk_begin.h"
#include "vt/gpu/tiles/recurrent_net.h"

GPU_KERNEL(causal_conv_f32, vt::gpu::ConvArgs, vt::gpu::kConvThreads) {
  vt::gpu::ConvRows<float>(args);
}
GPU_KERNEL(gated_delta_d128_f32, vt::gpu::DeltaArgs, vt::gpu::kDeltaThreads) {
  vt::gpu::DeltaRows<float, 128>(args);
}
GPU_KERNEL(gated_delta_d256_f32, vt::gpu::DeltaArgs, vt::gpu::kDeltaThreads) {
  vt::gpu::DeltaRows<float, 256>(args);
}
GPU_KERNEL(delta_net_f32, vt::gpu::DeltaNetArgs, vt::gpu::kDeltaNetThreads) {
  vt::gpu::DeltaNet<float>(args).Run();
}
GPU_KERNEL(delta_begin_f32, vt::gpu::DeltaChunkArgs, vt::gpu::kDeltaChunkThreads) {
  vt::gpu::DeltaBeginOf<float>(args);
}
GPU_KERNEL(delta_chunks_f32, vt::gpu::DeltaChunkArgs, vt::gpu::kDeltaChunkThreads) {
  vt::gpu::DeltaChunksOf<float>(args);
}
