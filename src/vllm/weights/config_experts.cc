#include "vllm/weights/config_experts.h"

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <tuple>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/weights/family.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

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

// num_experts, which newer files call num_local_experts.
Result<int64_t> CountOf(const json::object& o, int64_t fallback) {
  const Result<int64_t> local = base::JsonInt(o, "num_local_experts", fallback);
  if (!local) return local.error();
  const Result<int64_t> count = base::JsonInt(o, "num_experts", *local);
  if (!count) return count.error();
  if (base::JsonGiven(o, "num_local_experts") != nullptr && *count != *local) {
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
  const json::value* dense = base::JsonGiven(o, "mlp_only_layers");
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

// The words of DeepSeek's configurations, which GLM-4.5 and others have too.
Status ReadDeepSeek(const json::object& o, const Experts& d, Config& c) {
  Experts& e = c.experts = d;
  int64_t shared = 1, dense = 1;
  const Status status = ReadInts(
      o, std::array<Field, 8>{{{"n_routed_experts", d.count, &e.count},
                               {"num_experts_per_tok", d.per_token, &e.per_token},
                               {"moe_intermediate_size", d.intermediate_size, &e.intermediate_size},
                               {"n_shared_experts", 1, &shared},
                               {"first_k_dense_replace", 1, &dense},
                               {"n_group", 1, &e.groups},
                               {"topk_group", 1, &e.top_groups},
                               {"num_nextn_predict_layers", 0, &c.nextn_layers}}});
  if (!status) return status;
  const Result<bool> normalise = base::JsonBool(o, "norm_topk_prob", d.normalise);
  if (!normalise) return normalise.error();
  e.normalise = *normalise;
  const Result<double> scale = base::JsonNumber(o, "routed_scaling_factor", d.scale);
  if (!scale) return scale.error();
  e.scale = *scale;
  const std::string_view usual = d.root ? "sqrtsoftplus" : d.sigmoid ? "sigmoid" : "softmax";
  const Result<std::string> scores = base::JsonString(o, "scoring_func", usual);
  if (!scores) return scores.error();
  if (*scores != usual) {
    return Error{Code::kUnsupported, fmt::format("scoring_func '{}' is not implemented for {}",
                                                 base::Printable(*scores), c.family)};
  }
  for (const auto& [field, value, most] :
       {std::tuple{"n_shared_experts", shared, int64_t{1} << 10},
        {"first_k_dense_replace", dense, c.num_hidden_layers},
        {"num_nextn_predict_layers", c.nextn_layers, int64_t{64}}}) {
    if (value < 0 || value > most) {
      return Error{Code::kCorrupt,
                   fmt::format("{} is {}: it must be from 0 to {}", field, value, most)};
    }
  }
  if (e.intermediate_size > 1 << 20) return CheckExperts(c);
  e.shared_intermediate_size = shared * e.intermediate_size;
  for (int64_t layer = 0; layer < dense; ++layer)
    c.sparse_layers[static_cast<size_t>(layer)] = false;
  return {};
}

}  // namespace

bool IsExpertOption(const ExpertOptions& options, std::string_view option) {
  constexpr std::array<std::string_view, 6> kOptions = {"num_experts",
                                                        "num_local_experts",
                                                        "num_experts_per_tok",
                                                        "moe_intermediate_size",
                                                        "shared_expert_intermediate_size",
                                                        "norm_topk_prob"};
  constexpr std::array<std::string_view, 7> kDeepSeek = {
      "n_routed_experts",      "num_local_experts", "n_shared_experts",     "num_experts_per_tok",
      "moe_intermediate_size", "norm_topk_prob",    "routed_scaling_factor"};
  const auto in = [&](const auto& list) {
    return std::find(list.begin(), list.end(), option) != list.end();
  };
  return options.deepseek ? in(kDeepSeek) : in(kOptions);
}

Status ReadExperts(const json::object& o, Config& c) {
  const Family& family = FamilyOf(c);
  if (!family.experts) return {};
  c.sparse_layers.assign(static_cast<size_t>(c.num_hidden_layers), true);
  const Experts& d = family.experts->defaults;
  if (family.experts->deepseek) return ReadDeepSeek(o, d, c);
  const Result<int64_t> count = CountOf(o, d.count);
  if (!count) return count.error();
  c.experts = d;
  c.experts.count = *count;
  const Result<bool> normalise = base::JsonBool(o, "norm_topk_prob", d.normalise);
  if (!normalise) return normalise.error();
  c.experts.normalise = *normalise;
  Status status =
      ReadInts(o, std::array<Field, 3>{
                      {{"num_experts_per_tok", d.per_token, &c.experts.per_token},
                       {"moe_intermediate_size", d.intermediate_size, &c.experts.intermediate_size},
                       {"shared_expert_intermediate_size", d.shared_intermediate_size,
                        &c.experts.shared_intermediate_size}}});
  if (!status) return status;
  status = ReadSparseLayers(o, c);
  if (!status) return status;

  const bool all_sparse =
      std::find(c.sparse_layers.begin(), c.sparse_layers.end(), false) == c.sparse_layers.end();
  if (family.experts->every_layer) {
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
  if (d.shared_intermediate_size == 0 && c.experts.shared_intermediate_size != 0) {
    return Error{
        Code::kUnsupported,
        fmt::format("shared_expert_intermediate_size is not implemented for {}", c.family)};
  }
  if (family.experts->size_is_intermediate) {
    if (base::JsonGiven(o, "moe_intermediate_size") != nullptr) {
      return Error{Code::kUnsupported,
                   fmt::format("moe_intermediate_size is not implemented for {}", c.family)};
    }
    c.experts.intermediate_size = c.intermediate_size;
  }
  return {};
}

Status CheckExperts(const Config& c) {
  if (c.sparse_layers.empty()) return {};
  struct Bound {
    std::string_view field;
    int64_t value, least, most;
  };
  const Experts& e = c.experts;
  for (const Bound& b : std::array<Bound, 4>{
           {{"num_experts", e.count, 1, 1 << 14},
            {"num_experts_per_tok", e.per_token, 1, std::min<int64_t>(e.count, 1024)},
            {"moe_intermediate_size", e.intermediate_size, 1, 1 << 20},
            {"shared_expert_intermediate_size", e.shared_intermediate_size, 0, 1 << 22}}}) {
    if (b.value < b.least || b.value > b.most) {
      return Error{Code::kCorrupt, fmt::format("{} is {}: it must be from {} to {}", b.field,
                                               b.value, b.least, b.most)};
    }
  }
  // A group is scored by its two best.
  if (e.groups < 1 || e.count % e.groups != 0 || (e.groups > 1 && e.count / e.groups < 2)) {
    return Error{Code::kCorrupt, fmt::format("n_group is {}: {} experts can't be in so many groups",
                                             e.groups, e.count)};
  }
  if (e.top_groups < 1 || e.top_groups > e.groups ||
      e.top_groups * (e.count / e.groups) < e.per_token) {
    return Error{Code::kCorrupt,
                 fmt::format("topk_group is {}: {} experts a token don't fit into so many groups",
                             e.top_groups, e.per_token)};
  }
  if (!std::isfinite(e.scale) || e.scale <= 0) {
    return Error{Code::kCorrupt,
                 fmt::format("routed_scaling_factor is {}: it must be a number above 0", e.scale)};
  }
  return {};
}

}  // namespace vllm::weights
