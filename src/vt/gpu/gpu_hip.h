// gpu.h for clang -x hip, without any header or library of ROCm (-nogpuinc -nogpulib): what is not
// C++ here is clang's builtins. Nothing but gpu.h includes this.
//
// gfx11 and gfx12 (RDNA 3 and 4) run waves of 32, gfx9 (CDNA: 90a, 942) of 64.
#pragma once

#include <cmath>  // INFINITY

#define GPU_FN __attribute__((device, always_inline)) inline
#define GPU_KERNEL(name, Args, threads)                                                            \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void \
  name(const Args args)

#define GPU_KERNEL_BLOCKS(name, Args, threads, blocks) GPU_KERNEL(name, Args, threads)

#define GPU_KERNEL_REGISTERS(name, Args, threads, registers) GPU_KERNEL(name, Args, threads)

namespace gpu {

// Dynamic shared memory begins after what is declared statically, which is nothing.
extern __attribute__((device, shared)) __attribute__((aligned(16))) char dynamic_shared[];

#if defined(__GFX9__)
inline constexpr int kWave = 64;
#else
inline constexpr int kWave = 32;
#endif

// What the runtime writes behind a kernel's own arguments (LLVM's "code object v5 hidden
// arguments"), as far as it is used: blocks and threads a block, in x, y, z.
struct HiddenArguments {
  uint32_t blocks[3];
  uint16_t threads[3];
};
GPU_FN const HiddenArguments& hidden_arguments() {
  return *(const HiddenArguments*)__builtin_amdgcn_implicitarg_ptr();  // leaves its address space
}

GPU_FN int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
GPU_FN int threads() { return hidden_arguments().threads[0]; }
GPU_FN int block() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
GPU_FN int block_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
GPU_FN int blocks() { return static_cast<int>(hidden_arguments().blocks[0]); }
GPU_FN char* shared() { return dynamic_shared; }
GPU_FN void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// A wave's instructions are in order: this only keeps the compiler from moving them.
GPU_FN void sync_wave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

GPU_FN int anew(int v) {
  asm volatile("" : "+v"(v));
  return v;
}

template <class T>
GPU_FN T shuffle(T v, int lane) {
  static_assert(sizeof(T) == 4);
  // A lane beyond the wave wraps around, as everywhere.
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, v)));
}
// Lanes of a row of 16 exchange values within an instruction that adds or compares them (DPP), for
// the masks of reductions, known after inlining; what control words mean is in AMD's instruction
// set manuals.
template <int control>
GPU_FN int exchange(int v) {
  return __builtin_amdgcn_update_dpp(0, v, control, 15, 15, true);
}
template <class T>
GPU_FN T shuffle_xor(T v, int mask) {
  static_assert(sizeof(T) == 4);
  constexpr int kSwapPairs = 0xb1, kSwapHalvesOf4 = 0x4e, kReverse4 = 0x1b, kReverse8 = 0x141,
                kRotateBy8 = 0x128;
  const int bits = __builtin_bit_cast(int, v);
  if (__builtin_constant_p(mask)) {
    if (mask == 1) return __builtin_bit_cast(T, exchange<kSwapPairs>(bits));
    if (mask == 2) return __builtin_bit_cast(T, exchange<kSwapHalvesOf4>(bits));
    if (mask == 4) return __builtin_bit_cast(T, exchange<kReverse8>(exchange<kReverse4>(bits)));
    if (mask == 8) return __builtin_bit_cast(T, exchange<kRotateBy8>(bits));
#if !defined(__GFX9__)
    // Each lane takes the same lane of the other row.
    if (mask == 16) {
      return __builtin_bit_cast(
          T, __builtin_amdgcn_permlanex16(0, bits, 0x76543210, 0xfedcba98, true, true));
    }
#endif
  }
  return shuffle(v, (thread() % kWave) ^ mask);
}
GPU_FN bool any(bool b) {
#if defined(__GFX9__)
  return __builtin_amdgcn_ballot_w64(b) != 0;
#else
  return __builtin_amdgcn_ballot_w32(b) != 0;
#endif
}
GPU_FN uint32_t wave_max(uint32_t v) {
#pragma unroll
  for (int m = kWave / 2; m > 0; m /= 2) {
    const uint32_t other = shuffle_xor(v, m);
    v = other > v ? other : v;
  }
  return v;
}
GPU_FN int atomic_add(int* p, int v) {
  return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GPU_FN int atomic_max(int* p, int v) {
  return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GPU_FN float product(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
GPU_FN int dot4(int a, int b, int c) {
#if defined(__GFX9__)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#else
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#endif
}
// An instruction picks four of eight bytes: each half of the table, then of the two by the top
// bits.
GPU_FN uint32_t lookup16_low(const uint32_t (&table)[4], uint32_t n) {
  const uint32_t at = n & 0x07070707, top = (n >> 1 & 0x04040404) | 0x03020100;
  return __builtin_amdgcn_perm(__builtin_amdgcn_perm(table[3], table[2], at),
                               __builtin_amdgcn_perm(table[1], table[0], at), top);
}
GPU_FN void lookup16(const uint32_t (&table)[4], uint32_t n, uint32_t& low, uint32_t& high) {
  low = lookup16_low(table, n);
  high = lookup16_low(table, n >> 4);
}
GPU_FN void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
// Past the caches that are not shared by the device.
template <class T>
GPU_FN T load_volatile(const T* p) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, __hip_atomic_load(reinterpret_cast<const uint32_t*>(p),
                                                   __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT));
  } else {
    return *const_cast<const volatile T*>(p);
  }
}
template <class T>
GPU_FN Pack<T> load_volatile(const Pack<T>* p) {
  Pack<T> v;
#pragma unroll
  for (int i = 0; i < Pack<T>::kCount; ++i) v.v[i] = load_volatile(p->v + i);
  return v;
}

using Words4 = uint32_t __attribute__((ext_vector_type(4)));

template <class T>
GPU_FN Pack<T> load_stream(const Pack<T>* p) {
  return __builtin_bit_cast(Pack<T>,
                            __builtin_nontemporal_load(reinterpret_cast<const Words4*>(p)));
}

template <class T>
GPU_FN Pack<T> load_stream_if(const Pack<T>* p, bool valid) {
  if (!valid) return Pack<T>{};
  return load_stream(p);
}

GPU_FN void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
GPU_FN void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }

// There is no such copy on all of these cards: a load and a store, which a wait has nothing to add
// to. Less than 16 bytes are read byte by byte, at edges alone.
inline constexpr bool kCopiesRunAhead = false;
GPU_FN void copy_async(void* to, const void* from, int valid) {
  Words4 v = {0, 0, 0, 0};
  if (valid >= 16) {
    v = *static_cast<const Words4*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i < valid)
        v[i / 4] |= static_cast<uint32_t>(static_cast<const uint8_t*>(from)[i]) << i % 4 * 8;
    }
  }
  *static_cast<Words4*>(to) = v;
}
GPU_FN void copy_commit() {}
template <int n>
GPU_FN void copy_wait() {}
GPU_FN void wait_predecessor() {}
GPU_FN void launch_dependents() {}

GPU_FN uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
GPU_FN float float_of(uint32_t v) { return __builtin_bit_cast(float, v); }

// LLVM's intrinsics, which the compiler expands itself.
GPU_FN float exp(float x) { return __builtin_elementwise_exp(x); }
GPU_FN float exp2(float x) { return __builtin_elementwise_exp2(x); }
GPU_FN float log(float x) { return __builtin_elementwise_log(x); }
GPU_FN float log2(float x) { return __builtin_elementwise_log2(x); }
GPU_FN float sqrt(float x) { return __builtin_elementwise_sqrt(x); }
GPU_FN float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }

// Below 0.625 an odd polynomial, fitted to a relative 5e-9; above 1 - 2 / (e^2x + 1), which loses
// no digits there. 20 is far beyond where the result rounds to 1, and keeps e^2x finite.
GPU_FN float tanh(float x) {
  const float a = __builtin_fabsf(x), s = x * x;
  if (a < 0.625f) {
    float p = -5.704984068870544e-3f;
    p = __builtin_fmaf(p, s, 2.063908427953720e-2f);
    p = __builtin_fmaf(p, s, -5.373971536755562e-2f);
    p = __builtin_fmaf(p, s, 1.333144158124924e-1f);
    p = __builtin_fmaf(p, s, -3.333328068256378e-1f);
    return __builtin_fmaf(p * s, x, x);
  }
  if (x != x) return x;
  const float e = exp(2 * (a < 20.f ? a : 20.f));
  return __builtin_copysignf(1 - 2 / (e + 1), x);
}
// Below 0.93 an odd polynomial; above 1 - e^(-t + t q(t)), where q was fitted to log(erfc(t)), both
// to a relative 1e-9 of erf. From 4 on the result rounds to 1.
GPU_FN float erf(float x) {
  const float a = __builtin_fabsf(x), s = x * x;
  if (a < 0.93f) {
    float p = 8.316770254168660e-5f;
    p = __builtin_fmaf(p, s, -8.130011265166104e-4f);
    p = __builtin_fmaf(p, s, 5.199906416237354e-3f);
    p = __builtin_fmaf(p, s, -2.685894072055817e-2f);
    p = __builtin_fmaf(p, s, 1.128368750214677e-1f);
    p = __builtin_fmaf(p, s, -3.761263191699982e-1f);
    p = __builtin_fmaf(p, s, 1.283791661262512e-1f);
    return __builtin_fmaf(p, x, x);
  }
  if (x != x) return x;
  const float t = a < 4.f ? a : 4.f;
  float q = -1.161228919954738e-5f;
  q = __builtin_fmaf(q, t, 3.266225394327193e-4f);
  q = __builtin_fmaf(q, t, -3.658009227365255e-3f);
  q = __builtin_fmaf(q, t, 2.379500493407249e-2f);
  q = __builtin_fmaf(q, t, -1.062751933932304e-1f);
  q = __builtin_fmaf(q, t, -6.351280808448792e-1f);
  q = __builtin_fmaf(q, t, -1.286542117595673e-1f);
  return __builtin_copysignf(1 - exp(__builtin_fmaf(q, t, -t)), x);
}

GPU_FN float to_float(bf16 v) { return float_of(static_cast<uint32_t>(v.bits) << 16); }
GPU_FN float to_float(f16 v) { return static_cast<float>(__builtin_bit_cast(_Float16, v.bits)); }
GPU_FN bf16 to_bf16(float v) {
  const uint32_t u = bits_of(v);
  const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return {static_cast<uint16_t>(v != v ? (u >> 16 | 0x40) : rounded)};
}
GPU_FN f16 to_f16(float v) { return {__builtin_bit_cast(uint16_t, static_cast<_Float16>(v))}; }
template <class T>
inline constexpr bool kPairMath = false;
GPU_FN uint32_t pack2(float lo, float hi, bf16) {
  return to_bf16(lo).bits | static_cast<uint32_t>(to_bf16(hi).bits) << 16;
}
GPU_FN uint32_t pack2(float lo, float hi, f16) {
  return to_f16(lo).bits | static_cast<uint32_t>(to_f16(hi).bits) << 16;
}

}  // namespace gpu

#include "vt/gpu/gpu_hip_mma.h"
#include "vt/gpu/gpu_plain_mma.h"
