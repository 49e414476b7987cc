// The kernels of attention_row.h for values of one type, which a file each compiles.
#pragma once

#include "vt/gpu/tiles/attention_row.h"

// attention_row_l<lanes that share a key>_r<heads of q at once>; convert: of caches of another
// type. Of one head at once, which is what few requests have, registers are left to the launch
// behind it, which begins beside it.
#define VT_ATTENTION_ROW(name, T, lanes, rows, registers)                                        \
  GPU_KERNEL_REGISTERS(attention_row_l##lanes##_r##rows##_##name, AttentionRowArgs, kRowThreads, \
                       registers) {                                                              \
    AttentionRow<T, lanes, rows, true>(args);                                                    \
  }                                                                                              \
  GPU_KERNEL(attention_row_convert_l##lanes##_r##rows##_##name, AttentionRowArgs, kRowThreads) { \
    AttentionRow<T, lanes, rows, false>(args);                                                   \
  }
#define VT_ATTENTION_ROWS(name, T, lanes)  \
  VT_ATTENTION_ROW(name, T, lanes, 1, 200) \
  VT_ATTENTION_ROW(name, T, lanes, 2, 255) \
  VT_ATTENTION_ROW(name, T, lanes, 4, 255)
// Of plans whose requests may be long. It would take all registers that there are: the launch
// behind it could not begin beside it.
#define VT_ATTENTION_ROW_LONG(name, T, lanes)                                                  \
  GPU_KERNEL_REGISTERS(attention_row_long_l##lanes##_r1_##name, AttentionRowArgs, kRowThreads, \
                       200) {                                                                  \
    AttentionRow<T, lanes, 1, true, true>(args);                                               \
  }
#define VT_ATTENTION_ROW_SET(name, T) \
  VT_ATTENTION_ROWS(name, T, 4)       \
  VT_ATTENTION_ROWS(name, T, 8)       \
  VT_ATTENTION_ROWS(name, T, 16)      \
  VT_ATTENTION_ROWS(name, T, 32)      \
  VT_ATTENTION_ROW_LONG(name, T, 8)   \
  VT_ATTENTION_ROW_LONG(name, T, 16)  \
  VT_ATTENTION_ROW_LONG(name, T, 32)
