#include "vt/ir/fused.h"

#include <array>
#include <cmath>

namespace vt::ir {
namespace {

bool OnlyInt8Blocks(const Attrs& quantize) {
  return quantize.as<ConvertAttrs>().dtype == DType::kQ8_A32;
}

bool LastIsInt8(std::span<const Attrs> parts) { return OnlyInt8Blocks(parts.back()); }

// One weight and no bias, so that the fused op has the inputs (x, w, r).
bool PlainLinear(std::span<const Attrs> parts) {
  const auto& a = parts[0].as<LinearAttrs>();
  return a.segments == 1 && !a.bias;
}

// x * (1 / c), tanh, x * c: the product of the factors is 1 but for rounding.
bool IsSoftCap(std::span<const Attrs> parts) {
  const auto& in = parts[0].as<ScaleAttrs>();
  const auto& out = parts[2].as<ScaleAttrs>();
  return parts[1].as<UnaryAttrs>().fn == Activation::kTanh && in.add == 0 && out.add == 0 &&
         std::fabs(in.multiply * out.multiply - 1) < 1e-5f;
}

const std::array<FusedDefinition, kOpCount - kPrimitiveCount>& Table() {
  static const std::array<FusedDefinition, kOpCount - kPrimitiveCount> table = {{
      {Op::kAddRmsNormQuantize,
       3,
       {{Op::kAdd, {~0, ~1}}, {Op::kRmsNorm, {0, ~2}}, {Op::kQuantize, {1}}},
       {0, 2},
       LastIsInt8},
      {Op::kActMulQuantize,
       2,
       {{Op::kUnary, {~0}}, {Op::kMul, {0, ~1}}, {Op::kQuantize, {1}}},
       {2},
       LastIsInt8},
      {Op::kSoftCap, 1, {{Op::kScale, {~0}}, {Op::kUnary, {0}}, {Op::kScale, {1}}}, {2}, IsSoftCap},
      {Op::kAddRmsNorm, 3, {{Op::kAdd, {~0, ~1}}, {Op::kRmsNorm, {0, ~2}}}, {0, 1}, nullptr},
      {Op::kRmsNormAdd, 3, {{Op::kRmsNorm, {~0, ~1}}, {Op::kAdd, {~2, 0}}}, {1}, nullptr},
      {Op::kActMul, 2, {{Op::kUnary, {~0}}, {Op::kMul, {0, ~1}}}, {1}, nullptr},
      {Op::kRmsNormRope, 3, {{Op::kRmsNorm, {~0, ~1}}, {Op::kRope, {0, ~2}}}, {1}, nullptr},
      {Op::kLinearAdd, 3, {{Op::kLinear, {~0, ~1}}, {Op::kAdd, {0, ~2}}}, {1}, PlainLinear},
      {Op::kRmsNormQuantize, 2, {{Op::kRmsNorm, {~0, ~1}}, {Op::kQuantize, {0}}}, {1}, LastIsInt8},
  }};
  return table;
}

}  // namespace

std::span<const FusedDefinition> FusedDefinitions() { return Table(); }

const FusedDefinition& DefinitionOf(Op fused) {
  for (const FusedDefinition& d : Table()) {
    if (d.op == fused) return d;
  }
  return Table()[0];  // unreachable: a test checks that every fused op has a definition
}

}  // namespace vt::ir
