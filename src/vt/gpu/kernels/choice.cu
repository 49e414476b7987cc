#include "vt/gpu/tiles/choice.h"

GPU_KERNEL(token_feed_f32, vt::gpu::TokenFeedArgs, 256) { vt::gpu::FeedTokens(args); }
GPU_KERNEL(argmax_f32, vt::gpu::ArgMaxArgs, 1024) { vt::gpu::ArgMaxRow(args); }
