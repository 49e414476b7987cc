#include "vt/ir/shape.h"

#include <algorithm>

#include "base/strings.h"
#include "vt/ir/fused.h"
#include "vt/ir/sampling.h"

namespace vt::ir {
namespace {

using Types = base::Result<std::vector<OutputType>>;

bool IsPlainFloat(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }
bool IsFloating(DType t) { return IsPlainFloat(t) || IsQuantised(t); }

// Reads like a list of demands: the first that fails is the error.
class Rule {
 public:
  Rule(Op op, const Attrs& attrs, std::span<const Value> in) : op_(op), attrs_(attrs), in_(in) {}

  Types Apply();

 private:
  Types Bad(const std::string& what) const {
    std::string inputs;
    for (const Value& v : in_)
      inputs += fmt::format(" {}:{}{}", v.name, Name(v.dtype), ToString(v.shape));
    return base::Error{
        base::Code::kInvalidArgument,
        fmt::format("{} {}; its inputs are{}", Name(op_), what, inputs.empty() ? " none" : inputs)};
  }
  template <typename A>
  const A* Get() const {
    return std::get_if<A>(&attrs_.v);
  }
  const Shape& S(size_t i) const { return in_[i].shape; }
  size_t Rank(size_t i) const { return in_[i].shape.size(); }
  int64_t LastOf(size_t i) const {  // -1 when it is not a constant
    if (S(i).empty() || S(i).back().sym != Sym::kOne) return -1;
    return S(i).back().At({});
  }
  bool IsVector(size_t i, int64_t size) const {
    return Rank(i) == 1 && LastOf(i) == size && in_[i].dtype != DType::kI32;
  }
  bool IsIds(size_t i, size_t rank) const { return in_[i].dtype == DType::kI32 && Rank(i) == rank; }
  static Types One(DType t, Shape s) { return std::vector<OutputType>{{t, std::move(s)}}; }
  Shape WithLast(size_t i, int64_t last) const {
    Shape s = S(i);
    s.back() = Dim(last);
    return s;
  }
  DType ValueType() const {
    return in_.empty() || !IsPlainFloat(in_[0].dtype) || in_[0].kind == ValueKind::kWeight
               ? DType::kF32
               : in_[0].dtype;
  }

  // Logits and parameters of the first two inputs.
  bool IsSampled() const {
    return Rank(0) == 2 && Rank(1) == 2 && S(0)[0] == S(1)[0] && LastOf(1) == kSampleParamCount &&
           LastOf(0) > 0 && in_[0].dtype == DType::kF32 && in_[1].dtype == DType::kF32;
  }
  // query_start [R + 1], state_read [R], state_write [R] from input i, and the state before them.
  bool IsRecurrent(size_t i) const {
    const Value& state = in_[i - 1];
    return state.kind == ValueKind::kState && state.dtype == DType::kF32 && IsIds(i, 1) &&
           IsIds(i + 1, 1) && IsIds(i + 2, 1) && S(i + 1) == S(i + 2);
  }
  // A state of one vector a token: [1, 1, D].
  bool IsLatent(size_t i) const {
    return in_[i].kind == ValueKind::kState && Rank(i) == 3 && S(i)[0] == Dim(1);
  }
  bool IsSampler(size_t i) const {
    const auto* a = Get<SamplerAttrs>();
    return a != nullptr && in_[i].kind == ValueKind::kState && in_[i].dtype == DType::kI32 &&
           S(i) == Shape{Dim(a->layout.words())};
  }

  Types Linear();
  Types Binary();
  Types Attention();
  Types KvWrite();
  Types HeadLinear();
  Types Router();
  Types GroupedLinear();
  Types CausalConv();
  Types GatedDelta();
  Types Compress();
  Types IndexEntries();
  Types EntryAttention();
  Types HyperCollapse();
  Types HyperExpand();
  Types HashRouter();
  Types Reshape();
  Types Fused();
  base::Result<size_t> Arity() const;

  Op op_;
  const Attrs& attrs_;
  std::span<const Value> in_;
};

base::Result<size_t> Rule::Arity() const {
  switch (op_) {
    case Op::kScale:
    case Op::kUnary:
    case Op::kClamp:
    case Op::kSoftmax:
    case Op::kLogSoftmax:
    case Op::kReshape:
    case Op::kSlice:
    case Op::kConvert:
    case Op::kQuantize:
    case Op::kArgMax:
      return 1u;
    case Op::kRmsNorm:
      return in_.size() == 1 ? 1u : 2u;
    case Op::kStateRows:
      return in_.size() == 2 ? 2u : 3u;
    case Op::kLayerNorm:
      return in_.size() == 2 ? 2u : 3u;
    case Op::kExpertBias:
      return 3u;
    case Op::kKvWrite:
      return in_.empty() || !IsLatent(0) ? 4u : 3u;
    case Op::kSample:
    case Op::kTopLogprobs:
      return 3u;
    case Op::kAttention:
      return Get<AttentionAttrs>() != nullptr && Get<AttentionAttrs>()->sinks ? 7u : 6u;
    case Op::kCausalConv:
      return 6u;
    case Op::kGatedDelta:
      return 9u;
    case Op::kCompress:
      return 8u;
    case Op::kIndexEntries:
      return 6u;
    case Op::kEntryAttention:
      return Get<EntryAttrs>() != nullptr && Get<EntryAttrs>()->top_k > 0 ? 9u : 8u;
    case Op::kHyperCollapse:
      return 4u;
    case Op::kHyperExpand:
    case Op::kHashRouter:
      return 3u;
    case Op::kRouter: {
      const auto* a = Get<RouterAttrs>();
      return a == nullptr ? 1u : 1u + (a->bias ? 1u : 0u) + (a->expert_scales ? 1u : 0u);
    }
    case Op::kGroupedLinear: {
      const auto* a = Get<GroupedLinearAttrs>();
      if (a == nullptr || a->segments < 1)
        return Bad("needs GroupedLinearAttrs with at least one segment").error();
      return static_cast<size_t>(2 + a->segments);
    }
    case Op::kLinear: {
      const LinearAttrs* a = Get<LinearAttrs>();
      if (a == nullptr || a->segments < 1)
        return Bad("needs LinearAttrs with at least one segment").error();
      return static_cast<size_t>(1 + a->segments * (a->bias ? 2 : 1));
    }
    default:
      return 2u;
  }
}

Types Rule::Linear() {
  const auto& a = *Get<LinearAttrs>();
  const int64_t k = LastOf(0);
  if (k <= 0 || Rank(0) < 1) return Bad("needs a constant last dimension of x");
  int64_t n = 0;
  for (int i = 0; i < a.segments; ++i) {
    const size_t w = static_cast<size_t>(1 + i);
    if (Rank(w) != 2 || LastOf(w) != k || !IsFloating(in_[w].dtype)) {
      return Bad(fmt::format("needs weights of {} columns", k));
    }
    if (k % Info(in_[w].dtype).block != 0)
      return Bad("needs rows that are whole blocks of the weight's format");
    const int64_t rows = S(w)[0].At({});
    if (a.bias && !IsVector(static_cast<size_t>(1 + a.segments + i), rows)) {
      return Bad("needs a bias of as many values as its weight has rows");
    }
    n += rows;
  }
  return One(ValueType(), WithLast(0, n));
}

Types Rule::Binary() {
  if (!IsPlainFloat(in_[0].dtype) || !IsPlainFloat(in_[1].dtype))
    return Bad("needs plain float inputs");
  const bool row = Rank(1) == 1 && Rank(0) >= 1 && S(1)[0] == S(0).back();
  if (S(0) != S(1) && !row)
    return Bad("needs a second input of the same shape or of the last dimension");
  return One(ValueType(), S(0));
}

Types Rule::KvWrite() {
  if (in_[0].kind != ValueKind::kState) return Bad("needs a state as its first input");
  const size_t slots = in_.size() - 1;
  if (IsLatent(0)) {
    if (Rank(1) != 3 || S(1)[1] != Dim(1) || S(1)[2] != S(0)[2])
      return Bad("needs a latent vector a token [T, 1, D]");
  } else if (Rank(1) != 3 || S(1) != S(2)) {
    return Bad("needs k and v of one shape [T, heads, head_dim]");
  }
  if (!IsIds(slots, 1) || S(slots)[0] != S(1)[0]) return Bad("needs one i32 slot a token");
  return One(in_[0].dtype, S(0));
}

Types Rule::Attention() {
  const auto* a = Get<AttentionAttrs>();
  if (a == nullptr || a->heads < 1 || a->kv_heads < 1 || a->head_dim < 1 ||
      a->heads % a->kv_heads != 0) {
    return Bad("needs AttentionAttrs whose heads are a multiple of kv_heads");
  }
  if (in_[1].kind != ValueKind::kState) return Bad("needs a state as its second input");
  if (a->latent() != IsLatent(1) || (a->latent() && (a->kv_heads != 1 || a->v_dim > a->head_dim)))
    return Bad("needs a latent state where v_dim is given, one kv head and v_dim of its numbers");
  if (Rank(0) != 3 || S(0)[1] != Dim(a->heads) || S(0)[2] != Dim(a->head_dim)) {
    return Bad(fmt::format("needs q of shape [T, {}, {}]", a->heads, a->head_dim));
  }
  if (!IsIds(2, 1) || S(2)[0] != S(0)[0]) return Bad("needs one i32 position a token");
  if (!IsIds(3, 1) || !IsIds(4, 1) || !IsIds(5, 2))
    return Bad("needs i32 query_start, seq_lens and block_table");
  if (a->sinks && !IsVector(6, a->heads)) return Bad("needs a sink for each head");
  return One(ValueType(), {S(0)[0], Dim(a->heads * a->value_dim())});
}

Types Rule::HeadLinear() {
  const int64_t k = LastOf(0);
  if (Rank(0) != 3 || k <= 0) return Bad("needs x [T, H, K]");
  if (Rank(1) != 3 || LastOf(1) != k || S(1)[0] != S(0)[1] || !IsFloating(in_[1].dtype))
    return Bad(fmt::format("needs a weight [{}, rows, {}]", ToString({S(0)[1]}), k));
  if (k % Info(in_[1].dtype).block != 0)
    return Bad("needs rows that are whole blocks of the weight's format");
  return One(ValueType(), WithLast(0, S(1)[1].At({})));
}

Types Rule::Router() {
  const auto* a = Get<RouterAttrs>();
  const int64_t experts = LastOf(0);
  if (a == nullptr || a->top_k < 1 || a->top_k > experts)
    return Bad("needs RouterAttrs that choose at least one expert and at most all");
  if (a->groups < 1 || experts % a->groups != 0 || a->top_groups < 1 || a->top_groups > a->groups ||
      a->top_k > experts / a->groups * a->top_groups ||
      (a->groups > 1 && experts / a->groups < 2)) {
    return Bad("needs groups of equal size, enough of which stay");
  }
  if (Rank(0) != 2 || !IsPlainFloat(in_[0].dtype)) return Bad("needs logits [T, E]");
  for (size_t i = 1; i < in_.size(); ++i) {
    if (!IsVector(i, experts)) return Bad("needs biases and scales of as many values as experts");
  }
  const Shape chosen = {S(0)[0], Dim(a->top_k)};
  return std::vector<OutputType>{{DType::kF32, chosen}, {DType::kI32, chosen}};
}

Types Rule::GroupedLinear() {
  const int64_t k = LastOf(0);
  if (k <= 0 || Rank(0) < 2 || Rank(0) > 3) return Bad("needs x [T, K] or [T, k, K]");
  if (!IsIds(1, 2) || S(1)[0] != S(0)[0] || (Rank(0) == 3 && S(1)[1] != S(0)[1]))
    return Bad("needs i32 ids [T, k]");
  int64_t n = 0;
  for (size_t w = 2; w < in_.size(); ++w) {
    if (Rank(w) != 3 || LastOf(w) != k || !IsFloating(in_[w].dtype) || S(w)[0] != S(2)[0])
      return Bad(fmt::format("needs weights [experts, rows, {}]", k));
    if (k % Info(in_[w].dtype).block != 0)
      return Bad("needs rows that are whole blocks of the weight's format");
    n += S(w)[1].At({});
  }
  return One(ValueType(), {S(0)[0], S(1)[1], Dim(n)});
}

Types Rule::CausalConv() {
  const auto* a = Get<ConvAttrs>();
  if (a == nullptr || a->channels < 1 || a->width < 2)
    return Bad("needs ConvAttrs of at least one channel and two taps");
  if (Rank(0) != 2 || LastOf(0) != a->channels) return Bad("needs x [T, channels]");
  if (S(1) != Shape{Dim(a->channels), Dim(a->width)} || !IsPlainFloat(in_[1].dtype))
    return Bad("needs a weight [channels, width]");
  if (!IsRecurrent(3) || S(2).empty() || LastOf(2) < a->state_floats())
    return Bad("needs a recurrent state, query_start, state_read and state_write");
  return std::vector<OutputType>{{ValueType(), S(0)}, {in_[2].dtype, S(2)}};
}

Types Rule::GatedDelta() {
  const auto* a = Get<DeltaAttrs>();
  if (a == nullptr || a->k_heads < 1 || a->v_heads % a->k_heads != 0 || a->v_heads < 1 ||
      a->k_dim < 1 || a->v_dim < 1 || a->state_begin < 0) {
    return Bad("needs DeltaAttrs whose v_heads are a multiple of k_heads");
  }
  if (Rank(0) != 2 || LastOf(0) != a->channels())
    return Bad(fmt::format("needs q, k and v side by side, {} in all", a->channels()));
  const Shape heads = {S(0)[0], Dim(a->v_heads)};
  if (S(1) != heads || S(2) != heads) return Bad("needs a and b [T, v_heads]");
  if (!IsVector(3, a->v_heads) || !IsVector(4, a->v_heads))
    return Bad("needs A and dt of as many values as v_heads");
  if (!IsRecurrent(6) || S(5).empty() || LastOf(5) < a->state_begin + a->state_floats())
    return Bad("needs a recurrent state, query_start, state_read and state_write");
  return std::vector<OutputType>{{ValueType(), {S(0)[0], Dim(a->v_heads), Dim(a->v_dim)}},
                                 {in_[5].dtype, S(5)}};
}

Types Rule::Compress() {
  const auto* a = Get<CompressAttrs>();
  if (a == nullptr || a->rows < 1 || a->ratio % a->rows != 0 || a->dim < 1 ||
      a->dim % a->rows != 0 || a->begin < 0 || a->values < 0 || a->gates < 0 ||
      a->rope.rotary_dim < 0 || a->rope.rotary_dim > a->dim ||
      static_cast<int64_t>(a->rope.frequencies.size()) * 2 != a->rope.rotary_dim) {
    return Bad("needs CompressAttrs whose dim is a multiple of rows");
  }
  if (!IsLatent(0) || LastOf(0) < std::max(a->values, a->gates) + a->width() || !IsLatent(1) ||
      LastOf(1) < a->begin + a->dim / a->rows) {
    return Bad("needs states whose rows have the values, gates and entries");
  }
  if (!IsIds(2, 1) || !IsIds(3, 1) || !IsIds(4, 2) || !IsIds(5, 2))
    return Bad("needs i32 positions, query_start and block tables");
  if (S(6) != Shape{Dim(a->ratio), Dim(a->width())} || !IsFloating(in_[6].dtype))
    return Bad(fmt::format("needs a bias [{}, {}]", a->ratio, a->width()));
  if (!IsVector(7, a->dim)) return Bad("needs a norm's weight of the entry's size");
  return One(in_[1].dtype, S(1));
}

Types Rule::IndexEntries() {
  const auto* a = Get<EntryAttrs>();
  if (a == nullptr || a->heads < 1 || a->ratio < 1 || a->rows < 1 || a->dim % a->rows != 0 ||
      a->top_k < 1)
    return Bad("needs EntryAttrs whose dim is a multiple of rows, and top_k");
  if (Rank(0) != 3 || S(0)[1] != Dim(a->heads) || LastOf(0) != a->dim ||
      S(1) != Shape{S(0)[0], Dim(a->heads)}) {
    return Bad("needs q [T, heads, dim] and weights [T, heads]");
  }
  if (!IsLatent(2) || LastOf(2) < a->begin + a->dim / a->rows)
    return Bad("needs a state whose rows have the entries");
  if (!IsIds(3, 1) || !IsIds(4, 1) || !IsIds(5, 2))
    return Bad("needs i32 positions, query_start and block_table");
  return One(DType::kI32, {S(0)[0], Dim(a->top_k)});
}

Types Rule::EntryAttention() {
  const auto* a = Get<EntryAttrs>();
  if (a == nullptr || a->heads < 1 || a->window < 1 || a->rows < 1 || a->dim % a->rows != 0)
    return Bad("needs EntryAttrs with a window, whose dim is a multiple of rows");
  if (Rank(0) != 3 || S(0)[1] != Dim(a->heads) || LastOf(0) != a->dim)
    return Bad("needs q [T, heads, dim]");
  if (!IsLatent(1) || LastOf(1) != a->dim || !IsLatent(2) ||
      (a->ratio > 0 && LastOf(2) < a->begin + a->dim / a->rows)) {
    return Bad("needs a state of such vectors and one whose rows have the entries");
  }
  if (!IsIds(3, 1) || !IsIds(4, 1) || !IsIds(5, 2) || !IsIds(6, 2))
    return Bad("needs i32 positions, query_start and block tables");
  if (!IsVector(7, a->heads)) return Bad("needs a sink for each head");
  if (a->top_k > 0 && (!IsIds(8, 2) || LastOf(8) != a->top_k)) return Bad("needs ids [T, top_k]");
  return One(ValueType(), {S(0)[0], Dim(a->heads * a->dim)});
}

Types Rule::HyperCollapse() {
  const auto* a = Get<HyperAttrs>();
  if (a == nullptr || a->rounds < 0) return Bad("needs HyperAttrs");
  if (Rank(0) != 3 || S(0)[1].sym != Sym::kOne) return Bad("needs x [T, H, D]");
  const int64_t h = S(0)[1].At({}), mixes = a->rounds > 0 ? (2 + h) * h : h;
  if (S(1) != Shape{S(0)[0], Dim(mixes)} || !IsVector(2, mixes) ||
      !IsVector(3, a->rounds > 0 ? 3 : 1)) {
    return Bad(fmt::format("needs {} mixes, as many of the base, and scales", mixes));
  }
  std::vector<OutputType> out = {{ValueType(), {S(0)[0], S(0)[2]}}};
  if (a->rounds > 0) out.push_back({DType::kF32, {S(0)[0], Dim(mixes - h)}});
  return out;
}

Types Rule::HyperExpand() {
  if (Rank(0) != 3 || S(0)[1].sym != Sym::kOne || S(1) != Shape{S(0)[0], S(0)[2]})
    return Bad("needs x [T, H, D] and y [T, D]");
  const int64_t h = S(0)[1].At({});
  if (S(2) != Shape{S(0)[0], Dim(h + h * h)} || in_[2].dtype != DType::kF32)
    return Bad("needs f32 gates [T, H + H H]");
  return One(ValueType(), S(0));
}

Types Rule::HashRouter() {
  const auto* a = Get<RouterAttrs>();
  if (a == nullptr || a->top_k < 1 || a->groups != 1)
    return Bad("needs RouterAttrs without groups");
  if (Rank(0) != 2 || !IsPlainFloat(in_[0].dtype)) return Bad("needs logits [T, E]");
  if (Rank(1) != 2 || LastOf(1) != a->top_k || IsQuantised(in_[1].dtype) || !IsIds(2, 1))
    return Bad("needs a table [V, top_k] and i32 ids [T]");
  const Shape chosen = {S(0)[0], Dim(a->top_k)};
  return std::vector<OutputType>{{DType::kF32, chosen}, {DType::kI32, chosen}};
}

Types Rule::Reshape() {
  const auto* a = Get<ReshapeAttrs>();
  if (a == nullptr) return Bad("needs ReshapeAttrs");
  // Two buckets of different primes tell unequal products of sizes apart.
  for (const Bucket& b : {Bucket{3, 5, 7}, Bucket{11, 13, 17}}) {
    if (Elements(a->shape, b) != Elements(S(0), b)) {
      return Bad(fmt::format("cannot give {}: the number of elements differs", ToString(a->shape)));
    }
  }
  return One(in_[0].dtype, a->shape);
}

Types Rule::Fused() {
  const FusedDefinition& def = DefinitionOf(op_);
  const auto* a = Get<FusedAttrs>();
  if (a == nullptr || a->parts.size() != ComputedParts(def))
    return Bad("needs the attributes of its parts");
  const auto least = static_cast<size_t>(def.inputs);  // parts know what they need of the rest
  if (in_.size() < least || (in_.size() > least && !IsVariadic(def)))
    return Bad(fmt::format("needs {} inputs", least));
  std::vector<Value> results(2 * def.parts.size());
  for (size_t p = 0; p < ComputedParts(def); ++p) {
    const Op part = def.parts[p].op;
    const std::vector<Value> args = ArgumentsOf(def, p, results, in_);
    auto types = InferOutputs(part, a->parts[p], args);
    if (!types) return types.error().In(std::string(Name(op_)));
    for (size_t o = 0; o < std::min<size_t>(types->size(), 2); ++o) {
      Value& v = results[p + o * def.parts.size()];
      v = {.name = "part", .dtype = (*types)[o].dtype, .shape = (*types)[o].shape};
      if (WriteOf(part).output == static_cast<int>(o)) v.kind = ValueKind::kState;
    }
  }
  std::vector<OutputType> out;
  for (const int o : def.outputs) {
    const Value& v = results[ResultIndex(def, o)];
    out.push_back({v.dtype, v.shape});
  }
  return out;
}

Types Rule::Apply() {
  if (IsFused(op_)) return Fused();
  auto arity = Arity();
  if (!arity) return arity.error();
  if (in_.size() != *arity) return Bad(fmt::format("needs {} inputs", *arity));
  switch (op_) {
    case Op::kEmbed:
      if (Rank(0) != 2 || !IsFloating(in_[0].dtype) || LastOf(0) <= 0)
        return Bad("needs a table [rows, width]");
      if (LastOf(0) % Info(in_[0].dtype).block != 0) return Bad("needs rows that are whole blocks");
      if (!IsIds(1, 1)) return Bad("needs i32 ids");
      return One(DType::kF32, {S(1)[0], S(0)[1]});
    case Op::kLinear:
      return Linear();
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
      return Binary();
    case Op::kScale:
      if (Get<ScaleAttrs>() == nullptr) return Bad("needs ScaleAttrs");
      return One(ValueType(), S(0));
    case Op::kUnary:
      if (Get<UnaryAttrs>() == nullptr) return Bad("needs UnaryAttrs");
      return One(ValueType(), S(0));
    case Op::kClamp: {
      const auto* a = Get<ClampAttrs>();
      if (a == nullptr || !(a->low <= a->high)) return Bad("needs ClampAttrs of low <= high");
      return One(ValueType(), S(0));
    }
    case Op::kSoftmax:
    case Op::kLogSoftmax:
      if (Rank(0) < 1) return Bad("needs at least one dimension");
      return One(ValueType(), S(0));
    case Op::kRmsNorm:
      if (Get<NormAttrs>() == nullptr) return Bad("needs NormAttrs");
      if (in_.size() == 2 && !IsVector(1, LastOf(0)))
        return Bad("needs a weight of the last dimension's size");
      return One(ValueType(), S(0));
    case Op::kLayerNorm:
      if (Get<NormAttrs>() == nullptr) return Bad("needs NormAttrs");
      if (!IsVector(1, LastOf(0)) || (in_.size() == 3 && !IsVector(2, LastOf(0))))
        return Bad("needs weight and bias of the last dimension");
      return One(ValueType(), S(0));
    case Op::kRope: {
      const auto* a = Get<RopeAttrs>();
      if (a == nullptr) return Bad("needs RopeAttrs");
      if (Rank(0) != 3 || !IsIds(1, 1) || S(0)[0] != S(1)[0])
        return Bad("needs x [T, H, D] and i32 positions [T]");
      if (a->rotary_dim % 2 != 0 || a->rotary_dim > LastOf(0) || a->rotary_dim < 0 ||
          static_cast<int64_t>(a->frequencies.size()) != a->rotary_dim / 2) {
        return Bad("needs an even rotary_dim of at most head_dim, with a frequency for each pair");
      }
      return One(ValueType(), S(0));
    }
    case Op::kKvWrite:
      return KvWrite();
    case Op::kAttention:
      return Attention();
    case Op::kHeadLinear:
      return HeadLinear();
    case Op::kGather: {
      const auto* a = Get<GatherAttrs>();
      const int64_t count = a == nullptr ? 1 : a->count;
      if (Rank(0) != 2 || LastOf(0) < 1 || !IsIds(1, 1) || count < 1)
        return Bad("needs x [T, D] and i32 rows");
      return One(in_[0].dtype, {S(1)[0], Dim(count * LastOf(0))});
    }
    case Op::kStateRows:
      if (in_[0].kind != ValueKind::kState || in_[0].dtype != DType::kF32 || Rank(0) != 1 ||
          !IsIds(1, 1) || (in_.size() > 2 && S(2) != Shape{S(1)[0], S(0)[0]}))
        return Bad("needs a state of f32 rows, i32 rows [T] and, if any, x [T, D]");
      return One(in_.size() > 2 ? in_[2].dtype : DType::kF32, {S(1)[0], S(0)[0]});
    case Op::kReshape:
      return Reshape();
    case Op::kSlice: {
      const auto* a = Get<SliceAttrs>();
      if (a == nullptr || a->begin < 0 || a->size < 1 || a->begin + a->size > LastOf(0)) {
        return Bad("needs a range inside the last dimension");
      }
      return One(in_[0].dtype, WithLast(0, a->size));
    }
    case Op::kConcat: {
      if (LastOf(0) < 0 || LastOf(1) < 0 || WithLast(1, LastOf(0)) != S(0)) {
        return Bad("needs inputs that differ in a constant last dimension only");
      }
      return One(ValueType(), WithLast(0, LastOf(0) + LastOf(1)));
    }
    case Op::kConvert: {
      const auto* a = Get<ConvertAttrs>();
      if (a == nullptr || !IsPlainFloat(a->dtype))
        return Bad("needs a plain float type to convert to");
      return One(a->dtype, S(0));
    }
    case Op::kQuantize: {
      const auto* a = Get<ConvertAttrs>();
      if (a == nullptr || !IsQuantised(a->dtype)) return Bad("needs a block format");
      if (LastOf(0) <= 0 || LastOf(0) % Info(a->dtype).block != 0)
        return Bad("needs rows that are whole blocks");
      return One(a->dtype, S(0));
    }
    case Op::kRouter:
      return Router();
    case Op::kGroupedLinear:
      return GroupedLinear();
    case Op::kExpertBias:
      if (Rank(0) != 3 || !IsIds(1, 2) || S(1) != Shape{S(0)[0], S(0)[1]} || Rank(2) != 2 ||
          LastOf(2) != LastOf(0) || !IsPlainFloat(in_[2].dtype)) {
        return Bad("needs y [T, k, N], i32 ids [T, k] and biases [E, N]");
      }
      return One(ValueType(), S(0));
    case Op::kExpertSum:
      if (Rank(0) != 3 || S(1) != Shape{S(0)[0], S(0)[1]} || in_[1].dtype != DType::kF32)
        return Bad("needs y [T, k, N] and f32 weights [T, k]");
      return One(ValueType(), {S(0)[0], S(0)[2]});
    case Op::kScaleRows:
      if (Rank(0) < 1 || LastOf(1) != 1 || S(1) != WithLast(0, 1))
        return Bad("needs x [.., N] and a factor [.., 1] a row");
      return One(ValueType(), S(0));
    case Op::kCausalConv:
      return CausalConv();
    case Op::kGatedDelta:
      return GatedDelta();
    case Op::kCompress:
      return Compress();
    case Op::kIndexEntries:
      return IndexEntries();
    case Op::kEntryAttention:
      return EntryAttention();
    case Op::kHyperCollapse:
      return HyperCollapse();
    case Op::kHyperExpand:
      return HyperExpand();
    case Op::kHashRouter:
      return HashRouter();
    case Op::kArgMax:
      if (Rank(0) != 2) return Bad("needs logits [O, V]");
      return One(DType::kI32, {S(0)[0]});
    case Op::kTokenFeed:
      if (!IsIds(0, 1)) return Bad("needs i32 ids");
      if (!IsSampler(1)) return Bad("needs the state of a sampler as its second input");
      return One(DType::kI32, S(0));
    case Op::kSample:
      if (!IsSampled()) return Bad("needs f32 logits [O, V] and params [O, 32]");
      if (!IsSampler(2)) return Bad("needs the state of a sampler as its third input");
      if (Get<SamplerAttrs>()->layout.vocabulary != LastOf(0))
        return Bad("needs a sampler of the logits' vocabulary");
      return std::vector<OutputType>{{DType::kI32, {S(0)[0]}}, {in_[2].dtype, S(2)}};
    case Op::kTopLogprobs:
      if (!IsSampled()) return Bad("needs f32 logits [O, V] and params [O, 32]");
      if (!IsIds(2, 1) || S(2)[0] != S(0)[0]) return Bad("needs one i32 token a row");
      return std::vector<OutputType>{{DType::kF32, {S(0)[0], Dim(kLogprobValues)}},
                                     {DType::kI32, {S(0)[0], Dim(kBestTokens)}}};
    default:
      return Bad("has no shape rule");
  }
}

bool Agrees(const Value& v, const OutputType& t) {
  return v.shape == t.shape &&
         (v.dtype == t.dtype || (IsPlainFloat(v.dtype) && IsPlainFloat(t.dtype)));
}

}  // namespace

Types InferOutputs(Op op, const Attrs& attrs, std::span<const Value> inputs) {
  return Rule(op, attrs, inputs).Apply();
}

base::Status Verify(const Graph& graph) {
  const auto bad = [](const std::string& what) { return base::Error{base::Code::kInternal, what}; };
  const auto in_range = [&](ValueId v) {
    return v >= 0 && static_cast<size_t>(v) < graph.values.size();
  };
  std::vector<bool> defined(graph.values.size());
  std::vector<bool> overwritten(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    defined[v] = value.kind == ValueKind::kInput || value.kind == ValueKind::kWeight ||
                 (value.kind == ValueKind::kState && value.producer < 0);
    if (value.kind == ValueKind::kState &&
        (value.group < 0 || static_cast<size_t>(value.group) >= graph.state_groups.size() ||
         value.layer < 0 ||
         value.layer >= graph.state_groups[static_cast<size_t>(value.group)].layers)) {
      return bad(fmt::format("state {} belongs to no layer of a state group", value.name));
    }
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<Value> inputs;
    for (const ValueId v : node.inputs) {
      if (!in_range(v))
        return bad(fmt::format("node {} reads value {}, which is not there", node.name, v));
      const Value& value = graph.value(v);
      if (!defined[static_cast<size_t>(v)]) {
        return bad(fmt::format("node {} reads {} before it is computed", node.name, value.name));
      }
      if (overwritten[static_cast<size_t>(v)]) {
        return bad(
            fmt::format("node {} reads an overwritten version of {}", node.name, value.name));
      }
      inputs.push_back(value);
    }
    auto types = InferOutputs(node.op, node.attrs, inputs);
    if (!types) return types.error().In(node.name);
    if (types->size() != node.outputs.size())
      return bad(fmt::format("node {} has a wrong number of outputs", node.name));
    if (const StateWrite w = WriteOf(node.op); w.input >= 0)
      overwritten[static_cast<size_t>(node.inputs[static_cast<size_t>(w.input)])] = true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      if (!in_range(v))
        return bad(fmt::format("node {} yields value {}, which is not there", node.name, v));
      if (defined[static_cast<size_t>(v)])
        return bad(fmt::format("value {} is computed twice", graph.value(v).name));
      if (graph.value(v).producer != static_cast<NodeId>(n)) {
        return bad(
            fmt::format("value {} does not know its producer {}", graph.value(v).name, node.name));
      }
      if (!Agrees(graph.value(v), (*types)[i])) {
        return bad(fmt::format("node {} should yield {}{}, but its output is {}{}", node.name,
                               Name((*types)[i].dtype), ToString((*types)[i].shape),
                               Name(graph.value(v).dtype), ToString(graph.value(v).shape)));
      }
      defined[static_cast<size_t>(v)] = true;
    }
  }
  for (const ValueId v : graph.outputs) {
    if (!in_range(v) || !defined[static_cast<size_t>(v)])
      return bad(fmt::format("output {} is never computed", v));
  }
  return {};
}

}  // namespace vt::ir
