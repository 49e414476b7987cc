// Device functions over args.h.
#pragma once

#include "vt/gpu/args.h"
#include "vt/gpu/gpu.h"

namespace vt::gpu {

GPU_FN int CountOf(const Header* h, Count c) {
  switch (c.of) {
    case Of::kTokens:
      return h->tokens * c.times;
    case Of::kRequests:
      return h->requests * c.times;
    case Of::kOutputs:
      return h->outputs * c.times;
    default:
      return c.times;
  }
}

template <class T>
GPU_FN T* RowOf(const Rows& r, int i) {
  T* base = static_cast<T*>(r.base);
  if (r.inner == 1) return base + i * r.stride;
  return base + (i / r.inner) * r.stride + static_cast<int64_t>(i % r.inner) * r.width;
}

}  // namespace vt::gpu
