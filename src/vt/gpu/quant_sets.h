// Which formats kernels of few rows are compiled for: those that most files have, alone and as they
// meet in merged matrices, and all of them together for any other (a name without a suffix).
#pragma once

// X(suffix, formats..). Sums of more than one row are of integers: 8-bit floats are not among them.
#define VT_QUANT_SETS_OF_INTEGERS(X) \
  X(_q4_0, kQ4_0)                    \
  X(_q8_0, kQ8_0)                    \
  X(_q3_k, kQ3_K)                    \
  X(_q4_k, kQ4_K)                    \
  X(_q5_k, kQ5_K)                    \
  X(_q6_k, kQ6_K)                    \
  X(_iq4_xs, kIQ4_XS)                \
  X(_mxfp4, kMXFP4)                  \
  X(_q3_k_q5_k, kQ3_K, kQ5_K)        \
  X(_q4_k_q6_k, kQ4_K, kQ6_K)        \
  X(_q5_k_q6_k, kQ5_K, kQ6_K)
#define VT_QUANT_SETS(X)       \
  VT_QUANT_SETS_OF_INTEGERS(X) \
  X(_f8_32, kF8_32)
// After them, since the first that has all formats is taken.
#define VT_QUANT_ALL_INTEGERS \
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS, kMXFP4
#define VT_QUANT_ALL VT_QUANT_ALL_INTEGERS, kF8_32
