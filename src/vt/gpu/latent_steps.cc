// What stands around attention over a latent cache: vectors into it, and linears of which each head
// has a matrix of its own, alone or with the rotation beside them (args_latent.h).
#include "vt/gpu/args_latent.h"
#include "vt/gpu/context.h"
#include "vt/gpu/quant_layout.h"

namespace vt::gpu {
namespace {

using ir::Op;

const ir::Attrs& PartOf(const ir::Node& n, size_t part) {
  return n.attrs.as<ir::FusedAttrs>().parts[part];
}

constexpr int kWaves = 4;
// Of so many tokens the waves of a block of head_linear share a head's columns.
constexpr int64_t kFewTokens = 16;

// Of a fused op's inputs and parts, those from which a write, or a query, has its own.
LatentWriteArgs WriteOf(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const bool fused = n.op != Op::kKvWrite, both = n.op == Op::kLatentQueryWrite;
  const size_t part = both ? 5 : 0;
  LatentWriteArgs a;
  a.header = c.header();
  a.x = c.RowsOf(n.inputs[both ? 3 : fused ? 0 : 1]);
  a.kv = c.Kv(n.inputs[both ? 5 : fused ? 3 : 0]);
  a.slots = c.Ints(n.inputs.back());
  a.rank = a.kv.head_dim;
  if (fused) {
    const auto& norm = PartOf(n, part + 1).as<ir::NormAttrs>();
    const auto& rope = PartOf(n, part + 3).as<ir::RopeAttrs>();
    a.norm = {c.Vector(n.inputs[both ? 4 : 1]), norm.eps, norm.weight_offset};
    a.positions = c.Ints(n.inputs[2]);
    a.table = RopeTableOf(c, rope);
    a.rank = static_cast<int32_t>(PartOf(n, part).as<ir::SliceAttrs>().size);
    a.interleaved = rope.interleaved ? 1 : 0;
  }
  return a;
}

// A launch of head_linear.
struct Heads {
  HeadLinearArgs args;
  LaunchConfig config;
  bool many = false;
};
Heads HeadsOf(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const ir::DType type = c.value(n.inputs[0]).dtype;
  const ir::Shape& w = c.value(n.inputs[1]).shape;
  Heads h;
  HeadLinearArgs& a = h.args;
  a.header = c.header();
  a.x = c.RowsOf(n.inputs[0]);
  a.y = c.RowsOf(n.outputs[0]);
  a.w = c.Address(n.inputs[1]);
  a.heads = static_cast<int32_t>(w[0].At(c.bucket()));
  a.n = static_cast<int32_t>(w[1].At(c.bucket()));
  a.k = static_cast<int32_t>(w[2].At(c.bucket()));
  a.pitch = static_cast<int32_t>(PitchOf(a.k));
  if (n.op != Op::kHeadLinear) {
    const auto& rope = PartOf(n, 3).as<ir::RopeAttrs>();
    a.positions = c.Ints(n.inputs[2]);
    a.table = RopeTableOf(c, rope);
    a.interleaved = rope.interleaved ? 1 : 0;
  }
  const int size = ir::Info(type).bytes;
  // f32, which is for checking, has the one kernel.
  h.many = type != ir::DType::kF32 && c.bucket().tokens > kFewTokens &&
           HeadBytes(a.k, size, true) <= c.device.properties.shared_bytes;
  if (HeadBytes(a.k, size, h.many) > c.device.properties.shared_bytes)
    c.Fail(id, "has heads of more values than a block's shared memory holds");
  a.most_tokens = static_cast<int32_t>(c.bucket().tokens);
  a.direct = c.Aligned(n.inputs[0]) && a.k % 32 == 0 ? 1 : 0;
  a.staged_pitch = HeadPitch(a.k, size);
  a.column_tiles = (a.n + HeadColumns(h.many) - 1) / HeadColumns(h.many);
  const int64_t token_tiles = (c.bucket().tokens + HeadTokens(h.many) - 1) / HeadTokens(h.many);
  h.config.grid_x = static_cast<unsigned>(token_tiles * a.heads *
                                          (a.column_tiles + (a.table != nullptr ? 1 : 0)));
  h.config.threads = static_cast<unsigned>(kWaves * c.device.properties.wave);
  h.config.shared_bytes = static_cast<unsigned>(HeadBytes(a.k, size, h.many));
  h.config.early = true;
  return h;
}

void CompileWrite(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(c.bucket().tokens);
  config.threads = static_cast<unsigned>(kWaves * c.device.properties.wave);
  config.shared_bytes = kWaves * 4;
  config.early = true;
  const ir::DType type = c.value(n.inputs[n.op == Op::kLatentWrite ? 0 : 1]).dtype;
  c.Emit(id, "latent_write", type, config, WriteOf(c, id));
}

void CompileHeads(const Context& c, ir::NodeId id) {
  const Heads h = HeadsOf(c, id);
  c.Emit(id, h.many ? "head_linear_many" : "head_linear", c.value(c.node(id).inputs[0]).dtype,
         h.config, h.args);
}

void CompileBoth(const Context& c, ir::NodeId id) {
  Heads h = HeadsOf(c, id);
  LatentQueryArgs a;
  a.query = h.args;
  a.write = WriteOf(c, id);
  a.writes = static_cast<int32_t>(c.bucket().tokens);
  h.config.grid_x += static_cast<unsigned>(a.writes);
  c.Emit(id, "latent_query_write", c.value(c.node(id).inputs[0]).dtype, h.config, a);
}

}  // namespace

void CompileLatent(const Context& c, ir::NodeId id) {
  const Op op = c.node(id).op;
  if (op == Op::kLatentQueryWrite) return CompileBoth(c, id);
  return op == Op::kHeadLinear || op == Op::kLatentQuery ? CompileHeads(c, id)
                                                         : CompileWrite(c, id);
}

bool SupportsLatent(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b) {
  const bool both = n.op == Op::kLatentQueryWrite;
  if (both || n.op == Op::kLatentWrite) {
    const ir::Value& state = g.value(n.inputs[both ? 5 : 3]);
    const ir::StateGroup& s = g.state_groups[static_cast<size_t>(state.group)];
    if (ir::Info(s.dtype).block != 1 || s.head_dim % 8 != 0) return false;
    if (!both) return true;
    // Many have kernels of their own.
    if (b.tokens > kFewTokens || g.value(n.inputs[3]).dtype != g.value(n.inputs[0]).dtype)
      return false;
  }
  return !QuantFormatOf(g.value(n.inputs[1]).dtype) &&
         g.value(n.outputs[0]).dtype == g.value(n.inputs[0]).dtype;
}

}  // namespace vt::gpu
