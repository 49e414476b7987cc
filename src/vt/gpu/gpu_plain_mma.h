// Mma<float> of gpu.h in plain arithmetic and shuffles, for any wave: exact f32 products are for
// checking, not for speed. Included at the end of each of gpu.h's three files; the emulated device
// has a quicker one, and only tests this.
#pragma once

namespace gpu {

// Lane 16 h + l holds column l of a C, and its rows from kRows h on; of an A row l, of a B row l
// (kM = kN = 16), their kPart values of k from kPart h on.
struct PlainMma {
  static constexpr int kM = 16, kN = 16, kK = 32;
  static constexpr int kParts = kWave / 16, kRows = 16 / kParts, kPart = kK / kParts;
  struct A {
    float v[kPart];
  };
  struct B {
    float v[kPart];
  };
  struct C {
    float v[kRows];
  };
  struct Rows {
    float v[kRows];
  };

  template <class F>
  static GPU_FN A load_a(F row) {
    A a;
    const float* p = row(low()) + kPart * part();
    for (int i = 0; i < kPart; ++i) a.v[i] = p[i];
    return a;
  }
  template <class F>
  static GPU_FN A load_a_stream(F row) {
    return load_a(row);
  }
  template <class F>
  static GPU_FN B load_b(F row) {
    const A a = load_a(row);
    B b;
    for (int i = 0; i < kPart; ++i) b.v[i] = a.v[i];
    return b;
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
    const float* p;
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
    return load_b([&](int) { return rows.p + k; });
  }
  static GPU_FN B load_b_stream(const BRows& rows, int k, bool valid) {
    return valid ? load_b(rows, k) : B{};
  }
  static GPU_FN C zero() {
    C c;
    for (int i = 0; i < kRows; ++i) c.v[i] = 0;
    return c;
  }
  static GPU_FN void add(C& c, const C& other) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) c.v[i] += other.v[i];
  }
  static GPU_FN void mma(C& c, const A& a, const B& b) {
#pragma unroll
    for (int h = 0; h < kParts; ++h) {
#pragma unroll
      for (int k = 0; k < kPart; ++k) {
        float x = a.v[k], y = b.v[k];
        HoldHere(x);
        HoldHere(y);
        const float mine = shuffle(y, 16 * h + low());
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          c.v[i] += shuffle(x, 16 * h + kRows * part() + i) * mine;
          HoldHere(c.v[i]);
        }
#if defined(__HIP__)
        __builtin_amdgcn_sched_barrier(0);
#endif
      }
    }
  }
  template <class F>
  static GPU_FN void for_each(C& c, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) f(kRows * part() + i, low(), c.v[i]);
  }

  static GPU_FN Rows rows(float v) {
    Rows r;
    for (int i = 0; i < kRows; ++i) r.v[i] = v;
    return r;
  }
  template <class F>
  static GPU_FN void each_row(C& c, Rows& r, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) f(c.v[i], r.v[i]);
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
    for (int i = 0; i < kRows; ++i) r.v[i] = c.v[i];
    return lanes_max(r);
  }
  static GPU_FN Rows row_sum(const C& c) {
    Rows r;
    for (int i = 0; i < kRows; ++i) r.v[i] = c.v[i];
    return lanes_sum(r);
  }
  static GPU_FN Rows lanes_max(Rows r) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      for (int m = 1; m < 16; m *= 2) {
        const float other = shuffle_xor(r.v[i], m);
        r.v[i] = r.v[i] > other ? r.v[i] : other;
      }
    }
    return r;
  }
  static GPU_FN Rows lanes_sum(Rows r) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      for (int m = 1; m < 16; m *= 2) r.v[i] += shuffle_xor(r.v[i], m);
    }
    return r;
  }
  template <class F>
  static GPU_FN void rows_for_each(Rows& r, F f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) f(kRows * part() + i, r.v[i], low() == 0);
  }

  static GPU_FN A from_c(const C (&c)[kK / kN], float* scratch) {
    for (int j = 0; j < kK / kN; ++j) {
      for (int i = 0; i < kRows; ++i)
        scratch[(kRows * part() + i) * kK + kN * j + low()] = c[j].v[i];
    }
    sync_wave();
    const A a = load_a([&](int i) { return scratch + i * kK; });
    sync_wave();
    return a;
  }
  template <class F>
  static GPU_FN B load_b_across(F row) {
    B b;
    for (int i = 0; i < kPart; ++i) b.v[i] = row(kPart * part() + i)[low()];
    return b;
  }

 private:
  static GPU_FN int low() { return thread() % 16; }
  static GPU_FN int part() { return thread() % kWave / 16; }
  // Or clang keeps what was shuffled for one product for the next one of the same operand, and
  // moves sums away from the shuffles that they are of: registers run out.
  static GPU_FN void HoldHere([[maybe_unused]] float& v) {
#if defined(__HIP__)
    asm volatile("" : "+v"(v));
#endif
  }
};

#ifndef GPU_EMULATED_WAVE
template <>
struct Mma<float> : PlainMma {};
#endif

}  // namespace gpu
