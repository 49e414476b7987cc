// Nodes that work row by row: elementwise operations, copies, norms, softmax, rotation, and their
// fused forms.
#include "base/strings.h"
#include "vt/gpu/args_rows.h"
#include "vt/gpu/context.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/rows_work.h"

namespace vt::gpu {

RowFn RowFnOf(ir::Activation fn) {
  switch (fn) {
    case ir::Activation::kSilu:
      return RowFn::kSilu;
    case ir::Activation::kGeluTanh:
      return RowFn::kGeluTanh;
    case ir::Activation::kGelu:
      return RowFn::kGelu;
    case ir::Activation::kRelu:
      return RowFn::kRelu;
    case ir::Activation::kSigmoid:
      return RowFn::kSigmoid;
    case ir::Activation::kTanh:
      return RowFn::kTanh;
    case ir::Activation::kExp:
      return RowFn::kExp;
    case ir::Activation::kSoftplus:
      return RowFn::kSoftplus;
    case ir::Activation::kSquaredRelu:
      return RowFn::kSquaredRelu;
    case ir::Activation::kQuickGelu:
      return RowFn::kQuickGelu;
  }
  return RowFn::kSilu;
}

namespace {

using ir::DType;
using ir::Op;

// A node's operands as the kernels take them, and its launch. All operands are to be resolved
// before work is dealt out: the kernel's T, whose size is that of a chunk, is the type of what is
// not f32.
class RowNode {
 public:
  RowNode(const Context& c, ir::NodeId id) : c_(c), id_(id), n_(c.node(id)) {}

  const ir::Node& node() const { return n_; }
  View In(size_t i) { return ViewOf(n_.inputs[i]); }
  View Out(size_t i = 0) { return ViewOf(n_.outputs[i]); }
  // The second operand of a binary operation: as many rows, or one vector for all.
  View Broadcast(size_t i) {
    View b = In(i);
    if (c_.value(n_.inputs[i]).shape.size() == 1 && c_.value(n_.inputs[0]).shape.size() > 1) {
      b.rows.inner = 1;
      b.rows.stride = 0;
    }
    return b;
  }
  const float* Vector(size_t i) const { return c_.Vector(n_.inputs[i]); }
  const int32_t* Ints(size_t i) const { return c_.Ints(n_.inputs[i]); }
  // An embedding's table: of the device's value type.
  View Table(size_t i, int32_t* rows) {
    const Matrix m = c_.MatrixOf(n_.inputs[i]);
    Use(c_.device.value_type);
    *rows = static_cast<int32_t>(m.rows);
    return {.rows = {.base = m.data,
                     .stride = m.pitch,
                     .inner = 1,
                     .width = static_cast<int32_t>(m.columns)},
            .f32 = c_.device.value_type == DType::kF32};
  }
  // A weight of rank 2 that is held as vectors are.
  View Vectors(size_t i, int32_t* rows) const {
    const ir::Shape& shape = c_.value(n_.inputs[i]).shape;
    *rows = static_cast<int32_t>(shape[0].At(c_.bucket()));
    const auto width = static_cast<int32_t>(shape[1].At(c_.bucket()));
    return {.rows = {.base = const_cast<float*>(Vector(i)), .stride = width, .width = width},
            .f32 = 1};
  }
  // `view` from column `begin` on.
  View From(View view, int64_t begin) const {
    const int64_t bytes = view.f32 != 0 ? 4 : ir::Info(type_).bytes;
    view.rows.base = static_cast<char*>(view.rows.base) + begin * bytes;
    return view;
  }
  void Fail(const std::string& what) const { c_.Fail(id_, what); }

  // Whether the kernel may be the plain one (args_rows.h) for these views, as far as they are
  // there, and vectors of weights.
  void Plain(std::initializer_list<View> views, std::initializer_list<const float*> vectors = {}) {
    const int64_t bytes = ir::Info(type_).bytes;
    plain_ = true;
    for (const View& v : views) {
      const Rows& r = v.rows;
      if (r.base == nullptr) continue;
      plain_ &= (v.f32 != 0) == (type_ == DType::kF32) &&
                reinterpret_cast<uintptr_t>(r.base) % 16 == 0 && r.stride * bytes % 16 == 0 &&
                (r.inner == 1 || r.width * bytes % 16 == 0);
    }
    for (const float* v : vectors) plain_ &= reinterpret_cast<uintptr_t>(v) % 16 == 0;
  }
  void NotPlain() { plain_ = false; }
  // Values of 16 bytes.
  int64_t Chunk() const { return 16 / ir::Info(type_).bytes; }

  // Work on as many rows as `over` has, dealt as rows_work.h says. The number of chunks is that of
  // `width` values of T.
  RowWork Chunked(ir::ValueId over, int64_t width) {
    return Work(over, width, DealChunks(c_.MostRows(over), Chunks(width)));
  }
  RowWork Whole(ir::ValueId over, int64_t width, int64_t most_threads) {
    return Work(over, width, DealWhole(c_.MostRows(over), Chunks(width), most_threads));
  }
  RowWork Heads(ir::ValueId over, int64_t width) {
    return Work(over, width, DealHeads(c_.MostRows(over), Chunks(width)));
  }

  template <class Args>
  void Emit(const std::string& kernel, const Args& args, int shared_bytes = 0) const {
    if (dealt_.grid == 0) return;
    const int64_t indices = dealt_.grid * (dealt_.lane_bits >= 0 ? dealt_.threads : 1);
    if (indices > INT32_MAX) return Fail("has more rows than a launch can have");
    c_.Emit(id_, plain_ ? kernel + "_plain" : kernel, type_,
            {.grid_x = static_cast<unsigned>(dealt_.grid),
             .threads = static_cast<unsigned>(dealt_.threads),
             .shared_bytes = static_cast<unsigned>(shared_bytes),
             .early = true},
            args);
  }

 private:
  void Use(DType t) {
    if (t == DType::kF32) return;
    if (t != DType::kBF16 && t != DType::kF16)
      Fail(fmt::format("has values of {}, which row kernels do not read", ir::Name(t)));
    if (type_ != DType::kF32 && type_ != t)
      Fail(fmt::format("mixes {} and {}", ir::Name(type_), ir::Name(t)));
    type_ = t;
  }
  View ViewOf(ir::ValueId id) {
    const ir::Value& v = c_.value(id);
    View view{.rows = c_.RowsOf(id)};
    if (v.kind == ir::ValueKind::kWeight && v.shape.size() > 1) {  // a matrix
      Use(c_.device.value_type);
      view.f32 = c_.device.value_type == DType::kF32 ? 1 : 0;
      return view;
    }
    // Vectors of weights and inputs are f32; integers are copied as f32 are, bit by bit.
    const bool whole =
        v.kind != ir::ValueKind::kNode || v.dtype == DType::kF32 || v.dtype == DType::kI32;
    view.f32 = whole ? 1 : 0;
    if (!whole) Use(v.dtype);
    return view;
  }
  RowWork Work(ir::ValueId over, int64_t width, const DealtRows& dealt) {
    dealt_ = dealt;
    plain_ &= width % Chunk() == 0;
    return {.header = c_.header(),
            .count = c_.CountOf(over),
            .width = static_cast<int32_t>(width),
            .lane_bits = dealt.lane_bits,
            .blocks = dealt.blocks};
  }
  int64_t Chunks(int64_t width) const { return (width + Chunk() - 1) / Chunk(); }

  const Context& c_;
  ir::NodeId id_;
  const ir::Node& n_;
  DType type_ = DType::kF32;
  bool plain_ = false;
  DealtRows dealt_;
};

void EmitMap(RowNode& r, RowsMapArgs& a, ir::ValueId over, int64_t width) {
  r.Plain({a.x, a.binary == RowBinary::kMulRow ? View() : a.b, a.y});
  a.work = r.Chunked(over, width);
  r.Emit("rows_map", a);
}

RowsMapArgs Binary(RowBinary binary, RowFn fn = RowFn::kNone) {
  RowsMapArgs a;
  a.fn = fn;
  a.binary = binary;
  return a;
}
RowsMapArgs Fn(RowFn fn, float p = 1, float q = 0) {
  RowsMapArgs a;
  a.fn = fn;
  a.p = p;
  a.q = q;
  return a;
}

// y = fn(x), with b if there is a binary operation.
void CompileMap(RowNode& r, RowsMapArgs a) {
  a.x = r.In(0);
  if (a.binary != RowBinary::kNone) a.b = r.Broadcast(1);
  a.y = r.Out();
  EmitMap(r, a, r.node().outputs[0], a.y.rows.width);
}

// The rows of a table that the ids say (zeros for none), added to those of an input.
void CompileExpertBias(RowNode& r) {
  RowsMapArgs a = Binary(RowBinary::kAdd);
  a.x = r.Vectors(2, &a.index_rows);
  a.index = r.Ints(1);
  a.b = r.In(0);
  a.y = r.Out();
  EmitMap(r, a, r.node().outputs[0], a.y.rows.width);
}

// `size` columns of an input from `begin` on become those of the output from `to` on.
void CompileCopy(RowNode& r, size_t input, int64_t begin, int64_t to, int64_t size) {
  RowsMapArgs a;
  const View x = r.In(input), y = r.Out();
  a.x = r.From(x, begin);
  a.y = r.From(y, to);
  EmitMap(r, a, r.node().outputs[0], size);
}

// A reshape that is no view: x is strided, and the result dense.
void CompileReshape(RowNode& r) {
  RowsMapArgs a;
  a.x = r.In(0);
  a.y = r.Out();
  a.y.rows.inner = 1;
  a.y.rows.stride = a.x.rows.width;
  EmitMap(r, a, r.node().inputs[0], a.x.rows.width);
}

void CompileTakeRows(RowNode& r, bool table, int64_t rows) {
  RowsMapArgs a;
  a.index_rows = static_cast<int32_t>(rows);
  a.x = table ? r.Table(0, &a.index_rows) : r.In(0);
  a.y = r.Out();
  a.index = r.Ints(1);
  // Of a gather an index may take several rows.
  const View x = a.x, y = a.y;
  for (int64_t to = 0; to < y.rows.width; to += x.rows.width, --a.index_rows) {
    a.x = r.From(x, to / x.rows.width * x.rows.stride);
    a.y = r.From(y, to);
    EmitMap(r, a, r.node().outputs[0], x.rows.width);
  }
}

// Rows of a state of f32; where there is none, those of an input, or zeros.
void CompileStateRows(const Context& c, RowNode& r) {
  RowsMapArgs a = Binary(r.node().inputs.size() > 2 ? RowBinary::kElse : RowBinary::kNone);
  const Context::Slots slots = c.SlotsOf(r.node().inputs[0]);
  a.y = r.Out();
  if (a.binary == RowBinary::kElse) a.b = r.In(2);
  a.x = {.rows = {.base = slots.words, .stride = a.y.rows.width, .width = a.y.rows.width},
         .f32 = 1};
  a.index = r.Ints(1);
  a.index_rows = static_cast<int32_t>(slots.count);
  EmitMap(r, a, r.node().outputs[0], a.y.rows.width);
}

// (x, w), with what is fused before and behind it.
void CompileNorm(RowNode& r) {
  const ir::Node& n = r.node();
  const auto part = [&](size_t i) {
    return n.attrs.as<ir::FusedAttrs>().parts[i].as<ir::NormAttrs>();
  };
  ir::NormAttrs attrs;
  RowsNormArgs a;
  a.x = r.In(0);
  switch (n.op) {
    case Op::kAddRmsNorm:
      attrs = part(1);
      a.add = r.Broadcast(1);
      a.w = r.Vector(2);
      a.sum = r.Out(0);
      break;
    case Op::kRmsNormAdd:
      attrs = part(0);
      a.w = r.Vector(1);
      a.residual = r.In(2);
      break;
    default:
      attrs = n.attrs.as<ir::NormAttrs>();
      if (n.inputs.size() > 1) {
        a.w = r.Vector(1);
      } else {
        attrs.weight_offset = 1;  // to weights of 0
      }
      if (n.op == Op::kLayerNorm) {
        if (n.inputs.size() > 2) a.bias = r.Vector(2);
        a.centre = 1;
      }
  }
  a.y = r.Out(n.outputs.size() - 1);
  a.eps = attrs.eps;
  a.offset = attrs.weight_offset;
  r.Plain({a.x, a.add, a.sum, a.residual, a.y}, {a.w, a.bias});
  a.work = r.Whole(n.outputs.back(), a.y.rows.width, kRowsNormThreads);
  r.Emit("rows_norm", a, kRowsSharedBytes);
}

void CompileSoftmax(RowNode& r) {
  RowsSoftmaxArgs a;
  a.x = r.In(0);
  a.y = r.Out();
  a.logarithm = r.node().op == Op::kLogSoftmax ? 1 : 0;
  a.work = r.Whole(r.node().outputs[0], a.y.rows.width, kRowsSoftmaxThreads);
  r.Emit("rows_softmax", a, kRowsSharedBytes);
}

void CompileRope(const Context& c, RowNode& r) {
  const ir::Node& n = r.node();
  const bool norm = n.op == Op::kRmsNormRope;
  const auto& rope = norm ? n.attrs.as<ir::FusedAttrs>().parts[1].as<ir::RopeAttrs>()
                          : n.attrs.as<ir::RopeAttrs>();
  RowsRopeArgs a;
  a.x = r.In(0);
  a.y = r.Out();
  if (norm) {
    const auto& attrs = n.attrs.as<ir::FusedAttrs>().parts[0].as<ir::NormAttrs>();
    a.w = r.Vector(1);
    a.eps = attrs.eps;
    a.offset = attrs.weight_offset;
  }
  a.positions = r.Ints(norm ? 2 : 1);
  a.table = RopeTableOf(c, rope);
  a.table_positions = static_cast<int32_t>(MostPositions(c));
  a.heads = static_cast<int32_t>(c.value(n.inputs[0]).shape[1].At(c.bucket()));
  a.half = static_cast<int32_t>(rope.rotary_dim / 2);
  a.interleaved = rope.interleaved ? 1 : 0;
  r.Plain({a.x, a.y}, {a.w, a.table});
  // Pairs in whole chunks: of a table's (cos, sin) as well.
  const int64_t passing = a.y.rows.width - 2 * int64_t{a.half};
  if (a.half % r.Chunk() != 0 || passing % (2 * r.Chunk()) != 0) r.NotPlain();
  a.work = r.Heads(n.outputs[0], a.y.rows.width);
  r.Emit("rows_rope", a);
}

}  // namespace

void CompileRows(const Context& c, ir::NodeId id) {
  RowNode r(c, id);
  const ir::Node& n = r.node();
  switch (n.op) {
    case Op::kAdd:
      return CompileMap(r, Binary(RowBinary::kAdd));
    case Op::kSub:
      return CompileMap(r, Binary(RowBinary::kSub));
    case Op::kMul:
      return CompileMap(r, Binary(RowBinary::kMul));
    case Op::kDiv:
      return CompileMap(r, Binary(RowBinary::kDiv));
    case Op::kScaleRows:
      return CompileMap(r, Binary(RowBinary::kMulRow));
    case Op::kScale: {
      const auto& a = n.attrs.as<ir::ScaleAttrs>();
      return CompileMap(r, Fn(RowFn::kScale, a.multiply, a.add));
    }
    case Op::kClamp: {
      const auto& a = n.attrs.as<ir::ClampAttrs>();
      return CompileMap(r, Fn(RowFn::kClamp, a.low, a.high));
    }
    case Op::kExpertBias:
      return CompileExpertBias(r);
    case Op::kUnary:
      return CompileMap(r, Fn(RowFnOf(n.attrs.as<ir::UnaryAttrs>().fn)));
    case Op::kActMul: {
      const auto& a = n.attrs.as<ir::FusedAttrs>().parts[0].as<ir::UnaryAttrs>();
      return CompileMap(r, Binary(RowBinary::kMul, RowFnOf(a.fn)));
    }
    case Op::kSoftCap: {
      const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
      return CompileMap(r, Fn(RowFn::kSoftCap, parts[0].as<ir::ScaleAttrs>().multiply,
                              parts[2].as<ir::ScaleAttrs>().multiply));
    }
    case Op::kConvert:
      return CompileMap(r, {});
    case Op::kEmbed:
      if (IsQuantMatrix(c.value(n.inputs[0]))) return CompileQuantEmbed(c, id);
      return CompileTakeRows(r, true, 0);
    case Op::kGather:
      return CompileTakeRows(r, false, c.MostRows(n.inputs[0]));
    case Op::kStateRows:
      return CompileStateRows(c, r);
    case Op::kSlice: {
      const auto& a = n.attrs.as<ir::SliceAttrs>();
      return CompileCopy(r, 0, a.begin, 0, a.size);
    }
    case Op::kConcat: {
      const int64_t first = c.value(n.inputs[0]).shape.back().At(c.bucket());
      const int64_t second = c.value(n.inputs[1]).shape.back().At(c.bucket());
      CompileCopy(r, 0, 0, 0, first);
      return CompileCopy(r, 1, 0, first, second);
    }
    case Op::kReshape:
      return CompileReshape(r);
    case Op::kRmsNorm:
    case Op::kLayerNorm:
    case Op::kAddRmsNorm:
    case Op::kRmsNormAdd:
      return CompileNorm(r);
    case Op::kSoftmax:
    case Op::kLogSoftmax:
      return CompileSoftmax(r);
    case Op::kRope:
    case Op::kRmsNormRope:
      return CompileRope(c, r);
    default:
      return r.Fail(fmt::format("has no kernel for {}", ir::Name(n.op)));
  }
}

}  // namespace vt::gpu
