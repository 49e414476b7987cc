#include "vt/gpu/tiles/experts_plain.h"

namespace vt::gpu {

// experts_<rows of a unit>x<depth>. As many registers as leave a multiprocessor 20 waves, whose
// weights under way are what keeps memory busy.
#define EXPERTS(name, T, rows, depth)                                                              \
  GPU_KERNEL_BLOCKS(experts_##rows##x##depth##_##name, PlainExpertArgs, kPlainExpertsThreads, 5) { \
    PlainExperts<T, rows, depth>(args);                                                            \
  }                                                                                                \
  GPU_KERNEL_BLOCKS(experts_sum_##rows##x##depth##_##name, PlainExpertArgs,                        \
                    kPlainExpertsSumThreads, 2) {                                                  \
    PlainExpertsSum<T, rows, depth>(args);                                                         \
  }

EXPERTS(f32, float, 2, 8)
EXPERTS(f32, float, 4, 4)
EXPERTS(bf16, ::gpu::bf16, 2, 8)
EXPERTS(bf16, ::gpu::bf16, 4, 4)
EXPERTS(f16, ::gpu::f16, 2, 8)
EXPERTS(f16, ::gpu::f16, 4, 4)

}  // namespace vt::gpu
