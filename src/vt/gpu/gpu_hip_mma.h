// Mma<bf16> and Mma<f16> of gpu.h on AMD's matrix cores: WMMA on gfx11 and gfx12, MFMA on gfx9.
// Part of gpu_hip.h.
//
// The instructions multiply 16 x 16 x 16; lane 16 p + l holds row l of an A or B and column l of a
// C on all of them. Which values of k and which rows of C it holds differs:
//   gfx11   A, B: all 16 values of k, in both halves of the wave; C: rows 2 i + p
//   gfx12   A, B: 8 values of k a half;                           C: rows 8 p + i
//   gfx9    A, B: 4 values of k a quarter;                        C: rows 4 p + i
// An atom is two instructions, so that a lane's values of k lie side by side in memory: kPart of
// them from kPart p on, of which the first instruction takes the first half. A and B agree on that,
// so which k an instruction calls which does not matter.
#pragma once

namespace gpu {

using Float4 = float __attribute__((ext_vector_type(4)));
using Float8 = float __attribute__((ext_vector_type(8)));
using Short4 = short __attribute__((ext_vector_type(4)));
using Short8 = short __attribute__((ext_vector_type(8)));
using Short16 = short __attribute__((ext_vector_type(16)));
using Half4 = _Float16 __attribute__((ext_vector_type(4)));
using Half8 = _Float16 __attribute__((ext_vector_type(8)));
using Half16 = _Float16 __attribute__((ext_vector_type(16)));

#if defined(__GFX9__)
inline constexpr int kMmaPart = 8, kMmaRows = 4;
GPU_FN int mma_row(int part, int i) { return 4 * part + i; }
using MmaC = Float4;
struct MmaAtom {
  Short4 v;
};
GPU_FN MmaC mma_16(MmaAtom a, MmaAtom b, MmaC c, bf16) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.v, b.v, c, 0, 0, 0);
}
GPU_FN MmaC mma_16(MmaAtom a, MmaAtom b, MmaC c, f16) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Half4, a),
                                               __builtin_bit_cast(Half4, b), c, 0, 0, 0);
}
#elif defined(__GFX12__)
inline constexpr int kMmaPart = 16, kMmaRows = 8;
GPU_FN int mma_row(int part, int i) { return 8 * part + i; }
using MmaC = Float8;
struct MmaAtom {
  Short8 v;
};
GPU_FN MmaC mma_16(MmaAtom a, MmaAtom b, MmaC c, bf16) {
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a.v, b.v, c);
}
GPU_FN MmaC mma_16(MmaAtom a, MmaAtom b, MmaC c, f16) {
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(Half8, a),
                                                          __builtin_bit_cast(Half8, b), c);
}
#elif defined(__GFX11__)
inline constexpr int kMmaPart = 32, kMmaRows = 8;
GPU_FN int mma_row(int part, int i) { return 2 * i + part; }
using MmaC = Float8;
struct MmaAtom {
  Short16 v;
};
GPU_FN MmaC mma_16(MmaAtom a, MmaAtom b, MmaC c, bf16) {
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a.v, b.v, c);
}
GPU_FN MmaC mma_16(MmaAtom a, MmaAtom b, MmaC c, f16) {
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Half16, a),
                                                    __builtin_bit_cast(Half16, b), c);
}
#else
#error "no matrix cores are known for this architecture: gfx90a, gfx942, gfx11xx and gfx12xx are"
#endif

template <class T>
struct Mma {
  static constexpr int kM = 16, kN = 16, kK = 32;
  static constexpr int kPart = kMmaPart, kRows = kMmaRows, kPacks = kPart / 8;
  struct A {
    Pack<T> v[kPacks];
  };
  struct B {
    Pack<T> v[kPacks];
  };
  struct C {
    MmaC v;
  };
  struct Rows {
    float v[kRows];
  };

  template <class F>
  static GPU_FN A load_a(F row) {
    const Pack<T>* p = reinterpret_cast<const Pack<T>*>(row(low()) + from_k());
    A a;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) a.v[i] = p[i];
    return a;
  }
  template <class F>
  static GPU_FN A load_a_stream(F row) {
    const Pack<T>* p = reinterpret_cast<const Pack<T>*>(row(low()) + from_k());
    A a;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) a.v[i] = load_stream(p + i);
    return a;
  }
  template <class F>
  static GPU_FN B load_b(F row) {
    return __builtin_bit_cast(B, load_a(row));
  }
  template <class F>
  static GPU_FN A load_a_near(F row) {
    return load_a(row);
  }
  template <class F>
  static GPU_FN B load_b_near(F row) {
    return load_b(row);
  }
  struct ARows {
    const T* p;
  };
  using BRows = ARows;
  template <class F>
  static GPU_FN ARows rows_of_a(F row) {
    return {row(low())};
  }
  template <class F>
  static GPU_FN BRows rows_of_b(F row) {
    return {row(low())};
  }
  static GPU_FN A load_a(const ARows& rows, int k) {
    return load_a([&](int) { return rows.p + k; });
  }
  static GPU_FN B load_b(const BRows& rows, int k) {
    return __builtin_bit_cast(B, load_a([&](int) { return rows.p + k; }));
  }
  static GPU_FN B load_b_stream(const BRows& rows, int k, bool valid) {
    if (!valid) return B{};
    return __builtin_bit_cast(B, load_a_stream([&](int) { return rows.p + k; }));
  }
  static GPU_FN C zero() { return {MmaC(0.f)}; }
  static GPU_FN void add(C& c, const C& other) { c.v += other.v; }
  static GPU_FN void mma(C& c, const A& a, const B& b) {
    const Halves x = __builtin_bit_cast(Halves, a), y = __builtin_bit_cast(Halves, b);
    c.v = mma_16(x.first, y.first, c.v, T{});
    c.v = mma_16(x.second, y.second, c.v, T{});
  }
  template <class F>
  static GPU_FN void for_each(C& c, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float value = c.v[i];
      f(mma_row(part(), i), low(), value);
      c.v[i] = value;
    }
  }

  static GPU_FN Rows rows(float v) {
    Rows r;
#pragma unroll
    for (int i = 0; i < kRows; ++i) r.v[i] = v;
    return r;
  }
  template <class F>
  static GPU_FN void each_row(C& c, Rows& r, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float value = c.v[i];
      f(value, r.v[i]);
      c.v[i] = value;
    }
  }
  template <class F>
  static GPU_FN void each(Rows& r, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) f(r.v[i]);
  }
  template <class F>
  static GPU_FN void each2(Rows& r, Rows& q, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) f(r.v[i], q.v[i]);
  }
  static GPU_FN Rows row_max(const C& c) {
    Rows r;
#pragma unroll
    for (int i = 0; i < kRows; ++i) r.v[i] = c.v[i];
    return lanes_max(r);
  }
  static GPU_FN Rows row_sum(const C& c) {
    Rows r;
#pragma unroll
    for (int i = 0; i < kRows; ++i) r.v[i] = c.v[i];
    return lanes_sum(r);
  }
  static GPU_FN Rows lanes_max(Rows r) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int m = 1; m < 16; m *= 2) r.v[i] = __builtin_fmaxf(r.v[i], shuffle_xor(r.v[i], m));
    }
    return r;
  }
  static GPU_FN Rows lanes_sum(Rows r) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int m = 1; m < 16; m *= 2) r.v[i] += shuffle_xor(r.v[i], m);
    }
    return r;
  }
  template <class F>
  static GPU_FN void rows_for_each(Rows& r, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) f(mma_row(part(), i), r.v[i], low() == 0);
  }

  static GPU_FN A from_c(const C (&c)[kK / kN], T* scratch) {
#pragma unroll
    for (int j = 0; j < kK / kN; ++j) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        scratch[mma_row(part(), i) * kK + kN * j + low()] = rounded(c[j].v[i]);
    }
    sync_wave();
    const A a = load_a([&](int i) { return scratch + i * kK; });
    sync_wave();
    return a;
  }
  template <class F>
  static GPU_FN B load_b_across(F row) {
    B b;
#pragma unroll
    for (int i = 0; i < kPart; ++i) b.v[i / 8].v[i % 8] = row(from_k() + i)[low()];
    __builtin_amdgcn_sched_barrier(
        0);  // or many B's are loaded first, into more registers than there are
    return b;
  }

 private:
  struct Halves {
    MmaAtom first, second;
  };
  static GPU_FN T rounded(float v) {
    if constexpr (__is_same(T, bf16)) {
      return to_bf16(v);
    } else {
      return to_f16(v);
    }
  }
  static GPU_FN int low() { return thread() % 16; }
  static GPU_FN int part() { return thread() % kWave / 16; }
  static GPU_FN int from_k() { return kPart == kK ? 0 : kPart * part(); }
};

}  // namespace gpu
