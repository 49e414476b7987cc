#include "vt/gpu/tiles/attention_row.h"

namespace vt::gpu {

// attention_row_l<lanes that share a key>_r<heads of q at once>; convert: of caches of another
// type. Of one head at once, which is what few requests have, registers are left to the launch
// behind it, which begins beside it.
#define ATTENTION_ROW(lanes, rows, registers)                                                 \
  GPU_KERNEL_REGISTERS(attention_row_l##lanes##_r##rows##_f16, AttentionRowArgs, kRowThreads, \
                       registers) {                                                           \
    AttentionRow<::gpu::f16, lanes, rows, true>(args);                                        \
  }                                                                                           \
  GPU_KERNEL(attention_row_convert_l##lanes##_r##rows##_f16, AttentionRowArgs, kRowThreads) { \
    AttentionRow<::gpu::f16, lanes, rows, false>(args);                                       \
  }
// Of plans whose requests may be long. It would take all registers that there are: the launch
// behind it could not begin beside it.
#define ATTENTION_ROW_LONG(lanes)                                                                  \
  GPU_KERNEL_REGISTERS(attention_row_long_l##lanes##_r1_f16, AttentionRowArgs, kRowThreads, 200) { \
    AttentionRow<::gpu::f16, lanes, 1, true, true>(args);                                          \
  }

ATTENTION_ROW(4, 1, 200)
ATTENTION_ROW(4, 2, 255)
ATTENTION_ROW(4, 4, 255)
ATTENTION_ROW(8, 1, 200)
ATTENTION_ROW(8, 2, 255)
ATTENTION_ROW(8, 4, 255)
ATTENTION_ROW(16, 1, 200)
ATTENTION_ROW(16, 2, 255)
ATTENTION_ROW(16, 4, 255)
ATTENTION_ROW(32, 1, 200)
ATTENTION_ROW(32, 2, 255)
ATTENTION_ROW(32, 4, 255)
ATTENTION_ROW_LONG(8)
ATTENTION_ROW_LONG(16)
ATTENTION_ROW_LONG(32)

}  // namespace vt::gpu
