// Nodes of recurrent layers: the filter, the gated delta rule (token by token, in chunks where
// pieces are long), and the layer as one launch in steps of few tokens a request.
#include <algorithm>

#include "base/strings.h"
#include "vt/gpu/args_recurrent.h"
#include "vt/gpu/context.h"

namespace vt::gpu {
namespace {

using ir::Op;

unsigned Blocks(int64_t n, int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

const ir::StateGroup& GroupOf(const Context& c, ir::ValueId state) {
  return c.plan.graph.state_groups[static_cast<size_t>(c.value(state).group)];
}

// `state`, query_start, state_read and state_write stand one after the other from input `first`.
RecurrentState StateOf(const Context& c, ir::ValueId state, const ir::Node& n, size_t first) {
  const Context::Slots slots = c.SlotsOf(state);
  RecurrentState s;
  s.data = reinterpret_cast<float*>(slots.words);
  s.slot_floats = GroupOf(c, state).slot_bytes / 4;
  s.slots = static_cast<int32_t>(slots.count);
  s.query_start = c.Ints(n.inputs[first]);
  s.read = c.Ints(n.inputs[first + 1]);
  s.write = c.Ints(n.inputs[first + 2]);
  return s;
}

DeltaArgs ArgsOf(const Context& c, const ir::DeltaAttrs& d) {
  DeltaArgs a;
  a.header = c.header();
  a.k_heads = static_cast<int32_t>(d.k_heads);
  a.v_heads = static_cast<int32_t>(d.v_heads);
  a.k_dim = static_cast<int32_t>(d.k_dim);
  a.v_dim = static_cast<int32_t>(d.v_dim);
  a.state_begin = static_cast<int32_t>(d.state_begin);
  a.log_a = d.log_a ? 1 : 0;
  a.tiled = d.tiled ? 1 : 0;
  a.eps = d.eps;
  return a;
}

void CompileConv(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const auto& conv = n.attrs.as<ir::ConvAttrs>();
  ConvArgs a;
  a.header = c.header();
  a.state = StateOf(c, n.inputs[2], n, 3);
  a.x = c.RowsOf(n.inputs[0]);
  a.y = c.RowsOf(n.outputs[0]);
  a.w = c.Vector(n.inputs[1]);
  a.channels = static_cast<int32_t>(conv.channels);
  a.width = static_cast<int32_t>(conv.width);
  a.most_requests = static_cast<int32_t>(c.bucket().requests);
  // A step of a token a request has no further pieces.
  const unsigned pieces =
      c.bucket().tokens <= kConvTokens ? 0 : Blocks(c.bucket().tokens, kConvTokens);
  c.Emit(id, "causal_conv", c.value(n.outputs[0]).dtype,
         {.grid_x = Blocks(conv.channels, kConvThreads),
          .grid_y = static_cast<unsigned>(c.bucket().requests) + pieces,
          .threads = kConvThreads,
          .early = true},
         a);
}

// Whether a step of so many tokens may have pieces that go chunk by chunk.
bool HasChunks(const ir::DeltaAttrs& d, const ir::Bucket& b) {
  return b.tokens > kDeltaChunk && d.k_dim <= kDeltaChunkDim && d.k_dim % kDeltaChunkStep == 0;
}
int64_t ChunkSlotBytes(const ir::DeltaAttrs& d, int bytes) {
  return d.v_heads * DeltaHeadBytes(bytes) + d.k_heads * DeltaKeyBytes(bytes);
}

void CompileChunks(const Context& c, ir::NodeId id, const DeltaArgs& args) {
  const ir::Node& n = c.node(id);
  const auto& d = n.attrs.as<ir::DeltaAttrs>();
  const ir::DType type = c.value(n.outputs[0]).dtype;
  const int bytes = ir::Info(type).bytes;
  DeltaChunkArgs a;
  a.delta = args;
  a.work = reinterpret_cast<char*>(c.workspace() + c.parts().linear);
  a.slot_bytes = ChunkSlotBytes(d, bytes);
  c.Emit(id, "delta_begin", type,
         {.grid_x = Blocks(c.bucket().tokens, kDeltaSlotTokens),
          .grid_y = static_cast<unsigned>(d.v_heads),
          .threads = kDeltaChunkThreads,
          .shared_bytes = kDeltaBeginShared,
          .early = true},
         a);
  c.Emit(id, "delta_chunks", type,
         {.grid_x = static_cast<unsigned>(d.v_heads) * Blocks(d.v_dim, kDeltaChunkColumns),
          .grid_y = Blocks(c.bucket().tokens, kDeltaChunk),
          .threads = kDeltaChunkThreads,
          .shared_bytes = DeltaChunkShared(bytes),
          .early = true},
         a);
}

void CompileDelta(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const auto& d = n.attrs.as<ir::DeltaAttrs>();
  DeltaArgs a = ArgsOf(c, d);
  a.state = StateOf(c, n.inputs[5], n, 6);
  a.qkv = c.RowsOf(n.inputs[0]);
  a.a = c.RowsOf(n.inputs[1]);
  a.b = c.RowsOf(n.inputs[2]);
  a.big_a = c.Vector(n.inputs[3]);
  a.dt = c.Vector(n.inputs[4]);
  a.y = c.RowsOf(n.outputs[0]);
  const bool chunks = HasChunks(d, c.bucket()) && c.Aligned(n.inputs[0]);
  if (chunks) CompileChunks(c, id, a);
  if (chunks) a.most_tokens = kDeltaChunk;
  const int64_t waves = d.v_heads * Blocks(d.v_dim, kDeltaColumns);
  c.Emit(id, d.k_dim <= 128 ? "gated_delta_d128" : "gated_delta_d256", c.value(n.outputs[0]).dtype,
         {.grid_x = Blocks(waves, kDeltaThreads / c.device.properties.wave),
          .grid_y = static_cast<unsigned>(c.bucket().requests),
          .threads = kDeltaThreads,
          .early = true},
         a);
}

struct Net {
  const ir::ConvAttrs& conv;
  const ir::DeltaAttrs& delta;
  const ir::NormAttrs& norm;
};
Net NetOf(const ir::Node& n) {
  const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
  return {parts[0].as<ir::ConvAttrs>(), parts[2].as<ir::DeltaAttrs>(),
          parts[3].as<ir::NormAttrs>()};
}

int64_t NetFloats(const ir::DeltaAttrs& d) { return d.v_dim + d.v_dim / kDeltaNetColumns; }

void CompileNet(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const Net net = NetOf(n);
  DeltaNetArgs a;
  a.delta = ArgsOf(c, net.delta);
  a.delta.state = StateOf(c, n.inputs[2], n, 3);
  a.delta.qkv = c.RowsOf(n.inputs[0]);
  a.delta.a = c.RowsOf(n.inputs[6]);
  a.delta.b = c.RowsOf(n.inputs[7]);
  a.delta.big_a = c.Vector(n.inputs[8]);
  a.delta.dt = c.Vector(n.inputs[9]);
  a.delta.y = c.RowsOf(n.outputs[0]);
  a.w = c.Vector(n.inputs[1]);
  a.width = static_cast<int32_t>(net.conv.width);
  a.z = c.RowsOf(n.inputs[10]);
  a.norm = c.Vector(n.inputs[11]);
  a.norm_eps = net.norm.eps;
  a.norm_offset = net.norm.weight_offset;
  a.work = reinterpret_cast<float*>(c.workspace() + c.parts().linear);
  a.head_floats = static_cast<int32_t>(NetFloats(net.delta));
  a.counters = BlockCounters(c);
  const int columns = DeltaNetColumns(c.device.properties.wave);
  c.Emit(id, "delta_net", c.value(n.outputs[0]).dtype,
         {.grid_x = static_cast<unsigned>(net.delta.v_heads * net.delta.v_dim / columns),
          .grid_y = static_cast<unsigned>(c.bucket().requests),
          .threads = kDeltaNetThreads,
          .shared_bytes = static_cast<unsigned>((2 * kDeltaNetThreads + columns + 1) * 4),
          .early = true},
         a);
}

}  // namespace

bool SupportsRecurrent(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                       const DeviceFacts& d) {
  const ir::DType type = g.value(n.outputs[0]).dtype;
  const auto same = [&](std::initializer_list<size_t> inputs) {
    bool all = type == ir::DType::kF32 || type == ir::DType::kF16 || type == ir::DType::kBF16;
    for (const size_t i : inputs) all &= g.value(n.inputs[i]).dtype == type;
    return all;
  };
  switch (n.op) {
    case Op::kCausalConv:
      return same({0}) && n.attrs.as<ir::ConvAttrs>().width <= kConvMostWidth;
    case Op::kGatedDelta:
      return same({0, 1, 2}) && n.attrs.as<ir::DeltaAttrs>().k_dim <= kDeltaMostDim;
    default: {
      const Net net = NetOf(n);
      const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
      const bool silu = parts[1].as<ir::UnaryAttrs>().fn == ir::Activation::kSilu &&
                        parts[4].as<ir::UnaryAttrs>().fn == ir::Activation::kSilu;
      return same({0, 6, 7, 10}) && silu && b.tokens <= b.requests * 4 &&
             net.delta.k_dim == kDeltaNetThreads &&
             net.delta.v_dim % DeltaNetColumns(d.properties.wave) == 0 &&
             net.conv.width <= kDeltaNetMostWidth && net.conv.state_floats() % 4 == 0;
    }
  }
}

int64_t RecurrentWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts&) {
  int64_t most = 0;
  for (const ir::Node& n : g.nodes) {
    if (n.op == Op::kGatedDeltaNet) {
      const ir::DeltaAttrs& d = NetOf(n).delta;
      most = std::max(most, b.tokens * d.v_heads * NetFloats(d) * 4);
    }
    if (n.op != Op::kGatedDelta) continue;
    const auto& d = n.attrs.as<ir::DeltaAttrs>();
    if (!HasChunks(d, b)) continue;
    const int64_t slots = Blocks(b.tokens, kDeltaSlotTokens);
    most = std::max(most, slots * ChunkSlotBytes(d, ir::Info(g.value(n.outputs[0]).dtype).bytes));
  }
  return most;
}

void CompileRecurrent(const Context& c, ir::NodeId id) {
  switch (c.node(id).op) {
    case Op::kCausalConv:
      return CompileConv(c, id);
    case Op::kGatedDelta:
      return CompileDelta(c, id);
    default:
      return CompileNet(c, id);
  }
}

}  // namespace vt::gpu
