#include <map>

#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {

void CommonSubexpressions(Graph& graph) {
  std::vector<ValueId> same(graph.values.size());
  for (size_t v = 0; v < same.size(); ++v) same[v] = static_cast<ValueId>(v);
  // Nodes by op and inputs; the few with equal keys are compared by their attributes.
  std::map<std::pair<Op, std::vector<ValueId>>, std::vector<size_t>> seen;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    for (ValueId& v : node.inputs) v = same[static_cast<size_t>(v)];
    bool duplicate = false;
    if (!WritesState(node.op)) {
      auto& candidates = seen[{node.op, node.inputs}];
      for (const size_t c : candidates) {
        if (!(nodes[c].attrs == node.attrs)) continue;
        for (size_t i = 0; i < node.outputs.size(); ++i) {
          same[static_cast<size_t>(node.outputs[i])] = nodes[c].outputs[i];
        }
        duplicate = true;
        break;
      }
      if (!duplicate) candidates.push_back(nodes.size());
    }
    if (!duplicate) nodes.push_back(std::move(node));
  }
  for (ValueId& v : graph.outputs) v = same[static_cast<size_t>(v)];
  graph.nodes = std::move(nodes);
  Renumber(graph);
}

}  // namespace vt::ir
