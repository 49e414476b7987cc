#include "vt/gpu/tiles/attention_begin.h"

GPU_KERNEL(attention_begin, vt::gpu::AttentionBeginArgs, vt::gpu::kBeginThreads) {
  vt::gpu::AttentionBegin(args);
}
