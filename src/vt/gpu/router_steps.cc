#include "vt/gpu/router_steps.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "vt/gpu/args_experts.h"
#include "vt/gpu/quant_plan.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/rows_work.h"

namespace vt::gpu {
namespace {

using ir::DType;
using ir::Op;

// Without the logits. Bias and scales are a node's last inputs.
RouterArgs RouterOf(const Context& c, const ir::RouterAttrs& r,
                    const std::vector<ir::ValueId>& inputs, ir::ValueId weights, ir::ValueId ids) {
  RouterArgs a;
  a.header = c.header();
  if (r.bias) a.bias = c.Vector(inputs[inputs.size() - (r.expert_scales ? 2 : 1)]);
  if (r.expert_scales) a.scales = c.Vector(inputs.back());
  a.count = {Of::kTokens, 1};
  a.weights = static_cast<float*>(c.Address(weights));
  a.ids = static_cast<int32_t*>(c.Address(ids));
  a.chosen = static_cast<int32_t>(r.top_k);
  a.groups = static_cast<int32_t>(r.groups);
  a.top_groups = static_cast<int32_t>(r.top_groups);
  a.group_max = r.group_max ? 1 : 0;
  a.sigmoid = r.sigmoid ? 1 : 0;
  a.root = r.root ? 1 : 0;
  a.normalise = r.normalise ? 1 : 0;
  a.scale = r.scale;
  return a;
}
// Of a router that is complete.
void DecideRouter(RouterArgs& a, const DeviceFacts& d) {
  const int wave = d.properties.wave;
  const bool few = a.experts <= kRouterLane * wave && a.chosen <= wave;
  a.in_lanes = few && a.groups <= 1 && a.table == nullptr ? 1 : 0;
}
int64_t RouterBytes(const RouterArgs& a) { return (2 * int64_t{a.experts} + a.groups) * 4; }

void EmitRouter(const Context& c, ir::NodeId id, const RouterArgs& a, int64_t most_rows) {
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(most_rows);
  config.threads = static_cast<unsigned>(c.device.properties.wave);
  config.shared_bytes = static_cast<unsigned>(RouterBytes(a));
  config.early = true;
  c.Emit(id, "router", config, a);
}

// What is left of the last launch, a norm's router, where another one chooses: norm_router_rows,
// if that can be. By itself the node has a launch that chooses behind it.
void LeaveRows(const Context& c, NormRouterArgs a) {
  const DeviceFacts& d = c.device;
  const int64_t waves = kNormRouterThreads / d.properties.wave;
  const int64_t held = int64_t{kRouterRowHeld} * 8 * d.properties.wave;
  int64_t parts = 1;
  while (parts < waves && parts * held < a.width) parts *= 2;
  const int64_t rows = a.router.experts + (a.gate_w != nullptr ? 1 : 0);
  const int64_t blocks = (rows * parts + waves - 1) / waves;
  const int64_t share = (a.width / 32 + blocks - 1) / blocks * 32;
  if (parts * held < a.width || a.x.f32 != (d.value_type == DType::kF32 ? 1 : 0) ||
      a.x.rows.inner > 1 || a.x.rows.stride * ir::Info(d.value_type).bytes % 16 != 0 ||
      reinterpret_cast<uintptr_t>(a.x.rows.base) % 16 != 0 || share > kNormRouterThreads * 8)
    return;
  RouterArgs choice = a.router;
  choice.logits = {a.logits, choice.experts, 1, choice.experts};
  EmitRouter(c, c.launches.back().node, choice, c.launches.back().config.grid_y);
  Launch chooses = std::move(c.launches.back());
  c.launches.pop_back();

  Launch& left = c.launches.back();
  a.row_parts_log2 = std::countr_zero(static_cast<unsigned>(parts));
  a.row_share = static_cast<int32_t>(share);
  left.kernel = "norm_router_rows" + left.kernel.substr(std::string_view("norm_router").size());
  left.config.grid_x = static_cast<unsigned>(blocks);
  left.config.shared_bytes = static_cast<unsigned>(2 * waves * sizeof(float));
  std::memcpy(left.args.data(), &a, sizeof a);
  left.alone.clear();
  left.alone = {left, std::move(chooses)};
}

}  // namespace

void CompileRouter(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  RouterArgs a = RouterOf(c, n.attrs.as<ir::RouterAttrs>(), n.inputs, n.outputs[0], n.outputs[1]);
  a.logits = c.RowsOf(n.inputs[0]);
  a.experts = a.logits.width;
  if (n.op == Op::kHashRouter) {
    a.table = c.Vector(n.inputs[1]);
    a.tokens = c.Ints(n.inputs[2]);
  }
  DecideRouter(a, c.device);
  EmitRouter(c, id, a, c.MostRows(n.inputs[0]));
}

void CompileNormRouter(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
  const auto& norm = parts[0].as<ir::NormAttrs>();
  const Matrix w = c.MatrixOf(n.inputs[2]);
  NormRouterArgs a;
  a.router = RouterOf(c, parts[2].as<ir::RouterAttrs>(), n.inputs, n.outputs[1], n.outputs[2]);
  a.router.experts = static_cast<int32_t>(w.rows);
  DecideRouter(a.router, c.device);
  a.x = ViewOf(c, n.inputs[0]);
  a.norm = {c.Vector(n.inputs[1]), norm.eps, norm.weight_offset};
  if (n.op == Op::kRmsNormRouter) {
    a.row = c.RowsOf(n.outputs[0]);
  } else {
    a.y = QuantRowsOf(c, n.outputs[0]);
  }
  a.width = static_cast<int32_t>(w.columns);
  a.w = w.data;
  a.pitch = w.pitch;
  int64_t rows = w.rows;
  if (n.op == Op::kNormRouterGate) {
    a.gate_w = c.MatrixOf(n.inputs[3]).data;
    a.gate = ViewOf(c, n.outputs[3]);
    a.gate_fn = RowFnOf(parts[4].as<ir::UnaryAttrs>().fn);
    ++rows;
  }
  a.logits = reinterpret_cast<float*>(c.workspace() + c.parts().experts);
  a.counters = BlockCounters(c);
  const int64_t waves = kNormRouterThreads / c.device.properties.wave;
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>((rows + waves - 1) / waves + 1);
  config.grid_y = static_cast<unsigned>(c.MostRows(n.inputs[0]));
  config.threads = kNormRouterThreads;
  // A norm's sums; logits and what the choice needs.
  config.shared_bytes = static_cast<unsigned>(
      std::max<int64_t>(kRowsScratch * 4, w.rows * 4 + RouterBytes(a.router)));
  config.early = true;
  c.Emit(id, "norm_router", c.device.value_type, config, a);
}

bool IsNormRouter(Op op) {
  return op == Op::kNormRouter || op == Op::kNormRouterGate || op == Op::kRmsNormRouter;
}

bool SupportsNormRouter(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                        const DeviceFacts& d) {
  constexpr int64_t kMostWidth = 8192;  // of a row in shared memory
  const auto plain = [&](ir::ValueId v) {
    return g.value(v).dtype == DType::kF32 || g.value(v).dtype == d.value_type;
  };
  const ir::Value &x = g.value(n.inputs[0]), &w = g.value(n.inputs[2]);
  const bool gate = n.op == Op::kNormRouterGate;
  const auto matrix = [&](ir::ValueId v) {
    return g.value(v).kind == ir::ValueKind::kWeight && !IsQuantMatrix(g.value(v));
  };
  return plain(n.inputs[0]) && x.shape.size() == 2 && b.tokens <= kQuantTokens &&
         x.shape.back().At(b) <= kMostWidth && x.shape.back().At(b) % 32 == 0 &&
         w.shape[0].At(b) <= kMostExperts && matrix(n.inputs[2]) &&
         (n.op != Op::kRmsNormRouter || g.value(n.outputs[0]).dtype == d.value_type) &&
         (!gate ||
          (matrix(n.inputs[3]) && g.value(n.inputs[3]).shape[0].At(b) == 1 && plain(n.outputs[3])));
}

RouterHere TakeChoice(const Context& c, ir::ValueId ids, bool begins_late) {
  if (c.launches.empty()) return {};
  Launch& last = c.launches.back();
  if (last.node < 0 || !IsNormRouter(c.node(last.node).op) || c.node(last.node).outputs[2] != ids)
    return {};
  NormRouterArgs a;
  std::memcpy(&a, last.args.data(), sizeof a);
  const RouterArgs& r = a.router;
  const bool softmax = r.sigmoid == 0 && r.root == 0;
  // A softmax's scores with a bias need all the logits, for whom one block is enough.
  if (r.in_lanes == 0 || r.experts > kRouterUpLane * c.device.properties.wave ||
      (softmax && r.bias != nullptr))
    return {};
  a.chooses = 0;
  last.alone = {last};
  std::memcpy(last.args.data(), &a, sizeof a);
  if (begins_late) LeaveRows(c, a);
  return {a.router, a.logits};
}

}  // namespace vt::gpu
