// The sum of a token's experts, of rows short enough that each lane has one block of them: a wave
// an expert, kHeld rows of a lane all under way at once, and a row's block of x in registers for
// all of them. What a wave has to find out about its expert is found once for all its rows.
#pragma once

#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

// Over each `lanes` lanes, a power of two from kValues on: lane l of them has the sum of value
// l / (lanes / kValues).
template <int kValues>
GPU_FN float SumsOfLanes(float (&v)[kValues], int lanes) {
  int mask = lanes / 2;
#pragma unroll
  for (int n = kValues / 2; n > 0; n /= 2) {
    const bool upper = (::gpu::lane() & mask) != 0;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float give = upper ? v[i] : v[i + n], keep = upper ? v[i + n] : v[i];
      v[i] = keep + ::gpu::shuffle_xor(give, mask);
    }
    mask /= 2;
  }
#pragma unroll 1
  for (; mask > 0; mask /= 2) v[0] += ::gpu::shuffle_xor(v[0], mask);
  return v[0];
}

// See QuantExpertArgs. linear.lanes have a row; block_y() is the token.
template <class Formats>
GPU_FN void ExpertsDown(const QuantExpertArgs& e) {
  constexpr int kHeld = kQuantDownRows;
  const QuantGemvArgs& a = e.linear;
  const int lanes = a.lanes, across = ::gpu::kWave / lanes;  // rows side by side
  const int rows_of_block = kHeld * across, first = ::gpu::block() * rows_of_block;
  const int row_of_lane = ::gpu::lane() / lanes, lane = ::gpu::lane() & (lanes - 1);
  const int choice = ::gpu::wave(), token = ::gpu::block_y();
  const bool shared = choice == e.chosen;
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int count = CountOf(a.header, a.count), pair = token * e.chosen + choice;
  const int id = shared ? 0 : e.ids[pair];
  const bool valid = id >= 0 && id < e.experts;
  const float asked =
      shared ? LoadAt(AddressOf(e.gate, e.gate_type, token, 0), e.gate_type) : e.weights[pair];
  const float weight = valid ? asked : 0;
  // What this thread's output is added to, asked for beside the weights.
  const int mine = first + ::gpu::thread();
  const bool writes = ::gpu::thread() < rows_of_block && mine < a.segments[0].w.rows;
  float added = 0;
  if (writes && a.residual.base != nullptr)
    added = LoadAt(AddressOf(a.residual, a.residual_type, token, mine), a.residual_type);
  if (token >= count) return;  // here: nothing above need wait for the count

  const QuantRows x = {shared ? e.shared.codes : a.x.codes, shared ? e.shared.sums : a.x.sums,
                       shared ? e.shared.most_rows : a.x.most_rows,
                       shared ? e.shared.blocks : a.x.blocks};
  const QuantSegment& segment = a.segments[shared ? 1 : 0];
  const QuantPlanes planes = MovedBy(segment.w.planes, valid ? id * e.expert_bytes : 0);
  const int b = ::gpu::min(lane, x.blocks - 1);
  float y[kHeld];
  WithFormat(Formats(), segment.w.format, [&](auto tag) {
    constexpr QuantFormat kF = decltype(tag)::kFormat;
    QuantWords words[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int row = ::gpu::min(first + i * across + row_of_lane, segment.w.rows - 1);
      words[i] = LoadWords<kF>(planes, row * x.blocks + b);
    }
    const QuantX block(x, shared || e.shared_x != 0 ? token : pair, b, lane < x.blocks);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      int codes[8];
      CodesOf<kF>(words[i], codes);
      y[i] = DotOf<kF>(codes, ScalesOf<kF>(words[i], b), block);
    }
  });
  const float sum = SumsOfLanes(y, lanes);
  float* partial = reinterpret_cast<float*>(::gpu::shared());  // [waves][rows of the block]
  const int share = lanes / kHeld;                             // lanes that have the same sum
  if ((lane & (share - 1)) == 0) {
    partial[::gpu::wave() * rows_of_block + lane / share * across + row_of_lane] =
        valid ? weight * sum : 0;
  }
  ::gpu::sync();
  if (!writes) return;
  float v = 0;
#pragma unroll 2
  for (int w = 0; w < ::gpu::waves(); ++w) v += partial[w * rows_of_block + ::gpu::thread()];
  StoreValue(a.out, a.out_type, token, mine, v + added);
}

}  // namespace vt::gpu
