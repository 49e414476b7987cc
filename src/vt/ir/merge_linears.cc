#include <algorithm>
#include <map>

#include "base/strings.h"
#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {
namespace {

// Linears may merge when all of this is equal. The format is the one that every weight of the
// linear wants.
struct Key {
  Op op;
  ValueId x, ids;  // ids: of grouped ones
  bool bias;
  DType activation, type;  // type: of what they give, where a capped choice is f32
  auto operator<=>(const Key&) const = default;
};

// "a.q_proj", "a.k_proj" -> "a.q_proj+k_proj": the common module is said once.
std::string MergedName(const Graph& g, const std::vector<NodeId>& members) {
  std::string name;
  for (const NodeId n : members) {
    const std::string& part = g.nodes[static_cast<size_t>(n)].name;
    const size_t dot = part.rfind('.');
    name += name.empty() ? part : "+" + (dot == std::string::npos ? part : part.substr(dot + 1));
  }
  return name;
}

}  // namespace

void MergeLinears(Graph& graph, const Target& target, const Bucket& bucket) {
  const auto users = graph.Users();
  const auto routes = [&](const Node& linear) {
    const auto& of = users[static_cast<size_t>(linear.outputs[0])];
    return std::any_of(of.begin(), of.end(), [&](NodeId n) {
      const Op op = graph.nodes[static_cast<size_t>(n)].op;
      return op == Op::kRouter || op == Op::kHashRouter || op == Op::kHyperCollapse ||
             op == Op::kIndexEntries;
    });
  };
  std::map<Key, std::vector<NodeId>> siblings;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto wants = WantedActivation(graph, node, target, bucket);
    // What chooses is f32 whatever the others are; a router's logits have a place in fused ops.
    if (!wants || routes(node)) continue;
    const bool grouped = node.op == Op::kGroupedLinear;
    siblings[{node.op, node.inputs[0], grouped ? node.inputs[1] : kNone,
              !grouped && node.attrs.as<LinearAttrs>().bias, *wants,
              graph.value(node.outputs[0]).dtype}]
        .push_back(static_cast<NodeId>(n));
  }

  std::map<NodeId, std::vector<Node>> replacement;  // an empty list drops the node
  for (const auto& [key, members] : siblings) {
    if (members.size() < 2) continue;
    Node merged{.op = key.op,
                .name = MergedName(graph, members),
                .inputs = {key.x},
                .outputs = {},
                .attrs = {}};
    if (key.ids != kNone) merged.inputs.push_back(key.ids);
    std::vector<ValueId> biases;
    std::vector<Node> slices;
    int segments = 0;
    int64_t width = 0;
    for (const NodeId n : members) {
      const Node& node = graph.nodes[static_cast<size_t>(n)];
      const WeightInputs weights = WeightsOf(node);
      const auto count = static_cast<int>(weights.count);
      const auto first = node.inputs.begin() + static_cast<long>(weights.first);
      merged.inputs.insert(merged.inputs.end(), first, first + count);
      biases.insert(biases.end(), first + count, node.inputs.end());
      segments += count;
      const int64_t size = graph.value(node.outputs[0]).shape.back().At(bucket);
      slices.push_back({.op = Op::kSlice,
                        .name = node.name,
                        .inputs = {},
                        .outputs = node.outputs,
                        .attrs = {SliceAttrs{width, size}}});
      width += size;
      replacement[n] = {};
    }
    merged.inputs.insert(merged.inputs.end(), biases.begin(), biases.end());
    if (key.op == Op::kLinear) {
      merged.attrs = {LinearAttrs{segments, key.bias}};
    } else {
      merged.attrs = {GroupedLinearAttrs{segments}};
    }
    const Value first = graph.value(slices[0].outputs[0]);
    Shape shape = first.shape;
    shape.back() = Dim(width);
    const ValueId out = AddValue(graph, merged.name, first.dtype, std::move(shape));
    merged.outputs = {out};
    for (Node& s : slices) s.inputs = {out};
    // The first member's place: x exists there, weights always do, and every user comes later.
    auto& list = replacement[members[0]];
    list.push_back(std::move(merged));
    list.insert(list.end(), slices.begin(), slices.end());
  }

  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto found = replacement.find(static_cast<NodeId>(n));
    if (found == replacement.end()) {
      nodes.push_back(std::move(graph.nodes[n]));
    } else {
      for (Node& r : found->second) nodes.push_back(std::move(r));
    }
  }
  graph.nodes = std::move(nodes);
  Renumber(graph);
}

}  // namespace vt::ir
