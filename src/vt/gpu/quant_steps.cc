// Quantised matrices and the activations beside them.
#include "vt/gpu/quant_steps.h"

#include <algorithm>

#include "base/strings.h"
#include "vt/gpu/args_quant.h"
#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_plan.h"
#include "vt/gpu/rows_work.h"

namespace vt::gpu {

using ir::DType;
using ir::Op;

ValueType ValueTypeOf(DType t) {
  return t == DType::kBF16  ? ValueType::kBF16
         : t == DType::kF16 ? ValueType::kF16
                            : ValueType::kF32;
}

View ViewOf(const Context& c, ir::ValueId id) {
  return {c.RowsOf(id), c.value(id).dtype == DType::kF32 ? 1 : 0};
}

QuantRows QuantRowsOf(const Context& c, ir::ValueId id) {
  const int64_t k = c.value(id).shape.back().At(c.bucket()), rows = c.MostRows(id);
  QuantRows q;
  q.codes = static_cast<int8_t*>(c.Address(id));
  q.sums = reinterpret_cast<QuantSum*>(q.codes + rows * k);
  q.most_rows = static_cast<int32_t>(rows);
  q.blocks = static_cast<int32_t>(k / 32);
  return q;
}

QuantMatrix QuantMatrixOf(const Context& c, ir::ValueId id) {
  const ir::Value& v = c.value(id);
  const int64_t rows = v.shape[v.shape.size() - 2].At(c.bucket());
  QuantMatrix m;
  m.format = *QuantFormatOf(v.dtype);
  m.rows = static_cast<int32_t>(rows);
  m.planes = QuantLayout::Of(m.format, rows, v.shape.back().At(c.bucket())).At(c.Address(id));
  return m;
}

namespace {

// As many waves as k has chunks for, in whole waves of any device.
unsigned NormThreads(int64_t k) {
  const int64_t threads = std::min<int64_t>((k / 8 + 63) / 64 * 64, kQuantizeNormThreads);
  return static_cast<unsigned>(threads);
}

}  // namespace

bool IsQuantMatrix(const ir::Value& v) {
  return v.kind == ir::ValueKind::kWeight && v.shape.size() > 1 && QuantFormatOf(v.dtype);
}

void CompileQuantize(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const ir::ValueId out = n.outputs.back();
  const auto part = [&](size_t i) -> const ir::Attrs& {
    return n.attrs.as<ir::FusedAttrs>().parts[i];
  };
  if (n.op == Op::kQuantize || n.op == Op::kActMulQuantize) {
    QuantizeArgs a;
    a.header = c.header();
    a.x = ViewOf(c, n.inputs[0]);
    if (n.op == Op::kActMulQuantize) {
      a.fn = RowFnOf(part(0).as<ir::UnaryAttrs>().fn);
      a.b = ViewOf(c, n.inputs[1]);
    }
    a.y = QuantRowsOf(c, out);
    a.count = c.CountOf(out);
    const int64_t threads = int64_t{a.y.most_rows} * a.y.blocks * 4;
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>((threads + kQuantizeThreads - 1) / kQuantizeThreads);
    config.threads = kQuantizeThreads;
    config.early = true;
    return c.Emit(id, "quantize", c.device.value_type, config, a);
  }
  const bool add = n.op == Op::kAddRmsNormQuantize;
  const auto& norm = part(add ? 1 : 0).as<ir::NormAttrs>();
  QuantizeNormArgs a;
  a.header = c.header();
  a.x = ViewOf(c, n.inputs[0]);
  if (add) {
    a.add = ViewOf(c, n.inputs[1]);
    a.sum = ViewOf(c, n.outputs[0]);
  }
  a.norm = {c.Vector(n.inputs[add ? 2 : 1]), norm.eps, norm.weight_offset};
  a.y = QuantRowsOf(c, out);
  a.count = c.CountOf(out);
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(a.y.most_rows);
  config.threads = NormThreads(int64_t{a.y.blocks} * 32);
  config.shared_bytes = kRowsSharedBytes;
  config.early = true;
  c.Emit(id, "quantize_norm", c.device.value_type, config, a);
}

namespace {

void EmitExpand(const Context& c, ir::NodeId id, QuantExpandArgs a, int64_t rows, DType type) {
  a.header = c.header();
  a.blocks = a.y.width / 32;
  const int64_t threads = rows * a.blocks;
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>((threads + kQuantExpandThreads - 1) / kQuantExpandThreads);
  config.threads = kQuantExpandThreads;
  config.early = true;
  c.Emit(id, "quant_expand", type, config, a);
}

}  // namespace

void CompileQuantEmbed(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  QuantExpandArgs a;
  a.w = QuantMatrixOf(c, n.inputs[0]);
  a.index = c.Ints(n.inputs[1]);
  a.y = c.RowsOf(n.outputs[0]);
  a.count = c.CountOf(n.outputs[0]);
  EmitExpand(c, id, a, c.MostRows(n.outputs[0]), c.value(n.outputs[0]).dtype);
}

void CompileQuantExpand(const Context& c, ir::NodeId id, ir::ValueId weight, void* to) {
  QuantExpandArgs a;
  a.w = QuantMatrixOf(c, weight);
  const auto k = static_cast<int32_t>(c.value(weight).shape.back().At(c.bucket()));
  a.y = {to, k, 1, k};
  a.count = {Of::kOne, a.w.rows};
  EmitExpand(c, id, a, a.w.rows, c.device.value_type);
}

QuantGemvLaunch QuantGemvOf(const Context& c, const QuantLinear& l, const QuantRows& x,
                            const Rows& out, ValueType out_type, size_t& begin, int32_t& column,
                            bool from) {
  QuantGemvLaunch launch;
  QuantGemvArgs& a = launch.args;
  a.header = c.header();
  a.x = x;
  a.out = out;
  a.out_type = out_type;
  if (l.residual != ir::kNone) {
    a.residual = c.RowsOf(l.residual);
    a.residual_type = ValueTypeOf(c.value(l.residual).dtype);
  }
  a.count = c.CountOf(l.x);
  a.act = l.act;
  const bool act = l.act != RowFn::kNone;
  const size_t end = std::min<size_t>(begin + kQuantSegments, l.weights.size());
  a.segment_count = static_cast<int32_t>(end - begin);
  a.units = 0;
  for (size_t i = begin; i < end; ++i) {
    QuantSegment& s = a.segments[i - begin];
    s.w = QuantMatrixOf(c, l.weights[i]);
    s.bias = l.biases.empty() ? nullptr : c.Vector(l.biases[i]);
    s.column = act ? 0 : column;
    s.first_unit = act ? 0 : a.units;
    column += s.w.rows;
    if (!act || i == begin) a.units += static_cast<int32_t>(QuantUnits(s.w.rows, act));
  }
  begin = end;
  const QuantGemvPlan plan = from ? PlanQuantFrom(a.units, a.x.blocks, c.device)
                                  : PlanQuantGemv(a.x.most_rows, a.units, a.x.blocks, c.device);
  launch.plan = plan;
  a.parts = plan.parts;
  a.groups = plan.groups;
  launch.suffix = QuantSetSuffix({a.segments, static_cast<size_t>(a.segment_count)});
  launch.config.grid_x = static_cast<unsigned>(plan.blocks);
  launch.config.grid_y = static_cast<unsigned>((a.x.most_rows + plan.at_once - 1) / plan.at_once);
  launch.config.threads =
      static_cast<unsigned>(plan.parts * plan.groups * c.device.properties.wave);
  launch.config.shared_bytes = static_cast<unsigned>(plan.shared_bytes);
  launch.config.early = true;
  return launch;
}

void CompileQuantGemv(const Context& c, ir::NodeId id, const QuantLinear& l) {
  int32_t column = 0;
  for (size_t begin = 0; begin < l.weights.size();) {
    const QuantGemvLaunch launch = QuantGemvOf(c, l, QuantRowsOf(c, l.x), c.RowsOf(l.out),
                                               ValueTypeOf(c.value(l.out).dtype), begin, column);
    c.Emit(id, fmt::format("quant_gemv_{}{}", launch.plan.at_once, launch.suffix), launch.config,
           launch.args);
  }
}

void CompileQuantTile(const Context& c, ir::NodeId id, const QuantLinear& l, size_t weight,
                      int32_t column) {
  QuantTileArgs a;
  a.header = c.header();
  a.x = c.RowsOf(l.x);
  a.out = c.RowsOf(l.out);
  if (l.residual != ir::kNone) a.residual = c.RowsOf(l.residual);
  a.segment.w = QuantMatrixOf(c, l.weights[weight]);
  a.segment.bias = l.biases.empty() ? nullptr : c.Vector(l.biases[weight]);
  a.segment.column = column;
  a.count = c.CountOf(l.x);
  a.k = static_cast<int32_t>(c.value(l.x).shape.back().At(c.bucket()));
  a.blocks = a.k / 32;
  a.out_f32 = c.value(l.out).dtype == DType::kF32 ? 1 : 0;
  a.packed = c.Aligned(l.x) ? 1 : 0;
  const int64_t rows = c.MostRows(l.x);
  const QuantTilePlan plan = PlanQuantTile(rows, c.device);
  LaunchConfig config;
  config.grid_x =
      static_cast<unsigned>((a.segment.w.rows + plan.shape.columns - 1) / plan.shape.columns);
  config.grid_y = static_cast<unsigned>((rows + plan.shape.rows - 1) / plan.shape.rows);
  config.threads = static_cast<unsigned>(plan.shape.waves * c.device.properties.wave);
  config.shared_bytes = static_cast<unsigned>(plan.shared_bytes);
  config.early = true;
  c.Emit(id, plan.kernel, c.device.value_type, config, a);
}

}  // namespace vt::gpu
