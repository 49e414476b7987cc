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

void CompileWrite(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const bool fused = n.op == Op::kLatentWrite;
  const ir::ValueId x = n.inputs[fused ? 0 : 1];
  LatentWriteArgs a;
  a.header = c.header();
  a.x = c.RowsOf(x);
  a.kv = c.Kv(n.inputs[fused ? 3 : 0]);
  a.slots = c.Ints(n.inputs.back());
  a.rank = a.kv.head_dim;
  if (fused) {
    const auto& norm = PartOf(n, 1).as<ir::NormAttrs>();
    const auto& rope = PartOf(n, 3).as<ir::RopeAttrs>();
    a.norm = {c.Vector(n.inputs[1]), norm.eps, norm.weight_offset};
    a.positions = c.Ints(n.inputs[2]);
    a.table = RopeTableOf(c, rope);
    a.rank = static_cast<int32_t>(PartOf(n, 0).as<ir::SliceAttrs>().size);
    a.interleaved = rope.interleaved ? 1 : 0;
  }
  constexpr int kWaves = 4;
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(c.bucket().tokens);
  config.threads = static_cast<unsigned>(kWaves * c.device.properties.wave);
  config.shared_bytes = kWaves * 4;
  config.early = true;
  c.Emit(id, "latent_write", c.value(x).dtype, config, a);
}

void CompileHeads(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const ir::DType type = c.value(n.inputs[0]).dtype;
  const ir::Shape& w = c.value(n.inputs[1]).shape;
  HeadLinearArgs a;
  a.header = c.header();
  a.x = c.RowsOf(n.inputs[0]);
  a.y = c.RowsOf(n.outputs[0]);
  a.w = c.Address(n.inputs[1]);
  a.heads = static_cast<int32_t>(w[0].At(c.bucket()));
  a.n = static_cast<int32_t>(w[1].At(c.bucket()));
  a.k = static_cast<int32_t>(w[2].At(c.bucket()));
  a.pitch = static_cast<int32_t>(PitchOf(a.k));
  if (n.op == Op::kLatentQuery) {
    const auto& rope = PartOf(n, 3).as<ir::RopeAttrs>();
    a.positions = c.Ints(n.inputs[2]);
    a.table = RopeTableOf(c, rope);
    a.interleaved = rope.interleaved ? 1 : 0;
  }
  const int size = ir::Info(type).bytes;
  // f32, which is for checking, has the one kernel.
  const bool many = type != ir::DType::kF32 && c.bucket().tokens > 16 &&
                    HeadBytes(a.k, size, true) <= c.device.properties.shared_bytes;
  if (HeadBytes(a.k, size, many) > c.device.properties.shared_bytes)
    return c.Fail(id, "has heads of more values than a block's shared memory holds");
  a.most_tokens = static_cast<int32_t>(c.bucket().tokens);
  a.direct = c.Aligned(n.inputs[0]) && a.k % 32 == 0 ? 1 : 0;
  a.staged_pitch = HeadPitch(a.k, size);
  a.column_tiles = (a.n + HeadColumns(many) - 1) / HeadColumns(many);
  const int64_t token_tiles = (c.bucket().tokens + HeadTokens(many) - 1) / HeadTokens(many);
  constexpr int kWaves = 4;
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(token_tiles * a.heads *
                                        (a.column_tiles + (a.table != nullptr ? 1 : 0)));
  config.threads = static_cast<unsigned>(kWaves * c.device.properties.wave);
  config.shared_bytes = static_cast<unsigned>(HeadBytes(a.k, size, many));
  config.early = true;
  c.Emit(id, many ? "head_linear_many" : "head_linear", type, config, a);
}

}  // namespace

void CompileLatent(const Context& c, ir::NodeId id) {
  const Op op = c.node(id).op;
  return op == Op::kHeadLinear || op == Op::kLatentQuery ? CompileHeads(c, id)
                                                         : CompileWrite(c, id);
}

bool SupportsLatent(const ir::Graph& g, const ir::Node& n) {
  if (n.op == Op::kLatentWrite) {
    const ir::StateGroup& s = g.state_groups[static_cast<size_t>(g.value(n.inputs[3]).group)];
    return ir::Info(s.dtype).block == 1 && s.head_dim % 8 == 0;
  }
  return !QuantFormatOf(g.value(n.inputs[1]).dtype) &&
         g.value(n.outputs[0]).dtype == g.value(n.inputs[0]).dtype;
}

}  // namespace vt::gpu
