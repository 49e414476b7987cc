// Linears of few rows and large matrices: a block a multiprocessor that goes through its share of
// the weights without a pause.
//
// Weights are the A of the product, Mma<T>::kM rows of them a unit, and activations the B. The
// waves of a block deal a unit's k among themselves, kStreamLine values at a time. Each has a ring
// in shared memory that it alone fills and reads, so that waves do not wait for one another but
// where a unit's sums are added up; what is asked for runs some lines ahead, across units.
// With an early launch the ring is full before the kernel before has ended.
#pragma once

#include "vt/gpu/tiles/linear_rows.h"

namespace vt::gpu {

// A wave's weights, asked for and read in the same order.
template <class T, StreamShape kShape>
class WeightStream {
 public:
  using Mma = ::gpu::Mma<T>;
  static constexpr int kLine = kShape.line, kDepth = kShape.depth, kPieces = kLine / Mma::kK;

  GPU_FN explicit WeightStream(const SkinnyArgs& args) : a_(args), unit_(::gpu::block()) {
    ring_ = reinterpret_cast<T*>(::gpu::shared() + args.ring) + ::gpu::wave() * kDepth * kStage;
    const int row = ::gpu::lane() / kPacks, k = ::gpu::lane() % kPacks * kCount;
    k_ = k;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      to_[odd] =
          row * kLine + (k / Mma::kK ^ Swap(row + odd * kRowsAtOnce)) * Mma::kK + k % Mma::kK;
    }
    // Of pieces 0 and 1; the others stand as far behind them as their numbers say.
#pragma unroll
    for (int p = 0; p < 2; ++p)
      rows_[p] = Mma::rows_of_a([&](int i) { return ring_ + i * kLine + (p ^ Swap(i)) * Mma::kK; });
    lines_ = args.pitch / kLine;
    line_ = ::gpu::wave();
    if (unit_ < args.units) SetRows();
  }

  // One line more, unless there is none left; called by all lanes.
  GPU_FN void Ask() {
    if (unit_ < a_.units) {
      T* to = ring_ + asked_ * kStage;
#pragma unroll
      for (int j = 0; j < kCopies; ++j)
        ::gpu::copy_async(to + to_[j % 2] + j * kRowsAtOnce * kLine, RowAt(j), 16);
      line_ += ::gpu::waves();
      if (line_ >= lines_) {
        line_ = ::gpu::wave();
        unit_ += ::gpu::blocks();
        if (unit_ < a_.units) SetRows();
      }
    }
    ::gpu::copy_commit();
    asked_ = asked_ + 1 == kDepth ? 0 : asked_ + 1;
  }

  // The next line is there. Its place is free to be asked for again after Drop() and sync_wave().
  GPU_FN void Wait() const {
    ::gpu::copy_wait<kDepth - 1>();
    ::gpu::sync_wave();
  }
  GPU_FN typename Mma::A Piece(int p) const {
    return Mma::load_a(rows_[p % 2], taken_ * kStage + p / 2 * 2 * Mma::kK);
  }
  GPU_FN void Drop() { taken_ = taken_ + 1 == kDepth ? 0 : taken_ + 1; }

 private:
  static constexpr int kCount = ::gpu::Pack<T>::kCount;
  static constexpr int kPacks = kLine / kCount;              // of a row
  static constexpr int kRowsAtOnce = ::gpu::kWave / kPacks;  // that a copy of all lanes has
  static constexpr int kCopies = Mma::kM / kRowsAtOnce, kHalf = Mma::kM / 2, kOfHalf = kCopies / 2;
  static constexpr int kStage = Mma::kM * kLine;
  static_assert(kPieces % 2 == 0 && Mma::kM == kStreamRows && kRowsAtOnce >= 1);

  // Odd rows have their halves exchanged: no two rows that are read together are in the same banks.
  GPU_FN static int Swap(int row) { return row & 1; }

  // A lane has one row of every kRowsAtOnce: those of the unit's first half and of its second,
  // which are another segment's in an act_mul. Instead of rows past the last, the last one is read.
  GPU_FN void SetRows() {
    const int s = SegmentOf(a_, unit_), row = ::gpu::lane() / kPacks;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const LinearSegment& segment = a_.segments[IsActMul(a_) ? h : s];
      const int first =
          row + (IsActMul(a_) ? unit_ * kHalf : (unit_ - segment.first_unit) * Mma::kM + h * kHalf);
      const int exists = ::gpu::min(first, segment.rows - 1);
      from_[h] = static_cast<const T*>(segment.w) + k_ + static_cast<int64_t>(exists) * a_.pitch;
      last_[h] = (segment.rows - 1 - exists) / kRowsAtOnce;
    }
  }
  GPU_FN const T* RowAt(int j) const {
    const int h = j / kOfHalf;
    return from_[h] + ::gpu::min(j % kOfHalf, last_[h]) * (kRowsAtOnce * a_.pitch) + line_ * kLine;
  }

  const SkinnyArgs& a_;
  T* ring_;
  typename Mma::ARows rows_[2];
  const T* from_[2];
  int last_[2];
  int unit_, line_, lines_, k_;  // of what is asked for next
  int to_[2];                    // where this lane's even and odd copies go
  int asked_ = 0, taken_ = 0;    // places in the ring
};

// kStaged: x in shared memory.
template <class T, StreamShape kShape, bool kStaged, LinearInput kInput = LinearInput::kPlain>
GPU_FN void StreamLinear(const SkinnyArgs& a) {
  using Mma = ::gpu::Mma<T>;
  using Stream = WeightStream<T, kShape>;
  constexpr int kLine = kShape.line;
  constexpr int kTiles = (kShape.most_rows + Mma::kN - 1) / Mma::kN;
  static_assert(kShape.most_rows * kStreamRows <= kStreamWaves * ::gpu::kWave);  // outputs
  constexpr int kPieces = Stream::kPieces;

  ::gpu::launch_dependents();
  Stream stream(a);
#pragma unroll 1
  for (int i = 0; i < kShape.depth; ++i) stream.Ask();
  StagedRows<T, kInput> staged(a);
  if (kStaged) staged.Prefetch();

  ::gpu::wait_predecessor();
  const int tokens = TokensOf(a, *CounterOf(a.header, a.count));
  if (kStaged) staged.Stage(tokens);

  const int rows = a.most_rows, lines = a.pitch / kLine;
  typename Mma::BRows rows_of_x[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    rows_of_x[t] = Mma::rows_of_b([&](int i) {
      const int row = ::gpu::min(t * Mma::kN + i, rows - 1);
      return kStaged ? staged.row(row) : EvenRow<const T>(a.x, row);
    });
  }
  const auto load_x = [&](int line, int p, typename Mma::B(&x)[kTiles]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) x[t] = Mma::load_b(rows_of_x[t], line * kLine + p * Mma::kK);
  };
  // What is read where it stands is asked for a line ahead.
  typename Mma::B ahead[kStaged ? 1 : kPieces][kTiles];
  const auto look_ahead = [&](int line) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) load_x(line, p, ahead[kStaged ? 0 : p]);
  };
  if (!kStaged) look_ahead(::gpu::wave());

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

    typename Mma::C c[2][kTiles];  // sums that do not wait for one another
#pragma unroll
    for (int p = 0; p < 2; ++p) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) c[p][t] = Mma::zero();
    }
    for (int line = ::gpu::wave(); line < lines; line += ::gpu::waves()) {
      stream.Wait();
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const typename Mma::A w = stream.Piece(p);
        typename Mma::B x[kTiles];
        if (kStaged) load_x(line, p, x);
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          Mma::mma(c[p % 2][t], w, kStaged ? x[t] : ahead[kStaged ? 0 : p][t]);
      }
      stream.Drop();
      if (!kStaged) {
        const int next = line + ::gpu::waves();
        look_ahead(next < lines ? next : ::gpu::wave());
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
      Mma::add(c[0][t], c[1][t]);
      Mma::for_each(c[0][t], [&](int i, int column, float v) {
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
      const float v = ProductOf<kStreamRows>(a, item, sum);
      StoreItem<T>(a, item, v + add + ::gpu::to_float(residual));
    }
  }
}

}  // namespace vt::gpu
