// gpu.h for nvcc. Nothing but gpu.h includes this.
#pragma once

#define GPU_FN __device__ __forceinline__
#if defined(VLLM_CUDA_TIMELINE)
#include "vt/gpu/gpu_timeline.h"
#else
#define GPU_KERNEL(name, Args, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args args)

#define GPU_KERNEL_BLOCKS(name, Args, threads, blocks)          \
  extern "C" __global__ void __launch_bounds__(threads, blocks) \
      name(const __grid_constant__ Args args)

#define GPU_KERNEL_REGISTERS(name, Args, threads, registers) \
  extern "C" __global__ void __maxnreg__(registers) name(const __grid_constant__ Args args)
#endif

namespace gpu {

inline constexpr int kWave = 32;

GPU_FN int thread() { return static_cast<int>(threadIdx.x); }
GPU_FN int threads() { return static_cast<int>(blockDim.x); }
GPU_FN int block() { return static_cast<int>(blockIdx.x); }
GPU_FN int block_y() { return static_cast<int>(blockIdx.y); }
GPU_FN int blocks() { return static_cast<int>(gridDim.x); }
GPU_FN char* shared() {
  extern __shared__ __align__(16) char dynamic_shared[];
  return dynamic_shared;
}
GPU_FN void sync() { __syncthreads(); }
GPU_FN void sync_wave() { __syncwarp(); }
GPU_FN int anew(int v) { return v; }

template <class T>
GPU_FN T shuffle(T v, int lane) {
  return __shfl_sync(~0u, v, lane);
}
template <class T>
GPU_FN T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(~0u, v, mask);
}
GPU_FN bool any(bool b) { return __any_sync(~0u, b) != 0; }
// Over the wave; all lanes get the result.
GPU_FN uint32_t wave_max(uint32_t v) { return __reduce_max_sync(~0u, v); }
GPU_FN int atomic_add(int* p, int v) { return atomicAdd(p, v); }
GPU_FN int atomic_max(int* p, int v) { return atomicMax(p, v); }
GPU_FN float product(float a, float b) { return __fmul_rn(a, b); }
GPU_FN int dot4(int a, int b, int c) { return __dp4a(a, b, c); }
// An instruction picks four of eight bytes, by half bytes: each half of the table, then of the two
// by the top bits. What the low and the high halves of bytes name then stands side by side.
GPU_FN void lookup16(const uint32_t (&table)[4], uint32_t n, uint32_t& low, uint32_t& high) {
  const uint32_t at = n & 0x77777777, top = (n >> 1 & 0x44444444) | 0x32103210;
  const uint32_t a =
      __byte_perm(__byte_perm(table[0], table[1], at), __byte_perm(table[2], table[3], at), top);
  const uint32_t b = __byte_perm(__byte_perm(table[0], table[1], at >> 16),
                                 __byte_perm(table[2], table[3], at >> 16), top >> 16);
  low = __byte_perm(a, b, 0x6420);
  high = __byte_perm(a, b, 0x7531);
}
// Not __threadfence(), which orders more than one writer and one reader ask for.
GPU_FN void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
template <class T>
GPU_FN T load_volatile(const T* p) {
  // Past the cache of this multiprocessor, and in its place among fences and meetings (the
  // compiler's own word for this load is a pure function of the address to it). Several can be
  // under way.
  static_assert(sizeof(T) == 4);
  uint32_t v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return *reinterpret_cast<T*>(&v);
}
template <class T>
GPU_FN Pack<T> load_volatile(const Pack<T>* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return *reinterpret_cast<Pack<T>*>(&v);
}

// Not ld.global.nc, which ptxas moves behind a griddepcontrol.wait that follows.
template <class T>
GPU_FN Pack<T> load_stream(const Pack<T>* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return *reinterpret_cast<Pack<T>*>(&v);
}

// Zeros unless `valid`. One instruction of one set of registers: a branch around the load would let
// the compiler copy what is loaded, and so wait for it.
template <class T>
GPU_FN Pack<T> load_stream_if(const Pack<T>* p, bool valid) {
  uint4 v;
  asm volatile(
      "{.reg .pred valid; setp.ne.b32 valid, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; "
      "mov.b32 %3, 0; "
      "@valid ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<int>(valid)));
  return *reinterpret_cast<Pack<T>*>(&v);
}
GPU_FN void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
GPU_FN void prefetch_near(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

GPU_FN uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
inline constexpr bool kCopiesRunAhead = true;
GPU_FN void copy_async(void* to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid)
               : "memory");
}
GPU_FN void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
GPU_FN void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

GPU_FN void wait_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#if defined(VLLM_CUDA_TIMELINE)
  timeline_mark(vt::gpu::kTimelineWaited, 0);
#endif
}
GPU_FN void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

GPU_FN float exp(float x) { return expf(x); }
// One instruction; results below 2^-126 are 0.
GPU_FN float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
GPU_FN float log(float x) { return logf(x); }
GPU_FN float log2(float x) { return log2f(x); }
GPU_FN float tanh(float x) { return tanhf(x); }
GPU_FN float sqrt(float x) { return sqrtf(x); }
GPU_FN float rsqrt(float x) { return rsqrtf(x); }
GPU_FN float erf(float x) { return erff(x); }

GPU_FN float to_float(bf16 v) { return __uint_as_float(static_cast<uint32_t>(v.bits) << 16); }
GPU_FN float to_float(f16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
GPU_FN bf16 to_bf16(float v) {
  bf16 b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b.bits) : "f"(v));
  return b;
}
GPU_FN f16 to_f16(float v) {
  f16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(v));
  return h;
}
GPU_FN uint32_t bits_of(float v) { return __float_as_uint(v); }
GPU_FN float float_of(uint32_t v) { return __uint_as_float(v); }

GPU_FN uint32_t pack2(float lo, float hi, bf16) {
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}
GPU_FN uint32_t pack2(float lo, float hi, f16) {
  uint32_t v;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}
template <class T>
inline constexpr bool kPairMath = sizeof(T) == 2;
GPU_FN uint32_t fma2(uint32_t a, uint32_t b, uint32_t c, bf16) {
  uint32_t v;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
  return v;
}
GPU_FN uint32_t fma2(uint32_t a, uint32_t b, uint32_t c, f16) {
  uint32_t v;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
  return v;
}
// Bytes below a 1 of the last places that the type has are 128 (f16: 1024) and what they say.
template <int kZero>
GPU_FN uint32_t bytes2(uint32_t w, bool high, bf16) {
  constexpr uint32_t kLess = 0xc300 | kZero;  // -(128 + kZero)
  const uint32_t v = __byte_perm(w, 0x43434343, high ? 0x4342 : 0x4140);
  return fma2(v, 0x3f803f80, kLess << 16 | kLess, bf16{});
}
template <int kZero>
GPU_FN uint32_t bytes2(uint32_t w, bool high, f16) {
  constexpr uint32_t kLess = 0xe400 | kZero;
  const uint32_t v = __byte_perm(w, 0x64646464, high ? 0x4342 : 0x4140);
  return fma2(v, 0x3c003c00, kLess << 16 | kLess, f16{});
}
GPU_FN void mma_16816(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                      uint32_t b0, uint32_t b1, bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
GPU_FN void mma_16816(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                      uint32_t b0, uint32_t b1, f16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

GPU_FN uint32_t turn8(uint32_t w) {
  uint32_t v;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(w));
  return v;
}

// Lane 4 g + t holds rows g and g + 8 and columns 2 t, 2 t + 1 of a C; of an A its rows' 8 values
// from k = 8 t on (two instructions' worth: which k an instruction calls which is free as long as A
// and B agree).
template <class T>
struct Mma {
  static constexpr int kM = 16, kN = 8, kK = 32;
  struct A {
    uint32_t r[8];
  };
  struct B {
    uint32_t r[4];
  };
  struct C {
    float v[4];
  };
  struct Rows {
    float v[2];
  };

  template <class F>
  static GPU_FN A load_a(F row) {
    const int g = lane_() / 4, t = lane_() % 4;
    const uint4 lo = *reinterpret_cast<const uint4*>(row(g) + 8 * t);
    const uint4 hi = *reinterpret_cast<const uint4*>(row(g + 8) + 8 * t);
    return {{lo.x, hi.x, lo.y, hi.y, lo.z, hi.z, lo.w, hi.w}};
  }
  template <class F>
  static GPU_FN A load_a_stream(F row) {
    const int g = lane_() / 4, t = lane_() % 4;
    const Pack<uint32_t> lo = load_stream(reinterpret_cast<const Pack<uint32_t>*>(row(g) + 8 * t));
    const Pack<uint32_t> hi =
        load_stream(reinterpret_cast<const Pack<uint32_t>*>(row(g + 8) + 8 * t));
    return {{lo.v[0], hi.v[0], lo.v[1], hi.v[1], lo.v[2], hi.v[2], lo.v[3], hi.v[3]}};
  }
  template <class F>
  static GPU_FN B load_b(F row) {
    const int g = lane_() / 4, t = lane_() % 4;
    const uint4 w = *reinterpret_cast<const uint4*>(row(g) + 8 * t);
    return {{w.x, w.y, w.z, w.w}};
  }
  // Eight rows by 16 bytes a matrix, so that rows 16 bytes apart modulo 128 share no bank; k is
  // dealt in its natural order.
  template <class F>
  static GPU_FN A load_a_near(F row) {
    const T* p = row(lane_() % 16) + lane_() / 16 * 8;
    A a;
    LoadMatrices(p, a.r);
    LoadMatrices(p + 16, a.r + 4);
    return a;
  }
  template <class F>
  static GPU_FN B load_b_near(F row) {
    B b;
    LoadMatrices(row(lane_() % 8) + lane_() / 8 * 8, b.r);
    return b;
  }
  struct ARows {
    const T *lo, *hi;
  };
  struct BRows {
    const T* p;
  };
  template <class F>
  static GPU_FN ARows rows_of_a(F row) {
    const int g = lane_() / 4, t = lane_() % 4;
    return {row(g) + 8 * t, row(g + 8) + 8 * t};
  }
  template <class F>
  static GPU_FN BRows rows_of_b(F row) {
    return {row(lane_() / 4) + 8 * (lane_() % 4)};
  }
  static GPU_FN A load_a(const ARows& rows, int k) {
    const uint4 lo = *reinterpret_cast<const uint4*>(rows.lo + k);
    const uint4 hi = *reinterpret_cast<const uint4*>(rows.hi + k);
    return {{lo.x, hi.x, lo.y, hi.y, lo.z, hi.z, lo.w, hi.w}};
  }
  static GPU_FN B load_b(const BRows& rows, int k) {
    const uint4 w = *reinterpret_cast<const uint4*>(rows.p + k);
    return {{w.x, w.y, w.z, w.w}};
  }
  static GPU_FN B load_b_stream(const BRows& rows, int k, bool valid) {
    const Pack<uint32_t> w =
        load_stream_if(reinterpret_cast<const Pack<uint32_t>*>(rows.p + k), valid);
    return {{w.v[0], w.v[1], w.v[2], w.v[3]}};
  }
  static GPU_FN C zero() { return {{0, 0, 0, 0}}; }
  static GPU_FN void add(C& c, const C& other) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c.v[i] += other.v[i];
  }
  static GPU_FN void mma(C& c, const A& a, const B& b) {
    mma_16816(c.v, a.r[0], a.r[1], a.r[2], a.r[3], b.r[0], b.r[1], T{});
    mma_16816(c.v, a.r[4], a.r[5], a.r[6], a.r[7], b.r[2], b.r[3], T{});
  }
  template <class F>
  static GPU_FN void for_each(C& c, F f) {
    const int g = lane_() / 4, t = lane_() % 4;
    f(g, 2 * t, c.v[0]);
    f(g, 2 * t + 1, c.v[1]);
    f(g + 8, 2 * t, c.v[2]);
    f(g + 8, 2 * t + 1, c.v[3]);
  }

  static GPU_FN Rows rows(float v) { return {{v, v}}; }
  template <class F>
  static GPU_FN void each_row(C& c, Rows& r, F f) {
    f(c.v[0], r.v[0]);
    f(c.v[1], r.v[0]);
    f(c.v[2], r.v[1]);
    f(c.v[3], r.v[1]);
  }
  template <class F>
  static GPU_FN void each(Rows& r, F f) {
    f(r.v[0]);
    f(r.v[1]);
  }
  template <class F>
  static GPU_FN void each2(Rows& r, Rows& q, F f) {
    f(r.v[0], q.v[0]);
    f(r.v[1], q.v[1]);
  }
  static GPU_FN Rows row_max(const C& c) {
    return lanes_max({{fmaxf(c.v[0], c.v[1]), fmaxf(c.v[2], c.v[3])}});
  }
  static GPU_FN Rows row_sum(const C& c) { return lanes_sum({{c.v[0] + c.v[1], c.v[2] + c.v[3]}}); }
  static GPU_FN Rows lanes_max(Rows r) {
#pragma unroll
    for (int m = 1; m < 4; m *= 2) {
      r.v[0] = fmaxf(r.v[0], shuffle_xor(r.v[0], m));
      r.v[1] = fmaxf(r.v[1], shuffle_xor(r.v[1], m));
    }
    return r;
  }
  static GPU_FN Rows lanes_sum(Rows r) {
#pragma unroll
    for (int m = 1; m < 4; m *= 2) {
      r.v[0] += shuffle_xor(r.v[0], m);
      r.v[1] += shuffle_xor(r.v[1], m);
    }
    return r;
  }
  template <class F>
  static GPU_FN void rows_for_each(Rows& r, F f) {
    const int g = lane_() / 4;
    f(g, r.v[0], lane_() % 4 == 0);
    f(g + 8, r.v[1], lane_() % 4 == 0);
  }

  // k = column here: the natural order, of from_c and load_b_across alone.
  static GPU_FN A from_c(const C (&c)[kK / kN], T*) {
    A a;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const C &lo = c[2 * i], &hi = c[2 * i + 1];
      a.r[4 * i] = pack2(lo.v[0], lo.v[1], T{});
      a.r[4 * i + 1] = pack2(lo.v[2], lo.v[3], T{});
      a.r[4 * i + 2] = pack2(hi.v[0], hi.v[1], T{});
      a.r[4 * i + 3] = pack2(hi.v[2], hi.v[3], T{});
    }
    return a;
  }
  template <class F>
  static GPU_FN B load_b_across(F row) {
    const uint32_t address = shared_address(row(lane_()));
    B b;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b.r[0]), "=r"(b.r[1]), "=r"(b.r[2]), "=r"(b.r[3])
                 : "r"(address)
                 : "memory");
    return b;
  }

 private:
  static GPU_FN void LoadMatrices(const T* p, uint32_t* r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
  }
  static GPU_FN int lane_() { return static_cast<int>(threadIdx.x) % 32; }
};

}  // namespace gpu

#include "vt/gpu/gpu_plain_mma.h"
