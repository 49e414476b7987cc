#include "vt/ir/builder.h"

#include <algorithm>

#include "base/strings.h"
#include "vt/ir/sampling.h"
#include "vt/ir/shape.h"

namespace vt::ir {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

// Removes the ".weight" of a checkpoint's name: nodes are named after their module.
std::string ModuleName(const std::string& weight) {
  constexpr std::string_view kSuffix = ".weight";
  return base::EndsWith(weight, kSuffix) ? weight.substr(0, weight.size() - kSuffix.size())
                                         : weight;
}

// Nodes without a name of their own take the op's name and their number, which is unique in the
// graph.
std::string Numbered(const Graph& g, Op op) {
  return fmt::format("{}.{}", Name(op), g.nodes.size());
}

}  // namespace

Builder::Builder(std::string model_name, WeightSource weights, KvOptions kv)
    : weights_(std::move(weights)), kv_(kv) {
  graph_.name = std::move(model_name);
}

void Builder::Fail(std::string message) {
  if (!error_) error_ = base::Error{base::Code::kInvalidArgument, std::move(message)};
}

ValueId Builder::Input(const std::string& name, Shape shape) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  Value v{.name = name, .dtype = DType::kI32, .shape = std::move(shape), .kind = ValueKind::kInput};
  graph_.values.push_back(std::move(v));
  return by_name_[name] = static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId Builder::State(const std::string& name, int group, DType dtype, Shape shape) {
  Value state{.name = name, .dtype = dtype, .shape = std::move(shape), .kind = ValueKind::kState};
  state.group = group;
  state.layer = graph_.state_groups[static_cast<size_t>(group)].layers++;
  graph_.values.push_back(std::move(state));
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId Builder::SamplerState() {
  if (!kv_.sampler) {
    Fail(fmt::format("{}: the builder was made without a sampler", graph_.name));
    return kNone;
  }
  if (sampler_state_ < 0) {
    if (kv_.sampler->vocabulary < 1 || kv_.sampler->history < 1 || kv_.sampler->lists < 0)
      Fail("the sampler needs a positive vocabulary and history");
    graph_.state_groups.push_back({.name = kSamplerGroup,
                                   .kind = StateGroup::Kind::kSlot,
                                   .dtype = DType::kI32,
                                   .slot_bytes = kv_.sampler->bytes()});
    sampler_state_ = State("sampler", static_cast<int>(graph_.state_groups.size()) - 1, DType::kI32,
                           {Dim(kv_.sampler->words())});
  }
  return sampler_state_;
}

ValueId Builder::TokenIds() {
  const ValueId ids = Input(kTokenIds, {T()});
  if (!kv_.sampler) return ids;
  if (fed_ids_ < 0) {
    fed_ids_ =
        Emit(Op::kTokenFeed, "token_feed", {ids, SamplerState()}, {SamplerAttrs{*kv_.sampler}});
  }
  return fed_ids_;
}
ValueId Builder::Positions() { return Input(kPositions, {T()}); }
ValueId Builder::TokenTypes() { return Input(kTokenTypes, {T()}); }
ValueId Builder::OutputRows() { return Input(kOutputRows, {O()}); }
ValueId Builder::SampleParams() {
  const ValueId v = Input(kSampleParams, {O(), Dim(kSampleParamCount)});
  graph_.values[static_cast<size_t>(v)].dtype = DType::kF32;
  return v;
}

bool Builder::Has(const std::string& name) const { return weights_ && weights_(name).has_value(); }

ValueId Builder::Weight(const std::string& name, std::vector<int64_t> shape) {
  used_.insert(name);
  // Weights and inputs share a table of names; a tensor cannot be called like an input, which has
  // no dot or has "slots.".
  const std::string key = "weight:" + name;
  const auto found = by_name_.find(key);
  WeightInfo info{DType::kF32, shape};
  if (asked_ != nullptr) {
    asked_->emplace(name, shape);
  } else if (const auto stored = weights_ ? weights_(name) : std::nullopt; !stored) {
    Fail(fmt::format("the checkpoint has no tensor {}, which {} needs", name, graph_.name));
  } else if (stored->shape != shape) {
    Fail(fmt::format("tensor {} has the shape {}, but the configuration of {} says {}", name,
                     ShapeText(stored->shape), graph_.name, ShapeText(shape)));
  } else {
    info = *stored;
  }
  if (found != by_name_.end()) return found->second;
  Value v{.name = name,
          .dtype = info.dtype,
          .shape = {shape.begin(), shape.end()},
          .kind = ValueKind::kWeight};
  graph_.values.push_back(std::move(v));
  return by_name_[key] = static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId Builder::Emit(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs) {
  std::vector<Value> values;
  for (const ValueId v : inputs) {
    if (v < 0 || static_cast<size_t>(v) >= graph_.values.size()) {
      Fail(fmt::format("node {} of {} reads a value that does not exist", name, graph_.name));
      return kNone;
    }
    values.push_back(graph_.value(v));
  }
  auto types = InferOutputs(op, attrs, values);
  if (!types) {
    Fail(fmt::format("{}: {}: {}", graph_.name, name, types.error().message));
    return kNone;
  }
  const auto node_id = static_cast<NodeId>(graph_.nodes.size());
  Node node{.op = op,
            .name = name,
            .inputs = std::move(inputs),
            .outputs = {},
            .attrs = std::move(attrs)};
  for (size_t i = 0; i < types->size(); ++i) {
    Value v{.name = i == 0 ? name : fmt::format("{}:{}", name, i),
            .dtype = (*types)[i].dtype,
            .shape = (*types)[i].shape,
            .kind = ValueKind::kNode,
            .producer = node_id};
    if (const StateWrite w = WriteOf(op); w.output == static_cast<int>(i)) {
      const Value& before = values[static_cast<size_t>(w.input)];
      v.kind = ValueKind::kState;
      v.group = before.group;
      v.layer = before.layer;
    }
    node.outputs.push_back(static_cast<ValueId>(graph_.values.size()));
    graph_.values.push_back(std::move(v));
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs[0];
}

ValueId Builder::Embed(const std::string& weight, int64_t vocab, int64_t width) {
  return EmbedOf(weight, vocab, width, TokenIds());
}
ValueId Builder::EmbedOf(const std::string& weight, int64_t rows, int64_t width, ValueId ids) {
  return Emit(Op::kEmbed, ModuleName(weight), {Weight(weight, {rows, width}), ids});
}

ValueId Builder::Linear(ValueId x, const std::string& name, int64_t out, bool bias) {
  if (x < 0) return kNone;  // after an earlier failure
  const Dim k = graph_.value(x).shape.empty() ? Dim(0) : graph_.value(x).shape.back();
  std::vector<ValueId> inputs = {x, Weight(name + ".weight", {out, k.At({})})};
  if (bias) inputs.push_back(Weight(name + ".bias", {out}));
  return Emit(Op::kLinear, name, std::move(inputs), {LinearAttrs{1, bias}});
}

ValueId Builder::RmsNorm(ValueId x, const std::string& weight, float eps, float weight_offset) {
  if (x < 0) return kNone;
  if (weight.empty())
    return Emit(Op::kRmsNorm, Numbered(graph_, Op::kRmsNorm), {x}, {NormAttrs{eps}});
  const int64_t d = graph_.value(x).shape.back().At({});
  return Emit(Op::kRmsNorm, ModuleName(weight), {x, Weight(weight, {d})},
              {NormAttrs{eps, weight_offset}});
}

ValueId Builder::LayerNorm(ValueId x, const std::string& weight, const std::string& bias,
                           float eps) {
  if (x < 0) return kNone;
  const int64_t d = graph_.value(x).shape.back().At({});
  std::vector<ValueId> in = {x, Weight(weight, {d})};
  if (!bias.empty()) in.push_back(Weight(bias, {d}));
  return Emit(Op::kLayerNorm, ModuleName(weight), std::move(in), {NormAttrs{eps, 0}});
}

ValueId Builder::Add(ValueId a, ValueId b) {
  return Emit(Op::kAdd, Numbered(graph_, Op::kAdd), {a, b});
}
ValueId Builder::Mul(ValueId a, ValueId b) {
  return Emit(Op::kMul, Numbered(graph_, Op::kMul), {a, b});
}
ValueId Builder::Scale(ValueId x, float multiply, float add) {
  return Emit(Op::kScale, Numbered(graph_, Op::kScale), {x}, {ScaleAttrs{multiply, add}});
}
ValueId Builder::Act(ValueId x, Activation fn) {
  return Emit(Op::kUnary, Numbered(graph_, Op::kUnary), {x}, {UnaryAttrs{fn}});
}
ValueId Builder::Clamp(ValueId x, float low, float high) {
  return Emit(Op::kClamp, Numbered(graph_, Op::kClamp), {x}, {ClampAttrs{low, high}});
}
ValueId Builder::SoftCap(ValueId x, float cap) {
  if (!(cap > 0)) Fail(fmt::format("{}: a soft cap must be positive, not {}", graph_.name, cap));
  return Scale(Act(Scale(x, 1 / cap), Activation::kTanh), cap);
}

ValueId Builder::Heads(ValueId x, int64_t heads, int64_t head_dim) {
  if (x < 0) return kNone;
  Shape shape = {graph_.value(x).shape[0], Dim(heads), Dim(head_dim)};
  return Emit(Op::kReshape, Numbered(graph_, Op::kReshape), {x}, {ReshapeAttrs{std::move(shape)}});
}

ValueId Builder::Slice(ValueId x, int64_t begin, int64_t size) {
  return Emit(Op::kSlice, Numbered(graph_, Op::kSlice), {x}, {SliceAttrs{begin, size}});
}

ValueId Builder::Rope(ValueId x, const RopeAttrs& rope) {
  return Emit(Op::kRope, Numbered(graph_, Op::kRope), {x, Positions()}, {rope});
}

ValueId Builder::OutputOnly(ValueId x, int64_t count) {
  return Emit(Op::kGather, "output_rows", {x, OutputRows()}, {GatherAttrs{count}});
}

ValueId Builder::Media(int64_t width, ValueId x) {
  const auto group = static_cast<int>(graph_.state_groups.size());
  graph_.state_groups.push_back({.name = kMediaGroup,
                                 .kind = StateGroup::Kind::kSlot,
                                 .dtype = DType::kF32,
                                 .slot_bytes = width * Info(DType::kF32).bytes});
  std::vector<ValueId> inputs = {State(kMediaGroup, group, DType::kF32, {Dim(width)}),
                                 Input(kMediaRows, {T()})};
  if (x >= 0) inputs.push_back(x);
  return Emit(Op::kStateRows, "media", std::move(inputs));
}

ValueId Builder::Concat(ValueId a, ValueId b) {
  return Emit(Op::kConcat, Numbered(graph_, Op::kConcat), {a, b});
}

ValueId Builder::HeadLinear(ValueId x, const std::string& name, int64_t out) {
  if (x < 0) return kNone;
  const Shape& shape = graph_.value(x).shape;
  if (shape.size() != 3) {
    Fail(fmt::format("{}: {} needs x [T, H, K]", graph_.name, name));
    return kNone;
  }
  const int64_t heads = shape[1].At({}), k = shape[2].At({});
  const ValueId w = Weight(name + ".weight", {heads, out, k});
  // Such matrices are few: devices have one kernel for plain ones instead of one a format.
  DType& held = graph_.values[static_cast<size_t>(w)].dtype;
  if (IsQuantised(held)) held = DType::kF16;
  return Emit(Op::kHeadLinear, name, {x, w});
}

ValueId Builder::Attention(ValueId q, ValueId k, ValueId v, const AttentionAttrs& attrs,
                           const std::string& name, const std::string& sinks) {
  return Attend(q, {k, v}, attrs, name, sinks);
}
ValueId Builder::LatentAttention(ValueId q, ValueId latent, const AttentionAttrs& attrs,
                                 const std::string& name) {
  return Attend(q, {latent}, attrs, name, {});
}

int Builder::PagedGroup(int64_t window, int64_t kv_heads, int64_t head_dim, bool latent) {
  if (kv_.block_size < 1 || kv_.max_model_len < 1)
    Fail("the KV cache needs a positive block size and model length");
  // Layers share a group when their state has the same shape and the same window.
  for (size_t g = 0; g < graph_.state_groups.size(); ++g) {
    const StateGroup& s = graph_.state_groups[g];
    if (s.kind != StateGroup::Kind::kSlot && s.window == window && s.kv_heads == kv_heads &&
        s.head_dim == head_dim && s.latent == latent) {
      return static_cast<int>(g);
    }
  }
  const bool global = window == 0;
  graph_.state_groups.push_back(
      {.name = global ? "global" : fmt::format("window{}", window),
       .kind = global ? StateGroup::Kind::kPagedGlobal : StateGroup::Kind::kPagedWindow,
       .dtype = kv_.dtype,
       .layers = 0,
       .kv_heads = kv_heads,
       .head_dim = head_dim,
       .window = window,
       .latent = latent});
  return static_cast<int>(graph_.state_groups.size()) - 1;
}

ValueId Builder::BlockTable(int group) {
  const int64_t max_blocks =
      kv_.block_size < 1 ? 1 : (kv_.max_model_len + kv_.block_size - 1) / kv_.block_size;
  return Input(BlockTableName(group), {R(), Dim(max_blocks)});
}

ValueId Builder::Attend(ValueId q, std::vector<ValueId> kv, const AttentionAttrs& attrs,
                        const std::string& name, const std::string& sinks) {
  if (q < 0 || std::any_of(kv.begin(), kv.end(), [](ValueId v) { return v < 0; })) return kNone;
  const int group = PagedGroup(attrs.window, attrs.kv_heads, attrs.head_dim, attrs.latent());
  const int layer = graph_.state_groups[static_cast<size_t>(group)].layers;
  ValueId state_id = kNone;
  // Tokens that see those behind them are all in one step, so layers take turns with one state.
  for (size_t v = 0; v < graph_.values.size() && !attrs.causal; ++v) {
    if (graph_.values[v].kind == ValueKind::kState && graph_.values[v].group == group)
      state_id = static_cast<ValueId>(v);  // the newest version is the last
  }
  if (state_id < 0) {
    state_id =
        State(fmt::format("kv.{}.{}", group, layer), group, kv_.dtype,
              {Dim(static_cast<int64_t>(kv.size())), Dim(attrs.kv_heads), Dim(attrs.head_dim)});
  }

  kv.insert(kv.begin(), state_id);
  kv.push_back(Input(SlotsName(group), {T()}));
  const ValueId next = Emit(Op::kKvWrite, name + ".kv_write", std::move(kv));
  return next < 0 ? kNone : AttendOver(next, q, attrs, name, sinks);
}

ValueId Builder::AttentionOf(const std::string& of, ValueId q, const AttentionAttrs& attrs,
                             const std::string& name) {
  if (q < 0) return kNone;
  const auto written = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& n) {
    return n.op == Op::kKvWrite && n.name == of + ".kv_write";
  });
  if (written == graph_.nodes.end()) {
    Fail(fmt::format("{}: {} reads the cache of {}, which has none", graph_.name, name, of));
    return kNone;
  }
  return AttendOver(written->outputs[0], q, attrs, name, {});
}

ValueId Builder::AttendOver(ValueId state, ValueId q, const AttentionAttrs& attrs,
                            const std::string& name, const std::string& sinks) {
  std::vector<ValueId> inputs = {q,
                                 state,
                                 Positions(),
                                 Input(kQueryStart, {Dim(1, Sym::kRequests, 1)}),
                                 Input(kSeqLens, {R()}),
                                 BlockTable(graph_.value(state).group)};
  if (attrs.sinks) inputs.push_back(Weight(sinks, {attrs.heads}));
  return Emit(Op::kAttention, name, std::move(inputs), {attrs});
}

Builder::Routed Builder::Router(ValueId logits, const RouterAttrs& attrs, const std::string& name,
                                const std::string& bias, const std::string& scales) {
  if (logits < 0) return {};
  std::vector<ValueId> inputs = {logits};
  const int64_t experts = graph_.value(logits).shape.back().At({});
  if (attrs.bias) inputs.push_back(Weight(bias, {experts}));
  if (attrs.expert_scales) inputs.push_back(Weight(scales, {experts}));
  Routed out;
  out.weights = Emit(Op::kRouter, name, std::move(inputs), {attrs});
  if (out.weights >= 0) out.ids = graph_.nodes.back().outputs[1];
  return out;
}

ValueId Builder::GroupedLinear(ValueId x, ValueId ids, const std::string& name, int64_t experts,
                               int64_t out) {
  if (x < 0 || ids < 0) return kNone;
  const int64_t k = graph_.value(x).shape.back().At({});
  return Emit(Op::kGroupedLinear, name, {x, ids, Weight(name + ".weight", {experts, out, k})},
              {GroupedLinearAttrs{1}});
}

ValueId Builder::ExpertBias(ValueId y, ValueId ids, const std::string& bias, int64_t experts) {
  if (y < 0) return kNone;
  return Emit(Op::kExpertBias, Numbered(graph_, Op::kExpertBias),
              {y, ids, Weight(bias, {experts, graph_.value(y).shape.back().At({})})});
}
ValueId Builder::ExpertSum(ValueId y, ValueId weights) {
  return Emit(Op::kExpertSum, Numbered(graph_, Op::kExpertSum), {y, weights});
}
ValueId Builder::ScaleRows(ValueId x, ValueId s) {
  return Emit(Op::kScaleRows, Numbered(graph_, Op::kScaleRows), {x, s});
}

ValueId Builder::GatedDeltaNet(ValueId qkv, ValueId a, ValueId b, const DeltaAttrs& attrs,
                               int64_t conv_width, const DeltaWeights& weights,
                               const std::string& name) {
  if (qkv < 0 || a < 0 || b < 0) return kNone;
  const ConvAttrs conv = {attrs.channels(), conv_width};
  DeltaAttrs delta = attrs;
  delta.state_begin = conv.state_floats();
  const int64_t floats = delta.state_begin + delta.state_floats();
  int group = -1;
  for (size_t g = 0; g < graph_.state_groups.size(); ++g) {
    if (graph_.state_groups[g].name == kRecurrentGroup) group = static_cast<int>(g);
  }
  if (group < 0) {
    group = static_cast<int>(graph_.state_groups.size());
    graph_.state_groups.push_back({.name = kRecurrentGroup,
                                   .kind = StateGroup::Kind::kSlot,
                                   .dtype = DType::kF32,
                                   .slot_bytes = floats * Info(DType::kF32).bytes});
  }
  const StateGroup& recurrent = graph_.state_groups[static_cast<size_t>(group)];
  if (recurrent.slot_bytes != floats * Info(DType::kF32).bytes)
    Fail(fmt::format("{}: recurrent layers of different sizes", name));
  const ValueId state =
      State(fmt::format("recurrent.{}", recurrent.layers), group, DType::kF32, {Dim(floats)});
  const ValueId starts = Input(kQueryStart, {Dim(1, Sym::kRequests, 1)});
  const ValueId read = Input(kStateRead, {R()}), write = Input(kStateWrite, {R()});
  const ValueId filtered = Emit(
      Op::kCausalConv, name + ".conv1d",
      {qkv, Weight(weights.conv, {conv.channels, conv.width}), state, starts, read, write}, {conv});
  if (filtered < 0) return kNone;
  const ValueId after = graph_.nodes.back().outputs[1];
  return Emit(Op::kGatedDelta, name,
              {Act(filtered, Activation::kSilu), a, b, Weight(weights.a, {attrs.v_heads}),
               Weight(weights.dt, {attrs.v_heads}), after, starts, read, write},
              {delta});
}

Builder::Sampled Builder::Sample(ValueId logits) {
  const ValueId state = SamplerState();
  if (logits < 0 || state < 0) return {};
  Sampled out;
  const ValueId params = SampleParams();
  out.tokens = Emit(Op::kSample, "sample", {logits, params, state}, {SamplerAttrs{*kv_.sampler}});
  if (out.tokens < 0) return {};
  sampler_state_ = graph_.nodes.back().outputs[1];
  out.values = Emit(Op::kTopLogprobs, "top_logprobs", {logits, params, out.tokens});
  if (out.values >= 0) out.ids = graph_.nodes.back().outputs[1];
  return out;
}

base::Result<Graph> Builder::Finish(std::vector<ValueId> outputs) {
  if (error_) return *error_;
  graph_.outputs = std::move(outputs);
  if (auto status = Verify(graph_); !status) return status.error().In(graph_.name);
  return std::move(graph_);
}

}  // namespace vt::ir
