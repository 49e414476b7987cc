// Keys and values into the paged cache, with what comes before it: the norm of each head of q and
// k, and their rotation. A wave a head.
#pragma once

#include "vt/gpu/tiles/attention_common.h"

namespace vt::gpu {

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

template <class T>
GPU_FN void LoadFour(const T* p, bool aligned, float (&x)[4]) {
  Four<T> f;
  if (aligned) {
    f = *reinterpret_cast<const Four<T>*>(p);
  } else {
    for (int i = 0; i < 4; ++i) f.v[i] = p[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = ::gpu::to_float(f.v[i]);
}
template <class T>
GPU_FN void StoreFour(T* p, bool aligned, const float (&x)[4]) {
  Four<T> f;
#pragma unroll
  for (int i = 0; i < 4; ++i) f.v[i] = ::gpu::from_float<T>(x[i]);
  if (aligned) {
    *reinterpret_cast<Four<T>*>(p) = f;
  } else {
    for (int i = 0; i < 4; ++i) p[i] = f.v[i];
  }
}

// To a row of the cache, which starts on a multiple of 16 bytes.
GPU_FN void StoreKvFour(char* row, int i, int32_t type, const float (&x)[4]) {
  switch (type) {
    case kKvF32:
      StoreFour(reinterpret_cast<float*>(row) + i, true, x);
      return;
    case kKvF16:
      StoreFour(reinterpret_cast<f16*>(row) + i, true, x);
      return;
    case kKvBF16:
      StoreFour(reinterpret_cast<bf16*>(row) + i, true, x);
      return;
    default: {
      Four<uint8_t> f;
#pragma unroll
      for (int j = 0; j < 4; ++j) f.v[j] = ToF8(x[j]);
      *reinterpret_cast<Four<uint8_t>*>(row + i) = f;
    }
  }
}

// y of the four values from `d` on of a head that stands in shared memory.
GPU_FN void RotateFour(const float* head, const float* table, int rotary_dim, bool interleaved,
                       int d, float (&y)[4]) {
  const int half = rotary_dim / 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = d + i;
    y[i] = head[at];
    if (at >= rotary_dim) continue;
    const bool second = interleaved ? at % 2 != 0 : at >= half;
    const int pair = interleaved ? at / 2 : second ? at - half : at;
    const int step = interleaved ? 1 : half;
    const float other = head[second ? at - step : at + step];
    const float c = table[2 * pair], s = table[2 * pair + 1];
    y[i] = second ? y[i] * c + other * s : y[i] * c - other * s;
  }
}

template <class T>
GPU_FN void KvWrite(const KvWriteArgs& a) {
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const int token = ::gpu::block();
  // Of the heads of q, k and v one after the other.
  const int h = ::gpu::block_y() * ::gpu::waves() + ::gpu::wave();
  const int kv_heads = a.kv.kv_heads, dim = a.kv.head_dim;
  if (token >= a.header->tokens || h >= a.q_heads + 2 * kv_heads) return;
  const bool is_q = h < a.q_heads, is_v = h >= a.q_heads + kv_heads;
  const int slot = is_q ? 0 : a.slots[token];
  if (slot < 0) return;  // padding
  const int head = is_q ? h : is_v ? h - a.q_heads - kv_heads : h - a.q_heads;
  const Rows& rows = is_q ? a.q : is_v ? a.v : a.k;
  const T* from =
      static_cast<const T*>(rows.base) + token * rows.stride + static_cast<int64_t>(head) * dim;
  float* whole = reinterpret_cast<float*>(::gpu::shared()) + ::gpu::wave() * dim;
  T* q_out =
      static_cast<T*>(a.q_out.base) + token * a.q_out.stride + static_cast<int64_t>(head) * dim;
  char* cached = nullptr;
  if (!is_q) {
    const int bytes = KvBytes(a.kv.dtype);
    const int row = KeyRow(a.kv, slot / a.kv.block_size, head, slot % a.kv.block_size) +
                    (is_v ? ValuesAfter(a.kv) : 0);
    cached = a.kv.data + static_cast<int64_t>(row) * (dim * bytes);
  }
  const bool aligned = a.aligned != 0;

  constexpr int kMost = 512 / 4 / ::gpu::kWave;  // fours of a lane
  float x[kMost][4];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int d = 4 * (i * ::gpu::kWave + ::gpu::lane());
    if (d >= dim) continue;
    LoadFour(from + d, aligned, x[i]);
#pragma unroll
    for (int j = 0; j < 4; ++j) squares += x[i][j] * x[i][j];
  }
  const bool rotate = !is_v && a.rotary_dim > 0;
  const HeadNorm& norm = is_q ? a.q_norm : a.k_norm;
  if (!is_v && norm.weight != nullptr) {
    const float scale = ::gpu::rsqrt(::gpu::wave_sum(squares) / static_cast<float>(dim) + norm.eps);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int d = 4 * (i * ::gpu::kWave + ::gpu::lane());
      if (d >= dim) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i][j] = x[i][j] * scale * (norm.weight[d + j] + norm.offset);
    }
  }
  const float* table = nullptr;
  if (rotate) {
    table =
        (is_q ? a.q_table : a.k_table) + static_cast<int64_t>(a.positions[token]) * a.rotary_dim;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int d = 4 * (i * ::gpu::kWave + ::gpu::lane());
      if (d >= dim) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) whole[d + j] = x[i][j];
    }
    ::gpu::sync_wave();
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int d = 4 * (i * ::gpu::kWave + ::gpu::lane());
    if (d >= dim) continue;
    if (rotate) RotateFour(whole, table, a.rotary_dim, a.interleaved != 0, d, x[i]);
    if (is_q) {
      StoreFour(q_out + d, aligned, x[i]);
    } else {
      StoreKvFour(cached, d, a.kv.dtype, x[i]);
    }
  }
}

}  // namespace vt::gpu
