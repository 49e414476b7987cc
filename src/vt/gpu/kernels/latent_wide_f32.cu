#include "vt/gpu/tiles/attention_latent.h"

// For checking. A tile takes 74 KB of shared memory, which AMD's cards do not have.
GPU_KERNEL_BLOCKS(attention_latent_convert_d576_f32, vt::gpu::AttentionArgs, 4 * gpu::kWave, 2) {
  vt::gpu::AttentionLatent<float, 576, 512, false>(args);
}
