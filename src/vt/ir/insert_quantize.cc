#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {

// One node a linear: common sub-expressions then leaves one a distinct activation.
void InsertQuantize(Graph& graph, const Target& target, const Bucket& bucket) {
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    // Segments that want different formats keep the whole linear on plain values.
    if (const auto format = WantedActivation(graph, node, target, bucket)) {
      const DType wants = *format;
      const Value x = graph.value(node.inputs[0]);
      const bool agrees = wants != target.ValueType() && wants != x.dtype &&
                          !IsQuantised(x.dtype) &&
                          x.shape.back().At(bucket) % Info(wants).block == 0;
      if (agrees) {
        const std::string name = x.name + (IsQuantised(wants) ? ".quantized" : ".converted");
        const ValueId q = AddValue(graph, name, wants, x.shape);
        nodes.push_back({.op = IsQuantised(wants) ? Op::kQuantize : Op::kConvert,
                         .name = name,
                         .inputs = {node.inputs[0]},
                         .outputs = {q},
                         .attrs = {ConvertAttrs{wants}}});
        node.inputs[0] = q;
      }
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  Renumber(graph);
}

}  // namespace vt::ir
