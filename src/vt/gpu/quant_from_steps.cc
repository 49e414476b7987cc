// Linears of one row of values that is quantised in the same launch, and attention's q, k and v so.
#include <algorithm>

#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/rows_work.h"

namespace vt::gpu {
namespace {

using ir::DType;
using ir::Op;

// Each block makes the row for itself: it should be short, and blocks not too many.
constexpr int64_t kMostWidth = 8192, kMostWeightRows = 32768;

// What the four forms have in common.
struct From {
  QuantLinear linear;
  ir::ValueId b = ir::kNone, norm_w = ir::kNone;
  ir::NormAttrs norm;
  RowFn fn = RowFn::kNone;
};

From Read(const ir::Node& n) {
  From f;
  const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
  QuantLinear& l = f.linear;
  l.x = n.inputs[0];
  l.out = n.outputs[0];
  size_t first = 1;  // of the weights
  int segments = 1;
  bool bias = false;
  if (n.op == Op::kRmsNormQuantizeLinear || n.op == Op::kNormQkvRopeWrite) {
    f.norm_w = n.inputs[1];
    f.norm = parts[0].as<ir::NormAttrs>();
    first = n.op == Op::kNormQkvRopeWrite ? 7 : 2;
    segments = parts[2].as<ir::LinearAttrs>().segments;
    bias = parts[2].as<ir::LinearAttrs>().bias;
  } else {
    l.residual = n.inputs.back();
    if (n.op == Op::kActMulQuantizeLinearAdd) {
      f.fn = RowFnOf(parts[0].as<ir::UnaryAttrs>().fn);
      f.b = n.inputs[first++];
    }
  }
  const auto begin = n.inputs.begin() + static_cast<int64_t>(first);
  l.weights.assign(begin, begin + segments);
  if (bias) l.biases.assign(begin + segments, begin + 2 * segments);
  return f;
}

int64_t WeightRows(const ir::Graph& g, const From& f, const ir::Bucket& b) {
  int64_t rows = 0;
  for (const ir::ValueId w : f.linear.weights) rows += g.value(w).shape[0].At(b);
  return rows;
}

const ir::StateGroup& CacheOf(const ir::Graph& g, const ir::Node& n) {
  return g.state_groups[static_cast<size_t>(g.value(n.inputs[3]).group)];
}

KvWriteArgs WriteOf(const Context& c, const ir::Node& n) {
  const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
  const auto &q_norm = parts[5].as<ir::NormAttrs>(), &k_norm = parts[9].as<ir::NormAttrs>();
  const auto &q_rope = parts[6].as<ir::RopeAttrs>(), &k_rope = parts[10].as<ir::RopeAttrs>();
  KvWriteArgs a;
  a.header = c.header();
  a.q_out = c.RowsOf(n.outputs[0]);
  a.q_heads = a.q_out.inner;
  a.kv = c.Kv(n.inputs[3]);
  a.positions = c.Ints(n.inputs[2]);
  a.slots = c.Ints(n.inputs[4]);
  a.q_table = RopeTableOf(c, q_rope);
  a.k_table = RopeTableOf(c, k_rope);
  a.q_norm = {c.Vector(n.inputs[5]), q_norm.eps, q_norm.weight_offset};
  a.k_norm = {c.Vector(n.inputs[6]), k_norm.eps, k_norm.weight_offset};
  a.rotary_dim = static_cast<int32_t>(q_rope.rotary_dim);
  a.interleaved = q_rope.interleaved ? 1 : 0;
  a.aligned = c.Aligned(n.outputs[0]) ? 1 : 0;
  return a;
}

}  // namespace

bool IsQuantFrom(Op op) {
  return op == Op::kRmsNormQuantizeLinear || op == Op::kQuantizeLinearAdd ||
         op == Op::kActMulQuantizeLinearAdd || op == Op::kNormQkvRopeWrite;
}

void CompileQuantFrom(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const From f = Read(n);
  const bool heads = n.op == Op::kNormQkvRopeWrite;
  const auto k = static_cast<int32_t>(c.value(f.linear.x).shape.back().At(c.bucket()));
  QuantRows x;
  x.blocks = k / 32;
  QuantHeadsArgs h;
  Rows out = heads ? Rows{} : c.RowsOf(f.linear.out);
  if (heads) {
    h.raw = reinterpret_cast<float*>(c.workspace() + c.parts().linear);
    const auto rows = static_cast<int32_t>(WeightRows(c.plan.graph, f, c.bucket()));
    out = {h.raw, rows, 1, rows};
  }
  size_t begin = 0;
  int32_t column = 0;
  QuantGemvLaunch launch = QuantGemvOf(
      c, f.linear, x, out, heads ? ValueType::kF32 : ValueTypeOf(c.value(f.linear.out).dtype),
      begin, column);
  LaunchConfig& config = launch.config;
  int64_t before = std::max<int64_t>(config.shared_bytes, kRowsScratch * 4);
  if (heads) {
    // Blocks are of one head.
    h.write = WriteOf(c, n);
    const int64_t units = h.write.kv.head_dim / kQuantUnit;
    const int64_t heads = launch.args.units / units, groups = launch.plan.groups;
    h.head_blocks = static_cast<int32_t>(std::min(
        (units + groups - 1) / groups,
        launch.plan.parts == 1 ? std::max<int64_t>(1, launch.plan.blocks / heads) : units));
    config.grid_x = static_cast<unsigned>(heads * h.head_blocks);
    h.counters = BlockCounters(c);
    before = std::max<int64_t>(before, int64_t{h.write.kv.head_dim} * 4);
  }
  QuantFromArgs& a = h.from;
  a.linear = launch.args;
  const auto row = [&](ir::ValueId v) -> TypedRow {
    return {c.RowsOf(v).base, ValueTypeOf(c.value(v).dtype), c.Aligned(v) ? 1 : 0};
  };
  a.x = row(f.linear.x);
  if (f.b != ir::kNone) a.b = row(f.b);
  a.fn = f.fn;
  if (f.norm_w != ir::kNone) a.norm = {c.Vector(f.norm_w), f.norm.eps, f.norm.weight_offset};
  a.x_offset = static_cast<int32_t>((before + 15) / 16 * 16);
  config.shared_bytes = static_cast<unsigned>(a.x_offset + k + k / 32 * int64_t{sizeof(QuantSum)});
  if (!heads) return c.Emit(id, "quant_gemv_from" + launch.suffix, config, a);
  // By formats of the usual type of values alone.
  const DType type = c.device.value_type;
  c.Emit(id, "quant_heads" + (type == DType::kBF16 ? launch.suffix : ""), type, config, h);
}

bool SupportsQuantFrom(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                       const DeviceFacts& d) {
  const From f = Read(n);
  const ir::Value& x = g.value(f.linear.x);
  const int64_t k = x.shape.back().At(b);
  for (const ir::ValueId v : {f.linear.x, f.b, f.linear.residual}) {
    if (v != ir::kNone && g.value(v).dtype != DType::kF32 && g.value(v).dtype != d.value_type)
      return false;
  }
  const auto quantised = [&](ir::ValueId w) { return IsQuantMatrix(g.value(w)); };
  if (ir::Rows(x.shape, b) != 1 || k > kMostWidth || k % 32 != 0 ||
      f.linear.weights.size() > kQuantSegments ||
      !std::all_of(f.linear.weights.begin(), f.linear.weights.end(), quantised) ||
      WeightRows(g, f, b) > kMostWeightRows)
    return false;
  if (n.op != Op::kNormQkvRopeWrite) return true;
  const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
  const auto &q = parts[6].as<ir::RopeAttrs>(), &r = parts[10].as<ir::RopeAttrs>();
  const ir::StateGroup& cache = CacheOf(g, n);
  const int64_t dim = cache.head_dim;
  bool whole = dim % 8 == 0 && dim <= 256 &&
               WeightRows(g, f, b) / std::max<int64_t>(dim, 1) <= kBlockCounters;
  for (const ir::ValueId w : f.linear.weights) whole &= g.value(w).shape[0].At(b) % dim == 0;
  return whole && q.rotary_dim == r.rotary_dim && q.interleaved == r.interleaved &&
         g.value(n.outputs[0]).dtype == d.value_type;
}

// What meets before heads are made of it.
int64_t QuantFromWorkspace(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b) {
  return n.op == Op::kNormQkvRopeWrite ? WeightRows(g, Read(n), b) * 4 : 0;
}

}  // namespace vt::gpu
