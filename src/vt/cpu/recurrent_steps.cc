// Recurrent layers: which slots a request's state is read from and written to, and how the work is
// cut: by request, and within it by channels or heads, none of which needs another's.
#include <algorithm>

#include "base/strings.h"
#include "vt/cpu/step.h"

namespace vt::cpu {
namespace {

// The slots of a layer, as bound, and the part of them that a node keeps.
struct Slots {
  std::byte* base = nullptr;
  int64_t count = 0, bytes = 0;
  int64_t begin = 0;  // floats
  const int32_t *query_start = nullptr, *reads = nullptr, *writes = nullptr;

  // nullptr: there is no such slot.
  float* at(int64_t slot) const {
    if (slot < 0 || slot >= count) return nullptr;
    return reinterpret_cast<float*>(base + slot * bytes) + begin;
  }
  template <typename Tile>
  Tile Of(int64_t request) const {
    Tile t;
    t.first = query_start[request];
    t.count = std::max<int64_t>(query_start[request + 1] - t.first, 0);
    t.read = at(reads[request]);
    t.write = at(writes[request]);
    return t;
  }
};

// Inputs from `state` on: the state, query_start, state_read, state_write.
base::Result<Slots> SlotsOf(const Context& c, const ir::Node& n, size_t state, int64_t begin) {
  const ir::Value& v = c.value(n.inputs[state]);
  const auto group = static_cast<size_t>(v.group), layer = static_cast<size_t>(v.layer);
  if (group >= c.bindings.state.size() || layer >= c.bindings.state[group].size() ||
      group >= c.bindings.state_blocks.size()) {
    return base::Error{base::Code::kInternal,
                       fmt::format("cpu: the state of '{}' has no memory", n.name)};
  }
  const int32_t* inputs[3];
  for (size_t i = 0; i < 3; ++i) {
    const auto p = c.Input(n.inputs[state + 1 + i]);
    if (!p) return p.error();
    inputs[i] = *p;
  }
  return Slots{static_cast<std::byte*>(c.bindings.state[group][layer]),
               c.bindings.state_blocks[group],
               c.plan.graph.state_groups[group].slot_bytes,
               begin,
               inputs[0],
               inputs[1],
               inputs[2]};
}

class ConvStep : public Step {
 public:
  ConvStep(ir::NodeId node, ConvFn f, const ConvArgs& args, const Slots& slots)
      : Step(node), f_(f), args_(args), slots_(slots) {}
  int64_t Chunks(const ir::Bucket& now) const override { return now.requests * Parts(); }
  void Run(const ir::Bucket&, int64_t chunk, std::byte* scratch) const override {
    auto t = slots_.Of<ConvTile>(chunk / Parts());
    t.begin = chunk % Parts() * kConvChannels;
    t.end = std::min(t.begin + kConvChannels, args_.channels);
    f_(args_, t, reinterpret_cast<float*>(scratch));
  }
  int64_t ScratchBytes() const override { return ConvScratchFloats(args_.width) * 4; }

 private:
  int64_t Parts() const { return (args_.channels + kConvChannels - 1) / kConvChannels; }
  ConvFn f_;
  ConvArgs args_;
  Slots slots_;
};

class DeltaStep : public Step {
 public:
  DeltaStep(ir::NodeId node, DeltaFn f, const DeltaArgs& args, const Slots& slots)
      : Step(node), f_(f), args_(args), slots_(slots) {}
  int64_t Chunks(const ir::Bucket& now) const override { return now.requests * args_.v_heads; }
  void Run(const ir::Bucket&, int64_t chunk, std::byte* scratch) const override {
    auto t = slots_.Of<DeltaTile>(chunk / args_.v_heads);
    t.head = chunk % args_.v_heads;
    const int64_t floats = args_.k_dim * args_.v_dim;
    if (t.read != nullptr) t.read += t.head * floats;
    if (t.write != nullptr) t.write += t.head * floats;
    f_(args_, t, reinterpret_cast<float*>(scratch));
  }
  int64_t ScratchBytes() const override { return DeltaScratchFloats(args_.k_dim, args_.v_dim) * 4; }

 private:
  DeltaFn f_;
  DeltaArgs args_;
  Slots slots_;
};

// Takes what a node's parts need from its inputs, by their places.
struct Parts {
  const Context& c;
  ir::NodeId id;
  const ir::Node& n;
  base::Status status;

  Parts(const Context& context, ir::NodeId node)
      : c(context), id(node), n(c.plan.graph.nodes[static_cast<size_t>(node)]) {}

  template <typename T>
  T Take(base::Result<T> r) {
    if (r) return *r;
    if (status.ok()) status = r.error();
    return T{};
  }
  RowsView In(size_t i) { return Take(c.Rows(n.inputs[i])); }
  RowsView Out() { return Take(c.Rows(n.outputs[0])); }
  const float* Vector(size_t i) { return Take(c.Vector(n.inputs[i])); }

  void Conv(const ir::ConvAttrs& attrs, float* y, int64_t y_stride, bool silu, Steps& steps) {
    const RowsView x = In(0);
    const ConvArgs a = {.x = x.base,
                        .x_stride = x.stride,
                        .y = y,
                        .y_stride = y_stride,
                        .w = Vector(1),
                        .channels = attrs.channels,
                        .width = attrs.width,
                        .silu = silu};
    const Slots slots = Take(SlotsOf(c, n, 2, 0));
    if (status) steps.push_back(std::make_unique<ConvStep>(id, c.kernels.causal_conv, a, slots));
  }
  // Inputs a, b, A and dt begin at `gates`. `args` holds what stands before and behind the rule.
  void Delta(const ir::DeltaAttrs& attrs, DeltaArgs args, size_t gates, size_t state,
             Steps& steps) {
    const RowsView a = In(gates), b = In(gates + 1), y = Out();
    args.a = a.base;
    args.a_stride = a.stride;
    args.b = b.base;
    args.b_stride = b.stride;
    args.rate = Vector(gates + 2);
    args.dt = Vector(gates + 3);
    args.y = y.base;
    args.y_stride = y.stride;
    args.k_heads = attrs.k_heads;
    args.v_heads = attrs.v_heads;
    args.k_dim = attrs.k_dim;
    args.v_dim = attrs.v_dim;
    args.log_a = attrs.log_a;
    args.tiled = attrs.tiled;
    args.eps = attrs.eps;
    const Slots slots = Take(SlotsOf(c, n, state, attrs.state_begin));
    if (status)
      steps.push_back(std::make_unique<DeltaStep>(id, c.kernels.gated_delta, args, slots));
  }
};

}  // namespace

int64_t RecurrentWorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) {
  int64_t bytes = 0;
  for (const ir::Node& n : graph.nodes) {
    if (n.op != ir::Op::kGatedDeltaNet) continue;
    bytes = std::max(bytes, 4 * ir::Elements(graph.value(n.inputs[0]).shape, bucket));
  }
  return bytes;
}

base::Status CompileRecurrent(const Context& c, ir::NodeId id, Steps& steps) {
  Parts p(c, id);
  if (p.n.op == ir::Op::kCausalConv) {
    const RowsView y = p.Out();
    p.Conv(p.n.attrs.as<ir::ConvAttrs>(), y.base, y.stride, false, steps);
  } else if (p.n.op == ir::Op::kGatedDelta) {
    const RowsView x = p.In(0);
    p.Delta(p.n.attrs.as<ir::DeltaAttrs>(), {.qkv = x.base, .qkv_stride = x.stride}, 1, 5, steps);
  } else {  // the filtered values stand in the workspace
    const auto& parts = p.n.attrs.as<ir::FusedAttrs>().parts;
    const auto& norm = parts[3].as<ir::NormAttrs>();
    auto* filtered = reinterpret_cast<float*>(static_cast<std::byte*>(c.bindings.arena) +
                                              c.plan.workspace_offset);
    const int64_t channels = parts[0].as<ir::ConvAttrs>().channels;
    p.Conv(parts[0].as<ir::ConvAttrs>(), filtered, channels, true, steps);
    const RowsView gate = p.In(10);
    const DeltaArgs args = {.qkv = filtered,
                            .qkv_stride = channels,
                            .norm = p.Vector(11),
                            .norm_eps = norm.eps,
                            .norm_offset = norm.weight_offset,
                            .gate = gate.base,
                            .gate_stride = gate.stride};
    p.Delta(parts[2].as<ir::DeltaAttrs>(), args, 6, 2, steps);
  }
  return p.status;
}

}  // namespace vt::cpu
