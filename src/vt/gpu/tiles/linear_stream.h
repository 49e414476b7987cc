// Linears of few rows and large matrices: a block a multiprocessor that goes through its share of
// the weights without a pause.
//
// Weights are the A of the product, Mma<T>::kM rows of them a unit, and activations the B. The
// waves of a block deal a unit's k among themselves, kStreamLine values at a time. Each has a ring
// in shared memory that it alone fills and reads, so that waves do not wait for one another but
// where a unit's sums are added up; what is asked for runs kDepth lines ahead, across units.
// With an early launch the ring is full before the kernel before has ended.
#pragma once

#include "vt/gpu/tiles/linear_rows.h"

namespace vt::gpu {

// A wave's weights, asked for and read in the same order.
template <class T, int kDepth>
class WeightStream {
 public:
  using Mma = ::gpu::Mma<T>;
  static constexpr int kPieces = kStreamLine / Mma::kK;

  GPU_FN explicit WeightStream(const SkinnyArgs& args) : a_(args), unit_(::gpu::block()) {
    T* ring = reinterpret_cast<T*>(::gpu::shared() + args.ring) + ::gpu::wave() * kDepth * kStage;
    const int row = ::gpu::lane() / kPacks, k = ::gpu::lane() % kPacks * kCount;
    k_ = k;
    to_ = ring + row * kStreamLine + (k / Mma::kK ^ Swap(row)) * Mma::kK + k % Mma::kK;
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      rows_[p] =
          Mma::rows_of_a([&](int i) { return ring + i * kStreamLine + (p ^ Swap(i)) * Mma::kK; });
    lines_ = args.pitch / kStreamLine;
    line_ = ::gpu::wave();
    if (unit_ < args.units) SetRows();
  }

  // One line more, unless there is none left; called by all lanes.
  GPU_FN void Ask() {
    if (unit_ < a_.units) {
#pragma unroll
      for (int j = 0; j < kCopies; ++j) {
        ::gpu::copy_async(to_ + asked_ * kStage + j * kRowsAtOnce * kStreamLine, RowAt(j), 16);
      }
      Advance();
    }
    ::gpu::copy_commit();
    asked_ = asked_ + 1 == kDepth ? 0 : asked_ + 1;
  }

  // The next line; its place is free to be asked for again after the next sync_wave().
  GPU_FN void Take(typename Mma::A (&w)[kPieces]) {
    ::gpu::copy_wait<kDepth - 1>();
    ::gpu::sync_wave();
#pragma unroll
    for (int p = 0; p < kPieces; ++p) w[p] = Mma::load_a(rows_[p], taken_ * kStage);
    taken_ = taken_ + 1 == kDepth ? 0 : taken_ + 1;
  }

 private:
  static constexpr int kCount = ::gpu::Pack<T>::kCount;
  static constexpr int kPacks = kStreamLine / kCount;        // of a row
  static constexpr int kRowsAtOnce = ::gpu::kWave / kPacks;  // that a copy of all lanes has
  static constexpr int kCopies = Mma::kM / kRowsAtOnce, kHalf = Mma::kM / 2;
  static constexpr int kStage = Mma::kM * kStreamLine;
  static_assert(kPieces % 2 == 0 && Mma::kM == kStreamRows && kCopies >= 2);

  // Odd rows have their halves exchanged: no two rows that are read together are in the same banks.
  GPU_FN static int Swap(int row) { return row & 1; }

  // A lane has one row of every kRowsAtOnce: those of the unit's first half and of its second,
  // which are another segment's in an act_mul. Rows past the last are copies of one that exists.
  GPU_FN void SetRows() {
    const int s = SegmentOf(a_, unit_), row = ::gpu::lane() / kPacks;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const LinearSegment& segment = a_.segments[IsActMul(a_) ? h : s];
      const int first =
          row + (IsActMul(a_) ? unit_ * kHalf : (unit_ - segment.first_unit) * Mma::kM + h * kHalf);
      from_[h] = static_cast<const T*>(segment.w) + k_ +
                 static_cast<int64_t>(::gpu::min(first, segment.rows - 1)) * a_.pitch;
      // Of the lane's last row, or of all.
      step_[h] = first + kHalf - kRowsAtOnce < segment.rows ? kRowsAtOnce * a_.pitch : 0;
    }
  }
  GPU_FN const T* RowAt(int j) const {
    constexpr int kOfHalf = kCopies / 2;
    return from_[j / kOfHalf] + j % kOfHalf * step_[j / kOfHalf] + line_ * kStreamLine;
  }
  GPU_FN void Advance() {
    line_ += ::gpu::waves();
    if (line_ < lines_) return;
    line_ = ::gpu::wave();
    unit_ += ::gpu::blocks();
    if (unit_ < a_.units) SetRows();
  }

  const SkinnyArgs& a_;
  T* to_;
  typename Mma::ARows rows_[kPieces];
  const T* from_[2];
  int step_[2];
  int unit_, line_, lines_, k_;  // of what is asked for next
  int asked_ = 0, taken_ = 0;    // places in the ring
};

// kTokens: rows of activations at most. kStaged: x in shared memory.
template <class T, int kTokens, bool kStaged, LinearInput kInput = LinearInput::kPlain>
GPU_FN void StreamLinear(const SkinnyArgs& a) {
  using Mma = ::gpu::Mma<T>;
  constexpr int kDepth = kStreamDepth<kTokens>;
  using Stream = WeightStream<T, kDepth>;
  constexpr int kTiles = (kTokens + Mma::kN - 1) / Mma::kN;
  constexpr int kPieces = Stream::kPieces;

  ::gpu::launch_dependents();
  Stream stream(a);
#pragma unroll
  for (int i = 0; i < kDepth; ++i) stream.Ask();
  StagedRows<T, kInput> staged(a);
  if (kStaged) staged.Prefetch();

  ::gpu::wait_predecessor();
  const int tokens = TokensOf(a, *CounterOf(a.header, a.count));
  if (kStaged) staged.Stage(tokens);

  const int rows = a.most_rows, lines = a.pitch / kStreamLine;
  typename Mma::BRows rows_of_x[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    rows_of_x[t] = Mma::rows_of_b([&](int i) {
      const int row = ::gpu::min(t * Mma::kN + i, rows - 1);
      return kStaged ? staged.row(row) : EvenRow<const T>(a.x, row);
    });
  }
  typename Mma::B x[kPieces][kTiles];
  const auto load_x = [&](int line) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
        x[p][t] = Mma::load_b(rows_of_x[t], line * kStreamLine + p * Mma::kK);
    }
  };
  // What is read where it stands is asked for a line ahead.
  if (!kStaged) load_x(::gpu::wave());

  float* const partials = reinterpret_cast<float*>(::gpu::shared() + a.partials);
  bool odd = false;
  for (int unit = ::gpu::block(); unit < a.units; unit += ::gpu::blocks()) {
    const SkinnyItem item = ItemOf<kStreamRows>(a, unit, ::gpu::thread());
    const bool mine = item.row >= 0 && item.token < tokens;
    float add = 0;
    T residual = ::gpu::from_float<T>(0);
    if (mine) {
      add = BiasOf(a, item);
      if (a.residual.base != nullptr) residual = ResidualOf<T>(a, item);
    }

    typename Mma::C c[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) c[t] = Mma::zero();
    for (int line = ::gpu::wave(); line < lines; line += ::gpu::waves()) {
      typename Mma::A w[kPieces];
      stream.Take(w);
      if (kStaged) load_x(line);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) Mma::mma(c[t], w[p], x[p][t]);
      }
      if (!kStaged) {
        const int next = line + ::gpu::waves();
        load_x(next < lines ? next : ::gpu::wave());
      }
      ::gpu::sync_wave();
      stream.Ask();
    }

    if (kStaged) staged.Finish();
    // [waves][tokens][rows of the unit], twice: while some add up a unit's, others write the
    // next's.
    float* partial = partials + (odd ? kStreamWaves * rows * kStreamRows : 0);
    odd = !odd;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      Mma::for_each(c[t], [&](int i, int column, float v) {
        const int token = t * Mma::kN + column;
        if (token < rows) partial[(::gpu::wave() * rows + token) * kStreamRows + i] = v;
      });
    }
    ::gpu::sync();
    if (mine) {
      const float scale = kStaged ? staged.late_scale(item.token) : 1;
      const auto sum = [&](int i) {
        float v = 0;
#pragma unroll
        for (int w = 0; w < kStreamWaves; ++w)
          v += partial[(w * rows + item.token) * kStreamRows + i];
        return v * scale;
      };
      float v = sum(item.column);
      if (IsActMul(a)) {
        float gate[1] = {v};
        ApplyFn(a.act, 1, 0, gate);
        v = gate[0] * sum(item.column + kStreamRows / 2);
      }
      StoreItem<T>(a, item, v + add + ::gpu::to_float(residual));
    }
  }
}

}  // namespace vt::gpu
