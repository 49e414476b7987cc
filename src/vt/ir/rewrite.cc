#include "vt/ir/rewrite.h"

namespace vt::ir {

void Renumber(Graph& graph) {
  for (Value& v : graph.values) v.producer = -1;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : graph.nodes[n].outputs)
      graph.values[static_cast<size_t>(v)].producer = static_cast<NodeId>(n);
  }
}

ValueId AddValue(Graph& graph, std::string name, DType dtype, Shape shape) {
  graph.values.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
  return static_cast<ValueId>(graph.values.size() - 1);
}

std::optional<DType> WantedActivation(const Graph& graph, const Node& node, const Target& target,
                                      const Bucket& bucket) {
  const WeightInputs w = WeightsOf(node);
  std::optional<DType> wanted;
  for (size_t i = w.first; i < w.first + w.count; ++i) {
    const DType wants = target.ActivationFormat(graph.value(node.inputs[i]).dtype, bucket);
    if (wanted && *wanted != wants) return std::nullopt;
    wanted = wants;
  }
  return wanted;
}

}  // namespace vt::ir
