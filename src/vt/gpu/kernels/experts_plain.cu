#include "vt/gpu/tiles/experts_plain.h"

namespace vt::gpu {

// experts_<rows of a unit>x<depth>. As many registers as leave a multiprocessor 20 waves, whose
// weights under way are what keeps memory busy; f32, which is for checking, takes more.
#define EXPERTS(name, T, rows, depth, blocks)                                                 \
  GPU_KERNEL_BLOCKS(experts_##rows##x##depth##_##name, PlainExpertArgs, kPlainExpertsThreads, \
                    blocks) {                                                                 \
    PlainExperts<T, rows, depth>(args);                                                       \
  }
#define EXPERTS_SUM(name, T, rows, depth)                                   \
  GPU_KERNEL_BLOCKS(experts_sum_##rows##x##depth##_##name, PlainExpertArgs, \
                    kPlainExpertsSumThreads, 2) {                           \
    PlainExpertsSum<T, rows, depth>(args);                                  \
  }
#define ALL(name, T, blocks)     \
  EXPERTS(name, T, 2, 8, blocks) \
  EXPERTS(name, T, 4, 4, blocks) \
  EXPERTS_SUM(name, T, 2, 6)     \
  EXPERTS_SUM(name, T, 4, 3)

ALL(f32, float, 4)
ALL(bf16, ::gpu::bf16, 5)
ALL(f16, ::gpu::f16, 5)
#undef ALL
#undef EXPERTS_SUM
#undef EXPERTS

}  // namespace vt::gpu
