#include "vt/gpu/tiles/attention_decode.h"

GPU_KERNEL(attention_decode_d32_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 32, true>(args);
}
GPU_KERNEL(attention_decode_d64_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 64, true>(args);
}
GPU_KERNEL(attention_decode_d96_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 96, true>(args);
}
GPU_KERNEL(attention_decode_d128_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 128, true>(args);
}
GPU_KERNEL(attention_decode_d256_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 256, true>(args);
}

// Of caches of another type.
GPU_KERNEL(attention_decode_convert_d32_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 32, false>(args);
}
GPU_KERNEL(attention_decode_convert_d64_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 64, false>(args);
}
GPU_KERNEL(attention_decode_convert_d96_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 96, false>(args);
}
GPU_KERNEL(attention_decode_convert_d128_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 128, false>(args);
}
GPU_KERNEL(attention_decode_convert_d256_f16, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<gpu::f16, 256, false>(args);
}
