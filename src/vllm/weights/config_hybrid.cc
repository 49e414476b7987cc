#include "vllm/weights/config_hybrid.h"

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>

#include "base/json.h"
#include "base/strings.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

const json::value* Set(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

struct Field {
  std::string_view key;
  int64_t fallback;
  int64_t* out;
};
template <size_t N>
Status ReadInts(const json::object& o, const std::array<Field, N>& fields) {
  for (const Field& f : fields) {
    const Result<int64_t> v = base::JsonInt(o, f.key, f.fallback);
    if (!v) return v.error();
    *f.out = *v;
  }
  return {};
}

struct ExpertDefaults {
  int64_t count, per_token, intermediate_size, shared;
  bool normalise;
};
ExpertDefaults DefaultsOf(std::string_view family) {
  if (family == "mixtral") return {8, 2, 0, 0, true};
  if (family == "qwen3_moe") return {128, 8, 768, 0, false};
  if (family == "qwen3_next") return {512, 10, 512, 512, true};
  return {256, 8, 512, 512, true};  // qwen3_5_moe
}

// num_experts, which newer files call num_local_experts.
Result<int64_t> CountOf(const json::object& o, int64_t fallback) {
  const Result<int64_t> local = base::JsonInt(o, "num_local_experts", fallback);
  if (!local) return local.error();
  const Result<int64_t> count = base::JsonInt(o, "num_experts", *local);
  if (!count) return count.error();
  if (Set(o, "num_local_experts") != nullptr && *count != *local) {
    return Error{Code::kCorrupt,
                 fmt::format("num_experts is {}, but num_local_experts is {}", *count, *local)};
  }
  return *count;
}

// Which layers have experts: every decoder_sparse_step-th, but for those in mlp_only_layers.
Status ReadSparseLayers(const json::object& o, Config& c) {
  const Result<int64_t> step = base::JsonInt(o, "decoder_sparse_step", 1);
  if (!step) return step.error();
  if (*step < 1)
    return Error{Code::kCorrupt,
                 fmt::format("decoder_sparse_step is {}: it must be at least 1", *step)};
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    c.sparse_layers[static_cast<size_t>(layer)] = (layer + 1) % *step == 0;
  const json::value* dense = Set(o, "mlp_only_layers");
  if (dense == nullptr) return {};
  if (!dense->is_array())
    return Error{Code::kCorrupt, "field 'mlp_only_layers' must be a list of layers"};
  for (const json::value& v : dense->get_array()) {
    if (!v.is_int64())
      return Error{Code::kCorrupt, "field 'mlp_only_layers' must be a list of layers"};
    const int64_t layer = v.get_int64();
    if (layer >= 0 && layer < c.num_hidden_layers)
      c.sparse_layers[static_cast<size_t>(layer)] = false;
  }
  return {};
}

}  // namespace

bool IsHybrid(std::string_view family) {
  return family == "qwen3_next" || family == "qwen3_5" || family == "qwen3_5_moe";
}
bool HasExperts(std::string_view family) {
  return family == "mixtral" || family == "qwen3_moe" || family == "qwen3_next" ||
         family == "qwen3_5_moe";
}

bool IsExpertOption(std::string_view family, std::string_view option) {
  constexpr std::array<std::string_view, 6> kOptions = {"num_experts",
                                                        "num_local_experts",
                                                        "num_experts_per_tok",
                                                        "moe_intermediate_size",
                                                        "shared_expert_intermediate_size",
                                                        "norm_topk_prob"};
  return HasExperts(family) &&
         std::find(kOptions.begin(), kOptions.end(), option) != kOptions.end();
}

Status ReadExperts(const json::object& o, Config& c) {
  if (!HasExperts(c.family)) return {};
  c.sparse_layers.assign(static_cast<size_t>(c.num_hidden_layers), true);
  const ExpertDefaults d = DefaultsOf(c.family);
  const Result<int64_t> count = CountOf(o, d.count);
  if (!count) return count.error();
  c.experts.count = *count;
  const Result<bool> normalise = base::JsonBool(o, "norm_topk_prob", d.normalise);
  if (!normalise) return normalise.error();
  c.experts.normalise = *normalise;
  Status status = ReadInts(
      o, std::array<Field, 3>{
             {{"num_experts_per_tok", d.per_token, &c.experts.per_token},
              {"moe_intermediate_size", d.intermediate_size, &c.experts.intermediate_size},
              {"shared_expert_intermediate_size", d.shared, &c.experts.shared_intermediate_size}}});
  if (!status) return status;
  status = ReadSparseLayers(o, c);
  if (!status) return status;

  const bool all_sparse =
      std::find(c.sparse_layers.begin(), c.sparse_layers.end(), false) == c.sparse_layers.end();
  if (c.family == "mixtral" || c.family == "qwen3_5_moe") {
    if (!all_sparse || !c.experts.normalise) {
      return Error{Code::kUnsupported,
                   fmt::format("{} is not implemented for {}",
                               all_sparse ? "norm_topk_prob = false"
                                          : "decoder_sparse_step or mlp_only_layers",
                               c.family)};
    }
  } else if (c.experts.count == 0) {  // transformers: no experts, so no sparse layers
    c.experts = Experts{};
    c.sparse_layers.clear();
  }
  const bool takes_shared = c.family == "qwen3_next" || c.family == "qwen3_5_moe";
  if (!takes_shared && c.experts.shared_intermediate_size != 0) {
    return Error{
        Code::kUnsupported,
        fmt::format("shared_expert_intermediate_size is not implemented for {}", c.family)};
  }
  if (c.family == "mixtral") {
    if (Set(o, "moe_intermediate_size") != nullptr)
      return Error{Code::kUnsupported, "moe_intermediate_size is not implemented for mixtral"};
    c.experts.intermediate_size = c.intermediate_size;
  }
  return {};
}

Status ReadDeltaNet(const json::object& o, Config& c) {
  if (!IsHybrid(c.family)) return {};
  const Result<bool> gate = base::JsonBool(o, "attn_output_gate", true);
  if (!gate) return gate.error();
  if (!*gate)
    return Error{Code::kUnsupported,
                 fmt::format("attn_output_gate = false is not implemented for {}", c.family)};
  c.attention_gate = true;
  const Status status =
      ReadInts(o, std::array<Field, 5>{{{"linear_num_key_heads", 16, &c.delta.k_heads},
                                        {"linear_num_value_heads", 32, &c.delta.v_heads},
                                        {"linear_key_head_dim", 128, &c.delta.k_dim},
                                        {"linear_value_head_dim", 128, &c.delta.v_dim},
                                        {"linear_conv_kernel_dim", 4, &c.delta.conv_width}}});
  if (!status) return status;

  const json::value* list = Set(o, "layer_types");
  if (list == nullptr) {
    const Result<int64_t> interval = base::JsonInt(o, "full_attention_interval", 4);
    if (!interval) return interval.error();
    if (*interval < 1)
      return Error{Code::kCorrupt,
                   fmt::format("full_attention_interval is {}: it must be at least 1", *interval)};
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
      if ((i + 1) % *interval != 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kLinear;
    }
    return {};
  }
  if (!list->is_array()) return Error{Code::kCorrupt, "field 'layer_types' must be a list"};
  c.layer_types.clear();
  for (const json::value& v : list->get_array()) {
    const std::string_view name =
        v.is_string() ? std::string_view(v.get_string()) : std::string_view();
    if (name != "full_attention" && name != "linear_attention") {
      return Error{Code::kUnsupported, fmt::format("layer_types[{}] = {} is not implemented for {}",
                                                   c.layer_types.size(),
                                                   base::Printable(json::serialize(v)), c.family)};
    }
    c.layer_types.push_back(name == "full_attention" ? LayerType::kFull : LayerType::kLinear);
  }
  return {};
}

Status CheckHybrid(const Config& c) {
  struct Bound {
    std::string_view field;
    int64_t value, least, most;
  };
  const auto check = [](const auto& bounds) -> Status {
    for (const Bound& b : bounds) {
      if (b.value < b.least || b.value > b.most) {
        return Error{Code::kCorrupt, fmt::format("{} is {}: it must be from {} to {}", b.field,
                                                 b.value, b.least, b.most)};
      }
    }
    return {};
  };
  if (HasExperts(c.family) && !c.sparse_layers.empty()) {
    const Experts& e = c.experts;
    const Status status = check(std::array<Bound, 4>{
        {{"num_experts", e.count, 1, 1 << 14},
         {"num_experts_per_tok", e.per_token, 1, std::min<int64_t>(e.count, 1024)},
         {"moe_intermediate_size", e.intermediate_size, 1, 1 << 20},
         {"shared_expert_intermediate_size", e.shared_intermediate_size, 0, 1 << 20}}});
    if (!status) return status;
  }
  if (!IsHybrid(c.family)) return {};
  if (c.hidden_act != "silu" && c.hidden_act != "swish") {  // also of the convolution
    return Error{Code::kUnsupported, fmt::format("hidden_act '{}' is not implemented for {}",
                                                 base::Printable(c.hidden_act), c.family)};
  }
  const DeltaNet& d = c.delta;
  const Status status =
      check(std::array<Bound, 5>{{{"linear_num_key_heads", d.k_heads, 1, 1 << 12},
                                  {"linear_num_value_heads", d.v_heads, 1, 1 << 12},
                                  {"linear_key_head_dim", d.k_dim, 1, 1 << 12},
                                  {"linear_value_head_dim", d.v_dim, 1, 1 << 12},
                                  {"linear_conv_kernel_dim", d.conv_width, 2, 64}}});
  if (!status) return status;
  if (d.v_heads % d.k_heads != 0) {
    return Error{Code::kCorrupt,
                 fmt::format("linear_num_value_heads {} is no multiple of linear_num_key_heads {}",
                             d.v_heads, d.k_heads)};
  }
  return {};
}

}  // namespace vllm::weights
