#include "vt/gpu/tiles/attention_wide.h"

namespace vt::gpu {

// convert: of caches of another type. In f32, which is for checking, of any.
#define ATTENTION_WIDE(name, T, same)                                                      \
  GPU_KERNEL_BLOCKS(                                                                       \
      attention_wide_##name, AttentionWideArgs,                                            \
      (WideMostTiles(sizeof(T), ::gpu::kCopiesRunAhead) * kWideParts * ::gpu::kWave), 1) { \
    AttentionWide<T, same>(args);                                                          \
  }

ATTENTION_WIDE(bf16, ::gpu::bf16, true)
ATTENTION_WIDE(convert_bf16, ::gpu::bf16, false)
ATTENTION_WIDE(f16, ::gpu::f16, true)
ATTENTION_WIDE(convert_f16, ::gpu::f16, false)
ATTENTION_WIDE(convert_f32, float, false)

}  // namespace vt::gpu
