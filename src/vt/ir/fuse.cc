// Matches the definitions of fused ops against the graph, from their last part (the root)
// backwards. Parts that the root does not reach are looked for among the users of what it reaches.
#include <algorithm>
#include <optional>

#include "vt/ir/fused.h"
#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"
#include "vt/ir/shape.h"

namespace vt::ir {
namespace {

bool IsCommutative(Op op) { return op == Op::kAdd || op == Op::kMul; }
bool IsBinary(Op op) { return IsCommutative(op) || op == Op::kSub || op == Op::kDiv; }

// A part's node's output that `wanted` means, or none.
ValueId OutputOf(const Node& node, int wanted) {
  const auto o = static_cast<size_t>(wanted / kSecond);
  return o < node.outputs.size() ? node.outputs[o] : kNone;
}

struct Match {
  std::vector<NodeId> nodes;    // by part, the context's last
  std::vector<ValueId> inputs;  // of the fused op
  std::vector<ValueId> rest;    // those that follow
};

class Matcher {
 public:
  Matcher(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
          const FusedDefinition& def)
      : graph_(graph), users_(users), def_(def) {}

  std::optional<Match> At(NodeId root) {
    Match m{std::vector<NodeId>(def_.parts.size(), -1),
            std::vector<ValueId>(static_cast<size_t>(def_.inputs), kNone),
            {}};
    if (!Part(def_.parts.size() - 1, root, m)) return std::nullopt;
    if (!Rest(m)) return std::nullopt;
    m.inputs.insert(m.inputs.end(), m.rest.begin(), m.rest.end());
    m.nodes.resize(ComputedParts(def_));
    return m;
  }

 private:
  const Node& node(NodeId n) const { return graph_.nodes[static_cast<size_t>(n)]; }

  // A value that part `p` takes and that is bound already, or none.
  ValueId BoundInput(size_t p, const Match& m) const {
    for (const int wanted : def_.parts[p].inputs) {
      if (wanted == kAny || wanted == kRest) continue;
      const NodeId from = wanted >= 0 ? m.nodes[static_cast<size_t>(wanted % kSecond)] : -1;
      const ValueId v = wanted < 0 ? m.inputs[static_cast<size_t>(~wanted)]
                        : from < 0 ? kNone
                                   : OutputOf(node(from), wanted);
      if (v != kNone) return v;
    }
    return kNone;
  }

  // Binds the parts that are left: one of those whose input is known to each user in turn, until
  // the others fit too.
  bool Rest(Match& m) {
    bool complete = true;
    for (size_t p = m.nodes.size(); p-- > 0;) {
      if (m.nodes[p] >= 0) continue;
      complete = false;
      const ValueId v = BoundInput(p, m);
      if (v == kNone) continue;
      for (const NodeId user : users_[static_cast<size_t>(v)]) {
        Match with = m;
        const bool taken = std::find(m.nodes.begin(), m.nodes.end(), user) != m.nodes.end();
        if (taken || !Part(p, user, with) || !Rest(with)) continue;
        m = std::move(with);
        return true;
      }
      return false;
    }
    return complete;
  }

  // Binds part `p` and all before it to `n` and its producers; on failure `m` is as before.
  bool Part(size_t p, NodeId n, Match& m) {
    if (m.nodes[p] >= 0) return m.nodes[p] == n;
    const FusedPart& part = def_.parts[p];
    if (node(n).op != part.op) return false;
    // Broadcast operands have no place in a fused kernel, nor have extra inputs (segments, biases)
    // where the definition does not say so.
    std::vector<ValueId> args = node(n).inputs;
    const bool rest = part.inputs.back() == kRest || (part.context && part.inputs.back() == kAny);
    if (rest ? args.size() + 1 < part.inputs.size() : args.size() != part.inputs.size())
      return false;
    if (IsBinary(part.op) && graph_.value(args[0]).shape != graph_.value(args[1]).shape)
      return false;
    if (Inputs(p, n, args, m)) return true;
    if (!IsCommutative(part.op)) return false;
    std::swap(args[0], args[1]);
    return Inputs(p, n, args, m);
  }

  bool Inputs(size_t p, NodeId n, const std::vector<ValueId>& args, Match& m) {
    const Match before = m;
    m.nodes[p] = n;
    bool ok = true;
    for (size_t i = 0; i < args.size() && ok; ++i) {
      const std::vector<int>& inputs = def_.parts[p].inputs;
      const int wanted = inputs[std::min(i, inputs.size() - 1)];
      if (wanted == kAny) continue;
      if (wanted == kRest) {
        m.rest.push_back(args[i]);
      } else if (wanted < 0) {
        ValueId& bound = m.inputs[static_cast<size_t>(~wanted)];
        ok = bound == kNone || bound == args[i];
        bound = args[i];
      } else {
        const Value& v = graph_.value(args[i]);
        ok = v.producer >= 0 && OutputOf(node(v.producer), wanted) == args[i] &&
             Part(static_cast<size_t>(wanted % kSecond), v.producer, m);
      }
    }
    if (!ok) m = before;
    return ok;
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& users_;
  const FusedDefinition& def_;
};

// A fused node with the place it can stand at, or nothing when a value inside is needed elsewhere,
// the target has no kernel, or no place comes after all inputs and before all users.
struct Fused {
  Node node;
  NodeId before;  // the fused node stands before the node that now has this index
};
std::optional<Fused> TryFuse(const Graph& graph, const Target& target, const Bucket& bucket,
                             const std::vector<std::vector<NodeId>>& users,
                             const FusedDefinition& def, const Match& m) {
  const auto inside = [&](NodeId n) {
    return std::find(m.nodes.begin(), m.nodes.end(), n) != m.nodes.end();
  };
  FusedAttrs attrs;
  for (const NodeId n : m.nodes) attrs.parts.push_back(graph.nodes[static_cast<size_t>(n)].attrs);
  if (def.predicate != nullptr && !def.predicate(attrs.parts)) return std::nullopt;

  NodeId before = *std::max_element(m.nodes.begin(), m.nodes.end());
  for (size_t p = 0; p < m.nodes.size(); ++p) {
    const std::vector<ValueId>& outputs = graph.nodes[static_cast<size_t>(m.nodes[p])].outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const ValueId v = outputs[o];
      const int as = static_cast<int>(p) + static_cast<int>(o) * kSecond;
      const bool is_output =
          std::find(def.outputs.begin(), def.outputs.end(), as) != def.outputs.end();
      if (!is_output &&
          std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end()) {
        return std::nullopt;
      }
      for (const NodeId user : users[static_cast<size_t>(v)]) {
        if (inside(user)) continue;
        if (!is_output) return std::nullopt;
        before = std::min(before, user);
      }
    }
  }
  for (const ValueId v : m.inputs) {
    const NodeId producer = graph.value(v).producer;
    if (producer >= before || (producer >= 0 && inside(producer))) return std::nullopt;
  }

  const Node& root = graph.nodes[static_cast<size_t>(m.nodes.back())];
  Node node{.op = def.op,
            .name = root.name,
            .inputs = m.inputs,
            .outputs = {},
            .attrs = {std::move(attrs)}};
  for (const int o : def.outputs) {
    const NodeId n = m.nodes[static_cast<size_t>(o % kSecond)];
    node.outputs.push_back(OutputOf(graph.nodes[static_cast<size_t>(n)], o));
  }
  // The definition must hold for the very shapes and types (Verify would refuse the node
  // otherwise).
  std::vector<Value> inputs;
  for (const ValueId v : node.inputs) inputs.push_back(graph.value(v));
  if (!InferOutputs(node.op, node.attrs, inputs)) return std::nullopt;
  if (!target.Supports(graph, node, bucket)) return std::nullopt;
  return Fused{std::move(node), before};
}

void Apply(Graph& graph, const Match& m, Fused fused) {
  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (static_cast<NodeId>(n) == fused.before) nodes.push_back(std::move(fused.node));
    if (std::find(m.nodes.begin(), m.nodes.end(), static_cast<NodeId>(n)) != m.nodes.end())
      continue;
    nodes.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(nodes);
  Renumber(graph);
}

}  // namespace

void Fuse(Graph& graph, const Target& target, const Bucket& bucket) {
  for (const FusedDefinition& def : FusedDefinitions()) {
    auto users = graph.Users();
    for (size_t root = 0; root < graph.nodes.size(); ++root) {
      const auto match = Matcher(graph, users, def).At(static_cast<NodeId>(root));
      if (!match) continue;
      auto fused = TryFuse(graph, target, bucket, users, def, *match);
      if (!fused) continue;
      const ValueId last = graph.nodes[root].outputs[0];
      Apply(graph, *match, std::move(*fused));
      users = graph.Users();
      root = static_cast<size_t>(graph.value(last).producer);  // go on after the fused node
    }
  }
}

}  // namespace vt::ir
