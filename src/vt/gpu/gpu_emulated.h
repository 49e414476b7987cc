// gpu.h for the emulated device: plain C++, a block's threads as fibers. Compiled once a wave size
// (GPU_EMULATED_WAVE), in a module each. Nothing but gpu.h includes this.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "vt/gpu/emulated/block.h"
#include "vt/ir/quant.h"

#define GPU_FN inline
#define GPU_KERNEL(name, Args, most_threads)                                   \
  static void name##_body(const Args& args);                                   \
  static const ::vt::gpu::emulated::KernelRegistration name##_registration = { \
      #name, sizeof(Args), most_threads,                                       \
      [](const void* args) { name##_body(*static_cast<const Args*>(args)); }}; \
  static void name##_body(const Args& args)

#define GPU_KERNEL_BLOCKS(name, Args, most_threads, blocks) GPU_KERNEL(name, Args, most_threads)
#define GPU_KERNEL_REGISTERS(name, Args, most_threads, registers) \
  GPU_KERNEL(name, Args, most_threads)

namespace gpu {

namespace block_ = ::vt::gpu::emulated;

inline constexpr int kWave = GPU_EMULATED_WAVE;

inline int thread() { return block_::ThreadIndex(); }
inline int threads() { return block_::ThreadCount(); }
inline int block() { return block_::BlockX(); }
inline int block_y() { return block_::BlockY(); }
inline int blocks() { return block_::GridX(); }
inline char* shared() { return block_::SharedMemory(); }
// Every meeting knows its line in the source, so that threads at different ones are found out.
inline void sync(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  block_::SyncBlock({"sync", file, line});
}
inline void sync_wave(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  block_::Together(nullptr, nullptr, {"sync_wave", file, line});
}

template <class T>
T shuffle(T v, int lane, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  static_assert(sizeof(T) == 4);
  if (lane < 0 || lane >= kWave) block_::Fault("shuffle from a lane that the wave does not have");
  struct Mine {
    T value, result;
    int from;
  } mine = {v, {}, lane};
  block_::Together(&mine,
                   [](void** all) {
                     for (int i = 0; i < kWave; ++i) {
                       auto* m = static_cast<Mine*>(all[i]);
                       m->result = static_cast<Mine*>(all[m->from])->value;
                     }
                   },
                   {"shuffle", file, line});
  return mine.result;
}
template <class T>
T shuffle_xor(T v, int mask, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  return shuffle(v, (thread() % kWave) ^ mask, line, file);
}
inline uint32_t wave_max(uint32_t v) {
  for (int m = kWave / 2; m > 0; m /= 2) {
    const uint32_t other = shuffle_xor(v, m);
    v = other > v ? other : v;
  }
  return v;
}
inline bool any(bool b, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  struct Mine {
    bool value, result;
  } mine = {b, false};
  block_::Together(&mine,
                   [](void** all) {
                     bool found = false;
                     for (int i = 0; i < kWave; ++i) found |= static_cast<Mine*>(all[i])->value;
                     for (int i = 0; i < kWave; ++i) static_cast<Mine*>(all[i])->result = found;
                   },
                   {"any", file, line});
  return mine.result;
}
// Blocks run one after the other.
inline int atomic_add(int* p, int v) {
  const int old = *p;
  *p += v;
  return old;
}
inline int atomic_max(int* p, int v) {
  const int old = *p;
  *p = old > v ? old : v;
  return old;
}
inline float product(float a, float b) {
  float p = a * b;
  asm("" : "+m"(p));  // where the host has fused instructions
  return p;
}
inline int dot4(int a, int b, int c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<int8_t>(a >> 8 * i) * static_cast<int8_t>(b >> 8 * i);
  return c;
}
inline void lookup16(const uint32_t (&table)[4], uint32_t n, uint32_t& low, uint32_t& high) {
  const auto byte = [&](uint32_t at) { return table[at / 4] >> at % 4 * 8 & 0xff; };
  low = high = 0;
  for (int i = 0; i < 4; ++i) {
    low |= byte(n >> 8 * i & 15) << 8 * i;
    high |= byte(n >> (8 * i + 4) & 15) << 8 * i;
  }
}
inline void fence() {}
template <class T>
T load_volatile(const T* p) {
  block_::CountVolatile();
  return *p;
}
template <class T>
Pack<T> load_volatile(const Pack<T>* p) {
  block_::CheckAligned(p, 16);
  block_::CountVolatile();
  return *p;
}
template <class T>
Pack<T> load_stream(const Pack<T>* p) {
  block_::CheckAligned(p, 16);
  return *p;
}
template <class T>
Pack<T> load_stream_if(const Pack<T>* p, bool valid) {
  return valid ? load_stream(p) : Pack<T>{};
}
inline int anew(int v) { return v; }
inline void prefetch(const void*) {}
inline void prefetch_near(const void*) {}
inline constexpr bool kCopiesRunAhead = true;
inline void copy_async(void* to, const void* from, int valid) {
  block_::CopyAsync(to, from, valid);
}
inline void copy_commit() { block_::CopyCommit(); }
template <int n>
void copy_wait() {
  block_::CopyWait(n);
}
inline void wait_predecessor() {}
inline void launch_dependents() {}

inline float exp(float x) { return std::exp(x); }
inline float exp2(float x) { return std::exp2(x); }
inline float log(float x) { return std::log(x); }
inline float log2(float x) { return std::log2(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline float erf(float x) { return std::erf(x); }

inline uint32_t bits_of(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  return u;
}
inline float float_of(uint32_t u) {
  float v;
  std::memcpy(&v, &u, 4);
  return v;
}
inline float to_float(bf16 v) { return float_of(static_cast<uint32_t>(v.bits) << 16); }
// Every f16 is a normal f32: 2^112 corrects the exponent's bias, subnormals included.
inline float to_float(f16 v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000) << 16;
  const uint32_t rest = static_cast<uint32_t>(v.bits & 0x7fff) << 13;
  if (rest >= 0x0f800000) return float_of(sign | rest | 0x7f800000);  // infinite, NaN
  return float_of(sign | bits_of(float_of(rest) * 0x1p112f));
}
inline bf16 to_bf16(float v) {
  const uint32_t u = bits_of(v);
  if (v != v) return {static_cast<uint16_t>(u >> 16 | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
inline f16 to_f16(float v) { return {::vt::ir::FloatToHalf(v)}; }
inline uint32_t pack2(float lo, float hi, bf16) {
  return to_bf16(lo).bits | static_cast<uint32_t>(to_bf16(hi).bits) << 16;
}
inline uint32_t pack2(float lo, float hi, f16) {
  return to_f16(lo).bits | static_cast<uint32_t>(to_f16(hi).bits) << 16;
}
template <class T>
inline constexpr bool kPairMath = sizeof(T) == 2;
template <class T>
uint32_t fma2(uint32_t a, uint32_t b, uint32_t c, T) {
  uint32_t v = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto half = [=](uint32_t w) { return to_float(T{static_cast<uint16_t>(w >> shift)}); };
    // Of two halves the product is exact.
    const double sum = double{half(a)} * half(b) + half(c);
    v |= pack2(static_cast<float>(sum), 0, T{}) << shift;
  }
  return v;
}
template <int kZero, class T>
uint32_t bytes2(uint32_t w, bool high, T) {
  const auto value = [=](int i) {
    return static_cast<float>(static_cast<int>(w >> 8 * i & 255) - kZero);
  };
  return pack2(value(high ? 2 : 0), value(high ? 3 : 1), T{});
}

// The wave's product at once: each lane brings its part, the last to come computes for all. Lane
// 16 h + l holds column l of a C, and its rows from kRows h on; of an A and a B row l, their values
// of k from kPart h on, as on AMD's matrix cores.
template <class T>
struct Mma {
  static constexpr int kM = 16, kN = 16, kK = 32;
  static constexpr int kParts = kWave / 16, kRows = 16 / kParts, kPart = kK / kParts;
  struct A {
    T v[kPart];
  };
  struct B {
    T v[kPart];
  };
  struct C {
    float v[kRows];
  };
  struct Rows {
    float v[kRows];
  };

  template <class F>
  static A load_a(F row) {
    A a;
    const T* p = row(low());
    block_::CheckAligned(p, 16);
    std::memcpy(a.v, p + kPart * part(), sizeof a.v);
    return a;
  }
  template <class F>
  static A load_a_stream(F row) {
    return load_a(row);
  }
  template <class F>
  static B load_b(F row) {
    const A a = load_a(row);
    B b;
    std::memcpy(b.v, a.v, sizeof b.v);
    return b;
  }
  template <class F>
  static A load_a_near(F row) {
    return load_a(row);
  }
  template <class F>
  static B load_b_near(F row) {
    return load_b(row);
  }
  struct ARows {
    const T* p;
  };
  using BRows = ARows;
  template <class F>
  static ARows rows_of_a(F row) {
    return {row(low())};
  }
  template <class F>
  static BRows rows_of_b(F row) {
    return {row(low())};
  }
  static A load_a(const ARows& rows, int k) {
    return load_a([&](int) { return rows.p + k; });
  }
  static B load_b(const BRows& rows, int k) {
    return load_b([&](int) { return rows.p + k; });
  }
  static B load_b_stream(const BRows& rows, int k, bool valid) {
    return valid ? load_b(rows, k) : B{};
  }
  static C zero() { return {}; }
  static void add(C& c, const C& other) {
    for (int i = 0; i < kRows; ++i) c.v[i] += other.v[i];
  }
  static void mma(C& c, const A& a, const B& b) {
    Mine mine = {&c, &a, &b};
    block_::Together(&mine, &MultiplyAll, {"mma", __FILE__, __LINE__});
  }
  template <class F>
  static void for_each(C& c, F f) {
    for (int i = 0; i < kRows; ++i) f(kRows * part() + i, low(), c.v[i]);
  }

  static Rows rows(float v) {
    Rows r;
    for (float& x : r.v) x = v;
    return r;
  }
  template <class F>
  static void each_row(C& c, Rows& r, F f) {
    for (int i = 0; i < kRows; ++i) f(c.v[i], r.v[i]);
  }
  template <class F>
  static void each(Rows& r, F f) {
    for (float& x : r.v) f(x);
  }
  template <class F>
  static void each2(Rows& r, Rows& q, F f) {
    for (int i = 0; i < kRows; ++i) f(r.v[i], q.v[i]);
  }
  static Rows row_max(const C& c) {
    Rows r;
    for (int i = 0; i < kRows; ++i) r.v[i] = c.v[i];
    return lanes_max(r);
  }
  static Rows row_sum(const C& c) {
    Rows r;
    for (int i = 0; i < kRows; ++i) r.v[i] = c.v[i];
    return lanes_sum(r);
  }
  static Rows lanes_max(Rows r) {
    for (int i = 0; i < kRows; ++i) {
      for (int m = 1; m < 16; m *= 2) {
        const float other = shuffle_xor(r.v[i], m);
        r.v[i] = r.v[i] > other ? r.v[i] : other;
      }
    }
    return r;
  }
  static Rows lanes_sum(Rows r) {
    for (int i = 0; i < kRows; ++i) {
      for (int m = 1; m < 16; m *= 2) r.v[i] += shuffle_xor(r.v[i], m);
    }
    return r;
  }
  template <class F>
  static void rows_for_each(Rows& r, F f) {
    for (int i = 0; i < kRows; ++i) f(kRows * part() + i, r.v[i], low() == 0);
  }

  static A from_c(const C (&c)[kK / kN], T* scratch) {
    for (int j = 0; j < kK / kN; ++j) {
      for (int i = 0; i < kRows; ++i)
        scratch[(kRows * part() + i) * kK + kN * j + low()] = From(c[j].v[i]);
    }
    sync_wave();
    const A a = load_a([&](int i) { return scratch + i * kK; });
    sync_wave();
    return a;
  }
  template <class F>
  static B load_b_across(F row) {
    B b;
    for (int i = 0; i < kPart; ++i) {
      const T* p = row(kPart * part() + i);
      block_::CheckAligned(p, 16);
      b.v[i] = p[low()];
    }
    return b;
  }

 private:
  struct Mine {
    C* c;
    const A* a;
    const B* b;
  };
  static void MultiplyAll(void** all) {
    float a[kM][kK], b[kK][kN];
    for (int lane = 0; lane < kWave; ++lane) {
      const Mine& mine = *static_cast<const Mine*>(all[lane]);
      for (int i = 0; i < kPart; ++i) {
        const int k = kPart * (lane / 16) + i;
        a[lane % 16][k] = Value(mine.a->v[i]);
        b[k][lane % 16] = Value(mine.b->v[i]);
      }
    }
    float sum[kM][kN] = {};
    block_::MultiplyAdd(a, b, sum);
    for (int m = 0; m < kM; ++m) {
      for (int n = 0; n < kN; ++n)
        static_cast<Mine*>(all[16 * (m / kRows) + n])->c->v[m % kRows] += sum[m][n];
    }
  }
  static float Value(float v) { return v; }
  template <class U>
  static float Value(U v) {
    return to_float(v);
  }
  static T From(float v) {
    if constexpr (std::is_same_v<T, float>) {
      return v;
    } else if constexpr (std::is_same_v<T, bf16>) {
      return to_bf16(v);
    } else {
      return to_f16(v);
    }
  }
  static int low() { return thread() % 16; }
  static int part() { return thread() % kWave / 16; }
};

// Of ThinMma: what 32 lanes hold, and those of a wider wave once more.
template <class T>
void mma_16816(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
               uint32_t b1, T) {
  struct Mine {
    float* c;
    uint32_t a[4], b[2];
  } mine = {c, {a0, a1, a2, a3}, {b0, b1}};
  block_::Together(&mine,
                   [](void** all) {
                     const auto value = [](uint32_t w, int k) {
                       return to_float(T{static_cast<uint16_t>(w >> k % 2 * 16)});
                     };
                     float a[16][16], b[16][8];
                     for (int lane = 0; lane < 32; ++lane) {
                       const Mine& m = *static_cast<const Mine*>(all[lane]);
                       for (int k = 0; k < 4; ++k) {
                         const int at = lane % 4 * 2 + k % 2 + k / 2 * 8;
                         a[lane / 4][at] = value(m.a[k / 2 * 2], k);
                         a[lane / 4 + 8][at] = value(m.a[k / 2 * 2 + 1], k);
                         b[at][lane / 4] = value(m.b[k / 2], k);
                       }
                     }
                     for (int lane = 0; lane < kWave; ++lane) {
                       for (int i = 0; i < 4; ++i) {
                         float sum = 0;
                         for (int k = 0; k < 16; ++k)
                           sum += a[lane % 32 / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
                         static_cast<Mine*>(all[lane])->c[i] += sum;
                       }
                     }
                   },
                   {"mma_16816", __FILE__, __LINE__});
}
inline uint32_t turn8(uint32_t w) {
  const int lane = thread() % kWave, first = lane / 32 * 32, row = lane % 32 / 4,
            from = first + lane % 4 * 8 + row / 2;
  const uint32_t lo = shuffle(w, from), hi = shuffle(w, from + 4);
  return row % 2 == 0 ? (lo & 0xffff) | hi << 16 : lo >> 16 | (hi & 0xffff0000u);
}

}  // namespace gpu

#include "vt/gpu/gpu_plain_mma.h"
