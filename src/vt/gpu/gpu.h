// The words that kernels are written in, and the only place that knows which device compiles them:
// CUDA (nvcc), AMD (clang -x hip, without any header or library of ROCm) or the emulated device
// (plain C++, a block's threads as fibers). No kernel names a lane's registers, a vendor's builtin
// or a wave of 32.
//
// A kernel is `GPU_KERNEL(name, Args, threads) { Tile<...>(args); }`: one trivially copyable
// argument, found by its name at run time. GPU_KERNEL_BLOCKS(name, Args, threads, blocks): with so
// few registers that a multiprocessor holds so many blocks. GPU_KERNEL_REGISTERS(name, Args,
// threads, registers): with so many of a lane at most, where the compiler can be told. Every
// function below is called by all threads of a wave (shuffles, Mma) or of a block (sync) together.
//
// Each of the three files gives, in namespace gpu:
//   kWave                                  threads that run in lockstep, a constant
//   thread() threads() block() block_y() blocks()  indices in the grid (blocks() in x)
//   shared()                               the block's dynamic shared memory, aligned to 16; starts
//                                          undefined
//   sync()                                 all threads of the block; orders shared and global
//   memory
//                                          among them
//   sync_wave()                            the same for a wave, and cheaper
//   shuffle(v, lane), shuffle_xor(v, m)    of 4-byte values within a wave
//   any(b)                                 whether any lane of the wave has b
//   wave_max(uint32_t)                     the largest of the wave's
//   atomic_add(int*, int)                  returns the old value; device-wide. Integers only: no
//                                          float is ever added atomically
//   atomic_max(int*, int)                  likewise
//   product(a, b)                          a * b in f32, never fused with an addition that follows
//   dot4(a, b, c)                          c + the products of four int8 each, summed
//   lookup16(table, n, low, high)          bytes of low: of the table's 16 those that the low
//   halves
//                                          of n's bytes name; high: the high halves
//   pack2(lo, hi, T{})                     two bf16 or f16 as a word
//   kPairMath<T>                           whether there is arithmetic of such words, a constant:
//   fma2(a, b, c, T{})                     a * b + c of each half, rounded once
//   bytes2<zero>(w, high, T{})             the low or high two bytes of w, each less than 128, less
//                                          a zero of as much, as a word
//   fence()                                what this thread wrote before is seen by other blocks
//                                          before what it writes after
//   load_stream(const Pack*)               a 16-byte load of what nobody will read again (weights)
//   load_stream_if(const Pack*, valid)     the same, or zeros and no load
//   anew(v)                                v; what is computed of it is computed where it stands,
//                                          not before a loop, where registers for it are scarce
//   prefetch(p)                            brings the cache line (128 bytes on CUDA, 64 at least)
//                                          of a global address near
//   prefetch_near(p)                       the same, into the multiprocessor's own cache
//   load_volatile(p)                       of what another block wrote during this kernel, after a
//                                          fence(); int, float, and Packs of them
//   copy_async(shared, global, valid)      16 bytes of which `valid` (0..16) are read, the rest is
//                                          zero; lands at the latest in copy_wait
//   kCopiesRunAhead                        whether it lands later than at once, a constant
//   copy_commit(), copy_wait<n>()          closes a group of copies; waits until at most n groups
//                                          are open. Others see them after a sync()
//   wait_predecessor(), launch_dependents()  of a launch that may begin early: before the first, a
//                                          kernel may touch only what no kernel writes (weights)
//   exp log exp2 log2 tanh sqrt rsqrt erf  of f32, to a few ulp
//   Mma<T>                                 matrix products of a wave, see below
//
// Mma<T> for T = bf16, f16 (matrix cores) and float (the same in plain arithmetic):
//   C[kM x kN] += A[kM x kK] B[kN x kK]^T, summed in f32.
//   A load_a(row): row(i) for i in [0, kM) gives a 16-byte aligned pointer to kK values (shared or
//   global); B load_b(row): likewise for i in [0, kN). How k is dealt to lanes is the same for
//   both and nobody's business. load_a_stream: with load_stream. load_a_near and load_b_near: the
//   same of rows in shared memory that are 16 bytes apart modulo 128; they go together.
//   ARows rows_of_a(row); BRows rows_of_b(row): this lane's part of such rows, to be kept where
//   many values of k are read of the same rows: load_a(rows, k), load_b(rows, k) and
//   load_b_stream(rows, k, valid) read those from k on; the last zeros unless valid.
//   C zero(); void add(C&, const C&); void mma(C&, const A&, const B&).
//   for_each(c, f): f(row, column, float& value) for this lane's values.
//   Rows: a float a row of C, held by the lanes that have values of the row.
//     Rows rows(float); each_row(c, r, f): f(float& value, float& of_its_row);
//     each(r, f): f(float&); each2(r, q, f): f(float&, float&);
//     Rows row_max(c), row_sum(c): over this C's columns, the same in all lanes of a row;
//     Rows lanes_max(r), lanes_sum(r): of floats that each lane of a row has gathered by itself
//     (each_row over several C's), the same in all lanes of a row;
//     rows_for_each(r, f): f(row, float&), at least one lane a row; the first one has `leader`.
//   A from_c(const C (&c)[kK / kN], T* scratch): the values of side by side C's as an A, k =
//   column; scratch is kM * kK values of shared memory of this wave alone. It goes with B
//   load_b_across(row): row(k) for k in [0, kK) gives a pointer, 16-byte aligned, to kN values:
//   B[n][k] = row(k)[n]; shared memory alone.
//
// ThinMma<T> (gpu_thin.h; not of AMD's cards) is for what nobody reads twice: rows go from global
// memory to the product by way of registers alone.
#pragma once

#include <cstdint>

namespace gpu {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

// 16 bytes, loaded and stored as one.
template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T v[kCount];
};

}  // namespace gpu

#if defined(__CUDACC__)
#include "vt/gpu/gpu_cuda.h"
#elif defined(__HIP__)
#include "vt/gpu/gpu_hip.h"
#else
#include "vt/gpu/gpu_emulated.h"
#endif

// What is the same everywhere.
namespace gpu {

GPU_FN int lane() { return thread() % kWave; }
GPU_FN int wave() { return thread() / kWave; }
GPU_FN int waves() { return threads() / kWave; }

template <class T>
GPU_FN T from_float(float v);
template <>
GPU_FN float from_float<float>(float v) {
  return v;
}
template <>
GPU_FN bf16 from_float<bf16>(float v) {
  return to_bf16(v);
}
template <>
GPU_FN f16 from_float<f16>(float v) {
  return to_f16(v);
}
GPU_FN float to_float(float v) { return v; }

GPU_FN float max(float a, float b) { return a > b ? a : b; }
GPU_FN float min(float a, float b) { return a < b ? a : b; }
GPU_FN int max(int a, int b) { return a > b ? a : b; }
GPU_FN int min(int a, int b) { return a < b ? a : b; }

// Over the wave; all lanes get the result.
GPU_FN float wave_sum(float v) {
#pragma unroll
  for (int m = kWave / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}
GPU_FN float wave_max(float v) {
#pragma unroll
  for (int m = kWave / 2; m > 0; m /= 2) v = max(v, shuffle_xor(v, m));
  return v;
}

// Over the block; all threads get the result. `scratch`: a float a wave, of shared memory, free
// again after the next sync().
GPU_FN float block_sum(float v, float* scratch) {
  v = wave_sum(v);
  if (lane() == 0) scratch[wave()] = v;
  sync();
  float sum = 0;
  for (int w = 0; w < waves(); ++w) sum += scratch[w];
  return sum;
}

}  // namespace gpu

#if !defined(__HIP__)
#include "vt/gpu/gpu_thin.h"
#endif
