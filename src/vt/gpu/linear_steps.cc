// Linears and what is fused with them.
#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include "base/strings.h"
#include "vt/gpu/args_linear.h"
#include "vt/gpu/blas_lt.h"
#include "vt/gpu/context.h"
#include "vt/gpu/linear_plan.h"
#include "vt/gpu/quant_plan.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/rows_work.h"
#include "vt/ir/rewrite.h"

namespace vt::gpu {
namespace {

using ir::Op;

// What cuBLASLt wants on Hopper for any of its kernels.
constexpr int64_t kLibraryWorkspace = int64_t{32} << 20;

// What the seven kinds of nodes have in common.
struct LinearNode {
  LinearInput input = LinearInput::kPlain;
  ir::ValueId x = ir::kNone, residual = ir::kNone;
  std::vector<ir::ValueId> weights, biases;
  RowFn act = RowFn::kNone;
  ir::ValueId out = ir::kNone;
  // Of the norms before it.
  ir::NormAttrs norm1, norm2;
  ir::ValueId weight1 = ir::kNone, weight2 = ir::kNone, add = ir::kNone, sum = ir::kNone;
};

LinearNode Read(const ir::Node& n) {
  LinearNode l;
  l.x = n.inputs[0];
  l.out = n.outputs.back();
  size_t first = 1, part = 0;  // of the weights among the inputs, of the linear among the parts
  switch (n.op) {
    case Op::kRmsNormLinear:
    case Op::kRmsNormLinearActMul:
      l.input = LinearInput::kNorm;
      l.weight1 = n.inputs[1];
      first = 2;
      part = 1;
      break;
    case Op::kNormAddNormLinear:
    case Op::kNormAddNormLinearActMul:
      l.input = LinearInput::kNormAddNorm;
      l.weight1 = n.inputs[1];
      l.add = n.inputs[2];
      l.weight2 = n.inputs[3];
      l.sum = n.outputs[0];
      first = 4;
      part = 3;
      break;
    case Op::kLinearAdd:
      l.residual = n.inputs.back();
      break;
    default:
      break;
  }
  const ir::Attrs* attrs = &n.attrs;
  if (n.op != Op::kLinear) {
    const std::vector<ir::Attrs>& parts = n.attrs.as<ir::FusedAttrs>().parts;
    attrs = &parts[part];
    if (l.input != LinearInput::kPlain) l.norm1 = parts[0].as<ir::NormAttrs>();
    if (l.input == LinearInput::kNormAddNorm) l.norm2 = parts[2].as<ir::NormAttrs>();
    if (n.op == Op::kLinearActMul || n.op == Op::kRmsNormLinearActMul ||
        n.op == Op::kNormAddNormLinearActMul) {
      l.act = RowFnOf(parts[part + 3].as<ir::UnaryAttrs>().fn);
    }
  }
  const auto& linear = attrs->as<ir::LinearAttrs>();
  const auto begin = n.inputs.begin() + static_cast<int64_t>(first);
  l.weights.assign(begin, begin + linear.segments);
  if (linear.bias) l.biases.assign(begin + linear.segments, begin + 2 * linear.segments);
  return l;
}

LinearShape ShapeOf(const ir::Graph& g, const LinearNode& l, const ir::Bucket& b) {
  LinearShape s;
  const ir::Shape& x = g.value(l.x).shape;
  s.rows = x.size() > 1 ? ir::Rows(x, b) : 1;
  s.k = x.back().At(b);
  for (const ir::ValueId w : l.weights) {
    if (!IsQuantMatrix(g.value(w))) s.segments.push_back(g.value(w).shape[0].At(b));
  }
  s.act_mul = l.act != RowFn::kNone;
  s.input = l.input;
  return s;
}

class Compiler {
 public:
  Compiler(const Context& c, ir::NodeId id) : c_(c), id_(id), l_(Read(c.node(id))) {}

  void Run() {
    const QuantLinear quant = {l_.x, l_.residual, l_.out, l_.weights, l_.biases, l_.act};
    if (c_.value(l_.x).dtype == ir::DType::kQ8_A32) return CompileQuantGemv(c_, id_, quant);
    shape_ = ShapeOf(c_.plan.graph, l_, c_.bucket());
    x_ = RowsOf(l_.x);
    out_ = RowsOf(l_.out);
    if (l_.residual != ir::kNone) residual_ = RowsOf(l_.residual);
    shape_.aligned = c_.Aligned(l_.x) && x_.inner == 1;
    if (!shape_.segments.empty()) plan_ = PlanLinear(shape_, c_.device);
    if (plan_.kernel != LinearKernel::kNone &&
        (x_.inner != 1 || out_.inner != 1 || residual_.inner != 1))
      plan_.kernel = LinearKernel::kTile;
    for (size_t i = 0; i < l_.weights.size(); ++i) {
      if (IsQuantMatrix(c_.value(l_.weights[i]))) {
        if (!Expanded(i)) CompileQuantTile(c_, id_, quant, i, columns_);
        columns_ += static_cast<int32_t>(c_.value(l_.weights[i]).shape[0].At(c_.bucket()));
        continue;
      }
      const Matrix m = c_.MatrixOf(l_.weights[i]);
      LinearSegment s;
      s.w = m.data;
      s.bias = l_.biases.empty() ? nullptr : c_.Vector(l_.biases[i]);
      s.rows = static_cast<int32_t>(m.rows);
      s.column = columns_;
      if (!shape_.act_mul) columns_ += s.rows;
      segments_.push_back(s);
    }
    if (segments_.empty()) return;
    switch (plan_.kernel) {
      case LinearKernel::kSkinny:
        for (size_t i = 0; i < segments_.size(); i += kLinearSegments)
          Skinny(i, std::min(segments_.size(), i + kLinearSegments));
        break;
      case LinearKernel::kLibrary:
        Library();
        break;
      case LinearKernel::kTile:
        for (const LinearSegment& s : segments_) Tile(s);
        break;
      case LinearKernel::kNone:
        c_.Fail(id_, "has a shape that no fused kernel takes");
        break;
    }
  }

 private:
  const char* InputName() const {
    switch (l_.input) {
      case LinearInput::kNorm:
        return "norm";
      case LinearInput::kNormAddNorm:
        return "sandwich";
      default:
        return plan_.staged ? "staged" : "direct";
    }
  }
  bool OutIsF32() const { return c_.value(l_.out).dtype == ir::DType::kF32; }
  // Heads of one row after another are rows too.
  Rows RowsOf(ir::ValueId id) const {
    Rows r = c_.RowsOf(id);
    if (r.inner > 1 && r.stride == int64_t{r.inner} * r.width) {
      r.stride = r.width;
      r.inner = 1;
    }
    return r;
  }

  void Skinny(size_t begin, size_t end) {
    SkinnyArgs a;
    a.header = c_.header();
    a.x = x_;
    a.out = out_;
    a.residual = residual_;
    a.count = c_.CountOf(l_.x);
    a.most_rows = static_cast<int32_t>(shape_.rows);
    a.k = static_cast<int32_t>(shape_.k);
    a.pitch = static_cast<int32_t>(PitchOf(shape_.k));
    const int groups = plan_.waves / plan_.parts;
    a.parts_log2 = std::countr_zero(static_cast<unsigned>(plan_.parts));
    a.groups = groups;
    a.groups_inverse = ((1 << 16) + groups - 1) / groups;
    a.out_f32 = OutIsF32() ? 1 : 0;
    a.act = l_.act;
    a.segment_count = static_cast<int32_t>(end - begin);
    a.units = 0;
    for (size_t i = begin; i < end; ++i) {
      LinearSegment& s = a.segments[i - begin];
      s = segments_[i];
      s.first_unit = a.units;
      if (!shape_.act_mul || i == begin)
        a.units += static_cast<int32_t>(LinearUnits(plan_, s.rows));
    }
    if (shape_.act_mul) a.segments[1].first_unit = 0;
    if (plan_.staged) Stage(a);
    a.partials = static_cast<int32_t>(plan_.partials);
    a.ring = static_cast<int32_t>(plan_.ring);

    LaunchConfig config;
    config.grid_x = static_cast<unsigned>((a.units + groups - 1) / groups);
    if (plan_.stream > 0)
      config.grid_x = std::min(config.grid_x, static_cast<unsigned>(c_.device.properties.units));
    config.threads = static_cast<unsigned>(plan_.waves * c_.device.properties.wave);
    config.shared_bytes = static_cast<unsigned>(plan_.shared_bytes);
    config.early = true;
    const std::string name =
        plan_.stream > 0
            ? fmt::format("linear_stream_{}_{}", InputName(), plan_.stream)
            : fmt::format("linear_{}_{}x{}", InputName(), plan_.token_tiles, plan_.weight_tiles);
    c_.Emit(id_, name, c_.device.value_type, config, a);
  }

  void Stage(SkinnyArgs& a) const {
    a.staged_pitch = static_cast<int32_t>(plan_.staged_pitch);
    a.inverse_k = 1 / static_cast<float>(shape_.k);
    const auto waves_a_row = static_cast<unsigned>(std::max<int64_t>(1, plan_.waves / shape_.rows));
    a.waves_a_row_log2 = std::bit_width(waves_a_row) - 1;
    bool packed = c_.Aligned(l_.x);
    if (l_.weight1 != ir::kNone) a.weight1 = c_.Vector(l_.weight1);
    a.eps1 = l_.norm1.eps;
    a.offset1 = l_.norm1.weight_offset;
    if (l_.input == LinearInput::kNormAddNorm) {
      a.weight2 = c_.Vector(l_.weight2);
      a.eps2 = l_.norm2.eps;
      a.offset2 = l_.norm2.weight_offset;
      a.add = c_.RowsOf(l_.add);
      a.sum = c_.RowsOf(l_.sum);
      packed = packed && c_.Aligned(l_.add) && c_.Aligned(l_.sum);
    }
    for (const float* w : {a.weight1, a.weight2})
      packed = packed && reinterpret_cast<uintptr_t>(w) % 16 == 0;
    a.packed = packed ? 1 : 0;
  }

  // Weights that follow one another in memory are one matrix.
  void Library() {
    const int64_t bytes = ir::Info(c_.device.value_type).bytes;
    for (size_t i = 0; i < segments_.size();) {
      const size_t first = i;
      int64_t rows = 0;
      while (i < segments_.size() && segments_[i].column == segments_[first].column + rows &&
             segments_[i].w == static_cast<const std::byte*>(segments_[first].w) +
                                   rows * PitchOf(shape_.k) * bytes)
        rows += segments_[i++].rows;
      const std::span<const LinearSegment> together(&segments_[first], i - first);
      if (Product(together, rows)) continue;
      for (const LinearSegment& s : together) Tile(s);
    }
  }

  // A quantised weight as values in the workspace, behind the library's own. False: as Product.
  bool Expanded(size_t i) {
    const int64_t rows = c_.value(l_.weights[i]).shape[0].At(c_.bucket());
    if (!shape_.aligned || out_.inner != 1 || residual_.inner != 1 ||
        QuantExpandBytes(shape_.rows, rows, shape_.k, c_.device) == 0)
      return false;
    LinearSegment s;
    s.w = c_.workspace() + c_.parts().linear + kLibraryWorkspace;
    s.bias = l_.biases.empty() ? nullptr : c_.Vector(l_.biases[i]);
    s.rows = static_cast<int32_t>(rows);
    s.column = columns_;
    const size_t before = c_.launches.size();
    CompileQuantExpand(c_, id_, l_.weights[i], const_cast<void*>(s.w));
    if (Product({&s, 1}, rows)) return true;
    c_.launches.resize(before);
    return false;
  }

  // False: the library has no kernel for it, and nothing was emitted.
  bool Product(std::span<const LinearSegment> segments, int64_t rows) {
    const ir::DType type = c_.value(l_.out).dtype;
    const bool bias = segments[0].bias != nullptr, add = residual_.base != nullptr;
    if (add && type != c_.device.value_type) return false;
    const auto column = [&](const Rows& r, ir::DType t) -> void* {
      return static_cast<std::byte*>(r.base) + segments[0].column * int64_t{ir::Info(t).bytes};
    };
    BlasProduct p;
    p.rows = shape_.rows;
    p.columns = rows;
    p.k = shape_.k;
    p.x = x_.base;
    p.x_stride = x_.stride;
    p.w = segments[0].w;
    p.w_stride = PitchOf(shape_.k);
    p.out = column(out_, type);
    p.out_stride = out_.stride;
    p.type = c_.device.value_type;
    p.out_type = type;
    if (add) {
      p.add = column(residual_, type);
      p.add_stride = residual_.stride;
    } else if (bias) {
      p.add = p.out;
      p.add_stride = p.out_stride;
    }
    p.workspace = c_.workspace() + c_.parts().linear;
    p.workspace_bytes = kLibraryWorkspace;
    auto call = add && bias ? std::nullopt : c_.device.blas->Prepare(p);
    if (!call) return false;
    for (size_t i = 0; i < segments.size() && bias; ++i) Bias(segments[i]);
    Launch launch;
    launch.node = id_;
    launch.library = std::move(*call);
    c_.launches.push_back(std::move(launch));
    return true;
  }

  void Bias(const LinearSegment& s) {
    LinearBiasArgs a;
    a.header = c_.header();
    a.out = out_;
    a.segment = s;
    a.count = c_.CountOf(l_.x);
    a.out_f32 = OutIsF32() ? 1 : 0;
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>((s.rows + kLinearBiasThreads - 1) / kLinearBiasThreads);
    config.grid_y = static_cast<unsigned>(shape_.rows);
    config.threads = kLinearBiasThreads;
    config.early = true;
    c_.Emit(id_, "linear_bias", c_.device.value_type, config, a);
  }

  void Tile(const LinearSegment& s) {
    TileLinearArgs a;
    a.header = c_.header();
    a.x = x_;
    a.out = out_;
    a.residual = residual_;
    a.segment = s;
    a.count = c_.CountOf(l_.x);
    a.k = static_cast<int32_t>(shape_.k);
    a.pitch = static_cast<int32_t>(PitchOf(shape_.k));
    a.out_f32 = OutIsF32() ? 1 : 0;
    a.packed = c_.Aligned(l_.x) ? 1 : 0;
    const LinearTile t = TileOf(c_.device);
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>((s.rows + t.size - 1) / t.size);
    config.grid_y = static_cast<unsigned>((shape_.rows + t.size - 1) / t.size);
    config.threads = static_cast<unsigned>(t.waves * c_.device.properties.wave);
    config.shared_bytes = static_cast<unsigned>(t.shared_bytes);
    config.early = true;
    c_.Emit(id_, "linear_tile", c_.device.value_type, config, a);
  }

  const Context& c_;
  ir::NodeId id_;
  LinearNode l_;
  LinearShape shape_;
  LinearPlan plan_;
  Rows x_, out_, residual_;
  std::vector<LinearSegment> segments_;
  int32_t columns_ = 0;
};

}  // namespace

void CompileLinear(const Context& c, ir::NodeId id) {
  if (IsQuantFrom(c.node(id).op)) return CompileQuantFrom(c, id);
  Compiler(c, id).Run();
}

bool SupportsLinear(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                    const DeviceFacts& d) {
  if (IsQuantFrom(n.op)) return SupportsQuantFrom(g, n, b, d);
  const LinearNode l = Read(n);
  const auto quantised = [&](ir::ValueId w) { return IsQuantMatrix(g.value(w)); };
  if (g.value(l.x).dtype == ir::DType::kQ8_A32) {
    if (!std::all_of(l.weights.begin(), l.weights.end(), quantised)) return false;
    // An act_mul's wave has rows of both weights.
    return n.op == Op::kLinear || n.op == Op::kLinearAdd ||
           (n.op == Op::kLinearActMul &&
            g.value(l.weights[0]).dtype == g.value(l.weights[1]).dtype);
  }
  if (std::any_of(l.weights.begin(), l.weights.end(), quantised) && n.op != Op::kLinear &&
      n.op != Op::kLinearAdd)
    return false;
  LinearShape shape = ShapeOf(g, l, b);
  // What leaves the graph is f32; kernels read and add the device's values.
  for (const ir::ValueId v : {l.x, l.residual, l.add, l.sum}) {
    if (v != ir::kNone && g.value(v).dtype != d.value_type) return false;
  }
  if (n.op == Op::kLinear || n.op == Op::kLinearAdd) return true;
  // A slice may begin anywhere.
  const ir::Value& x = g.value(l.x);
  if (x.kind == ir::ValueKind::kNode && ir::IsView(g.nodes[static_cast<size_t>(x.producer)].op))
    shape.aligned = false;
  return x.shape.size() <= 2 && PlanLinear(shape, d).kernel == LinearKernel::kSkinny;
}

int64_t LinearWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  int64_t bytes = 0;
  for (const ir::Node& n : g.nodes) {
    if (n.op != Op::kLinear && n.op != Op::kLinearAdd) continue;
    const LinearNode l = Read(n);
    if (g.value(l.x).dtype == ir::DType::kQ8_A32) continue;
    const LinearShape shape = ShapeOf(g, l, b);
    if (!shape.segments.empty() && PlanLinear(shape, d).kernel == LinearKernel::kLibrary)
      bytes = std::max(bytes, kLibraryWorkspace);
    for (const ir::ValueId w : l.weights) {
      if (!IsQuantMatrix(g.value(w))) continue;
      const int64_t values = QuantExpandBytes(shape.rows, g.value(w).shape[0].At(b), shape.k, d);
      if (values > 0) bytes = std::max(bytes, kLibraryWorkspace + values);
    }
  }
  return bytes;
}

}  // namespace vt::gpu
