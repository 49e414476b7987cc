#include "vt/gpu/target.h"

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "vt/gpu/expert_steps.h"
#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_plan.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/router_steps.h"
#include "vt/ir/rewrite.h"

namespace vt::gpu {
namespace {

using ir::Op;

enum class Family {
  kRows,
  kLinear,
  kAttention,
  kChoice,
  kQuantize,
  kExperts,
  kRecurrent,
  kEntries,
  kLatent
};

Family FamilyOf(Op op) {
  switch (op) {
    case Op::kLinear:
    case Op::kLinearAdd:
    case Op::kLinearActMul:
    case Op::kRmsNormLinear:
    case Op::kRmsNormLinearActMul:
    case Op::kNormAddNormLinear:
    case Op::kNormAddNormLinearActMul:
    case Op::kRmsNormQuantizeLinear:
    case Op::kQuantizeLinearAdd:
    case Op::kActMulQuantizeLinearAdd:
      return Family::kLinear;
    case Op::kKvWrite:
    case Op::kAttention:
    case Op::kRopeKvWrite:
    case Op::kNormRopeKvWrite:
    case Op::kRopeAttention:
    case Op::kNormRopeAttention:
      return Family::kAttention;
    case Op::kHeadLinear:
    case Op::kLatentQuery:
    case Op::kLatentQueryWrite:
    case Op::kLatentWrite:
      return Family::kLatent;
    case Op::kTokenFeed:
    case Op::kArgMax:
    case Op::kSample:
    case Op::kTopLogprobs:
      return Family::kChoice;
    case Op::kRouter:
    case Op::kHashRouter:
    case Op::kGroupedLinear:
    case Op::kGroupedLinearActMul:
    case Op::kGroupedLinearSum:
    case Op::kExpertSum:
    case Op::kNormRouter:
    case Op::kNormRouterGate:
    case Op::kRmsNormRouter:
    case Op::kGroupedLinearActMulQuantize:
    case Op::kExpertsUp:
    case Op::kGroupedLinearSumAdd:
    case Op::kGroupedLinearSumAddAdd:
    case Op::kExpertsDown:
    case Op::kExpertsActMul:
    case Op::kExpertsDownUngated:
      return Family::kExperts;
    case Op::kCausalConv:
    case Op::kGatedDelta:
    case Op::kGatedDeltaNet:
      return Family::kRecurrent;
    case Op::kCompress:
    case Op::kIndexEntries:
    case Op::kEntryAttention:
    case Op::kHyperCollapse:
    case Op::kHyperExpand:
      return Family::kEntries;
    case Op::kQuantize:
    case Op::kRmsNormQuantize:
    case Op::kAddRmsNormQuantize:
    case Op::kActMulQuantize:
      return Family::kQuantize;
    default:
      return Family::kRows;
  }
}

bool HasAttention(const ir::Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [](const ir::Node& n) { return AttentionAttrsOf(n) != nullptr; });
}

int64_t RoundUp(int64_t n) { return (n + 255) / 256 * 256; }

}  // namespace

int64_t BlockCounterCount(const ir::Graph& g, const ir::Bucket& b) {
  int64_t most = 0;
  for (const ir::Node& n : g.nodes) {
    if (IsNormRouter(n.op)) most = std::max(most, b.tokens);
    if (n.op == Op::kGatedDeltaNet) {
      const auto& delta = n.attrs.as<ir::FusedAttrs>().parts[2].as<ir::DeltaAttrs>();
      most = std::max(most, b.requests * delta.k_heads);
    }
  }
  return most;
}

Workspace WorkspaceOf(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  Workspace w;
  w.linear = RoundUp(AttentionWorkspace(g, b, d));
  w.experts = w.linear + RoundUp(std::max(LinearWorkspace(g, b, d), RecurrentWorkspace(g, b, d)));
  w.choice = w.experts + RoundUp(ExpertWorkspace(g, b, d));
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
    case Family::kExperts:
      return SupportsExperts(graph, node, bucket, facts_);
    case Family::kLatent:
      return SupportsLatent(graph, node, bucket);
    case Family::kRecurrent:
      return SupportsRecurrent(graph, node, bucket, facts_);
    case Family::kEntries:
      return SupportsEntries(graph, node, facts_);
    default:
      return true;
  }
}

int64_t GpuTarget::WorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) const {
  return WorkspaceOf(graph, bucket, facts_).bytes;
}

// The plan is compiled for addresses that nobody reads.
int64_t GpuTarget::Launches(const ir::Plan& plan) const {
  const auto fake = [](uint64_t n) { return reinterpret_cast<void*>(n << 40); };
  Bindings bindings;
  std::set<ir::ValueId> filters;  // matrices that are held as vectors are
  for (const ir::Node& n : plan.graph.nodes) {
    if (n.op == Op::kCausalConv || n.op == Op::kGatedDeltaNet) filters.insert(n.inputs[1]);
    if (n.op == Op::kExpertBias) filters.insert(n.inputs[2]);
    if (n.op == Op::kHashRouter) filters.insert(n.inputs[1]);
    if (n.op == Op::kCompress) filters.insert(n.inputs[6]);
  }
  for (size_t i = 0; i < plan.graph.values.size(); ++i) {
    const ir::Value& v = plan.graph.values[i];
    if (v.kind != ir::ValueKind::kWeight) continue;
    const bool plain = v.shape.size() == 1 || filters.contains(static_cast<ir::ValueId>(i));
    const auto use = plain ? ir::WeightUse::kPlain : ir::WeightUse::kLinear;
    bindings.weights[v.name] = {
        fake(1), v.dtype,
        LayoutFor(v.dtype, ir::Rows(v.shape, plan.bucket), v.shape.back().At(plan.bucket), use)};
  }
  for (const ir::StateGroup& group : plan.graph.state_groups) {
    bindings.state.emplace_back(static_cast<size_t>(std::max(group.layers, 1)), fake(2));
    bindings.state_blocks.push_back(1);
  }
  bindings.arena = fake(3);
  bindings.inputs = fake(4);
  // Tables of rotations take long to make.
  RopeTables tables;
  const auto add = [&](const ir::Attrs& attrs) {
    const auto* compress = std::get_if<ir::CompressAttrs>(&attrs.v);
    const auto* rope = compress != nullptr ? &compress->rope : std::get_if<ir::RopeAttrs>(&attrs.v);
    if (rope != nullptr)
      tables.made.push_back({*rope, INT64_MAX, static_cast<const float*>(fake(5))});
  };
  for (const ir::Node& n : plan.graph.nodes) {
    add(n.attrs);
    if (const auto* fused = std::get_if<ir::FusedAttrs>(&n.attrs.v)) {
      for (const ir::Attrs& part : fused->parts) add(part);
    }
  }
  const auto constants = [&](const void*, int64_t) { return base::Result<void*>(fake(6)); };
  const base::Result<std::vector<Launch>> launches =
      CompilePlan(plan, bindings, facts_, constants, &tables);
  return launches ? static_cast<int64_t>(launches->size()) : -1;
}

ir::DType GpuTarget::ActivationFormat(ir::DType weight, const ir::Bucket& bucket) const {
  const auto format = QuantFormatOf(weight);
  return format && bucket.tokens <= QuantTokens(*format) ? ir::DType::kQ8_A32 : facts_.value_type;
}

ir::DType GpuTarget::HeldFormat(ir::DType stored) const {
  return QuantFormatOf(stored) ? stored : facts_.value_type;
}

ir::WeightLayout GpuTarget::LayoutFor(ir::DType format, int64_t rows, int64_t columns,
                                      ir::WeightUse use) const {
  if (use == ir::WeightUse::kPlain) return {kVectorLayout, rows * columns * 4};
  if (const auto quant = QuantFormatOf(format))
    return {QuantLayoutName(format), QuantLayout::Of(*quant, rows, columns).bytes};
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
    case Family::kLatent:
      return CompileLatent(c, id);
    case Family::kRecurrent:
      return CompileRecurrent(c, id);
    case Family::kEntries:
      return CompileEntries(c, id);
    case Family::kQuantize:
      return CompileQuantize(c, id);
    case Family::kExperts:
      return CompileExperts(c, id);
  }
}

base::Result<std::vector<Launch>> CompilePlan(const ir::Plan& plan, const Bindings& bindings,
                                              const DeviceFacts& facts, const Constants& constants,
                                              RopeTables* rope_tables) {
  const StepLayout layout(plan.graph, plan.bucket);
  std::vector<Launch> launches;
  base::Status status;
  const Context c = {plan, bindings, layout, facts, constants, launches, status, rope_tables};
  if (HasAttention(plan.graph) || BlockCounterCount(plan.graph, plan.bucket) > 0)
    CompileStepBegin(c);
  for (size_t n = 0; n < plan.graph.nodes.size() && status; ++n)
    CompileNode(c, static_cast<ir::NodeId>(n));
  if (!status) return status.error();
  return launches;
}

std::span<const KnownCard> KnownCards() {
  // Bandwidth and a captured launch of the H200 are measured (docs/benchmarks.md); the others are
  // the makers' figures, and for a graph node of theirs what has been published.
  static const std::vector<KnownCard> cards = [] {
    // Units as a runtime counts them: HIP takes two compute units of RDNA for one.
    const auto card = [](const char* name, const char* full, const char* arch, int units, int wave,
                         int64_t shared, int64_t gib, bool cuda, ir::Rates rates) {
      DeviceProperties p;
      p.name = full;
      p.arch = arch;
      p.units = units;
      p.wave = wave;
      p.shared_bytes = shared;
      p.total_bytes = p.free_bytes = static_cast<uint64_t>(gib) << 30;
      p.early_launch = cuda;
      return KnownCard{name, p, cuda, rates};
    };
    constexpr int64_t kKiB = 1024;
    return std::vector<KnownCard>{
        card("h200", "NVIDIA H200", "sm_90", 132, 32, 227 * kKiB, 140, true,
             {4.33e12, 7.9e14, 1.58e15, 1.45e-6}),
        card("rx9060xt", "AMD Radeon RX 9060 XT", "gfx1200", 16, 32, 64 * kKiB, 16, false,
             {3.2e11, 1.0e14, 2.0e14, 3.9e-6}),
        card("rx7900xtx", "AMD Radeon RX 7900 XTX", "gfx1100", 48, 32, 64 * kKiB, 24, false,
             {9.6e11, 1.2e14, 1.2e14, 3.9e-6}),
        card("mi300x", "AMD Instinct MI300X", "gfx942", 304, 64, 64 * kKiB, 192, false,
             {5.3e12, 1.3e15, 2.6e15, 3.9e-6}),
    };
  }();
  return cards;
}

ir::Rates RatesOf(const DeviceProperties& p) {
  for (const KnownCard& k : KnownCards()) {
    if (p.arch == k.properties.arch && p.units == k.properties.units) return k.rates;
  }
  return {1e12, 1e14, 2e14, 2e-6};
}

}  // namespace vt::gpu
