// Every word of gpu.h once, and products of matrix cores: words_test.cc knows the answers.
#include "tests/hip/words.h"
#include "vt/gpu/gpu.h"

GPU_KERNEL(words, WordsArgs, 256) {
  using namespace gpu;
  float* scratch = reinterpret_cast<float*>(shared());  // a float a wave, then a float a thread
  float* turned = scratch + 32;
  const int i = block() * threads() + thread();
  const float v = args.x[i];
  const float a = v < 0 ? -v : v;
  float* y = args.y + kWords * i;
  y[kXor1] = shuffle_xor(v, 1);
  y[kXor2] = shuffle_xor(v, 2);
  y[kXor4] = shuffle_xor(v, 4);
  y[kXor8] = shuffle_xor(v, 8);
  y[kXor16] = shuffle_xor(v, 16);
  y[kXorMask] = shuffle_xor(v, args.mask);
  y[kShuffle] = shuffle(v, (lane() * 7 + 3) % kWave);
  y[kWaveSum] = wave_sum(v);
  y[kWaveMax] = wave_max(v);
  y[kAny] = gpu::any(v > 2.9f);
  y[kAnew] = static_cast<float>(anew(thread()));
  y[kExp] = gpu::exp(v);
  y[kExp2] = gpu::exp2(v);
  y[kLog] = gpu::log(a);
  y[kLog2] = gpu::log2(a);
  y[kTanh] = gpu::tanh(v);
  y[kErf] = gpu::erf(v);
  y[kSqrt] = gpu::sqrt(a);
  y[kRsqrt] = gpu::rsqrt(a);
  y[kBrain] = to_float(to_bf16(v));
  y[kHalf] = to_float(to_f16(v));
  y[kBlockSum] = block_sum(v, scratch);
  turned[thread()] = v;
  sync();
  y[kTurned] = turned[threads() - 1 - thread()];
  sync();
  if (thread() % 4 == 0) copy_async(turned + thread(), args.x + i, 12);
  copy_commit();
  copy_wait<0>();
  sync();
  y[kCopied] = turned[thread()];
  const Pack<float> p = load_stream(reinterpret_cast<const Pack<float>*>(args.x) + i / 4);
  y[kStream] = i % 4 == 0 ? p.v[0] : i % 4 == 1 ? p.v[1] : i % 4 == 2 ? p.v[2] : p.v[3];
  if (lane() == 0) {
    y[kTicket] = static_cast<float>(atomic_add(args.counters, 1));
    atomic_max(args.counters + 1, i);
  }
}

namespace {

template <class T>
GPU_FN void Product(const ProductArgs& args) {
  using M = gpu::Mma<T>;
  constexpr int kColumns = 32, kK = 64;
  static_assert(M::kM == 16 && kColumns % M::kN == 0 && M::kK == kColumns);
  T* scratch = reinterpret_cast<T*>(gpu::shared()) + gpu::wave() * (M::kM * M::kK + kColumns * 16);
  T* across = scratch + M::kM * M::kK;
  const T *a = static_cast<const T*>(args.a), *b = static_cast<const T*>(args.b);
  constexpr int kTiles = kColumns / M::kN;
  typename M::C c[kTiles];
  for (int n = 0; n < kTiles; ++n) {
    c[n] = M::zero();
    for (int k = 0; k < kK; k += M::kK) {
      M::mma(c[n], M::load_a([&](int row) { return a + row * kK + k; }),
             M::load_b([&](int row) { return b + (n * M::kN + row) * kK + k; }));
    }
  }
  typename M::Rows sum = M::rows(0), high = M::rows(-INFINITY);
  for (int n = 0; n < kTiles; ++n) {
    typename M::Rows s = M::row_sum(c[n]), h = M::row_max(c[n]);
    M::each2(sum, s, [](float& x, float& y) { x += y; });
    M::each2(high, h, [](float& x, float& y) { x = gpu::max(x, y); });
  }
  // Both waves of RDNA do the same; the last one writes the same values again.
  M::rows_for_each(sum, [&](int row, float v, bool leader) {
    if (leader) args.sums[row] = v;
  });
  M::rows_for_each(high, [&](int row, float v, bool leader) {
    if (leader) args.highest[row] = v;
  });
  for (int n = 0; n < kTiles; ++n) {
    M::for_each(c[n], [&](int row, int column, float& v) {
      args.c[row * kColumns + n * M::kN + column] = v;
    });
  }
  for (int i = gpu::lane(); i < kColumns * 16; i += gpu::kWave)
    across[i] = static_cast<const T*>(args.v)[i];
  gpu::sync_wave();
  const typename M::A as_a = M::from_c(c, scratch);
  for (int n = 0; n < 16 / M::kN; ++n) {
    typename M::C d = M::zero();
    M::mma(d, as_a, M::load_b_across([&](int k) { return across + k * 16 + n * M::kN; }));
    M::for_each(d,
                [&](int row, int column, float& v) { args.d[row * 16 + n * M::kN + column] = v; });
  }
}

}  // namespace

GPU_KERNEL(product_bf16, ProductArgs, 64) { Product<gpu::bf16>(args); }
GPU_KERNEL(product_f16, ProductArgs, 64) { Product<gpu::f16>(args); }
GPU_KERNEL(product_f32, ProductArgs, 64) { Product<float>(args); }
