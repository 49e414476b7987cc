#include "vt/gpu/tiles/attention_decode.h"

// For checking: of caches of any type.
GPU_KERNEL(attention_decode_convert_d64_f32, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<float, 64, false>(args);
}
GPU_KERNEL(attention_decode_convert_d128_f32, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<float, 128, false>(args);
}
GPU_KERNEL(attention_decode_convert_d256_f32, vt::gpu::AttentionArgs, 4 * gpu::kWave) {
  vt::gpu::AttentionDecode<float, 256, false>(args);
}
