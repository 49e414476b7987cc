#include "vt/gpu/tiles/attention_write.h"

GPU_KERNEL(kv_write_f32, vt::gpu::KvWriteArgs, 4 * gpu::kWave) { vt::gpu::KvWrite<float>(args); }
GPU_KERNEL(kv_write_bf16, vt::gpu::KvWriteArgs, 4 * gpu::kWave) {
  vt::gpu::KvWrite<gpu::bf16>(args);
}
GPU_KERNEL(kv_write_f16, vt::gpu::KvWriteArgs, 4 * gpu::kWave) { vt::gpu::KvWrite<gpu::f16>(args); }
