// Nodes that work row by row: norms, elementwise operations, rotation, copies, and their fused
// forms.
#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "vt/cpu/formats.h"
#include "vt/cpu/step.h"
#include "vt/ir/quant.h"

namespace vt::cpu {
namespace {

using ir::Op;

// Runs `fn(row)` for every row; chunks are stretches of rows of about kChunkValues values.
template <typename F>
class RowStep : public Step {
 public:
  RowStep(ir::NodeId node, ir::Dim outer, int64_t inner, int64_t width, F fn)
      : Step(node),
        outer_(outer),
        inner_(inner),
        size_(std::max<int64_t>(1, kChunkValues / std::max<int64_t>(width, 1))),
        fn_(std::move(fn)) {}
  int64_t Chunks(const ir::Bucket& now) const override {
    return (outer_.At(now) * inner_ + size_ - 1) / size_;
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte*) const override {
    const int64_t end = std::min((chunk + 1) * size_, outer_.At(now) * inner_);
    for (int64_t i = chunk * size_; i < end; ++i) fn_(i);
  }

 private:
  // About 5 microseconds of work: several times a barrier's cost.
  static constexpr int64_t kChunkValues = 8192;
  ir::Dim outer_;
  int64_t inner_, size_;
  F fn_;
};

// Resolves the operands of a node; the first failure is kept, so that the cases below read straight
// through.
class Operands {
 public:
  Operands(const Context& c, ir::NodeId id)
      : c_(c), n_(c.plan.graph.nodes[static_cast<size_t>(id)]), id_(id) {}

  RowsView In(size_t i) { return Take(c_.Rows(n_.inputs[i])); }
  RowsView Out(size_t i = 0) { return Take(c_.Rows(n_.outputs[i])); }
  const float* Vector(size_t i) { return Take(c_.Vector(n_.inputs[i])); }
  const int32_t* Ids(size_t i) { return Take(c_.Input(n_.inputs[i])); }
  std::byte* Blocks(size_t i) { return Take(c_.Arena(n_.outputs[i])); }
  // The second operand of a binary op: rows, or one vector for all rows.
  RowsView Broadcast(size_t i, const RowsView& like) {
    RowsView b = In(i);
    if (c_.value(n_.inputs[i]).shape.size() == 1 && c_.value(n_.inputs[0]).shape.size() > 1) {
      b.inner = 1;
      b.stride = 0;
    } else if (b.width != like.width || b.inner != like.inner) {
      Fail(fmt::format("cpu: the operands of '{}' differ in shape", n_.name));
    }
    return b;
  }
  void Fail(std::string why) {
    if (status_.ok()) status_ = base::Error{base::Code::kUnsupported, std::move(why)};
  }

  template <typename F>
  base::Status Emit(Steps& steps, const RowsView& over, F fn) {
    if (status_.ok()) {
      steps.push_back(
          std::make_unique<RowStep<F>>(id_, over.outer, over.inner, over.width, std::move(fn)));
    }
    return status_;
  }
  const base::Status& status() const { return status_; }
  const ir::Node& node() const { return n_; }

 private:
  template <typename T>
  T Take(base::Result<T> r) {
    if (r) return *r;
    if (status_.ok()) status_ = r.error();
    return T{};
  }
  const Context& c_;
  const ir::Node& n_;
  ir::NodeId id_;
  base::Status status_;
};

}  // namespace

Activate ActivateOf(ir::Activation fn) {
  switch (fn) {
    case ir::Activation::kSilu:
      return Activate::kSilu;
    case ir::Activation::kGeluTanh:
      return Activate::kGeluTanh;
    case ir::Activation::kGelu:
      return Activate::kGelu;
    case ir::Activation::kRelu:
      return Activate::kRelu;
    case ir::Activation::kSigmoid:
      return Activate::kSigmoid;
    case ir::Activation::kTanh:
      return Activate::kTanh;
    case ir::Activation::kExp:
      return Activate::kExp;
    case ir::Activation::kSoftplus:
      return Activate::kSoftplus;
    case ir::Activation::kSquaredRelu:
      return Activate::kSquaredRelu;
    case ir::Activation::kQuickGelu:
      return Activate::kQuickGelu;
  }
  return Activate::kSilu;
}

namespace {

base::Status CompileBinary(const Context& c, ir::NodeId id, Steps& steps, Binary op) {
  Operands o(c, id);
  const RowsView a = o.In(0), b = o.Broadcast(1, a), y = o.Out();
  return o.Emit(steps, y, [f = c.kernels.binary, op, a, b, y](int64_t i) {
    f(op, a.row(i), b.row(i), y.width, y.row(i));
  });
}

// (x, w) -> norm, with what is fused before and behind it.
base::Status CompileNorm(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const ir::Node& n = o.node();
  const KernelSet& k = c.kernels;
  const auto attrs_of = [&](size_t part) {
    return n.attrs.as<ir::FusedAttrs>().parts[part].as<ir::NormAttrs>();
  };
  const RowsView x = o.In(0);
  const int64_t width = x.width;
  switch (n.op) {
    case Op::kRmsNorm: {
      const float* w = n.inputs.size() > 1 ? o.Vector(1) : nullptr;
      const RowsView y = o.Out();
      return o.Emit(steps, y,
                    [f = k.rms_norm, w, x, y, a = n.attrs.as<ir::NormAttrs>()](int64_t i) {
                      f(x.row(i), w, a.eps, a.weight_offset, y.width, y.row(i));
                    });
    }
    case Op::kLayerNorm: {
      const float *w = o.Vector(1), *b = n.inputs.size() > 2 ? o.Vector(2) : nullptr;
      const RowsView y = o.Out();
      return o.Emit(steps, y,
                    [f = k.layer_norm, w, b, x, y, a = n.attrs.as<ir::NormAttrs>()](int64_t i) {
                      f(x.row(i), w, b, a.eps, a.weight_offset, y.width, y.row(i));
                    });
    }
    case Op::kAddRmsNorm: {
      const RowsView b = o.Broadcast(1, x), s = o.Out(0), y = o.Out(1);
      const float* w = o.Vector(2);
      return o.Emit(steps, y, [&k, w, x, b, s, y, a = attrs_of(1)](int64_t i) {
        k.binary(Binary::kAdd, x.row(i), b.row(i), y.width, s.row(i));
        k.rms_norm(s.row(i), w, a.eps, a.weight_offset, y.width, y.row(i));
      });
    }
    case Op::kRmsNormAdd: {
      const float* w = o.Vector(1);
      const RowsView r = o.In(2), y = o.Out();
      return o.Emit(steps, y, [&k, w, x, r, y, a = attrs_of(0)](int64_t i) {
        // The output may be the residual's own buffer: the norm must not overwrite it.
        thread_local std::vector<float> t;
        t.resize(static_cast<size_t>(y.width));
        k.rms_norm(x.row(i), w, a.eps, a.weight_offset, y.width, t.data());
        k.binary(Binary::kAdd, r.row(i), t.data(), y.width, y.row(i));
      });
    }
    case Op::kRmsNormQuantize: {
      const float* w = o.Vector(1);
      std::byte* y = o.Blocks(0);
      return o.Emit(steps, x, [&k, w, x, y, width, a = attrs_of(0)](int64_t i) {
        thread_local std::vector<float> t;
        t.resize(static_cast<size_t>(width));
        k.rms_norm(x.row(i), w, a.eps, a.weight_offset, width, t.data());
        k.quantize(t.data(), width, y + i * ActivationRowBytes(width));
      });
    }
    default: {  // kAddRmsNormQuantize
      const RowsView b = o.Broadcast(1, x), s = o.Out(0);
      const float* w = o.Vector(2);
      std::byte* y = o.Blocks(1);
      return o.Emit(steps, x, [&k, w, x, b, s, y, width, a = attrs_of(1)](int64_t i) {
        thread_local std::vector<float> t;
        t.resize(static_cast<size_t>(width));
        k.binary(Binary::kAdd, x.row(i), b.row(i), width, s.row(i));
        k.rms_norm(s.row(i), w, a.eps, a.weight_offset, width, t.data());
        k.quantize(t.data(), width, y + i * ActivationRowBytes(width));
      });
    }
  }
}

base::Status CompileActMul(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const ir::Node& n = o.node();
  const Activate fn = ActivateOf(n.attrs.as<ir::FusedAttrs>().parts[0].as<ir::UnaryAttrs>().fn);
  const RowsView g = o.In(0), u = o.Broadcast(1, g);
  if (n.op == Op::kActMul) {
    const RowsView y = o.Out();
    return o.Emit(steps, y, [f = c.kernels.act_mul, fn, g, u, y](int64_t i) {
      f(fn, g.row(i), u.row(i), y.width, y.row(i));
    });
  }
  std::byte* y = o.Blocks(0);
  return o.Emit(steps, g, [&k = c.kernels, fn, g, u, y](int64_t i) {
    thread_local std::vector<float> t;
    t.resize(static_cast<size_t>(g.width));
    k.act_mul(fn, g.row(i), u.row(i), g.width, t.data());
    k.quantize(t.data(), g.width, y + i * ActivationRowBytes(g.width));
  });
}

base::Status CompileRope(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const ir::Node& n = o.node();
  const bool norm = n.op == Op::kRmsNormRope;
  const ir::RopeAttrs& rope = norm ? n.attrs.as<ir::FusedAttrs>().parts[1].as<ir::RopeAttrs>()
                                   : n.attrs.as<ir::RopeAttrs>();
  const ir::NormAttrs a =
      norm ? n.attrs.as<ir::FusedAttrs>().parts[0].as<ir::NormAttrs>() : ir::NormAttrs{};
  const RowsView x = o.In(0), y = o.Out();
  const float* w = norm ? o.Vector(1) : nullptr;
  const int32_t* positions = o.Ids(norm ? 2 : 1);
  return o.Emit(steps, y,
                [&k = c.kernels, t = c.rope_table(rope), x, y, w, a, positions](int64_t i) {
                  const int64_t p = positions[i / x.inner];
                  const float* from = x.row(i);
                  if (w != nullptr) {
                    k.rms_norm(from, w, a.eps, a.weight_offset, y.width, y.row(i));
                    from = y.row(i);
                  }
                  k.rope(from, t->cos(p), t->sin(p), t->attrs().rotary_dim, t->attrs().interleaved,
                         y.width, y.row(i));
                });
}

base::Status CompileConvert(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const ir::DType to = o.node().attrs.as<ir::ConvertAttrs>().dtype;
  const RowsView x = o.In(0);
  const int64_t width = x.width;
  if (to == ir::DType::kQ8_A32) {
    std::byte* y = o.Blocks(0);
    return o.Emit(steps, x, [f = c.kernels.quantize, x, y, width](int64_t i) {
      f(x.row(i), width, y + i * ActivationRowBytes(width));
    });
  }
  std::byte* y = o.Blocks(0);
  const int64_t bytes = ir::Bytes(to, width);
  if (to == ir::DType::kBF16) {
    return o.Emit(steps, x, [f = c.kernels.to_brain, x, y, width, bytes](int64_t i) {
      f(x.row(i), width, y + i * bytes);
    });
  }
  return o.Emit(steps, x, [to, x, y, width, bytes](int64_t i) {
    ir::Quantize(to, x.row(i), y + i * bytes, width);
  });
}

// Weights and ids of a token's experts.
base::Status CompileRouter(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const auto& attrs = o.node().attrs.as<ir::RouterAttrs>();
  const RowsView x = o.In(0), weights = o.Out(0);
  RouterArgs a;
  a.experts = x.width;
  a.top_k = attrs.top_k;
  a.sigmoid = attrs.sigmoid;
  a.root = attrs.root;
  a.normalise = attrs.normalise;
  a.scale = attrs.scale;
  a.groups = attrs.groups;
  a.top_groups = attrs.top_groups;
  a.group_max = attrs.group_max;
  if (attrs.bias) a.bias = o.Vector(1);
  if (attrs.expert_scales) a.scales = o.Vector(o.node().inputs.size() - 1);
  auto* ids = reinterpret_cast<int32_t*>(o.Blocks(1));
  const bool hashed = o.node().op == Op::kHashRouter;
  const float* table = hashed ? o.Vector(1) : nullptr;
  const int32_t* tokens = hashed ? o.Ids(2) : nullptr;
  return o.Emit(steps, x, [f = c.kernels.router, a, x, weights, ids, table, tokens](int64_t t) {
    thread_local std::vector<float> scratch;
    scratch.resize(static_cast<size_t>(RouterScratchFloats(a.experts)));
    f(a, x.row(t), table == nullptr ? nullptr : table + tokens[t] * a.top_k, weights.row(t),
      ids + t * a.top_k, scratch.data());
  });
}

}  // namespace

base::Status CompileStateRows(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const ir::Value& state = c.value(o.node().inputs[0]);
  const auto group = static_cast<size_t>(state.group);
  if (group >= c.bindings.state.size() || c.bindings.state[group].empty()) {
    o.Fail(fmt::format("cpu: the state of '{}' has no memory", o.node().name));
    return o.status();
  }
  const auto* slots = static_cast<const float*>(c.bindings.state[group][0]);
  const int64_t count = c.bindings.state_blocks[group];
  const RowsView y = o.Out(), x = o.node().inputs.size() > 2 ? o.In(2) : RowsView{};
  const int32_t* rows = o.Ids(1);
  return o.Emit(steps, y, [=](int64_t i) {
    const float* from = rows[i] >= 0 && rows[i] < count ? slots + rows[i] * y.width
                        : x.base != nullptr             ? x.row(i)
                                                        : nullptr;
    const size_t bytes = static_cast<size_t>(y.width) * 4;
    if (from != nullptr) return static_cast<void>(std::memcpy(y.row(i), from, bytes));
    std::memset(y.row(i), 0, bytes);
  });
}

base::Status CompileRows(const Context& c, ir::NodeId id, Steps& steps) {
  Operands o(c, id);
  const ir::Node& n = o.node();
  const KernelSet& k = c.kernels;
  switch (n.op) {
    case Op::kAdd:
      return CompileBinary(c, id, steps, Binary::kAdd);
    case Op::kSub:
      return CompileBinary(c, id, steps, Binary::kSub);
    case Op::kMul:
      return CompileBinary(c, id, steps, Binary::kMul);
    case Op::kDiv:
      return CompileBinary(c, id, steps, Binary::kDiv);
    case Op::kScale: {
      const RowsView x = o.In(0), y = o.Out();
      return o.Emit(steps, y, [f = k.scale, x, y, a = n.attrs.as<ir::ScaleAttrs>()](int64_t i) {
        f(x.row(i), a.multiply, a.add, y.width, y.row(i));
      });
    }
    case Op::kClamp: {
      const RowsView x = o.In(0), y = o.Out();
      return o.Emit(steps, y, [f = k.clamp, x, y, a = n.attrs.as<ir::ClampAttrs>()](int64_t i) {
        f(x.row(i), a.low, a.high, y.width, y.row(i));
      });
    }
    case Op::kUnary: {
      const RowsView x = o.In(0), y = o.Out();
      return o.Emit(steps, y,
                    [f = k.activate, x, y, fn = ActivateOf(n.attrs.as<ir::UnaryAttrs>().fn)](
                        int64_t i) { f(fn, x.row(i), y.width, y.row(i)); });
    }
    case Op::kSoftCap: {
      const RowsView x = o.In(0), y = o.Out();
      const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
      return o.Emit(steps, y,
                    [f = k.softcap, x, y, inverse = parts[0].as<ir::ScaleAttrs>().multiply,
                     cap = parts[2].as<ir::ScaleAttrs>().multiply](int64_t i) {
                      f(x.row(i), inverse, cap, y.width, y.row(i));
                    });
    }
    case Op::kSoftmax:
    case Op::kLogSoftmax: {
      const RowsView x = o.In(0), y = o.Out();
      return o.Emit(steps, y, [f = k.softmax, log = n.op == Op::kLogSoftmax, x, y](int64_t i) {
        f(x.row(i), y.width, log, y.row(i));
      });
    }
    case Op::kRmsNorm:
    case Op::kLayerNorm:
    case Op::kAddRmsNorm:
    case Op::kRmsNormAdd:
    case Op::kRmsNormQuantize:
    case Op::kAddRmsNormQuantize:
      return CompileNorm(c, id, steps);
    case Op::kActMul:
    case Op::kActMulQuantize:
      return CompileActMul(c, id, steps);
    case Op::kRope:
    case Op::kRmsNormRope:
      return CompileRope(c, id, steps);
    case Op::kConvert:
    case Op::kQuantize:
      return CompileConvert(c, id, steps);
    case Op::kRouter:
    case Op::kHashRouter:
      return CompileRouter(c, id, steps);
    case Op::kExpertBias: {
      const RowsView x = o.In(0), y = o.Out();
      const int32_t* ids = o.Ids(1);
      return o.Emit(steps, y, [&k, x, y, ids, bias = o.Vector(2)](int64_t i) {
        const float* row = ids[i] < 0 ? nullptr : bias + ids[i] * y.width;
        if (row != nullptr) return k.binary(Binary::kAdd, x.row(i), row, y.width, y.row(i));
        std::memcpy(y.row(i), x.row(i), static_cast<size_t>(y.width) * 4);
      });
    }
    case Op::kExpertSum: {
      const RowsView x = o.In(0), weights = o.In(1), y = o.Out();
      return o.Emit(steps, y, [f = k.weighted_sum, x, weights, y](int64_t t) {
        f(x.base + t * x.stride, x.width, weights.row(t), x.inner, y.width, y.row(t));
      });
    }
    case Op::kScaleRows: {
      const RowsView x = o.In(0), factor = o.In(1), y = o.Out();
      return o.Emit(steps, y, [f = k.scale, x, factor, y](int64_t i) {
        f(x.row(i), *factor.row(i), 0, y.width, y.row(i));
      });
    }
    case Op::kGather: {
      const RowsView x = o.In(0), y = o.Out();
      const int32_t* rows = o.Ids(1);
      return o.Emit(steps, y, [x, y, rows](int64_t i) {
        for (int64_t j = 0; j * x.width < y.width; ++j)
          std::memcpy(y.row(i) + j * x.width, x.row(rows[i] + j), static_cast<size_t>(x.width) * 4);
      });
    }
    case Op::kStateRows:
      return CompileStateRows(c, id, steps);
    case Op::kConcat: {
      const RowsView a = o.In(0), b = o.In(1), y = o.Out();
      return o.Emit(steps, y, [a, b, y](int64_t i) {
        std::memcpy(y.row(i), a.row(i), static_cast<size_t>(a.width) * 4);
        std::memcpy(y.row(i) + a.width, b.row(i), static_cast<size_t>(b.width) * 4);
      });
    }
    case Op::kSlice: {  // that no view can express
      const RowsView x = o.In(0), y = o.Out();
      return o.Emit(steps, y, [x, y, begin = n.attrs.as<ir::SliceAttrs>().begin](int64_t i) {
        std::memcpy(y.row(i), x.row(i) + begin, static_cast<size_t>(y.width) * 4);
      });
    }
    case Op::kReshape: {  // likewise: the source is strided, and rows change their length
      const RowsView x = o.In(0), y = o.Out();
      return o.Emit(steps, x, [x, y](int64_t i) {
        std::memcpy(y.base + i * x.width, x.row(i), static_cast<size_t>(x.width) * 4);
      });
    }
    default:
      return base::Error{base::Code::kUnsupported,
                         fmt::format("cpu: no kernel for {} ('{}')", ir::Name(n.op), n.name)};
  }
}

base::Status CompileNode(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  switch (n.op) {
    case Op::kReshape:
    case Op::kSlice:
      if (c.plan.memory.places[static_cast<size_t>(n.outputs[0])].buffer != n.outputs[0])
        return {};  // a view
      return CompileRows(c, id, steps);
    case Op::kEmbed:
    case Op::kLinear:
    case Op::kLinearAdd:
      return CompileLinear(c, id, steps);
    case Op::kHeadLinear:
      return CompileHeadLinear(c, id, steps);
    case Op::kGroupedLinear:
    case Op::kGroupedLinearActMul:
    case Op::kGroupedLinearSum:
      return CompileGroupedLinear(c, id, steps);
    case Op::kCausalConv:
    case Op::kGatedDelta:
    case Op::kGatedDeltaNet:
      return CompileRecurrent(c, id, steps);
    case Op::kKvWrite:
    case Op::kAttention:
      return CompileAttention(c, id, steps);
    case Op::kCompress:
    case Op::kIndexEntries:
    case Op::kEntryAttention:
    case Op::kHyperCollapse:
    case Op::kHyperExpand:
      return CompileEntries(c, id, steps);
    case Op::kArgMax:
    case Op::kTokenFeed:
    case Op::kSample:
    case Op::kTopLogprobs:
      return CompileChoice(c, id, steps);
    default:
      return CompileRows(c, id, steps);
  }
}

}  // namespace vt::cpu
