#include "vt/gpu/tiles/choice.h"

GPU_KERNEL(token_feed_f32, vt::gpu::TokenFeedArgs, 256) { vt::gpu::FeedTokens(args); }
GPU_KERNEL(argmax_f32, vt::gpu::ArgMaxArgs, 1024) { vt::gpu::ArgMaxRow<float>(args); }
GPU_KERNEL(argmax_bf16, vt::gpu::ArgMaxArgs, 1024) { vt::gpu::ArgMaxRow<gpu::bf16>(args); }
GPU_KERNEL(argmax_f16, vt::gpu::ArgMaxArgs, 1024) { vt::gpu::ArgMaxRow<gpu::f16>(args); }
