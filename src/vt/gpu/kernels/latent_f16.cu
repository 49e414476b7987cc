#include "vt/gpu/tiles/attention_join.h"
#include "vt/gpu/tiles/attention_latent.h"
#include "vt/gpu/tiles/latent_rows.h"

GPU_KERNEL_BLOCKS(attention_latent_d576_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::f16, 576, 512, true>(args);
}
GPU_KERNEL_BLOCKS(attention_latent_d128_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::f16, 128, 64, true>(args);
}
// Of caches of another type.
GPU_KERNEL_BLOCKS(attention_latent_convert_d576_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::f16, 576, 512, false>(args);
}
GPU_KERNEL_BLOCKS(attention_latent_convert_d128_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<gpu::f16, 128, 64, false>(args);
}

GPU_KERNEL(attention_join_f16, vt::gpu::AttentionArgs, vt::gpu::kJoinThreads) {
  vt::gpu::AttentionJoin<gpu::f16>(args);
}
GPU_KERNEL(latent_write_f16, vt::gpu::LatentWriteArgs, 4 * gpu::kWave) {
  vt::gpu::LatentWrite<gpu::f16>(args);
}
GPU_KERNEL(head_linear_f16, vt::gpu::HeadLinearArgs, 4 * gpu::kWave) {
  vt::gpu::HeadLinear<gpu::f16, false>(args, gpu::block());
}
GPU_KERNEL(head_linear_many_f16, vt::gpu::HeadLinearArgs, 4 * gpu::kWave) {
  vt::gpu::HeadLinear<gpu::f16, true>(args, gpu::block());
}
GPU_KERNEL(latent_query_write_f16, vt::gpu::LatentQueryArgs, 4 * gpu::kWave) {
  vt::gpu::LatentQueryWrite<gpu::f16>(args);
}
