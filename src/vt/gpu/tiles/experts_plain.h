// Experts' matrices of plain values for few rows: bound by the bytes of the weights, which cannot
// be asked for before the choice of experts is known, but for a shared expert's. So all that a wave
// needs of a usual row is under way at once.
#pragma once

#include "vt/gpu/args_experts_plain.h"
#include "vt/gpu/tiles/linear_rows.h"
#include "vt/gpu/tiles/quantize.h"
#include "vt/gpu/tiles/router.h"

namespace vt::gpu {

// 16 bytes of T as words: what is held of them stays packed.
template <class T>
GPU_FN float DotWords(const ::gpu::Pack<uint32_t>& a, const ::gpu::Pack<uint32_t>& b, float sum) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      sum += ::gpu::float_of(a.v[i]) * ::gpu::float_of(b.v[i]);
    } else {
      const auto low = [](uint32_t v) { return ::gpu::to_float(T{static_cast<uint16_t>(v)}); };
      sum += low(a.v[i]) * low(b.v[i]);
      sum += low(a.v[i] >> 16) * low(b.v[i] >> 16);
    }
  }
  return sum;
}

// A wave's rows of weights, `k` values of each. Of each a lane has 16 bytes of every kWave * 16,
// kDepth of those in registers; what has been used makes room for what is kDepth steps behind, of
// the next rows where these end.
template <class T, int kRows, int kDepth>
class ExpertRows {
 public:
  // Asks for the first ones: of row `row` of the expert and those behind it, or half of each of two
  // segments; of the last one in place of rows that are not there. `from`: the first value.
  GPU_FN ExpertRows(const PlainExpertArgs& a, int segment, bool act, int expert, int row, int pitch,
                    int from, int k)
      : pitch_(pitch), k_(k) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const LinearSegment& s = a.segments[act ? segment + r / (kRows / 2) : segment];
      const int mine = ::gpu::min(row + (act ? r % (kRows / 2) : r), s.rows - 1);
      w_[r] = static_cast<const T*>(s.w) + (static_cast<int64_t>(expert) * s.rows + mine) * pitch +
              from + ::gpu::lane() * kValues;
    }
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) held_[j][r] = Load(r, j * kStep);
    }
  }

  // sum += this lane's part of the products with x, which is in shared memory. If there are more,
  // the rows behind these are next; `behind` is how many that is.
  GPU_FN void Dot(const T* x, float (&sum)[kRows], bool act, int behind) {
    constexpr int kBatch = kRows > 2 ? 1 : 2;  // registers are scarce
    x += ::gpu::lane() * kValues;
#pragma unroll 1
    for (int at = 0; at < k_; at += kDepth * kStep) {
      int ahead = at + kDepth * kStep;
      if (behind > 0 && ahead >= k_) {
        const int rows = act ? kRows / 2 : kRows;
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          w_[r] +=
              ::gpu::max(0, ::gpu::min(rows, behind + rows - 1 - (act ? r % (kRows / 2) : r))) *
              pitch_;
        ahead = 0;
      }
#pragma unroll
      for (int b = 0; b < kDepth; b += kBatch) {
        Words v[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          const int from = at + (b + j) * kStep;
          v[j] = {};
          if (Has(from)) v[j] = *reinterpret_cast<const Words*>(x + from);
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            sum[r] = DotWords<T>(held_[b + j][r], v[j], sum[r]);
            held_[b + j][r] = Load(r, ahead + (b + j) * kStep);
          }
        }
      }
    }
  }

 private:
  using Words = ::gpu::Pack<uint32_t>;
  static constexpr int kValues = ::gpu::Pack<T>::kCount, kStep = ::gpu::kWave * kValues;
  GPU_FN bool Has(int at) const { return at + ::gpu::lane() * kValues < k_; }
  GPU_FN Words Load(int r, int at) const {
    return ::gpu::load_stream_if(reinterpret_cast<const Words*>(w_[r] + at), Has(at));
  }

  int pitch_, k_;
  const T* w_[kRows];
  Words held_[kDepth][kRows];
};

// Brings k values of each of rows [row, end) near.
template <class T>
GPU_FN void PrefetchRows(const LinearSegment& s, int pitch, int row, int end, int from, int k) {
  constexpr int kLine = 128 / sizeof(T);
#pragma unroll 1
  for (; row < ::gpu::min(end, s.rows); ++row) {
    const T* w = static_cast<const T*>(s.w) + static_cast<int64_t>(row) * pitch + from;
#pragma unroll 1
    for (int i = ::gpu::lane() * kLine; i < k; i += ::gpu::kWave * kLine) ::gpu::prefetch(w + i);
  }
}

// By a block of each row of out, of which one a token has something to do.
GPU_FN void WriteChoice(const PlainExpertArgs& a, int out) {
  const int token = out / a.chosen;
  if (out % a.chosen != 0 || ::gpu::wave() != 0) return;
  ::gpu::wait_predecessor();
  if (out < CountOf(a.header, a.count))
    ChooseInLanes<kRouterUpLane>(a.here.router, a.here.logits + token * a.here.router.experts,
                                 token);
}

// Of a row of out, or of a token's of the shared expert. All waves of a block have the same row of
// x: it comes to shared memory.
template <class T, int kRows, int kDepth>
GPU_FN void PlainExperts(const PlainExpertArgs& a) {
  constexpr int kHalf = kRows / 2, kValues = ::gpu::Pack<T>::kCount;
  ::gpu::launch_dependents();
  const bool act = IsActMul(a), shared = ::gpu::block_y() < a.shared_grid;
  int out = ::gpu::block(), y = ::gpu::block_y() - a.shared_grid;
  if (shared) {
    const int i = ::gpu::block_y() * ::gpu::blocks() + ::gpu::block();
    out = i / a.shared_blocks;
    y = i % a.shared_blocks;
    if (out >= ::gpu::blocks() / a.chosen) return;  // behind the last token's
  } else if (a.here.logits != nullptr && y-- == 0) {
    return WriteChoice(a, out);
  }
  const int rows = act ? kHalf : kRows;  // of the output
  const int unit = (y * ::gpu::waves() + ::gpu::wave()) * a.turns;
  const int s = shared ? kSharedUp : SegmentOf(a, unit);
  const LinearSegment& segment = a.segments[s];
  int row = (unit - segment.first_unit) * rows;
  const int end = ::gpu::min(row + a.turns * rows, segment.rows);
  const T* from = RowOf<const T>(a.x, shared || a.shared_x == 0 ? out : out / a.chosen);
  T* x = reinterpret_cast<T*>(::gpu::shared());
  const auto fetch = [&] {
#pragma unroll 1
    for (int i = ::gpu::thread() * kValues; i < a.k; i += ::gpu::threads() * kValues)
      ::gpu::copy_async(x + i, from + i, 16);
    ::gpu::copy_commit();
  };
  int id = 0;
  bool there = true, chosen = true;
  if (!shared) {
    ::gpu::wait_predecessor();
    if (a.here.logits == nullptr) id = a.ids[out];
    fetch();
    if (a.here.logits != nullptr) {
      const int token = out / a.chosen, j = out - token * a.chosen;
      id = ChooseHere(a.here, token, j, reinterpret_cast<int*>(x + a.k));
    }
    there = out < CountOf(a.header, a.count);
    chosen = there && id >= 0 && id < a.experts;
  }
  // Waves without a unit have the last row; without an expert, a row is zeros.
  ExpertRows<T, kRows, kDepth> w(a, s, act, chosen ? id : 0, row, a.pitch, 0, chosen ? a.k : 0);
  if (shared) {
#pragma unroll 1
    for (int i = 0; i < 2; ++i)
      PrefetchRows<T>(a.segments[kSharedUp + i], a.pitch, row + rows, row + a.turns * rows, 0, a.k);
    ::gpu::wait_predecessor();
    fetch();
    there = out < a.header->tokens;
  }
  ::gpu::copy_wait<0>();
  ::gpu::sync();
#pragma unroll 1
  for (;; row += rows) {
    float sum[kRows] = {};
    w.Dot(x, sum, act, end - row - rows);
    // Lane i has output i.
    float v = 0, up = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float whole = ::gpu::wave_sum(sum[r]);
      if (::gpu::lane() == r) v = whole;
      if (::gpu::lane() == r - kHalf) up = whole;
    }
    const int mine = row + ::gpu::lane();
    if (there && ::gpu::lane() < rows && mine < end) {
      if (act) v = Activation(a.act, v) * up;
      if (shared) {
        RowRefOf<T, false>(a.shared_out, out).set(mine, v);
      } else {
        RowRefOf<T, false>(a.out, out).set(segment.column + mine, v);
      }
    }
    if (row + rows >= end) return;
  }
}

// Each wave has an expert's row of x, in shared memory too: there it takes no registers, and can be
// asked for before the expert is known. A lane reads only what it has asked for itself.
template <class T, int kRows, int kDepth>
GPU_FN void PlainExpertsSum(const PlainExpertArgs& a) {
  constexpr int kValues = ::gpu::Pack<T>::kCount;
  ::gpu::launch_dependents();
  const int token = ::gpu::block(), outputs = a.turns * kRows;
  const int first_row = ::gpu::block_y() * outputs;
  const int end = ::gpu::min(first_row + outputs, a.segments[0].rows);
  const int mine = first_row + ::gpu::thread();  // the output of one of the first threads
  const bool stores = mine < end;
  const int waves = ::gpu::waves() - a.shared_waves;  // of the chosen; the first has what stores
  const bool shared = ::gpu::wave() >= waves;
  T* x = reinterpret_cast<T*>(::gpu::shared());                           // [waves][stage]
  float* parts = reinterpret_cast<float*>(x + ::gpu::waves() * a.stage);  // [waves][outputs]
  float* sums = parts + ::gpu::wave() * outputs;
  x += ::gpu::wave() * a.stage;
  const auto fetch = [&](const T* from, int k) {
#pragma unroll 1
    for (int i = ::gpu::lane() * kValues; i < k; i += ::gpu::kWave * kValues)
      ::gpu::copy_async(x + i, from + i, 16);
    ::gpu::copy_commit();
  };
  if (!shared) ::gpu::wait_predecessor();
  const auto added = [&](const View& r) {
    return stores && r.rows.base != nullptr ? RowRefOf<T, false>(r, token).value(mine) : 0.0f;
  };
  const float more_of_mine = added(a.residual) + added(a.second);

  for (int i = ::gpu::lane(); i < outputs; i += ::gpu::kWave) sums[i] = 0;
  ::gpu::sync_wave();
  bool there = true;
#pragma unroll 1
  for (int j = ::gpu::wave(); j < (shared ? ::gpu::waves() : a.chosen);
       j += shared ? ::gpu::waves() : waves) {
    const int pair = token * a.chosen + j, first = (j - waves) * a.shared_part;
    int id = 0, k = ::gpu::min(a.shared_part, a.shared_k - first);
    float weight = 1;
    if (!shared) {
      id = a.ids[pair];
      weight = a.weights[pair];
      fetch(RowOf<const T>(a.x, a.shared_x != 0 ? token : pair), a.k);
      there = token < CountOf(a.header, a.count);
      const bool chosen = there && id >= 0 && id < a.experts;
      k = chosen ? a.k : 0;
      id = chosen ? id : 0;
    }
    const int segment = shared ? kSharedDown : 0;
    ExpertRows<T, kRows, kDepth> w(a, segment, false, id, first_row,
                                   shared ? a.shared_pitch : a.pitch, shared ? first : 0, k);
    if (shared) {
      PrefetchRows<T>(a.segments[kSharedDown], a.shared_pitch, first_row + kRows, end, first, k);
      ::gpu::wait_predecessor();
      fetch(RowOf<const T>(a.z, token) + first, k);
      if (a.gate.rows.base != nullptr) weight = RowRefOf<T, false>(a.gate, token).value(0);
    }
    ::gpu::copy_wait<0>();
#pragma unroll 1
    for (int row = first_row; row < end; row += kRows) {
      float of_rows[kRows] = {};
      w.Dot(x, of_rows, false, end - row - kRows);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float whole = ::gpu::wave_sum(of_rows[r]);
        float& sum = sums[row - first_row + r];
        if (::gpu::lane() == r) sum += weight * whole;
      }
    }
  }
  ::gpu::sync();
  if (!stores || !there) return;
  float v = 0;
  for (int i = 0; i < ::gpu::waves(); ++i) v += parts[i * outputs + ::gpu::thread()];
  RowRefOf<T, false>(a.out, token).set(mine, v + more_of_mine);
}

}  // namespace vt::gpu
