#include "vt/gpu/tiles/attention_join.h"
#include "vt/gpu/tiles/attention_latent.h"
#include "vt/gpu/tiles/latent_rows.h"

GPU_KERNEL_BLOCKS(attention_latent_d576_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::bf16, 576, 512, true>(args);
}
GPU_KERNEL_BLOCKS(attention_latent_d128_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::bf16, 128, 64, true>(args);
}
// Of caches of another type.
GPU_KERNEL_BLOCKS(attention_latent_convert_d576_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::bf16, 576, 512, false>(args);
}
GPU_KERNEL_BLOCKS(attention_latent_convert_d128_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::bf16, 128, 64, false>(args);
}

GPU_KERNEL(attention_join_bf16, vt::gpu::AttentionArgs, vt::gpu::kJoinThreads) {
  vt::gpu::AttentionJoin<gpu::bf16>(args);
}
GPU_KERNEL(latent_write_bf16, vt::gpu::LatentWriteArgs, 4 * gpu::kWave) {
  vt::gpu::LatentWrite<gpu::bf16>(args);
}
GPU_KERNEL(head_linear_bf16, vt::gpu::HeadLinearArgs, 4 * gpu::kWave) {
  vt::gpu::HeadLinear<gpu::bf16, false>(args, gpu::block());
}
GPU_KERNEL(head_linear_many_bf16, vt::gpu::HeadLinearArgs, 4 * gpu::kWave) {
  vt::gpu::HeadLinear<gpu::bf16, true>(args, gpu::block());
}
GPU_KERNEL(latent_query_write_bf16, vt::gpu::LatentQueryArgs, 4 * gpu::kWave) {
  vt::gpu::LatentQueryWrite<gpu::bf16>(args);
}
