// A recurrent layer between its projections, of steps of few tokens a request: filter, SiLU, gated
// delta rule, norm and gate. A block has a key head of a request and all heads that read it, so
// that nobody else needs the filter's rows of their channels.
#pragma once

#include "vt/gpu/tiles/recurrent_delta.h"

namespace vt::gpu {

// Where the block's channels stand in a row: its query, its key, then its heads' values.
GPU_FN int NetHead(const DeltaArgs& d, int key, int i) {
  return d.tiled != 0 ? key + i * d.k_heads : key * (d.v_heads / d.k_heads) + i;
}
GPU_FN int NetChannel(const DeltaArgs& d, int key, int c) {
  if (c < d.k_dim) return key * d.k_dim + c;
  c -= d.k_dim;
  if (c < d.k_dim) return (d.k_heads + key) * d.k_dim + c;
  c -= d.k_dim;
  return 2 * d.k_heads * d.k_dim + NetHead(d, key, c / d.v_dim) * d.v_dim + c % d.v_dim;
}

template <class T, int kMostDim>
GPU_FN void DeltaNet(const DeltaNetArgs& a) {
  constexpr int kColumns = kDeltaNetColumns / kDeltaAcross;
  using Piece = DeltaPiece<kMostDim, kColumns, true>;
  constexpr int kBefore = kDeltaNetMostWidth - 1;
  const DeltaArgs& d = a.delta;
  const int key = ::gpu::block(), request = ::gpu::block_y();
  const int heads = d.v_heads / d.k_heads, pieces = d.v_dim / kDeltaNetColumns;
  const int own = 2 * d.k_dim + heads * d.v_dim,
            channels = 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim;
  const int i = ::gpu::wave() / pieces, head = NetHead(d, key, i);
  float* filtered = reinterpret_cast<float*>(::gpu::shared());
  float* results = filtered + own;

  // A thread has a channel of the filter. Its weights can be near before the predecessor has ended.
  const int channel = ::gpu::thread() < own ? NetChannel(d, key, ::gpu::thread()) : -1;
  const float* taps = a.w + ::gpu::max(channel, 0) * a.width;
  ::gpu::prefetch(taps);
  Piece piece(d, head, ::gpu::wave() % pieces * kDeltaNetColumns);
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  if (request >= d.header->requests) return;
  const int first = d.state.query_start[request];
  const int end = ::gpu::min(d.state.query_start[request + 1], d.header->tokens);
  const float* kept = SlotToRead(d.state, request);
  float before[kBefore];
#pragma unroll
  for (int j = 0; j < kBefore; ++j) {
    const int row = j - (kBefore - (a.width - 1));
    before[j] = kept != nullptr && row >= 0 && channel >= 0 ? kept[row * channels + channel] : 0.0f;
  }
  piece.Load(d, head, kept);
  for (int t = first; t < end; ++t) {
    if (channel >= 0) {
      const float x = ::gpu::to_float(RowOf<T>(d.qkv, t)[channel]);
      float sum = taps[a.width - 1] * x;
#pragma unroll
      for (int j = 0; j < kBefore; ++j) {
        const int tap = j - (kBefore - (a.width - 1));
        if (tap >= 0) sum += taps[tap] * before[j];
      }
#pragma unroll
      for (int j = 0; j + 1 < kBefore; ++j) before[j] = before[j + 1];
      before[kBefore - 1] = x;
      filtered[::gpu::thread()] = SiluOf(sum);
    }
    ::gpu::sync();
    float v[kColumns], out[kColumns];
    const auto query = [&](int j) { return filtered[piece.row + j]; };
    const auto key_of = [&](int j) { return filtered[kMostDim + piece.row + j]; };
    LoadSome(filtered + 2 * kMostDim + i * d.v_dim + piece.column, kColumns, v);
    piece.Step(d, query, key_of, v, ::gpu::to_float(RowOf<T>(d.a, t)[head]),
               ::gpu::to_float(RowOf<T>(d.b, t)[head]), out);
    if (::gpu::lane() < Piece::kAcross) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) results[i * d.v_dim + piece.column + c] = out[c];
    }
    ::gpu::sync();
    float squares = 0;
    for (int c = ::gpu::lane(); c < d.v_dim; c += ::gpu::kWave)
      squares += results[i * d.v_dim + c] * results[i * d.v_dim + c];
    const float scale =
        ::gpu::rsqrt(::gpu::wave_sum(squares) / static_cast<float>(d.v_dim) + a.norm_eps);
    const int column = ::gpu::wave() % pieces * kDeltaNetColumns + ::gpu::lane();
    if (::gpu::lane() < kDeltaNetColumns) {
      const float z = ::gpu::to_float(RowOf<T>(a.z, t * d.v_heads + head)[column]);
      const float y = results[i * d.v_dim + column] * scale * (a.norm[column] + a.norm_offset);
      RowOf<T>(d.y, t * d.v_heads + head)[column] = ::gpu::from_float<T>(y * SiluOf(z));
    }
  }
  float* slot = SlotToWrite(d.state, request);
  if (slot == nullptr) return;
  piece.Store(d, head, slot);
  if (channel < 0) return;
#pragma unroll
  for (int j = 0; j < kBefore; ++j) {
    const int row = j - (kBefore - (a.width - 1));
    if (row >= 0) slot[row * channels + channel] = before[j];
  }
}

}  // namespace vt::gpu
