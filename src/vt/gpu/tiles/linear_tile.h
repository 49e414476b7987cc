// Linears of any number of rows and any alignment: square tiles through shared memory, two stages
// of k deep.
#pragma once

#include "vt/gpu/args_linear.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

// kSize rows of x by kSize of w a block; a wave has kSize / 2 by kSize / (waves / 2) of them.
template <class T, int kSize, int kWaves>
class TileLinear {
 public:
  GPU_FN explicit TileLinear(const TileLinearArgs& args) : a_(args) {}

  GPU_FN void Run() {
    ::gpu::launch_dependents();
    ::gpu::wait_predecessor();
    rows_ = CountOf(a_.header, a_.count) - ::gpu::block_y() * kSize;
    columns_ = a_.segment.rows - ::gpu::block() * kSize;
    if (rows_ <= 0) return;

#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) c_[m][n] = Mma::zero();
    }
    const int steps = a_.pitch / Mma::kK;
    Copy(0);
    ::gpu::copy_commit();
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) Copy(step + 1);
      ::gpu::copy_commit();
      ::gpu::copy_wait<1>();  // all but the step after this
      ::gpu::sync();
      Multiply(step);
      ::gpu::sync();
    }
    Store();
  }

 private:
  using Mma = ::gpu::Mma<T>;
  static constexpr int kCount = ::gpu::Pack<T>::kCount;
  static constexpr int kPitch = Mma::kK + kCount;  // a pack more: no two rows in the same banks
  static constexpr int kM = kSize / 2 / Mma::kM, kN = kSize / (kWaves / 2) / Mma::kN;

  GPU_FN static T* Stage(int step, bool weights) {
    return reinterpret_cast<T*>(::gpu::shared()) +
           (step % 2 * 2 + (weights ? 1 : 0)) * kSize * kPitch;
  }
  GPU_FN static int FirstRow() { return ::gpu::wave() % 2 * (kSize / 2); }
  GPU_FN static int FirstColumn() { return ::gpu::wave() / 2 * (kSize / (kWaves / 2)); }

  GPU_FN void Copy(int step) const {
    constexpr int kPacks = Mma::kK / kCount;
    for (int i = ::gpu::thread(); i < kSize * kPacks; i += ::gpu::threads()) {
      const int row = i / kPacks, at = i % kPacks * kCount, k = step * Mma::kK + at;
      const int column = ::gpu::block() * kSize + ::gpu::min(row, columns_ - 1);
      const T* w =
          static_cast<const T*>(a_.segment.w) + static_cast<int64_t>(column) * a_.pitch + k;
      ::gpu::copy_async(Stage(step, true) + row * kPitch + at, w, row < columns_ ? 16 : 0);

      const T* x = RowOf<const T>(a_.x, ::gpu::block_y() * kSize + ::gpu::min(row, rows_ - 1));
      T* to = Stage(step, false) + row * kPitch + at;
      const int valid = row < rows_ ? ::gpu::max(0, ::gpu::min(a_.k - k, kCount)) : 0;
      if (a_.packed != 0) {
        ::gpu::copy_async(to, valid > 0 ? x + k : x, valid * static_cast<int>(sizeof(T)));
      } else {
#pragma unroll
        for (int j = 0; j < kCount; ++j) to[j] = j < valid ? x[k + j] : T{};
      }
    }
  }

  GPU_FN void Multiply(int step) {
    const T* x = Stage(step, false) + FirstRow() * kPitch;
    const T* w = Stage(step, true) + FirstColumn() * kPitch;
    typename Mma::A a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m)
      a[m] = Mma::load_a([&](int i) { return x + (m * Mma::kM + i) * kPitch; });
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const typename Mma::B b = Mma::load_b([&](int i) { return w + (n * Mma::kN + i) * kPitch; });
#pragma unroll
      for (int m = 0; m < kM; ++m) Mma::mma(c_[m][n], a[m], b);
    }
  }

  GPU_FN void Store() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        Mma::for_each(c_[m][n], [&](int i, int j, float v) {
          i += FirstRow() + m * Mma::kM;
          j += FirstColumn() + n * Mma::kN;
          if (i >= rows_ || j >= columns_) return;
          const int row = ::gpu::block_y() * kSize + i, of_segment = ::gpu::block() * kSize + j;
          const int column = a_.segment.column + of_segment;
          if (a_.segment.bias != nullptr) v += a_.segment.bias[of_segment];
          if (a_.residual.base != nullptr)
            v += ::gpu::to_float(RowOf<const T>(a_.residual, row)[column]);
          if (a_.out_f32 != 0) {
            RowOf<float>(a_.out, row)[column] = v;
          } else {
            RowOf<T>(a_.out, row)[column] = ::gpu::from_float<T>(v);
          }
        });
      }
    }
  }

  const TileLinearArgs& a_;
  int rows_ = 0, columns_ = 0;  // from the block's first on
  typename Mma::C c_[kM][kN];
};

}  // namespace vt::gpu
