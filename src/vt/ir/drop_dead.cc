#include <algorithm>

#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {

void DropDeadNodes(Graph& graph) {
  std::vector<bool> needed(graph.values.size());
  for (const ValueId v : graph.outputs) needed[static_cast<size_t>(v)] = true;
  std::vector<Node> kept;  // in reverse
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    const bool alive = WritesState(node.op) ||
                       std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId v) { return needed[static_cast<size_t>(v)]; });
    if (!alive) continue;
    for (const ValueId v : node.inputs) needed[static_cast<size_t>(v)] = true;
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  Renumber(graph);
}

}  // namespace vt::ir
