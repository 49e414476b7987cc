#include "vt/gpu/tiles/attention_join.h"
#include "vt/gpu/tiles/attention_latent.h"
#include "vt/gpu/tiles/latent_rows.h"

// For checking: of caches of any type. Of wide vectors: latent_wide_f32.cu.
GPU_KERNEL_BLOCKS(attention_latent_convert_d128_f32, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<float, 128, 64, false>(args);
}

GPU_KERNEL(attention_join_f32, vt::gpu::AttentionArgs, vt::gpu::kJoinThreads) {
  vt::gpu::AttentionJoin<float>(args);
}
GPU_KERNEL(latent_write_f32, vt::gpu::LatentWriteArgs, 4 * gpu::kWave) {
  vt::gpu::LatentWrite<float>(args);
}
GPU_KERNEL(head_linear_f32, vt::gpu::HeadLinearArgs, 4 * gpu::kWave) {
  vt::gpu::HeadLinear<float, false>(args, gpu::block());
}
GPU_KERNEL(latent_query_write_f32, vt::gpu::LatentQueryArgs, 4 * gpu::kWave) {
  vt::gpu::LatentQueryWrite<float>(args);
}
