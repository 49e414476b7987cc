// Linears of one row of values that is quantised in the same launch.
#include <algorithm>

#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/rows_work.h"

namespace vt::gpu {
namespace {

using ir::DType;
using ir::Op;

// Each block makes the row for itself: it should be short.
constexpr int64_t kMostWidth = 16384;

// What the three forms have in common.
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
  if (n.op == Op::kRmsNormQuantizeLinear) {
    f.norm_w = n.inputs[1];
    f.norm = parts[0].as<ir::NormAttrs>();
    first = 2;
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

}  // namespace

bool IsQuantFrom(Op op) {
  return op == Op::kRmsNormQuantizeLinear || op == Op::kQuantizeLinearAdd ||
         op == Op::kActMulQuantizeLinearAdd;
}

void CompileQuantFrom(const Context& c, ir::NodeId id) {
  const From f = Read(c.node(id));
  const auto k = static_cast<int32_t>(c.value(f.linear.x).shape.back().At(c.bucket()));
  QuantRows x;
  x.blocks = k / 32;
  size_t begin = 0;
  int32_t column = 0;
  QuantGemvLaunch launch =
      QuantGemvOf(c, f.linear, x, c.RowsOf(f.linear.out), ValueTypeOf(c.value(f.linear.out).dtype),
                  begin, column, true);
  LaunchConfig& config = launch.config;
  QuantFromArgs a;
  a.linear = launch.args;
  const auto row = [&](ir::ValueId v) -> TypedRow {
    return {c.RowsOf(v).base, ValueTypeOf(c.value(v).dtype), c.Aligned(v) ? 1 : 0};
  };
  a.x = row(f.linear.x);
  if (f.b != ir::kNone) a.b = row(f.b);
  a.fn = f.fn;
  if (f.norm_w != ir::kNone) a.norm = {c.Vector(f.norm_w), f.norm.eps, f.norm.weight_offset};
  const int64_t before = std::max<int64_t>(config.shared_bytes, kRowsScratch * 4);
  a.x_offset = static_cast<int32_t>((before + 15) / 16 * 16);
  config.shared_bytes = static_cast<unsigned>(a.x_offset + k + k / 32 * int64_t{sizeof(QuantSum)});
  c.Emit(id, "quant_gemv_from" + launch.suffix, config, a);
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
  return ir::Rows(x.shape, b) == 1 && k <= kMostWidth && k % 32 == 0 &&
         f.linear.weights.size() <= kQuantSegments &&
         std::all_of(f.linear.weights.begin(), f.linear.weights.end(), quantised);
}

}  // namespace vt::gpu
