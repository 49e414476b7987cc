// Addresses in a paged cache and the conversion of what it holds.
#pragma once

#include "vt/gpu/args_attention.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

// A head's score of no key, in powers of two.
GPU_FN float SinkOf(const AttentionArgs& a, int head) { return a.sinks[head] * 1.44269504f; }

// The first key that a query at `position` sees: through a window, or since the last multiple of
// -window.
GPU_FN int FirstKey(int window, int position) {
  if (window < 0) return position - position % -window;
  return window > 0 ? ::gpu::max(0, position - window + 1) : 0;
}

// Of an item of the work list: keys of its request that earlier steps wrote.
GPU_FN int CachedKeys(const DecodeItem& it) { return it.cached < 0 ? ~it.cached : it.cached; }
// Whether its token has many keys (AttentionListSpec's long_keys): all parts of a token agree.
GPU_FN bool IsLong(const DecodeItem& it) { return it.cached < 0; }

using ::gpu::bf16;
using ::gpu::f16;
using ::gpu::Pack;

template <class T>
constexpr int32_t KvTypeOf();
template <>
constexpr int32_t KvTypeOf<float>() {
  return kKvF32;
}
template <>
constexpr int32_t KvTypeOf<f16>() {
  return kKvF16;
}
template <>
constexpr int32_t KvTypeOf<bf16>() {
  return kKvBF16;
}

GPU_FN int KvBytes(int32_t type) { return type == kKvF32 ? 4 : type == kKvF8 ? 1 : 2; }

// OCP's E4M3: a sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinity, 0x7f is NaN.
GPU_FN float FromF8(uint8_t v) {
  const uint32_t sign = static_cast<uint32_t>(v & 0x80) << 24;
  const uint32_t rest = v & 0x7f;
  if (rest == 0x7f) return ::gpu::float_of(sign | 0x7fc00000);
  // Its bits are those of an f32 whose exponent is 120 too small, subnormals included.
  return ::gpu::float_of(sign | rest << 20) * ::gpu::float_of(0x7b800000);
}
// To the nearest, ties to even; what is too large becomes the largest, 448.
GPU_FN uint8_t ToF8(float v) {
  const uint32_t bits = ::gpu::bits_of(v);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float size = ::gpu::float_of(bits & 0x7fffffff);
  if (size != size) return sign | 0x7f;
  if (size >= 448) return sign | 0x7e;
  if (size < 0.015625f) {  // subnormal: steps of 2^-9, rounded by an f32 whose last bit is 2^-9
    return sign | static_cast<uint8_t>(::gpu::bits_of(size + 16384.0f) & 0xff);
  }
  const uint32_t b = bits & 0x7fffffff;
  const uint32_t rounded = (b + 0x7ffff + (b >> 20 & 1)) >> 20;
  return sign | static_cast<uint8_t>(rounded - (120 << 3));
}

// Value i of a row in the cache.
GPU_FN float LoadKv(const char* row, int i, int32_t type) {
  switch (type) {
    case kKvF32:
      return reinterpret_cast<const float*>(row)[i];
    case kKvF16:
      return ::gpu::to_float(reinterpret_cast<const f16*>(row)[i]);
    case kKvBF16:
      return ::gpu::to_float(reinterpret_cast<const bf16*>(row)[i]);
    default:
      return FromF8(reinterpret_cast<const uint8_t*>(row)[i]);
  }
}

struct alignas(8) Bytes8 {
  uint8_t v[8];
};

// As many values as 16 bytes of T hold, from value i of a row on; i is a multiple of that count.
template <class T>
GPU_FN Pack<T> LoadKvPack(const char* row, int i, int32_t type) {
  constexpr int kCount = Pack<T>::kCount;
  Pack<T> out;
  if (type == kKvF32) {
    const auto* p = reinterpret_cast<const Pack<float>*>(row + i * 4);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      const Pack<float> part = p[j];
#pragma unroll
      for (int l = 0; l < 4; ++l) out.v[4 * j + l] = ::gpu::from_float<T>(part.v[l]);
    }
    return out;
  }
  if (type == kKvF8) {
    if constexpr (kCount == 8) {
      const Bytes8 part = *reinterpret_cast<const Bytes8*>(row + i);
#pragma unroll
      for (int j = 0; j < 8; ++j) out.v[j] = ::gpu::from_float<T>(FromF8(part.v[j]));
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) out.v[j] = ::gpu::from_float<T>(LoadKv(row, i + j, type));
    }
    return out;
  }
  // Two bytes a value: 8 or 16 bytes of them.
  if constexpr (kCount == 8) {
    const auto part = *reinterpret_cast<const Pack<uint16_t>*>(row + i * 2);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      out.v[j] = ::gpu::from_float<T>(type == kKvF16 ? ::gpu::to_float(f16{part.v[j]})
                                                     : ::gpu::to_float(bf16{part.v[j]}));
    }
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j) out.v[j] = ::gpu::from_float<T>(LoadKv(row, i + j, type));
  }
  return out;
}

// A pack of a row of the cache into shared memory, zeros past head_dim. kSame: the cache holds T,
// so that it is copied while other work goes on.
template <class T, bool kSame>
GPU_FN void CopyKvPack(const KvLayer& kv, const char* row, int column, T* to) {
  const bool inside = column < kv.head_dim;
  if constexpr (kSame) {
    ::gpu::copy_async(to, row + (inside ? column * static_cast<int>(sizeof(T)) : 0),
                      inside ? 16 : 0);
  } else {
    Pack<T> pack;
    if (inside) {
      pack = LoadKvPack<T>(row, column, kv.dtype);
    } else {
#pragma unroll
      for (int j = 0; j < Pack<T>::kCount; ++j) pack.v[j] = ::gpu::from_float<T>(0);
    }
    *reinterpret_cast<Pack<T>*>(to) = pack;
  }
}

GPU_FN void StoreKv(char* row, int i, int32_t type, float v) {
  switch (type) {
    case kKvF32:
      reinterpret_cast<float*>(row)[i] = v;
      return;
    case kKvF16:
      reinterpret_cast<f16*>(row)[i] = ::gpu::to_f16(v);
      return;
    case kKvBF16:
      reinterpret_cast<bf16*>(row)[i] = ::gpu::to_bf16(v);
      return;
    default:
      reinterpret_cast<uint8_t*>(row)[i] = ToF8(v);
  }
}

// An item or a join of the work list. What is asked for in this way stays where it is: the compiler
// would put it behind the branches that may do without.
template <class T>
GPU_FN T LoadListed(const T* p) {
  constexpr int kPacks = sizeof(T) / 16;
  static_assert(kPacks * 16 == sizeof(T) && alignof(T) == 16);
  union {
    Pack<int32_t> packs[kPacks];
    T value;
  };
#pragma unroll
  for (int i = 0; i < kPacks; ++i)
    packs[i] = ::gpu::load_stream(reinterpret_cast<const Pack<int32_t>*>(p) + i);
  return value;
}

// The cache of a layer as rows of head_dim values: which one is a head's key at an offset in a
// block. Its value stands kv_heads * block_size rows later. (CompileAttention sees to it that an
// int counts all rows.)
GPU_FN int KeyRow(const KvLayer& kv, int32_t block, int head, int offset) {
  return (block * 2 * kv.kv_heads + head) * kv.block_size + offset;
}
// Bytes before a row of the cache: one multiplication of two 32-bit factors.
GPU_FN uint64_t RowOffset(int row, int row_bytes) {
  return static_cast<uint64_t>(static_cast<uint32_t>(row)) * static_cast<uint32_t>(row_bytes);
}
GPU_FN int ValuesAfter(const KvLayer& kv) { return kv.kv_heads * kv.block_size; }

// tanh to about 3e-7 and without branches, for scores that were sums of rounded products; exact
// for f32.
template <class T>
GPU_FN float CapTanh(float x) {
  if constexpr (sizeof(T) == 4) {
    return ::gpu::tanh(x);
  } else {
    const float r = ::gpu::rsqrt(::gpu::exp2(2.88539008f * x) + 1);
    return 1 - 2 * r * r;
  }
}

}  // namespace vt::gpu
