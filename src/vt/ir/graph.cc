#include "vt/ir/graph.h"

#include <cmath>

#include "base/strings.h"

namespace vt::ir {
namespace {

std::string ToString(const Dim& d) {
  static constexpr std::array<const char*, 4> kLetters = {"", "T", "R", "O"};
  std::string s;
  if (d.sym == Sym::kOne) {
    s = std::to_string(d.count);
  } else {
    if (d.count != 1) s = std::to_string(d.count);
    s += kLetters[static_cast<size_t>(d.sym)];
  }
  if (d.plus != 0) s += fmt::format("{:+}", d.plus);
  return s;
}

constexpr std::array<const char*, 10> kActivations = {
    "silu", "gelu_tanh", "gelu",     "relu",         "sigmoid",
    "tanh", "exp",       "softplus", "squared_relu", "quick_gelu"};

struct AttrsText {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(const NormAttrs& a) const {
    return a.weight_offset == 0 ? fmt::format("eps={:g}", a.eps)
                                : fmt::format("eps={:g} offset={:g}", a.eps, a.weight_offset);
  }
  std::string operator()(const ScaleAttrs& a) const {
    return fmt::format("x{:g}{:+g}", a.multiply, a.add);
  }
  std::string operator()(const ClampAttrs& a) const {
    return fmt::format("[{:g}, {:g}]", a.low, a.high);
  }
  std::string operator()(const UnaryAttrs& a) const {
    return kActivations[static_cast<size_t>(a.fn)];
  }
  std::string operator()(const LinearAttrs& a) const {
    return fmt::format("segments={}{}", a.segments, a.bias ? " bias" : "");
  }
  std::string operator()(const GatherAttrs& a) const {
    return a.count == 1 ? "" : fmt::format("rows={}", a.count);
  }
  std::string operator()(const SliceAttrs& a) const {
    return fmt::format("[{}, +{}]", a.begin, a.size);
  }
  std::string operator()(const ReshapeAttrs& a) const { return vt::ir::ToString(a.shape); }
  std::string operator()(const ConvertAttrs& a) const { return std::string(Name(a.dtype)); }
  std::string operator()(const RopeAttrs& a) const {
    std::string s = fmt::format("rotary={}{}", a.rotary_dim, a.interleaved ? " interleaved" : "");
    if (a.growth > 0) s += fmt::format(" growth={:g}/{:g}", a.growth, a.floor);
    return s;
  }
  std::string operator()(const AttentionAttrs& a) const {
    std::string s =
        fmt::format("heads={}/{}x{} scale={:g}", a.heads, a.kv_heads, a.head_dim, a.scale);
    if (a.softcap != 0) s += fmt::format(" softcap={:g}", a.softcap);
    if (a.window != 0) s += fmt::format(" {}={}", a.chunked ? "chunk" : "window", a.window);
    if (!a.causal) s += " bidirectional";
    if (a.sinks) s += " sinks";
    if (a.latent()) s += fmt::format(" latent={}", a.v_dim);
    return s;
  }
  std::string operator()(const RouterAttrs& a) const {
    std::string s = fmt::format("top={} {}", a.top_k,
                                a.root      ? "softplus"
                                : a.sigmoid ? "sigmoid"
                                            : "softmax");
    if (a.bias) s += " bias";
    if (a.expert_scales) s += " scales";
    if (a.groups > 1) s += fmt::format(" groups={}/{}", a.top_groups, a.groups);
    if (a.group_max) s += " by their best";
    if (a.normalise) s += " normalised";
    if (a.scale != 1) s += fmt::format(" x{:g}", a.scale);
    return s;
  }
  std::string operator()(const GroupedLinearAttrs& a) const {
    return fmt::format("segments={}", a.segments);
  }
  std::string operator()(const ConvAttrs& a) const {
    return fmt::format("channels={} width={}", a.channels, a.width);
  }
  std::string operator()(const DeltaAttrs& a) const {
    return fmt::format("heads={}/{}x{}x{}{}{}", a.v_heads, a.k_heads, a.k_dim, a.v_dim,
                       a.log_a ? " log_a" : "", a.tiled ? " tiled" : "");
  }
  std::string operator()(const CompressAttrs& a) const {
    return fmt::format("ratio={} dim={}{}", a.ratio, a.dim, a.overlap ? " overlap" : "");
  }
  std::string operator()(const EntryAttrs& a) const {
    return fmt::format("heads={}x{} ratio={} top={} window={}", a.heads, a.dim, a.ratio, a.top_k,
                       a.window);
  }
  std::string operator()(const HyperAttrs& a) const { return fmt::format("rounds={}", a.rounds); }
  std::string operator()(const SamplerAttrs& a) const {
    return fmt::format("vocabulary={} history={} lists={}", a.layout.vocabulary, a.layout.history,
                       a.layout.lists);
  }
  std::string operator()(const FusedAttrs& a) const {
    std::string s;
    for (const Attrs& part : a.parts) {
      const std::string text = std::visit(*this, part.v);
      if (text.empty()) continue;
      if (!s.empty()) s += "; ";
      s += text;
    }
    return s;
  }
};

}  // namespace

double RopeAttrs::MagnitudeAt(int64_t position) const {
  if (growth <= 0) return magnitude;
  return magnitude *
         (1 + growth * std::log1p(std::floor((static_cast<double>(position) + 1) / floor)));
}

int64_t Dim::At(const Bucket& b) const {
  switch (sym) {
    case Sym::kOne:
      return count + plus;
    case Sym::kTokens:
      return count * b.tokens + plus;
    case Sym::kRequests:
      return count * b.requests + plus;
    case Sym::kOutputs:
      return count * b.outputs + plus;
  }
  return 0;
}

int64_t Elements(const Shape& shape, const Bucket& b) {
  int64_t n = 1;
  for (const Dim& d : shape) n *= d.At(b);
  return n;
}

int64_t Rows(const Shape& shape, const Bucket& b) {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i].At(b);
  return n;
}

std::string ToString(const Shape& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + ToString(shape[i]);
  return s + "]";
}

std::string ToString(const Attrs& attrs) { return std::visit(AttrsText{}, attrs.v); }

std::vector<std::vector<NodeId>> Graph::Users() const {
  std::vector<std::vector<NodeId>> users(values.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (const ValueId v : nodes[n].inputs) {
      auto& list = users[static_cast<size_t>(v)];
      if (list.empty() || list.back() != static_cast<NodeId>(n))
        list.push_back(static_cast<NodeId>(n));
    }
  }
  return users;
}

int CountNodes(const Graph& graph, Op op) {
  int count = 0;
  for (const Node& n : graph.nodes) count += n.op == op;
  return count;
}

std::string Dump(const Graph& graph) {
  const auto label = [&](ValueId id) {
    const Value& v = graph.value(id);
    return fmt::format("{}:{}{}", v.name, Name(v.dtype), ToString(v.shape));
  };
  std::string text;
  for (const Node& node : graph.nodes) {
    text += fmt::format("{} = {}(", node.name, Name(node.op));
    for (size_t i = 0; i < node.inputs.size(); ++i) text += (i ? ", " : "") + label(node.inputs[i]);
    text += ") ->";
    for (const ValueId v : node.outputs) {
      text += fmt::format(" {}{}", Name(graph.value(v).dtype), ToString(graph.value(v).shape));
    }
    const std::string attrs = ToString(node.attrs);
    if (!attrs.empty()) text += "  {" + attrs + "}";
    text += "\n";
  }
  for (const ValueId v : graph.outputs) text += fmt::format("output {}\n", label(v));
  return text;
}

std::string SlotsName(int group) { return "slots." + std::to_string(group); }
std::string BlockTableName(int group) { return "block_table." + std::to_string(group); }

}  // namespace vt::ir
