#include <algorithm>

#include "vt/ir/passes.h"

namespace vt::ir {
namespace {

// Values between nodes take the device's type. What must stay f32 does: graph outputs (logits),
// what the sampler reads, and what either is computed from value by value (capped logits).
void SetValueTypes(Graph& graph, DType type) {
  if (type == DType::kF32) return;
  std::vector<bool> keep(graph.values.size());
  for (const ValueId v : graph.outputs) keep[static_cast<size_t>(v)] = true;
  for (const Node& n : graph.nodes) {
    if (n.op == Op::kHyperCollapse) {
      keep[static_cast<size_t>(n.inputs[1])] = true;
      if (n.outputs.size() > 1) keep[static_cast<size_t>(n.outputs[1])] = true;
    }
    if (n.op == Op::kIndexEntries) keep[static_cast<size_t>(n.inputs[1])] = true;
    if (n.op == Op::kRouter || n.op == Op::kHashRouter) {
      // A choice of experts is not one of roundings.
      for (const ValueId v : n.inputs) keep[static_cast<size_t>(v)] = true;
      keep[static_cast<size_t>(n.outputs[0])] = true;
    }
    if (n.op != Op::kArgMax && n.op != Op::kSample && n.op != Op::kTopLogprobs &&
        n.op != Op::kLogSoftmax)
      continue;
    for (const ValueId v : n.inputs) keep[static_cast<size_t>(v)] = true;
    for (const ValueId v : n.outputs) keep[static_cast<size_t>(v)] = true;
  }
  for (auto n = graph.nodes.rbegin(); n != graph.nodes.rend(); ++n) {
    if (n->op != Op::kScale && n->op != Op::kUnary) continue;
    if (keep[static_cast<size_t>(n->outputs[0])]) keep[static_cast<size_t>(n->inputs[0])] = true;
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    Value& value = graph.values[v];
    if (!keep[v] && value.kind == ValueKind::kNode && value.dtype == DType::kF32)
      value.dtype = type;
  }
}

// Kernels and memory: what every plan ends with.
void Place(Plan& plan, const Target& target) {
  constexpr int64_t kAlignment = 256;
  for (const Node& n : plan.graph.nodes)
    plan.kernels.push_back(target.PickKernel(plan.graph, n, plan.bucket));
  plan.memory = PlanMemory(plan.graph, plan.bucket);
  plan.workspace_bytes = target.WorkspaceBytes(plan.graph, plan.bucket);
  plan.workspace_offset = (plan.memory.arena_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (plan.workspace_bytes > 0)
    plan.memory.arena_bytes = plan.workspace_offset + plan.workspace_bytes;
}

}  // namespace

Plan Lower(const Graph& graph, const Target& target, const Bucket& bucket,
           std::vector<std::pair<std::string, std::string>>* trace) {
  Plan plan;
  plan.bucket = bucket;
  plan.graph = graph;
  Graph& g = plan.graph;
  const auto done = [&](const char* pass) {
    if (trace != nullptr) trace->emplace_back(pass, Dump(g));
  };
  SetValueTypes(g, target.ValueType());
  done("value types");
  MergeLinears(g, target, bucket);
  done("merge linears");
  InsertQuantize(g, target, bucket);
  done("insert quantize");
  CommonSubexpressions(g);
  done("common subexpressions");
  DropDeadNodes(g);  // before fusing: a dead user would block it
  Fuse(g, target, bucket);
  done("fuse");
  SplitLinears(g, bucket);
  done("split linears");
  DropDeadNodes(g);
  done("drop dead nodes");
  Place(plan, target);
  return plan;
}

Plan LowerUnoptimised(const Graph& graph, const Target& target, const Bucket& bucket) {
  Plan plan;
  plan.bucket = bucket;
  plan.graph = graph;
  SetValueTypes(plan.graph, target.ValueType());
  InsertQuantize(plan.graph, target, bucket);
  Place(plan, target);
  return plan;
}

}  // namespace vt::ir
