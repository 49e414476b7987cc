#include "vt/ir/fused.h"

#include <array>
#include <cmath>

namespace vt::ir {
namespace {

bool OnlyInt8Blocks(const Attrs& quantize) {
  return quantize.as<ConvertAttrs>().dtype == DType::kQ8_A32;
}

bool LastIsInt8(std::span<const Attrs> parts) { return OnlyInt8Blocks(parts.back()); }

// Whether all parts that quantise make int8 blocks.
bool AllInt8(std::span<const Attrs> parts) {
  for (const Attrs& a : parts) {
    if (std::holds_alternative<ConvertAttrs>(a.v) && !OnlyInt8Blocks(a)) return false;
  }
  return true;
}

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

bool OneExpertMatrix(std::span<const Attrs> parts) {
  return parts[0].as<GroupedLinearAttrs>().segments == 1;
}

// Gate and up: the halves of one linear of two weights of the same size, the first one activated.
bool GateAndUp(std::span<const Attrs> parts) {
  const size_t first = parts.size() - 5;
  const auto* plain = std::get_if<LinearAttrs>(&parts[first].v);
  const int segments =
      plain != nullptr ? plain->segments : parts[first].as<GroupedLinearAttrs>().segments;
  const auto &up = parts[first + 1].as<SliceAttrs>(), &gate = parts[first + 2].as<SliceAttrs>();
  return segments == 2 && (plain == nullptr || !plain->bias) && gate.begin == 0 &&
         up.begin == gate.size && up.size == gate.size;
}

// Slices that follow each other from the start, the second rotated in full: parts 0, 2 and 3.
bool WholeRow(std::span<const Attrs> parts) {
  const auto &first = parts[0].as<SliceAttrs>(), &second = parts[2].as<SliceAttrs>();
  return first.begin == 0 && second.begin == first.size &&
         parts[3].as<RopeAttrs>().rotary_dim == second.size;
}

// The same of each of two.
bool WholeRows(std::span<const Attrs> parts) {
  return WholeRow(parts.first(5)) && WholeRow(parts.subspan(5));
}

// Gate and up, of a grouped one at the beginning.
bool ExpertsGateAndUp(std::span<const Attrs> parts) {
  return GateAndUp(parts.first(5)) && AllInt8(parts);
}
// And of a shared one behind it.
bool SharedGateAndUp(std::span<const Attrs> parts) {
  return ExpertsGateAndUp(parts) && GateAndUp(parts.subspan(6, 5)) &&
         parts[3].as<UnaryAttrs>() == parts[9].as<UnaryAttrs>();
}
bool PlainSharedGateAndUp(std::span<const Attrs> parts) {
  return GateAndUp(parts.first(5)) && GateAndUp(parts.last(5)) &&
         parts[3].as<UnaryAttrs>() == parts[8].as<UnaryAttrs>();
}

// Values that see no further than themselves, so that those of a step can be read where they are
// made.
bool Causal(std::span<const Attrs> parts) { return parts.back().as<AttentionAttrs>().causal; }

const std::array<FusedDefinition, kOpCount - kPrimitiveCount>& Table() {
  static const std::array<FusedDefinition, kOpCount - kPrimitiveCount> table = {{
      {Op::kExpertsUp,
       6,
       {{Op::kGroupedLinear, {~0, ~1, ~2, ~3}},
        {Op::kSlice, {0}},
        {Op::kSlice, {0}},
        {Op::kUnary, {2}},
        {Op::kMul, {3, 1}},
        {Op::kQuantize, {4}},
        {Op::kLinear, {~0, ~4, ~5}},
        {Op::kSlice, {6}},
        {Op::kSlice, {6}},
        {Op::kUnary, {8}},
        {Op::kMul, {9, 7}},
        {Op::kQuantize, {10}}},
       {5, 11},
       SharedGateAndUp},
      {Op::kLatentQueryWrite,
       7,
       {{Op::kSlice, {~0}},
        {Op::kHeadLinear, {0, ~1}},
        {Op::kSlice, {~0}},
        {Op::kRope, {2, ~2}},
        {Op::kConcat, {1, 3}},
        {Op::kSlice, {~3}},
        {Op::kRmsNorm, {5, ~4}},
        {Op::kSlice, {~3}},
        {Op::kRope, {7, ~2}},
        {Op::kConcat, {6, 8}},
        {Op::kKvWrite, {~5, 9, ~6}},
        {Op::kAttention, {4, 10, kAny, kAny, kAny, kAny}, true}},
       {4, 10},
       WholeRows},
      {Op::kExpertsActMul,
       6,
       {{Op::kGroupedLinear, {~0, ~1, ~2, ~3}},
        {Op::kSlice, {0}},
        {Op::kSlice, {0}},
        {Op::kUnary, {2}},
        {Op::kMul, {3, 1}},
        {Op::kLinear, {~0, ~4, ~5}},
        {Op::kSlice, {5}},
        {Op::kSlice, {5}},
        {Op::kUnary, {7}},
        {Op::kMul, {8, 6}}},
       {4, 9},
       PlainSharedGateAndUp},
      {Op::kNormAddNormLinearActMul,
       4,
       {{Op::kRmsNorm, {~0, ~1}},
        {Op::kAdd, {~2, 0}},
        {Op::kRmsNorm, {1, ~3}},
        {Op::kLinear, {2, kRest}},
        {Op::kSlice, {3}},
        {Op::kSlice, {3}},
        {Op::kUnary, {5}},
        {Op::kMul, {6, 4}}},
       {1, 7},
       GateAndUp},
      {Op::kNormRopeAttention,
       11,
       {{Op::kRmsNorm, {~0, ~6}},
        {Op::kRope, {0, ~3}},
        {Op::kRmsNorm, {~1, ~7}},
        {Op::kRope, {2, ~3}},
        {Op::kKvWrite, {~4, 3, ~2, ~5}},
        {Op::kAttention, {1, 4, ~3, ~8, ~9, ~10, kRest}}},
       {5, 4},
       Causal},
      {Op::kNormRopeKvWrite,
       8,
       {{Op::kRmsNorm, {~0, ~6}},
        {Op::kRope, {0, ~3}},
        {Op::kRmsNorm, {~1, ~7}},
        {Op::kRope, {2, ~3}},
        {Op::kKvWrite, {~4, 3, ~2, ~5}},
        {Op::kAttention, {1, 4, kAny, kAny, kAny, kAny}, true}},
       {1, 4},
       nullptr},
      {Op::kGatedDeltaNet,
       12,
       {{Op::kCausalConv, {~0, ~1, ~2, ~3, ~4, ~5}},
        {Op::kUnary, {0}},
        {Op::kGatedDelta, {1, ~6, ~7, ~8, ~9, Second(0), ~3, ~4, ~5}},
        {Op::kRmsNorm, {2, ~11}},
        {Op::kUnary, {~10}},
        {Op::kMul, {3, 4}}},
       {5, Second(2)},
       nullptr},
      {Op::kNormRouterGate,
       4,
       {{Op::kRmsNorm, {~0, ~1}},
        {Op::kLinear, {0, ~2}},
        {Op::kRouter, {1, kRest}},
        {Op::kLinear, {0, ~3}},
        {Op::kUnary, {3}},
        {Op::kQuantize, {0}}},
       {5, 2, Second(2), 4},
       AllInt8},
      {Op::kExpertsDown,
       8,
       {{Op::kGroupedLinear, {~0, ~1, ~3}},
        {Op::kExpertSum, {0, ~2}},
        {Op::kLinear, {~4, ~5}},
        {Op::kScaleRows, {2, ~6}},
        {Op::kAdd, {1, 3}},
        {Op::kAdd, {~7, 4}}},
       {5},
       OneExpertMatrix},
      {Op::kGroupedLinearActMulQuantize,
       4,
       {{Op::kGroupedLinear, {~0, ~1, ~2, ~3}},
        {Op::kSlice, {0}},
        {Op::kSlice, {0}},
        {Op::kUnary, {2}},
        {Op::kMul, {3, 1}},
        {Op::kQuantize, {4}}},
       {5},
       ExpertsGateAndUp},
      {Op::kRmsNormLinearActMul,
       2,
       {{Op::kRmsNorm, {~0, ~1}},
        {Op::kLinear, {0, kRest}},
        {Op::kSlice, {1}},
        {Op::kSlice, {1}},
        {Op::kUnary, {3}},
        {Op::kMul, {4, 2}}},
       {5},
       GateAndUp},
      {Op::kLatentWrite,
       5,
       {{Op::kSlice, {~0}},
        {Op::kRmsNorm, {0, ~1}},
        {Op::kSlice, {~0}},
        {Op::kRope, {2, ~2}},
        {Op::kConcat, {1, 3}},
        {Op::kKvWrite, {~3, 4, ~4}}},
       {5},
       WholeRow},
      {Op::kGroupedLinearActMul,
       2,
       {{Op::kGroupedLinear, {~0, ~1, kRest}},
        {Op::kSlice, {0}},
        {Op::kSlice, {0}},
        {Op::kUnary, {2}},
        {Op::kMul, {3, 1}}},
       {4},
       GateAndUp},
      {Op::kLatentQuery,
       3,
       {{Op::kSlice, {~0}},
        {Op::kHeadLinear, {0, ~1}},
        {Op::kSlice, {~0}},
        {Op::kRope, {2, ~2}},
        {Op::kConcat, {1, 3}}},
       {4},
       WholeRow},
      {Op::kLinearActMul,
       1,
       {{Op::kLinear, {~0, kRest}},
        {Op::kSlice, {0}},
        {Op::kSlice, {0}},
        {Op::kUnary, {2}},
        {Op::kMul, {3, 1}}},
       {4},
       GateAndUp},
      {Op::kExpertsDownUngated,
       7,
       {{Op::kGroupedLinear, {~0, ~1, ~3}},
        {Op::kExpertSum, {0, ~2}},
        {Op::kLinear, {~4, ~5}},
        {Op::kAdd, {1, 2}},
        {Op::kAdd, {~6, 3}}},
       {4},
       OneExpertMatrix},
      {Op::kActMulQuantizeLinearAdd,
       4,
       {{Op::kUnary, {~0}},
        {Op::kMul, {0, ~1}},
        {Op::kQuantize, {1}},
        {Op::kLinear, {2, ~2}},
        {Op::kAdd, {3, ~3}}},
       {4},
       AllInt8},
      {Op::kRopeAttention,
       9,
       {{Op::kRope, {~0, ~3}},
        {Op::kRope, {~1, ~3}},
        {Op::kKvWrite, {~4, 1, ~2, ~5}},
        {Op::kAttention, {0, 2, ~3, ~6, ~7, ~8, kRest}}},
       {3, 2},
       Causal},
      {Op::kRopeKvWrite,
       6,
       {{Op::kRope, {~0, ~3}},
        {Op::kRope, {~1, ~3}},
        {Op::kKvWrite, {~4, 1, ~2, ~5}},
        {Op::kAttention, {0, 2, kAny, kAny, kAny, kAny}, true}},
       {0, 2},
       nullptr},
      {Op::kNormAddNormLinear,
       4,
       {{Op::kRmsNorm, {~0, ~1}},
        {Op::kAdd, {~2, 0}},
        {Op::kRmsNorm, {1, ~3}},
        {Op::kLinear, {2, kRest}}},
       {1, 3},
       nullptr},
      {Op::kGroupedLinearSumAddAdd,
       6,
       {{Op::kGroupedLinear, {~0, ~1, ~3}},
        {Op::kExpertSum, {0, ~2}},
        {Op::kAdd, {~4, 1}},
        {Op::kAdd, {~5, 2}}},
       {3},
       OneExpertMatrix},
      {Op::kNormRouter,
       3,
       {{Op::kRmsNorm, {~0, ~1}},
        {Op::kLinear, {0, ~2}},
        {Op::kRouter, {1, kRest}},
        {Op::kQuantize, {0}}},
       {3, 2, Second(2)},
       AllInt8},
      {Op::kRmsNormRouter,
       3,
       {{Op::kRmsNorm, {~0, ~1}}, {Op::kLinear, {0, ~2}}, {Op::kRouter, {1, kRest}}},
       {0, 2, Second(2)},
       nullptr},
      {Op::kGroupedLinearSumAdd,
       5,
       {{Op::kGroupedLinear, {~0, ~1, ~3}}, {Op::kExpertSum, {0, ~2}}, {Op::kAdd, {~4, 1}}},
       {2},
       OneExpertMatrix},
      {Op::kQuantizeLinearAdd,
       3,
       {{Op::kQuantize, {~0}}, {Op::kLinear, {0, ~1}}, {Op::kAdd, {1, ~2}}},
       {2},
       AllInt8},
      {Op::kRmsNormQuantizeLinear,
       2,
       {{Op::kRmsNorm, {~0, ~1}}, {Op::kQuantize, {0}}, {Op::kLinear, {1, kRest}}},
       {2},
       AllInt8},
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
      // Where a target has them, linears take what stands beside them before norms do.
      {Op::kLinearAdd, 3, {{Op::kLinear, {~0, ~1}}, {Op::kAdd, {0, ~2}}}, {1}, PlainLinear},
      {Op::kGroupedLinearSum,
       3,
       {{Op::kGroupedLinear, {~0, ~1, kRest}}, {Op::kExpertSum, {0, ~2}}},
       {1},
       OneExpertMatrix},
      {Op::kRmsNormLinear, 2, {{Op::kRmsNorm, {~0, ~1}}, {Op::kLinear, {0, kRest}}}, {1}, nullptr},
      {Op::kAddRmsNorm, 3, {{Op::kAdd, {~0, ~1}}, {Op::kRmsNorm, {0, ~2}}}, {0, 1}, nullptr},
      {Op::kRmsNormAdd, 3, {{Op::kRmsNorm, {~0, ~1}}, {Op::kAdd, {~2, 0}}}, {1}, nullptr},
      {Op::kActMul, 2, {{Op::kUnary, {~0}}, {Op::kMul, {0, ~1}}}, {1}, nullptr},
      {Op::kRmsNormRope, 3, {{Op::kRmsNorm, {~0, ~1}}, {Op::kRope, {0, ~2}}}, {1}, nullptr},
      {Op::kRmsNormQuantize, 2, {{Op::kRmsNorm, {~0, ~1}}, {Op::kQuantize, {0}}}, {1}, LastIsInt8},
  }};
  return table;
}

}  // namespace

size_t ComputedParts(const FusedDefinition& d) {
  return d.parts.size() - (d.parts.back().context ? 1 : 0);
}

bool IsVariadic(const FusedDefinition& d) {
  for (const FusedPart& p : d.parts) {
    if (p.inputs.back() == kRest) return true;
  }
  return false;
}

std::span<const FusedDefinition> FusedDefinitions() { return Table(); }

const FusedDefinition& DefinitionOf(Op fused) {
  for (const FusedDefinition& d : Table()) {
    if (d.op == fused) return d;
  }
  return Table()[0];  // unreachable: a test checks that every fused op has a definition
}

}  // namespace vt::ir
