#include "vt/gpu/expert_nodes.h"

namespace vt::gpu {

using ir::Op;

Grouped ReadGrouped(const ir::Node& n) {
  Grouped l;
  l.x = n.inputs[0];
  l.ids = n.inputs[1];
  l.out = n.outputs[0];
  size_t first = 2;
  size_t end = n.inputs.size();
  switch (n.op) {
    case Op::kGroupedLinearSumAddAdd:
      l.second = n.inputs[--end];
      [[fallthrough]];
    case Op::kGroupedLinearSumAdd:
      l.residual = n.inputs[--end];
      l.weights = n.inputs[first++];
      break;
    case Op::kExpertsDown:
      l.residual = n.inputs[7];
      l.gate = n.inputs[6];
      l.shared = {n.inputs[5]};
      l.shared_x = n.inputs[4];
      end = 4;
      l.weights = n.inputs[first++];
      break;
    case Op::kGroupedLinearSum:
      l.weights = n.inputs[first++];
      break;
    case Op::kExpertsDownUngated:
      l.residual = n.inputs[6];
      l.shared = {n.inputs[5]};
      l.shared_x = n.inputs[4];
      end = 4;
      l.weights = n.inputs[first++];
      break;
    case Op::kExpertsUp:
    case Op::kExpertsActMul:
      l.shared = {n.inputs[4], n.inputs[5]};
      l.shared_out = n.outputs[1];
      end = 4;
      [[fallthrough]];
    case Op::kGroupedLinearActMul:
    case Op::kGroupedLinearActMulQuantize:
      l.act = RowFnOf(n.attrs.as<ir::FusedAttrs>().parts[3].as<ir::UnaryAttrs>().fn);
      break;
    default:
      break;
  }
  l.matrices.assign(n.inputs.begin() + static_cast<int64_t>(first),
                    n.inputs.begin() + static_cast<int64_t>(end));
  return l;
}

GroupedShape ShapeOf(const ir::Graph& g, const Grouped& l, const ir::Bucket& b) {
  const ir::Shape& ids = g.value(l.ids).shape;
  return {ids[0].At(b), ids[1].At(b), g.value(l.matrices[0]).shape[0].At(b),
          g.value(l.x).shape.back().At(b)};
}

}  // namespace vt::gpu
