// Many rows by quantised weights: tiles of x and of unpacked weights in shared memory, matrix cores
// behind. The bits of the next step are on their way while a step is multiplied.
#pragma once

#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

template <class T, QuantTileShape kShape>
class QuantTile {
 public:
  GPU_FN explicit QuantTile(const QuantTileArgs& args)
      : a_(args), steps_((args.blocks * 32 + kQuantStep - 1) / kQuantStep), blocks_(args.blocks) {}

  GPU_FN void Run() {
    ::gpu::launch_dependents();
    Begin(a_.segment.w.planes);
    ::gpu::wait_predecessor();
    const int first = ::gpu::block_y() * kShape.rows;
    Multiply(CountOf(a_.header, a_.count) - first, [=](int i) {
      return RowPair{first + i, first + i};
    });
  }

  GPU_FN void RunExperts(const QuantExpertTileArgs& e) {
    ::gpu::launch_dependents();
    ::gpu::wait_predecessor();
    const QuantExpertTile tile = e.tiles[::gpu::block_y()];
    if (tile.count <= 0) return;
    if (tile.expert < 0) steps_ = 0;  // of nobody: zeros
    Begin(MovedBy(a_.segment.w.planes, ::gpu::max(tile.expert, 0) * e.expert_bytes));
    const int32_t* order = e.order + tile.first;
    const int chosen = e.shared_x != 0 ? e.chosen : 1;
    Multiply(tile.count, [=](int i) { return RowPair{order[i] / chosen, order[i]}; });
  }

 private:
  using Mma = ::gpu::Mma<T>;
  struct RowPair {
    int x, out;
  };
  static constexpr int kCount = ::gpu::Pack<T>::kCount;
  static constexpr int kPitch = kQuantStep + kCount;  // a pack more: no two rows in the same banks
  static constexpr int kDown = kShape.rows >= 32 ? 2 : 1, kAcross = kShape.waves / kDown;  // waves
  static constexpr int kM = kShape.rows / kDown / Mma::kM, kN = kShape.columns / kAcross / Mma::kN;
  // Blocks of weights that a step has, and those of a thread.
  static constexpr int kItems = kShape.columns * kQuantStep / 32;
  static constexpr int kThreads = kShape.waves * ::gpu::kWave;
  static constexpr int kMine = (kItems + kThreads - 1) / kThreads;

  GPU_FN static T* StageOfX(int step) {
    return reinterpret_cast<T*>(::gpu::shared()) + step % 2 * kShape.rows * kPitch;
  }
  GPU_FN static T* StageOfW(int step) {
    return reinterpret_cast<T*>(::gpu::shared()) +
           (2 * kShape.rows + step % kShape.stages * kShape.columns) * kPitch;
  }
  GPU_FN static int FirstRow() { return ::gpu::wave() % kDown * (kShape.rows / kDown); }
  GPU_FN static int FirstColumn() { return ::gpu::wave() / kDown * (kShape.columns / kAcross); }

  // Asks for the first weights.
  GPU_FN void Begin(const QuantPlanes& planes) {
    planes_ = planes;
    columns_ = a_.segment.w.rows - ::gpu::block() * kShape.columns;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const Item item = ItemOf(0, i);
      const int column = ::gpu::block() * kShape.columns + ::gpu::min(item.column, columns_ - 1);
      first_[i] = static_cast<int64_t>(column) * blocks_;
    }
    Ask(0);
  }

  template <class F>
  GPU_FN void Multiply(int rows, F row) {
    if (rows <= 0) return;
    rows_ = ::gpu::min(rows, kShape.rows);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) c_[m][n] = Mma::zero();
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      x_[i] = RowOf<const T>(a_.x, row(::gpu::min(PackOf(i).row, rows_ - 1)).x);
    Copy(0);
    ::gpu::copy_commit();
    Unpack(0);
    for (int step = 0; step < steps_; ++step) {
      ::gpu::copy_wait<0>();
      ::gpu::sync();
      const bool more = step + 1 < steps_;
      if (more) {
        Copy(step + 1);
        ::gpu::copy_commit();
        Ask(step + 1);
      }
      MultiplyStep(step);
      if (kShape.stages == 1) ::gpu::sync();
      if (more) Unpack(step + 1);
    }
    Store(row);
  }

  struct Item {
    int column, part, block;
  };
  GPU_FN Item ItemOf(int step, int i) const {
    constexpr int kParts = kQuantStep / 32;
    const int item = i * kThreads + ::gpu::thread(), part = item % kParts;
    return {item / kParts, part, step * kParts + part};
  }
  GPU_FN static bool Exists(const Item& item) {
    return kItems % kThreads == 0 || item.column < kShape.columns;
  }

  GPU_FN bool IsPlain() const { return a_.segment.w.format == QuantFormat::kPlain; }
  // Values as they are go to shared memory without a stay in registers.
  GPU_FN void CopyPlain(int step) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const Item item = ItemOf(step, i);
      if (!Exists(item)) continue;
      const T* from = reinterpret_cast<const T*>(planes_.low) + (first_[i] + item.block) * 32;
      T* to = StageOfW(step) + item.column * kPitch + item.part * 32;
#pragma unroll
      for (int j = 0; j < 32; j += kCount)
        ::gpu::copy_async(to + j,
                          item.block < blocks_ ? static_cast<const void*>(from + j) : planes_.low,
                          item.block < blocks_ ? 16 : 0);
    }
    ::gpu::copy_commit();
  }

  GPU_FN void Ask(int step) {
    if (IsPlain()) {
      if (kShape.stages > 1) CopyPlain(step);
      return;
    }
    WithFormat(a_.segment.w.format, [&](auto tag) {
      constexpr QuantFormat kF = decltype(tag)::kFormat;
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const Item item = ItemOf(step, i);
        if (!Exists(item)) continue;
        words_[i] = LoadWords<kF>(planes_, first_[i] + ::gpu::min(item.block, blocks_ - 1));
      }
    });
  }

  GPU_FN void Unpack(int step) {
    if (IsPlain()) {
      if (kShape.stages == 1) CopyPlain(step);
      return;
    }
    WithFormat(a_.segment.w.format, [&](auto tag) {
      constexpr QuantFormat kF = decltype(tag)::kFormat;
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const Item item = ItemOf(step, i);
        if (!Exists(item)) continue;
        WriteValues<kF, false>(words_[i], item.block,
                               StageOfW(step) + item.column * kPitch + item.part * 32);
      }
    });
  }

  // Packs of x that a step has; which of them a thread copies is the same in every step.
  static constexpr int kPacks = kQuantStep / kCount;
  static constexpr int kCopies = (kShape.rows * kPacks + kThreads - 1) / kThreads;
  struct PackOfX {
    int row, at;
  };
  GPU_FN static PackOfX PackOf(int i) {
    const int pack = i * kThreads + ::gpu::thread();
    return {pack / kPacks, pack % kPacks * kCount};
  }

  // Zeros past the end of k: what weights stand there must be finite alone.
  GPU_FN void Copy(int step) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const PackOfX pack = PackOf(i);
      if (kShape.rows * kPacks % kThreads != 0 && pack.row >= kShape.rows) continue;
      const int k = step * kQuantStep + pack.at;
      T* to = StageOfX(step) + pack.row * kPitch + pack.at;
      const int valid = pack.row < rows_ ? ::gpu::max(0, ::gpu::min(a_.k - k, kCount)) : 0;
      if (a_.packed != 0) {
        ::gpu::copy_async(to, valid > 0 ? x_[i] + k : x_[i], valid * static_cast<int>(sizeof(T)));
      } else {
#pragma unroll
        for (int j = 0; j < kCount; ++j) to[j] = j < valid ? x_[i][k + j] : T{};
      }
    }
  }

  // Where an operand is large, those of several k at once would be too many registers.
  static constexpr int kUnrollK =
      sizeof(T) == 2 && sizeof(typename Mma::A) > 32 ? 1 : kQuantStep / Mma::kK;
  GPU_FN void MultiplyStep(int step) {
#pragma unroll(kUnrollK)
    for (int k = 0; k < kQuantStep; k += Mma::kK) {
      const T* x = StageOfX(step) + FirstRow() * kPitch + k;
      const T* w = StageOfW(step) + FirstColumn() * kPitch + k;
      typename Mma::A a[kM];
#pragma unroll
      for (int m = 0; m < kM; ++m)
        a[m] = Mma::load_a_near([&](int i) { return x + (m * Mma::kM + i) * kPitch; });
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const auto b = Mma::load_b_near([&](int i) { return w + (n * Mma::kN + i) * kPitch; });
#pragma unroll
        for (int m = 0; m < kM; ++m) Mma::mma(c_[m][n], a[m], b);
      }
    }
  }

  template <class F>
  GPU_FN void Store(F row_of) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        Mma::for_each(c_[m][n], [&](int i, int j, float v) {
          i += FirstRow() + m * Mma::kM;
          j += FirstColumn() + n * Mma::kN;
          if (i >= rows_ || j >= columns_) return;
          const int row = row_of(i).out, of_segment = ::gpu::block() * kShape.columns + j;
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

  const QuantTileArgs& a_;
  int steps_;
  const int blocks_;
  QuantPlanes planes_;
  int rows_ = 0, columns_ = 0;  // from the block's first on
  QuantWords words_[kMine];
  int64_t first_[kMine];  // blocks before the weights' rows
  const T* x_[kCopies];
  typename Mma::C c_[kM][kN];
};

}  // namespace vt::gpu
