#include "vt/gpu/tiles/attention_prefill.h"

GPU_KERNEL(attention_prefill_d64_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::bf16, 64, true>(args);
}
GPU_KERNEL(attention_prefill_d128_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::bf16, 128, true>(args);
}
GPU_KERNEL(attention_prefill_d256_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::bf16, 256, true>(args);
}

// Of caches of another type.
GPU_KERNEL(attention_prefill_convert_d64_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::bf16, 64, false>(args);
}
GPU_KERNEL(attention_prefill_convert_d128_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::bf16, 128, false>(args);
}
GPU_KERNEL(attention_prefill_convert_d256_bf16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::bf16, 256, false>(args);
}
