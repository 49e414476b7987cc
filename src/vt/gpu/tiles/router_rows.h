// A norm, its row, and the logits of the experts that it may go to, where the next launch chooses
// (RouterHere). Each block takes in all of x, so that it can make its share of the normed row
// itself, and few registers, so that it begins beside a block of the launch before.
#pragma once

#include "vt/gpu/args_experts.h"
#include "vt/gpu/tiles/quantize.h"

namespace vt::gpu {

template <class T>
struct RouterRow {
  static constexpr int kN = kQuantizeValues, kHeld = kRouterRowHeld;
  static constexpr int kCount = ::gpu::Pack<T>::kCount, kPacks = kN / kCount;
  struct Values {
    ::gpu::Pack<T> packs[kPacks];
  };

  GPU_FN static Values Ask(const T* from) {
    Values v;
#pragma unroll
    for (int i = 0; i < kPacks; ++i)
      v.packs[i] = *reinterpret_cast<const ::gpu::Pack<T>*>(from + i * kCount);
    return v;
  }
  GPU_FN static void ValuesOf(const Values& from, float (&v)[kN]) {
#pragma unroll
    for (int j = 0; j < kN; ++j) v[j] = ::gpu::to_float(from.packs[j / kCount].v[j % kCount]);
  }

  // The first values of chunks of this wave, which has part `part` of a row.
  GPU_FN static int At(int part, int i) {
    return ((part * kHeld + i) * ::gpu::kWave + ::gpu::lane()) * kN;
  }

  // What comes before x is there: rows of the matrix times the norm's weights. After it stands what
  // the sum of the products and the sum of x's squares are made of, then the norm's factor.
  GPU_FN static void Run(const NormRouterArgs& a) {
    const RouterArgs& r = a.router;
    ::gpu::launch_dependents();
    const int token = ::gpu::block_y(), parts = 1 << a.row_parts_log2;
    const int part = ::gpu::wave() & (parts - 1), group = ::gpu::wave() >> a.row_parts_log2;
    const int row = ::gpu::block() * (::gpu::waves() >> a.row_parts_log2) + group;
    const bool is_gate = row == r.experts && a.gate_w != nullptr;
    const T* w = is_gate ? static_cast<const T*>(a.gate_w)
                         : static_cast<const T*>(a.w) +
                               static_cast<int64_t>(::gpu::min(row, r.experts - 1)) * a.pitch;
    float products[kHeld][kN];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = ::gpu::min(At(part, i), a.width - kN);
      float n[kN];
      LoadValues<true>(a.norm.w + at, kN, n);
      ValuesOf(Ask(w + at), products[i]);
#pragma unroll
      for (int j = 0; j < kN; ++j) products[i][j] *= n[j] + a.norm.offset;
    }

    ::gpu::wait_predecessor();
    const T* x = static_cast<const T*>(a.x.rows.base) + token * a.x.rows.stride;
    const int count = CountOf(r.header, r.count);
    Values asked[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) asked[i] = Ask(x + ::gpu::min(At(part, i), a.width - kN));
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      float v[kN], s = 0, q = 0;
      ValuesOf(asked[i], v);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        s += v[j] * products[i][j];
        q += v[j] * v[j];
      }
      const bool inside = At(part, i) < a.width;
      sum += inside ? s : 0;
      squares += inside ? q : 0;
    }
    sum = ::gpu::wave_sum(sum);
    squares = ::gpu::wave_sum(squares);
    float* sums = reinterpret_cast<float*>(::gpu::shared());  // [waves][2]
    if (::gpu::lane() == 0) {
      sums[2 * ::gpu::wave()] = sum;
      sums[2 * ::gpu::wave() + 1] = squares;
    }
    ::gpu::sync();
    sum = squares = 0;
    for (int p = 0; p < parts; ++p) {
      sum += sums[2 * ((group << a.row_parts_log2) + p)];
      squares += sums[2 * ((group << a.row_parts_log2) + p) + 1];
    }
    const float scale = ::gpu::rsqrt(squares / static_cast<float>(a.width) + a.norm.eps);
    const bool live = token < count;
    if (live && part == 0 && ::gpu::lane() == 0) {
      float v[1] = {sum * scale};
      if (is_gate) {
        ApplyFn(a.gate_fn, 1, 0, v);
        RowRefOf<T, false>(a.gate, token).set(0, v[0]);
      } else if (row < r.experts) {
        a.logits[token * r.experts + row] = v[0];
      }
    }
    // The block's share of the normed row. Waves go on together.
    const int first = ::gpu::block() * a.row_share, mine = first + ::gpu::thread() * kN;
    const int end = ::gpu::min(first + a.row_share, a.width);
    if (mine - ::gpu::lane() * kN >= end) return;
    const int from = ::gpu::min(mine, a.width - kN);
    float v[kN], norm[kN];
    LoadValues<true>(a.norm.w + from, kN, norm);
    ValuesOf(Ask(x + from), v);
#pragma unroll
    for (int j = 0; j < kN; ++j) v[j] = v[j] * scale * (norm[j] + a.norm.offset);
    const bool keeps = live && mine < end;
    if (a.row.base == nullptr) {
      QuantizeValues(v, a.y, token, mine, keeps);
    } else if (keeps) {
      StoreValues<true>(RowOf<T>(a.row, token) + mine, kN, v);
    }
  }
};

}  // namespace vt::gpu
