// Experts' matrices of plain values for few rows: bound by the bytes of the weights, which cannot
// be asked for before the choice of experts is known, but for a shared expert's. So all that a wave
// needs of a usual row is under way at once.
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

// A wave's rows of weights, `k` values of each. Of each a lane has 16 bytes of every kWave * 16,
// kDepth of those in registers; what has been used makes room for what is kDepth steps behind.
template <class T, int kRows, int kDepth>
class ExpertRows {
 public:
  // Asks for the first ones: of row `row` of the expert and those behind it, or half of each of two
  // segments; of the last one in place of rows that are not there. `from`: the first value.
  GPU_FN ExpertRows(const PlainExpertArgs& a, int segment, bool act, int expert, int row, int pitch,
                    int from, int k)
      : k_(k) {
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

  // sum += this lane's part of the products with x, which is in shared memory.
  GPU_FN void Dot(const T* x, float (&sum)[kRows]) {
    constexpr int kBatch = kRows > 2 ? 1 : 2;  // registers are scarce
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
  }
  const int unit = y * ::gpu::waves() + ::gpu::wave();
  const int s = shared ? kSharedUp : SegmentOf(a, unit);
  const LinearSegment& segment = a.segments[s];
  const int rows = act ? kHalf : kRows;  // of the output
  const int row = (unit - segment.first_unit) * rows;
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
    id = a.ids[out];
    fetch();
    there = out < CountOf(a.header, a.count);
    chosen = there && id >= 0 && id < a.experts;
  }
  // Waves without a unit have the last row; without an expert, a row is zeros.
  ExpertRows<T, kRows, kDepth> w(a, s, act, chosen ? id : 0, row, a.pitch, 0, chosen ? a.k : 0);
  if (shared) {
    ::gpu::wait_predecessor();
    fetch();
    there = out < a.header->tokens;
  }
  ::gpu::copy_wait<0>();
  ::gpu::sync();
  float sum[kRows] = {};
  w.Dot(x, sum);
  // Lane i has output i.
  float v = 0, up = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float whole = ::gpu::wave_sum(sum[r]);
    if (::gpu::lane() == r) v = whole;
    if (::gpu::lane() == r - kHalf) up = whole;
  }
  if (!there || ::gpu::lane() >= rows || row + ::gpu::lane() >= segment.rows) return;
  if (act) v = Activation(a.act, v) * up;
  const int column = segment.column + row + ::gpu::lane();
  if (shared) {
    RowRefOf<T, false>(a.shared_out, out).set(column, v);
  } else {
    RowRefOf<T, false>(a.out, out).set(column, v);
  }
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
  const int waves = ::gpu::waves() - a.shared_waves;  // of the chosen; the first has what stores
  const bool shared = ::gpu::wave() >= waves;
  T* x = reinterpret_cast<T*>(::gpu::shared());                           // [waves][stage]
  float* parts = reinterpret_cast<float*>(x + ::gpu::waves() * a.stage);  // [waves][kRows]
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
  const float more = added(a.residual) + added(a.second);

  float sum = 0;  // of lane i: output i
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
    ExpertRows<T, kRows, kDepth> w(a, shared ? kSharedDown : 0, false, id, row,
                                   shared ? a.shared_pitch : a.pitch, shared ? first : 0, k);
    if (shared) {
      ::gpu::wait_predecessor();
      fetch(RowOf<const T>(a.z, token) + first, k);
      if (a.gate.rows.base != nullptr) weight = RowRefOf<T, false>(a.gate, token).value(0);
    }
    float of_expert[kRows] = {};
    ::gpu::copy_wait<0>();
    w.Dot(x, of_expert);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float whole = ::gpu::wave_sum(of_expert[r]);
      if (::gpu::lane() == r) sum += weight * whole;
    }
  }
  if (::gpu::lane() < kRows) parts[::gpu::wave() * kRows + ::gpu::lane()] = sum;
  ::gpu::sync();
  if (!stores || !there) return;
  float v = 0;
  for (int i = 0; i < ::gpu::waves(); ++i) v += parts[i * kRows + ::gpu::thread()];
  RowRefOf<T, false>(a.out, token).set(mine, v + more);
}

}  // namespace vt::gpu
