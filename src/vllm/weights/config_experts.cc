#include "vllm/weights/config_experts.h"

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>

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

bool IsExpertOption(std::string_view option) {
  constexpr std::array<std::string_view, 6> kOptions = {"num_experts",
                                                        "num_local_experts",
                                                        "num_experts_per_tok",
                                                        "moe_intermediate_size",
                                                        "shared_expert_intermediate_size",
                                                        "norm_topk_prob"};
  return std::find(kOptions.begin(), kOptions.end(), option) != kOptions.end();
}

Status ReadExperts(const json::object& o, Config& c) {
  const Family& family = FamilyOf(c);
  if (!family.experts) return {};
  c.sparse_layers.assign(static_cast<size_t>(c.num_hidden_layers), true);
  const Experts& d = family.experts->defaults;
  const Result<int64_t> count = CountOf(o, d.count);
  if (!count) return count.error();
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
    if (Set(o, "moe_intermediate_size") != nullptr) {
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
            {"shared_expert_intermediate_size", e.shared_intermediate_size, 0, 1 << 20}}}) {
    if (b.value < b.least || b.value > b.most) {
      return Error{Code::kCorrupt, fmt::format("{} is {}: it must be from {} to {}", b.field,
                                               b.value, b.least, b.most)};
    }
  }
  return {};
}

}  // namespace vllm::weights
