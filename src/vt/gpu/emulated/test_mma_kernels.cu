// Every function of Mma, for each type and for the plain one.
#include "vt/gpu/emulated/test_kernels.h"
#include "vt/gpu/gpu.h"

namespace vt::gpu::emulated {
namespace {

template <class M, class T>
void TryMma(const MmaArgs& args) {
  const auto* a = static_cast<const T*>(args.a);
  const auto* b = static_cast<const T*>(args.b);
  // load_b_across reads shared memory; each wave of the block has its own.
  constexpr int kScratch = M::kM * M::kK, kAcross = M::kK * M::kN;
  T* const scratch = reinterpret_cast<T*>(::gpu::shared()) + ::gpu::wave() * (kScratch + kAcross);
  T* const across = scratch + kScratch;
  for (int i = ::gpu::lane(); i < kAcross; i += ::gpu::kWave)
    across[i] = static_cast<const T*>(args.across)[i];
  ::gpu::sync_wave();

  typename M::C c[2] = {M::zero(), M::zero()};
  // The first half by rows, the second by kept rows, whose values further on are those of b[1].
  const auto row_a = [&](int i) { return a + M::kK * i; };
  const auto row_b = [&](int i) { return b + M::kK * i; };
  M::mma(c[0], M::load_a(row_a), M::load_b(row_b));
  const auto rows_a = M::rows_of_a(row_a);
  const auto rows_b = M::rows_of_b(row_b);
  auto product = M::zero();
  M::mma(product, M::load_a(rows_a, 0), M::load_b_stream(rows_b, M::kN * M::kK, true));
  M::mma(product, M::load_a_stream(row_a), M::load_b_stream(rows_b, 0, false));
  M::add(c[1], product);
  for (int half = 0; half < 2; ++half) {
    M::for_each(c[half], [&](int row, int column, float& value) {
      args.c[32 * row + M::kN * half + column] = value;
    });
  }
  auto maximum = M::row_max(c[0]), sum = M::row_sum(c[0]);
  M::rows_for_each(maximum, [&](int row, float& value, bool leader) {
    args.maximum[row] = value;
    if (leader) ::gpu::atomic_add(args.leaders + row, 1);
  });
  M::rows_for_each(sum, [&](int row, float& value, bool) { args.sum[row] = value; });

  // Rows of 1, 2, 3 ...: through each and each2.
  auto number = M::rows(1), factor = M::rows(0);
  M::rows_for_each(number, [&](int row, float& value, bool) { value = static_cast<float>(row); });
  M::each(number, [](float& value) { value += 1; });
  M::each2(factor, number, [](float& to, float& from) { to = from; });
  for (int half = 0; half < 2; ++half) {
    auto scaled = c[half];
    M::each_row(scaled, factor, [](float& value, float& of_its_row) { value *= of_its_row; });
    M::for_each(scaled, [&](int row, int column, float& value) {
      args.scaled[32 * row + M::kN * half + column] = value;
    });
  }
  // Twice: the scratch is used again.
  auto second = M::zero();
  for (int round = 0; round < 2; ++round) {
    second = M::zero();
    const auto p = M::from_c(c, scratch);
    M::mma(second, p, M::load_b_across([&](int k) { return across + M::kN * k; }));
  }
  M::for_each(second,
              [&](int row, int column, float& value) { args.second[16 * row + column] = value; });
}

GPU_KERNEL(test_mma_f32, MmaArgs, 256) { TryMma<::gpu::Mma<float>, float>(args); }
GPU_KERNEL(test_mma_plain, MmaArgs, 256) { TryMma<::gpu::PlainMma, float>(args); }
GPU_KERNEL(test_mma_bf16, MmaArgs, 256) { TryMma<::gpu::Mma<::gpu::bf16>, ::gpu::bf16>(args); }
GPU_KERNEL(test_mma_f16, MmaArgs, 256) { TryMma<::gpu::Mma<::gpu::f16>, ::gpu::f16>(args); }

}  // namespace
}  // namespace vt::gpu::emulated
