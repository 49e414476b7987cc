// Linears of few rows: bound by the bytes of the weights and by how soon they are asked for.
//
// Activations are the A of the product, 16 rows a tile, and weights the B, so that a wave can be as
// narrow as 8 output rows and a small matrix still spreads over all units of the device. A wave
// asks for all the weights it can hold in registers before it waits for the kernel before it: no
// kernel writes weights. Parts of k are summed by the block, in a fixed order.
#pragma once

#include "vt/gpu/tiles/linear_rows.h"

namespace vt::gpu {

// kTokens and kTiles: tiles of activations and of weights a wave. kStaged: x in shared memory.
template <class T, int kTokens, int kTiles, bool kStaged, LinearInput kInput = LinearInput::kPlain>
GPU_FN void SkinnyLinear(const SkinnyArgs& a) {
  using Mma = ::gpu::Mma<T>;
  using A = typename Mma::A;
  using B = typename Mma::B;
  using C = typename Mma::C;
  constexpr int kColumns = kTiles * Mma::kN;
  // Steps of k whose weights are under way, and whose activations are: registers for weights are 48
  // or 16 of a lane of CUDA, 32 or 16 of CDNA, 64 or 32 of RDNA. Behind a sandwich's weights stand
  // its rows, which all is waiting for: more of them would make it slower.
  constexpr bool kPlainMath = sizeof(T) == 4;  // for checking: the registers hold a step at a time
  constexpr bool kDeep =
      kTokens == 1 && ::gpu::kWave == 32 && sizeof(B) == 16 && kInput != LinearInput::kNormAddNorm;
  constexpr int kDepth = kPlainMath ? 1
                                    : (kTokens > 2 || (kTokens == 1 && sizeof(B) > 32) ? 4
                                       : kDeep                                         ? 12
                                                                                       : 8) /
                                          kTiles;
  constexpr int kBatch = kPlainMath || kTokens > 1 ? 1 : kStaged || kTiles > 1 ? 2 : 4;
  static_assert(kDepth % kBatch == 0);
  // Sums that do not wait for one another, of even and odd steps (of all four of a narrow wave).
  constexpr int kChains = kPlainMath || kTokens > 1 ? 1 : kTiles > 1 ? 2 : 4;

  ::gpu::launch_dependents();
  const int parts = 1 << a.parts_log2, groups = a.groups;
  const int group = ::gpu::wave() >> a.parts_log2, part = ::gpu::wave() & (parts - 1);
  const int unit = ::gpu::block() * groups + group;
  const int s = SegmentOf(a, unit);

  const int lines = a.pitch / Mma::kK;
  const int share = (lines + parts - 1) >> a.parts_log2;
  const int begin = part * share;
  const int end = unit < a.units ? ::gpu::min(begin + share, lines) : 0;

  typename Mma::BRows from[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    constexpr int kHalf = (kTiles + 1) / 2;
    const LinearSegment& segment = a.segments[IsActMul(a) ? t / kHalf : s];
    const int row = IsActMul(a) ? unit * (kColumns / 2) + t % kHalf * Mma::kN
                                : (unit - segment.first_unit) * kColumns + t * Mma::kN;
    from[t] = Mma::rows_of_b([&](int i) {
      return static_cast<const T*>(segment.w) +
             static_cast<int64_t>(::gpu::min(row + i, segment.rows - 1)) * a.pitch +
             begin * Mma::kK;
    });
  }
  B w[kDepth][kTiles];
#pragma unroll
  for (int j = 0; j < kDepth; ++j) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      w[j][t] = Mma::load_b_stream(from[t], j * Mma::kK, begin + j < end);
    }
  }
  StagedRows<T, kInput> staged(a);
  if (kStaged) staged.Prefetch();
  // What is added to this thread's first output, asked for while there is time. Nothing is done
  // with what is asked for here before the products: that would wait for it.
  const int first_unit = ::gpu::block() * groups;
  const SkinnyItem first = ItemOf<kColumns>(a, first_unit, ::gpu::thread());
  const bool some = first.row >= 0 && first.token < a.most_rows;
  float first_bias = 0;
  T first_residual = ::gpu::from_float<T>(0);
  if (some) first_bias = BiasOf(a, first);

  ::gpu::wait_predecessor();
  if (some && a.residual.base != nullptr) first_residual = ResidualOf<T>(a, first);
  const int counted = *CounterOf(a.header, a.count);

  if (kStaged) staged.Stage(TokensOf(a, counted));

  C c[kChains][kTokens][kTiles];
#pragma unroll
  for (int h = 0; h < kChains; ++h) {
#pragma unroll
    for (int m = 0; m < kTokens; ++m) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) c[h][m][t] = Mma::zero();
    }
  }
  typename Mma::ARows rows_of_x[kTokens];
#pragma unroll
  for (int m = 0; m < kTokens; ++m) {
    rows_of_x[m] = Mma::rows_of_a([&](int i) {
      const int row = ::gpu::min(m * Mma::kM + i, a.most_rows - 1);
      return kStaged ? staged.row(row) : EvenRow<const T>(a.x, row);
    });
  }
  for (int line = begin; line < end; line += kDepth) {
#pragma unroll
    for (int b = 0; b < kDepth; b += kBatch) {
      if (line + b >= end) break;
      A x[kBatch][kTokens];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
#pragma unroll
        for (int m = 0; m < kTokens; ++m) {
          x[j][m] = A{};
          if (line + b + j < end)
            x[j][m] = Mma::load_a(rows_of_x[m], line * Mma::kK + (b + j) * Mma::kK);
        }
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int m = 0; m < kTokens; ++m)
            Mma::mma(c[(b + j) % kChains][m][t], x[j][m], w[b + j][t]);
          w[b + j][t] =
              Mma::load_b_stream(from[t], (line - begin) * Mma::kK + (b + j + kDepth) * Mma::kK,
                                 line + b + j + kDepth < end);
        }
      }
    }
  }

  if (kStaged) staged.Finish();
  // [waves][tokens][columns]

  const int rows = a.most_rows;
  float* partial = reinterpret_cast<float*>(::gpu::shared() + a.partials);
#pragma unroll
  for (int m = 0; m < kTokens; ++m) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      C& sum = c[0][m][t];
#pragma unroll
      for (int h = 1; h < kChains; ++h) Mma::add(sum, c[h][m][t]);
      Mma::for_each(sum, [&](int i, int column, float v) {
        const int row = m * Mma::kM + i;
        if (row < rows) partial[(::gpu::wave() * rows + row) * kColumns + t * Mma::kN + column] = v;
      });
    }
  }
  ::gpu::sync();

  const int tokens = TokensOf(a, counted);
  const int outputs = tokens * groups * (IsActMul(a) ? kColumns / 2 : kColumns);
  for (int i = ::gpu::thread(); i < outputs; i += ::gpu::threads()) {
    const SkinnyItem item = ItemOf<kColumns>(a, first_unit, i);
    if (item.row < 0) continue;
    const float scale = kStaged ? staged.late_scale(item.token) : 1;
    const auto sum = [&](int column) {
      float v = 0;
      for (int p = 0; p < parts; ++p)
        v += partial[((item.group * parts + p) * rows + item.token) * kColumns + column];
      return v * scale;
    };
    float v = ProductOf<kColumns>(a, item, sum);
    const bool is_first = i == ::gpu::thread();
    v += is_first ? first_bias : BiasOf(a, item);
    if (a.residual.base != nullptr)
      v += ::gpu::to_float(is_first ? first_residual : ResidualOf<T>(a, item));
    StoreItem<T>(a, item, v);
  }
}

}  // namespace vt::gpu
