#include "tests/op_bounds.h"

#include <algorithm>

#include "vt/ir/fused.h"

namespace tests {

using namespace vt::ir;  // NOLINT: this file is written in the IR's words

bool CountsAsX(const Graph& g, const Node& node, ValueId input) {
  // With a shared expert's matrices among those of the chosen.
  const bool shared = node.op == Op::kExpertsActMul || node.op == Op::kExpertsDown ||
                      node.op == Op::kExpertsDownUngated;
  const bool grouped = node.op == Op::kGroupedLinear || node.op == Op::kGroupedLinearActMul ||
                       node.op == Op::kGroupedLinearSum || node.op == Op::kGroupedLinearSumAdd ||
                       node.op == Op::kGroupedLinearSumAddAdd || shared;
  const DType x = g.value(node.inputs[0]).dtype;
  const bool heads =
      node.op == Op::kHeadLinear || node.op == Op::kLatentQuery || node.op == Op::kLatentQueryWrite;
  const size_t dimensions = g.value(input).shape.size();
  return (grouped || heads || node.op == Op::kLinear || node.op == Op::kLinearAdd) &&
         input != node.inputs[0] && (x == DType::kBF16 || x == DType::kF16) &&
         (dimensions == (grouped || heads ? 3 : 2) || (shared && dimensions == 2)) &&
         g.value(input).kind == ValueKind::kWeight;
}

double RoundingOf(DType t) {
  if (t == DType::kBF16) return 8e-3;
  return t == DType::kF16 ? 1e-3 : 0;
}

double UnpackingOf(DType weight, DType x) { return IsQuantised(weight) ? 2 * RoundingOf(x) : 0; }

bool WritesCacheFused(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    return IsFused(n.op) && WritesState(n.op) && n.op != Op::kGatedDeltaNet;
  });
}

bool ReadsCache(Op op) {
  return op == Op::kAttention || op == Op::kRopeAttention || op == Op::kNormRopeAttention;
}

bool QuantisesWithin(Op op) {
  if (!IsFused(op)) return false;
  const FusedDefinition& d = DefinitionOf(op);
  for (size_t p = 0; p < ComputedParts(d); ++p) {
    const bool out =
        std::find(d.outputs.begin(), d.outputs.end(), static_cast<int>(p)) != d.outputs.end();
    if (d.parts[p].op == Op::kQuantize && !out) return true;
  }
  return false;
}

}  // namespace tests
