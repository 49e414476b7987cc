// What a block does together: reductions and sums over its threads, passes over a row, and sorting
// a short list. The first kChoiceScratch bytes of shared memory belong to it.
#pragma once

#include "vt/gpu/tiles/choice_row.h"

namespace vt::gpu {

// shuffle of anything made of words.
template <class T, class F>
GPU_FN T ByWords(T v, F shuffle) {
  constexpr int kWords = sizeof(T) / 4;
  union {
    T value;
    uint32_t words[kWords];
  } u;
  u.value = v;
#pragma unroll
  for (int i = 0; i < kWords; ++i) u.words[i] = shuffle(u.words[i]);
  return u.value;
}

// All threads get f over all of them; f commutes.
template <class T, class F>
GPU_FN T BlockReduce(T v, F f) {
  static_assert(sizeof(T) * 32 <= kChoiceScratch / 2);
#pragma unroll
  for (int m = ::gpu::kWave / 2; m > 0; m /= 2)
    v = f(v, ByWords(v, [&](uint32_t w) { return ::gpu::shuffle_xor(w, m); }));
  T* scratch = reinterpret_cast<T*>(::gpu::shared());
  ::gpu::sync();
  if (::gpu::lane() == 0) scratch[::gpu::wave()] = v;
  ::gpu::sync();
  T all = scratch[0];
  for (int w = 1; w < ::gpu::waves(); ++w) all = f(all, scratch[w]);
  return all;
}
template <class T>
GPU_FN T BlockSum(T v) {
  return BlockReduce(v, [](T a, T b) { return a + b; });
}

// How many, and their probabilities' sum: in units of 2^-42 of the best's, so that sums are exact
// in any order and 300k of them fit.
struct Tally {
  uint64_t mass;
  int count, unused;
};
GPU_FN Tally operator+(Tally a, Tally b) { return {a.mass + b.mass, a.count + b.count, 0}; }

// The sum over the threads before this one; `total`: over all.
GPU_FN Tally BlockScan(Tally v, Tally* total) {
  Tally sum = v;
#pragma unroll
  for (int d = 1; d < ::gpu::kWave; d *= 2) {
    const int lane = ::gpu::lane();
    const Tally before =
        ByWords(sum, [&](uint32_t w) { return ::gpu::shuffle(w, lane < d ? lane : lane - d); });
    if (lane >= d) sum = sum + before;
  }
  Tally* scratch = reinterpret_cast<Tally*>(::gpu::shared());
  ::gpu::sync();
  if (::gpu::lane() == ::gpu::kWave - 1) scratch[::gpu::wave()] = sum;
  ::gpu::sync();
  Tally before = {sum.mass - v.mass, sum.count - v.count, 0}, all = {0, 0, 0};
  for (int w = 0; w < ::gpu::waves(); ++w) {
    if (w < ::gpu::wave()) before = before + scratch[w];
    all = all + scratch[w];
  }
  *total = all;
  return before;
}

struct Best {
  float value;
  int id;
};
GPU_FN Best NoBest() { return {MinusInfinity(), 0x7fffffff}; }
GPU_FN Best Better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}
GPU_FN Best BlockBest(Best b) {
  return BlockReduce(b, [](Best x, Best y) { return Better(x, y); });
}

// Four values of a row from id 4 g on; what is past its end and NaN are -inf.
GPU_FN ::gpu::Pack<float> LoadFour(const float* x, int g, int n, bool aligned) {
  ::gpu::Pack<float> v;
  if (aligned && 4 * g + 4 <= n) {
    v = reinterpret_cast<const ::gpu::Pack<float>*>(x)[g];
#pragma unroll
    for (int i = 0; i < 4; ++i) v.v[i] = Value(v.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) v.v[i] = 4 * g + i < n ? Value(x[4 * g + i]) : MinusInfinity();
  }
  return v;
}

// f(score, id) for scores = x * inverse of at least `floor`. A thread has eight loads of 16 bytes
// under way at once; what passes is read again, so that there is one copy of f.
template <class F>
GPU_FN void EachFrom(const float* x, int n, bool aligned, float inverse, float floor, F f) {
  constexpr int kAhead = 8;
  const int groups = (n + 3) / 4, step = ::gpu::threads();
  for (int g = ::gpu::thread(); g < groups; g += kAhead * step) {
    ::gpu::Pack<float> v[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) v[i] = LoadFour(x, g + i * step, n, aligned);
    uint32_t pass = 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (::gpu::product(v[i].v[j], inverse) >= floor) pass |= 1u << (4 * i + j);
      }
    }
    for (; pass != 0; pass &= pass - 1) {
      const uint32_t lowest = pass & (~pass + 1);
      const int bit = static_cast<int>(::gpu::bits_of(static_cast<float>(lowest)) >> 23) - 127;
      const int id = 4 * (g + bit / 4 * step) + bit % 4;
      if (id < n) f(::gpu::product(Value(x[id]), inverse), id);
    }
  }
}

// Candidates in shared memory, in the order of (key, id).
struct Candidates {
  uint64_t* key;
  int* id;
  float* score;
  int count;

  GPU_FN bool Before(int a, int b) const {
    return key[a] < key[b] || (key[a] == key[b] && id[a] < id[b]);
  }
  GPU_FN void Swap(int a, int b) const {
    const uint64_t k = key[a];
    const int i = id[a];
    const float s = score[a];
    key[a] = key[b];
    id[a] = id[b];
    score[a] = score[b];
    key[b] = k;
    id[b] = i;
    score[b] = s;
  }
};

// Bitonic. REQUIRES: room up to the next power of two.
GPU_FN void Sort(const Candidates& c) {
  int size = 1;
  while (size < c.count) size *= 2;
  for (int i = c.count + ::gpu::thread(); i < size; i += ::gpu::threads()) {
    c.key[i] = ~uint64_t{0};
    c.id[i] = 0x7fffffff;
  }
  ::gpu::sync();
  for (int k = 2; k <= size; k *= 2) {
    for (int j = k / 2; j > 0; j /= 2) {
      for (int i = ::gpu::thread(); i < size / 2; i += ::gpu::threads()) {
        const int a = (i & ~(j - 1)) * 2 | (i & (j - 1)), b = a + j;
        if (c.Before(b, a) == ((a & k) == 0)) c.Swap(a, b);
      }
      ::gpu::sync();
    }
  }
}

}  // namespace vt::gpu
