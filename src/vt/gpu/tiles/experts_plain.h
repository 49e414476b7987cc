// Experts' matrices of plain values for few rows: bound by the bytes of the weights, which cannot
// be asked for before the choice of experts is known. So all that a wave needs of a usual row is
// under way at once.
#pragma once

#include "vt/gpu/args_experts_plain.h"
#include "vt/gpu/tiles/linear_rows.h"
#include "vt/gpu/tiles/quantize.h"

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

// A wave's rows of weights. Of each a lane has 16 bytes of every kWave * 16, kDepth of those in
// registers; what has been used makes room for what is kDepth steps behind.
template <class T, int kRows, int kDepth>
class ExpertRows {
 public:
  // Asks for the first ones: of row `row` and those behind it, or half of each of two segments; of
  // the last one in place of rows that are not there.
  GPU_FN ExpertRows(const PlainExpertArgs& a, int segment, bool act, int expert, int row)
      : k_(a.k) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const LinearSegment& s = a.segments[act ? r / (kRows / 2) : segment];
      const int mine = ::gpu::min(row + (act ? r % (kRows / 2) : r), s.rows - 1);
      w_[r] = static_cast<const T*>(s.w) +
              (static_cast<int64_t>(expert) * s.rows + mine) * a.pitch + ::gpu::lane() * kValues;
    }
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) held_[j][r] = Load(r, j * kStep);
    }
  }

  // sum += this lane's part of the products with x, which is in shared memory.
  GPU_FN void Dot(const T* x, float (&sum)[kRows]) {
    constexpr int kBatch = 2;
    x += ::gpu::lane() * kValues;
#pragma unroll 1
    for (int at = 0; at < k_; at += kDepth * kStep) {
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
            held_[b + j][r] = Load(r, at + (b + j + kDepth) * kStep);
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

  int k_;
  const T* w_[kRows];
  Words held_[kDepth][kRows];
};

// All waves of a block have the same row of x: it comes to shared memory.
template <class T, int kRows, int kDepth>
GPU_FN void PlainExperts(const PlainExpertArgs& a) {
  constexpr int kHalf = kRows / 2, kValues = ::gpu::Pack<T>::kCount;
  ::gpu::launch_dependents();
  const int pair = ::gpu::block(), unit = ::gpu::block_y() * ::gpu::waves() + ::gpu::wave();
  const bool act = IsActMul(a);
  const int s = SegmentOf(a, unit);
  const LinearSegment& segment = a.segments[s];
  const int rows = act ? kHalf : kRows;  // of the output
  const int row = (unit - segment.first_unit) * rows;
  const T* from = RowOf<const T>(a.x, a.shared_x != 0 ? pair / a.chosen : pair);
  T* x = reinterpret_cast<T*>(::gpu::shared());
  ::gpu::wait_predecessor();
  const int id = a.ids[pair];
  if (pair >= CountOf(a.header, a.count)) return;
  for (int i = ::gpu::thread() * kValues; i < a.k; i += ::gpu::threads() * kValues)
    ::gpu::copy_async(x + i, from + i, 16);
  ::gpu::copy_commit();

  float sum[kRows] = {};
  if (id >= 0 && id < a.experts) {
    // Waves without a unit have the last row.
    ExpertRows<T, kRows, kDepth> w(a, s, act, id, row);
    ::gpu::copy_wait<0>();
    ::gpu::sync();
    w.Dot(x, sum);
  }
  // Lane i has output i.
  float v = 0, up = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float whole = ::gpu::wave_sum(sum[r]);
    if (::gpu::lane() == r) v = whole;
    if (::gpu::lane() == r - kHalf) up = whole;
  }
  if (::gpu::lane() >= rows || row + ::gpu::lane() >= segment.rows) return;
  if (act) v = Activation(a.act, v) * up;
  RowRefOf<T, false>(a.out, pair).set(segment.column + row + ::gpu::lane(), v);
}

// Each wave has an expert's row of x, in shared memory too: there it takes no registers, and can be
// asked for before the expert is known. A lane reads only what it has asked for itself.
template <class T, int kRows, int kDepth>
GPU_FN void PlainExpertsSum(const PlainExpertArgs& a) {
  constexpr int kValues = ::gpu::Pack<T>::kCount;
  ::gpu::launch_dependents();
  const int token = ::gpu::block(), row = ::gpu::block_y() * kRows;
  const int mine = row + ::gpu::thread();  // the output of one of the first kRows threads
  const bool stores = ::gpu::thread() < kRows && mine < a.segments[0].rows;
  T* x = reinterpret_cast<T*>(::gpu::shared());                       // [waves][k]
  float* parts = reinterpret_cast<float*>(x + ::gpu::waves() * a.k);  // [waves][kRows]
  x += ::gpu::wave() * a.k;
  ::gpu::wait_predecessor();
  if (token >= CountOf(a.header, a.count)) return;
  const auto added = [&](const View& r) {
    return stores && r.rows.base != nullptr ? RowRefOf<T, false>(r, token).value(mine) : 0.0f;
  };
  const float residual = added(a.residual), second = added(a.second);

  float sum[kRows] = {};
#pragma unroll 1
  for (int j = ::gpu::wave(); j < a.chosen; j += ::gpu::waves()) {
    const int pair = token * a.chosen + j, id = a.ids[pair];
    const float weight = a.weights[pair];
    const T* from = RowOf<const T>(a.x, a.shared_x != 0 ? token : pair);
    for (int i = ::gpu::lane() * kValues; i < a.k; i += ::gpu::kWave * kValues)
      ::gpu::copy_async(x + i, from + i, 16);
    ::gpu::copy_commit();
    if (id < 0 || id >= a.experts) continue;
    ExpertRows<T, kRows, kDepth> w(a, 0, false, id, row);
    float of_expert[kRows] = {};
    ::gpu::copy_wait<0>();
    w.Dot(x, of_expert);
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[r] += weight * of_expert[r];
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float whole = ::gpu::wave_sum(sum[r]);
    if (::gpu::lane() == r) parts[::gpu::wave() * kRows + r] = whole;
  }
  ::gpu::sync();
  if (!stores) return;
  float v = 0;
  for (int i = 0; i < ::gpu::waves(); ++i) v += parts[i * kRows + ::gpu::thread()];
  RowRefOf<T, false>(a.out, token).set(mine, v + residual + second);
}

}  // namespace vt::gpu
