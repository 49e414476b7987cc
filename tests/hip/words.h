// Arguments of the kernel that tries gpu.h's words (words.cu).
#pragma once

#include <cstdint>

struct WordsArgs {
  const float* x;
  float* y;       // kWords a thread
  int* counters;  // 2
  int mask;       // of a shuffle whose mask no compiler knows
};
enum Word {
  kXor1,
  kXor2,
  kXor4,
  kXor8,
  kXor16,
  kXorMask,
  kShuffle,
  kWaveSum,
  kWaveMax,
  kAny,
  kAnew,
  kTicket,  // what a counter held before, in each wave's first lane
  kExp,
  kExp2,
  kLog,
  kLog2,
  kTanh,
  kErf,
  kSqrt,
  kRsqrt,
  kBrain,
  kHalf,
  kBlockSum,
  kTurned,  // another wave's value, through shared memory
  kCopied,  // a float of 16 bytes copied to shared memory, of which 12 were valid
  kStream,
  kWords
};

// C[16 x 32] = A[16 x 64] B[32 x 64]^T and D = C as A, times another B across; 64 threads.
struct ProductArgs {
  const void* a;  // 16 rows of 64
  const void* b;  // 32 rows of 64
  const void* v;  // 32 rows of 16: D[16 x 16] = T(C) V
  float* c;
  float* d;
  float* sums;     // of C's rows
  float* highest;  // of C's rows
};
