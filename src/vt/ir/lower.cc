#include <algorithm>

#include "vt/ir/passes.h"

namespace vt::ir {
namespace {

// Values between nodes take the device's type. What must stay f32 does: graph outputs (logits) and
// what the sampler reads.
void SetValueTypes(Graph& graph, DType type) {
  if (type == DType::kF32) return;
  std::vector<bool> keep(graph.values.size());
  for (const ValueId v : graph.outputs) keep[static_cast<size_t>(v)] = true;
  for (const Node& n : graph.nodes) {
    if (n.op != Op::kArgMax && n.op != Op::kSample && n.op != Op::kTopLogprobs &&
        n.op != Op::kLogSoftmax)
      continue;
    for (const ValueId v : n.inputs) keep[static_cast<size_t>(v)] = true;
    for (const ValueId v : n.outputs) keep[static_cast<size_t>(v)] = true;
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    Value& value = graph.values[v];
    if (!keep[v] && value.kind == ValueKind::kNode && value.dtype == DType::kF32)
      value.dtype = type;
  }
}

}  // namespace

Plan Lower(const Graph& graph, const Target& target, const Bucket& bucket,
           std::vector<std::pair<std::string, std::string>>* trace) {
  Plan plan{.bucket = bucket, .graph = graph, .kernels = {}, .memory = {}};
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
  Fuse(g, target);
  done("fuse");
  DropDeadNodes(g);
  done("drop dead nodes");
  for (const Node& n : g.nodes) plan.kernels.push_back(target.PickKernel(g, n, bucket));
  plan.memory = PlanMemory(g, bucket);
  return plan;
}

Plan LowerUnoptimised(const Graph& graph, const Target& target, const Bucket& bucket) {
  Plan plan{.bucket = bucket, .graph = graph, .kernels = {}, .memory = {}};
  SetValueTypes(plan.graph, target.ValueType());
  InsertQuantize(plan.graph, target, bucket);
  for (const Node& n : plan.graph.nodes)
    plan.kernels.push_back(target.PickKernel(plan.graph, n, bucket));
  plan.memory = PlanMemory(plan.graph, bucket);
  return plan;
}

}  // namespace vt::ir
