// A recurrent layer between its projections, of steps of few tokens a request: filter, SiLU, gated
// delta rule, norm and gate. A block has some columns of a head; each filters the head's query and
// key for itself. The block that comes last of a key head's knows the sums of squares that the norm
// needs, and that nobody reads the kept rows of query and key any more.
//
// The state is most of the bytes, and no kernel of the step writes it before: it is asked for
// before the kernel waits for the one before it.
#pragma once

#include "vt/gpu/tiles/last_block.h"
#include "vt/gpu/tiles/recurrent_delta.h"

namespace vt::gpu {

// A channel of the filter along a request's tokens.
class NetFilter {
 public:
  GPU_FN NetFilter(const DeltaNetArgs& a, int channels, int channel, const float* kept)
      : channel_(channel) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      const int tap = j - (kTaps - a.width);
      tap_[j] = tap >= 0 ? a.w[channel * a.width + tap] : 0.0f;
      if (j + 1 < kTaps)
        before_[j] = kept != nullptr && tap >= 0 ? kept[tap * channels + channel] : 0.0f;
    }
  }

  template <class T>
  GPU_FN float Next(const T* row) {
    const float x = ::gpu::to_float(row[channel_]);
    float sum = tap_[kTaps - 1] * x;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) sum += tap_[j] * before_[j];
#pragma unroll
    for (int j = 0; j + 2 < kTaps; ++j) before_[j] = before_[j + 1];
    before_[kTaps - 2] = x;
    return SiluOf(sum);
  }

  GPU_FN void Keep(const DeltaNetArgs& a, int channels, float* slot) const {
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      const int row = j - (kTaps - a.width);
      if (row >= 0) slot[row * channels + channel_] = before_[j];
    }
  }

 private:
  static constexpr int kTaps = kDeltaNetMostWidth;
  int channel_;
  float tap_[kTaps], before_[kTaps - 1];
};

template <class T>
class DeltaNet {
 public:
  GPU_FN explicit DeltaNet(const DeltaNetArgs& a)
      : a_(a),
        d_(a.delta),
        request_(::gpu::block_y()),
        pieces_(d_.v_dim / kColumns),
        heads_(d_.v_heads / d_.k_heads),
        head_(::gpu::block() / pieces_),
        key_(d_.tiled != 0 ? head_ % d_.k_heads : head_ / heads_),
        first_(::gpu::block() % pieces_ * kColumns) {}

  GPU_FN void Run() {
    ::gpu::launch_dependents();
    const bool live = request_ < d_.header->requests;
    const float* kept = live ? SlotToRead(d_.state, request_) : nullptr;
    const int thread = ::gpu::thread(), keys = d_.k_heads * kDim,
              channels = 2 * keys + d_.v_heads * d_.v_dim;
    // Each thread has a channel of the query and one of the key, the first ones one of the values.
    NetFilter query(a_, channels, key_ * kDim + thread, kept),
        key(a_, channels, keys + key_ * kDim + thread, kept),
        value(a_, channels, 2 * keys + head_ * d_.v_dim + first_ + thread % kColumns, kept);
    Piece piece(d_, head_, first_ + ::gpu::wave() * kDeltaNetColumns);
    piece.Load(d_, head_, kept);
    float gain[kLaneColumns];
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) gain[c] = a_.norm[piece.column + c] + a_.norm_offset;
    ::gpu::wait_predecessor();
    if (!live) return;

    const int begin = d_.state.query_start[request_],
              end = ::gpu::min(d_.state.query_start[request_ + 1], d_.header->tokens);
    float* filtered = reinterpret_cast<float*>(::gpu::shared());
    for (int t = begin; t < end; ++t) {
      const T* x = RowOf<T>(d_.qkv, t);
      float z[kLaneColumns];
      LoadSome(RowOf<T>(a_.z, t * d_.v_heads + head_) + piece.column, kLaneColumns, z);
      const float alpha = ::gpu::to_float(RowOf<T>(d_.a, t)[head_]),
                  beta = ::gpu::to_float(RowOf<T>(d_.b, t)[head_]);
      filtered[thread] = query.Next(x);
      filtered[kDim + thread] = key.Next(x);
      const float of_value = value.Next(x);
      if (thread < kColumns) filtered[2 * kDim + thread] = of_value;
      ::gpu::sync();
      float q[Piece::kRows], k[Piece::kRows], v[kLaneColumns], out[kLaneColumns];
      LoadValues<true>(filtered + piece.row, Piece::kRows, q);
      LoadValues<true>(filtered + kDim + piece.row, Piece::kRows, k);
      LoadValues<true>(filtered + 2 * kDim + piece.column - first_, kLaneColumns, v);
      piece.Step(
          d_, [&](int j) { return q[j]; }, [&](int j) { return k[j]; }, v, alpha, beta, out);
      float squares = 0;
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) {
        squares += out[c] * out[c];
        out[c] *= gain[c] * SiluOf(z[c]);
      }
#pragma unroll
      for (int m = kDeltaAcross / 2; m > 0; m /= 2) squares += ::gpu::shuffle_xor(squares, m);
      if (::gpu::lane() < kDeltaAcross)
        StoreValues<true>(Sums(t, head_) + piece.column, kLaneColumns, out);
      if (::gpu::lane() == 0) Squares(t, head_)[piece.column / kDeltaNetColumns] = squares;
      if (t + 1 < end) ::gpu::sync();
    }

    int* last = reinterpret_cast<int*>(filtered + 2 * kDim + kColumns);
    const bool is_last = LastOf(a_.counters + request_ * d_.k_heads + key_, heads_ * pieces_, last);
    if (is_last) Norm(begin, end);
    float* slot = SlotToWrite(d_.state, request_);
    if (slot == nullptr) return;
    piece.Store(d_, head_, slot);
    if (thread < kColumns) value.Keep(a_, channels, slot);
    if (!is_last) return;
    query.Keep(a_, channels, slot);
    key.Keep(a_, channels, slot);
  }

 private:
  static constexpr int kDim = kDeltaNetThreads;  // of a key
  static constexpr int kColumns = DeltaNetColumns(::gpu::kWave);
  static constexpr int kLaneColumns = kDeltaNetColumns / kDeltaAcross;
  using Piece = DeltaPiece<kDim, kLaneColumns, true>;

  // A token's head before the norm's scale, and the squares of each wave's columns.
  GPU_FN float* Sums(int token, int head) const {
    return a_.work + static_cast<int64_t>(token * d_.v_heads + head) * a_.head_floats;
  }
  GPU_FN float* Squares(int token, int head) const { return Sums(token, head) + d_.v_dim; }

  // All heads of the key's; a wave has a head of a token.
  GPU_FN void Norm(int begin, int end) const {
    const int lane = ::gpu::lane();
#pragma unroll 1
    for (int i = ::gpu::wave(); i < (end - begin) * heads_; i += ::gpu::waves()) {
      const int t = begin + i / heads_, of_key = i % heads_,
                head = d_.tiled != 0 ? key_ + of_key * d_.k_heads : key_ * heads_ + of_key;
      const float *sums = Sums(t, head), *squares = Squares(t, head);
      float sum = 0, first[kFirst];
#pragma unroll
      for (int j = 0; j < kFirst; ++j)
        first[j] = ::gpu::load_volatile(sums + ::gpu::min(lane + j * ::gpu::kWave, d_.v_dim - 1));
      for (int c = lane; c < d_.v_dim / kDeltaNetColumns; c += ::gpu::kWave)
        sum += ::gpu::load_volatile(squares + c);
      const float scale =
          ::gpu::rsqrt(::gpu::wave_sum(sum) / static_cast<float>(d_.v_dim) + a_.norm_eps);
      T* y = RowOf<T>(d_.y, t * d_.v_heads + head);
#pragma unroll
      for (int j = 0; j < kFirst; ++j) {
        const int c = lane + j * ::gpu::kWave;
        if (c < d_.v_dim) y[c] = ::gpu::from_float<T>(first[j] * scale);
      }
      for (int c = lane + kFirst * ::gpu::kWave; c < d_.v_dim; c += ::gpu::kWave)
        y[c] = ::gpu::from_float<T>(::gpu::load_volatile(sums + c) * scale);
    }
  }
  static constexpr int kFirst = kDim / ::gpu::kWave;  // values a lane, under way at once

  const DeltaNetArgs& a_;
  const DeltaArgs& d_;
  const int request_, pieces_, heads_, head_, key_, first_;
};

}  // namespace vt::gpu
