// ir::Activation of f32, by its number (linear_steps.cc asserts that they are the same).
#pragma once

#include "vt/gpu/gpu.h"

namespace vt::gpu {

enum ActivationNumber : int {
  kSilu,
  kGeluTanh,
  kGelu,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kSoftplus,
  kSquaredRelu
};

GPU_FN float Activate(int fn, float x) {
  switch (fn) {
    case kSilu:
      return x / (1 + ::gpu::exp(-x));
    case kGeluTanh:
      return 0.5f * x * (1 + ::gpu::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case kGelu:
      return 0.5f * x * (1 + ::gpu::erf(x * 0.7071067811865476f));
    case kRelu:
      return x > 0 ? x : 0;
    case kSigmoid:
      return 1 / (1 + ::gpu::exp(-x));
    case kTanh:
      return ::gpu::tanh(x);
    case kExp:
      return ::gpu::exp(x);
    case kSoftplus: {
      if (x > 20) return x;  // e^-20 is below an f32 ulp
      const float e = ::gpu::exp(x), u = 1 + e;
      return u == 1 ? e : ::gpu::log(u) * (e / (u - 1));  // log1p, see Goldberg 1991, theorem 4
    }
    case kSquaredRelu:
      return x > 0 ? x * x : 0;
    default:
      return x;
  }
}

}  // namespace vt::gpu
