#include "vt/gpu/target.h"

#include <algorithm>

#include "base/strings.h"
#include "vt/ir/rewrite.h"

namespace vt::gpu {
namespace {

using ir::Op;

enum class Family { kRows, kLinear, kAttention, kChoice, kNone };

Family FamilyOf(Op op) {
  switch (op) {
    case Op::kLinear:
    case Op::kLinearAdd:
    case Op::kLinearActMul:
    case Op::kRmsNormLinear:
    case Op::kRmsNormLinearActMul:
    case Op::kNormAddNormLinear:
    case Op::kNormAddNormLinearActMul:
      return Family::kLinear;
    case Op::kKvWrite:
    case Op::kAttention:
    case Op::kRopeKvWrite:
    case Op::kNormRopeKvWrite:
      return Family::kAttention;
    case Op::kTokenFeed:
    case Op::kArgMax:
    case Op::kSample:
    case Op::kTopLogprobs:
      return Family::kChoice;
    case Op::kQuantize:
    case Op::kRmsNormQuantize:
    case Op::kAddRmsNormQuantize:
    case Op::kActMulQuantize:
      return Family::kNone;
    default:
      return Family::kRows;
  }
}

bool HasAttention(const ir::Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [](const ir::Node& n) { return n.op == Op::kAttention; });
}

int64_t RoundUp(int64_t n) { return (n + 255) / 256 * 256; }

}  // namespace

Workspace WorkspaceOf(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  Workspace w;
  w.linear = RoundUp(AttentionWorkspace(g, b, d));
  w.choice = w.linear + RoundUp(LinearWorkspace(g, b, d));
  w.bytes = w.choice + RoundUp(ChoiceWorkspace(g, b, d));
  return w;
}

std::string GpuTarget::TargetName() const {
  return fmt::format("{}-{}", facts_.properties.arch, ir::Name(facts_.value_type));
}

bool GpuTarget::Supports(const ir::Graph& graph, const ir::Node& node,
                         const ir::Bucket& bucket) const {
  switch (FamilyOf(node.op)) {
    case Family::kLinear:
      return SupportsLinear(graph, node, bucket, facts_);
    case Family::kAttention:
      return SupportsAttention(graph, node, bucket, facts_);
    case Family::kNone:
      return false;
    default:
      return true;
  }
}

int64_t GpuTarget::WorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) const {
  return WorkspaceOf(graph, bucket, facts_).bytes;
}

// A node is compiled on its own, at addresses that nobody reads.
int GpuTarget::Launches(const ir::Graph& graph, const ir::Node& node,
                        const ir::Bucket& bucket) const {
  ir::Plan plan;
  plan.bucket = bucket;
  plan.graph = graph;
  plan.memory = ir::PlanMemory(graph, bucket);
  Bindings bindings;
  const auto fake = [](uint64_t n) { return reinterpret_cast<void*>(n << 40); };
  for (const ir::Value& v : graph.values) {
    if (v.kind != ir::ValueKind::kWeight) continue;
    const auto use = v.shape.size() == 1 ? ir::WeightUse::kPlain : ir::WeightUse::kLinear;
    bindings.weights[v.name] = {
        fake(1), v.dtype,
        LayoutFor(v.dtype, ir::Rows(v.shape, bucket), v.shape.back().At(bucket), use)};
  }
  for (const ir::StateGroup& group : graph.state_groups) {
    bindings.state.emplace_back(static_cast<size_t>(std::max(group.layers, 1)), fake(2));
    bindings.state_blocks.push_back(1);
  }
  bindings.arena = fake(3);
  bindings.inputs = fake(4);
  const StepLayout layout(graph, bucket);
  std::vector<Launch> launches;
  base::Status status;
  const Context c = {plan,
                     bindings,
                     layout,
                     facts_,
                     [&](const void*, int64_t) { return base::Result<void*>(fake(5)); },
                     launches,
                     status};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].outputs != node.outputs) continue;
    CompileNode(c, static_cast<ir::NodeId>(n));
  }
  return static_cast<int>(launches.size());
}

ir::WeightLayout GpuTarget::LayoutFor(ir::DType, int64_t rows, int64_t columns,
                                      ir::WeightUse use) const {
  if (use == ir::WeightUse::kPlain) return {kVectorLayout, rows * columns * 4};
  return {MatrixLayout(facts_.value_type),
          rows * PitchOf(columns) * ir::Info(facts_.value_type).bytes};
}

std::string GpuTarget::PickKernel(const ir::Graph& graph, const ir::Node& node,
                                  const ir::Bucket& bucket) const {
  (void)bucket;
  const ir::DType t = node.outputs.empty() ? facts_.value_type : graph.value(node.outputs[0]).dtype;
  return fmt::format("{}.{}", ir::Name(node.op), ir::Name(t));
}

void CompileNode(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  if (ir::IsView(n.op) &&
      c.plan.memory.places[static_cast<size_t>(n.outputs[0])].buffer != n.outputs[0])
    return;
  switch (FamilyOf(n.op)) {
    case Family::kRows:
      return CompileRows(c, id);
    case Family::kLinear:
      return CompileLinear(c, id);
    case Family::kAttention:
      return CompileAttention(c, id);
    case Family::kChoice:
      return CompileChoice(c, id);
    case Family::kNone:
      return c.Fail(id, "is not supported");
  }
}

base::Result<std::vector<Launch>> CompilePlan(const ir::Plan& plan, const Bindings& bindings,
                                              const DeviceFacts& facts, const Constants& constants,
                                              RopeTables* rope_tables) {
  const StepLayout layout(plan.graph, plan.bucket);
  std::vector<Launch> launches;
  base::Status status;
  const Context c = {plan, bindings, layout, facts, constants, launches, status, rope_tables};
  if (HasAttention(plan.graph)) CompileStepBegin(c);
  for (size_t n = 0; n < plan.graph.nodes.size() && status; ++n)
    CompileNode(c, static_cast<ir::NodeId>(n));
  if (!status) return status.error();
  return launches;
}

ir::Rates RatesOf(const DeviceProperties& p) {
  struct Known {
    const char* arch;
    const char* name;
    ir::Rates rates;
  };
  // Bandwidth and a captured launch of the H200 are measured (docs/benchmarks.md); the others are
  // the makers' figures, and for a graph node of theirs what has been published.
  static const Known known[] = {
      {"sm_90", "H200", {4.33e12, 7.9e14, 1.58e15, 1.45e-6}},
      {"gfx1200", "", {3.2e11, 4.5e13, 9.0e13, 3.9e-6}},
      {"gfx1100", "", {9.6e11, 1.2e14, 1.2e14, 3.9e-6}},
      {"gfx942", "", {5.3e12, 1.3e15, 2.6e15, 3.9e-6}},
  };
  for (const Known& k : known) {
    if (p.arch == k.arch && p.name.find(k.name) != std::string::npos) return k.rates;
  }
  return {1e12, 1e14, 2e14, 2e-6};
}

}  // namespace vt::gpu
