#include "vt/gpu/tiles/attention_prefill.h"

GPU_KERNEL(attention_prefill_d64_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::f16, 64, true>(args);
}
GPU_KERNEL(attention_prefill_d128_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::f16, 128, true>(args);
}
GPU_KERNEL(attention_prefill_d256_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::f16, 256, true>(args);
}

// Of caches of another type.
GPU_KERNEL(attention_prefill_convert_d64_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::f16, 64, false>(args);
}
GPU_KERNEL(attention_prefill_convert_d128_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::f16, 128, false>(args);
}
GPU_KERNEL(attention_prefill_convert_d256_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionPrefill<gpu::f16, 256, false>(args);
}
