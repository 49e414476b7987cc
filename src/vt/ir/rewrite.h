// What the passes share when they edit a graph.
#pragma once

#include <optional>
#include <vector>

#include "vt/ir/graph.h"
#include "vt/ir/target.h"

namespace vt::ir {

// Sets every value's producer after nodes were moved, added or dropped. Values of dropped nodes
// keep their id, without a producer: nobody reads them.
void Renumber(Graph& graph);

// Appends a node-produced value; its producer is set by Renumber.
ValueId AddValue(Graph& graph, std::string name, DType dtype, Shape shape);

// The weights among the inputs of a linear, grouped or not.
struct WeightInputs {
  size_t first = 0, count = 0;
};
inline WeightInputs WeightsOf(const Node& node) {
  if (node.op == Op::kLinear)
    return {1, static_cast<size_t>(node.attrs.as<LinearAttrs>().segments)};
  if (node.op == Op::kGroupedLinear)
    return {2, static_cast<size_t>(node.attrs.as<GroupedLinearAttrs>().segments)};
  return {};
}
// The form in which all of them want their input, or none when they do not agree.
std::optional<DType> WantedActivation(const Graph& graph, const Node& node, const Target& target,
                                      const Bucket& bucket);

// Whether the op only gives another view of its input's bytes (if memory allows: see PlanMemory).
inline bool IsView(Op op) { return op == Op::kReshape || op == Op::kSlice; }

}  // namespace vt::ir
