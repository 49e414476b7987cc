#include "vllm/models/qwen3_next_files.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using base::Code;
using base::Error;
using base::Result;
using base::Status;
using weights::Config;
using weights::DeltaNet;
using weights::LayerType;

// All layers are linear but every `interval`-th.
void Alternate(int64_t interval, Config& c) {
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    if ((i + 1) % interval != 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kLinear;
  }
}

Status Check(const Config& c) {
  if (c.hidden_act != "silu" && c.hidden_act != "swish") {  // also of the convolution
    return Error{Code::kUnsupported, fmt::format("hidden_act '{}' is not implemented for {}",
                                                 base::Printable(c.hidden_act), c.family)};
  }
  const DeltaNet& d = c.delta;
  struct Bound {
    std::string_view field;
    int64_t value, least, most;
  };
  for (const Bound& b : std::array<Bound, 5>{{{"linear_num_key_heads", d.k_heads, 1, 1 << 12},
                                              {"linear_num_value_heads", d.v_heads, 1, 1 << 12},
                                              {"linear_key_head_dim", d.k_dim, 1, 1 << 12},
                                              {"linear_value_head_dim", d.v_dim, 1, 1 << 12},
                                              {"linear_conv_kernel_dim", d.conv_width, 2, 64}}}) {
    if (b.value < b.least || b.value > b.most) {
      return Error{Code::kCorrupt, fmt::format("{} is {}: it must be from {} to {}", b.field,
                                               b.value, b.least, b.most)};
    }
  }
  if (d.v_heads % d.k_heads != 0) {
    return Error{Code::kCorrupt,
                 fmt::format("linear_num_value_heads {} is no multiple of linear_num_key_heads {}",
                             d.v_heads, d.k_heads)};
  }
  return {};
}

}  // namespace

Status ReadDeltaNet(const boost::json::object& o, Config& c) {
  const Result<bool> gate = base::JsonBool(o, "attn_output_gate", true);
  if (!gate) return gate.error();
  if (!*gate)
    return Error{Code::kUnsupported,
                 fmt::format("attn_output_gate = false is not implemented for {}", c.family)};
  c.attention_gate = true;
  struct Field {
    std::string_view key;
    int64_t fallback;
    int64_t* out;
  };
  for (const Field& f :
       std::array<Field, 5>{{{"linear_num_key_heads", 16, &c.delta.k_heads},
                             {"linear_num_value_heads", 32, &c.delta.v_heads},
                             {"linear_key_head_dim", 128, &c.delta.k_dim},
                             {"linear_value_head_dim", 128, &c.delta.v_dim},
                             {"linear_conv_kernel_dim", 4, &c.delta.conv_width}}}) {
    const Result<int64_t> v = base::JsonInt(o, f.key, f.fallback);
    if (!v) return v.error();
    *f.out = *v;
  }
  const boost::json::value* list = o.if_contains("layer_types");
  if (list == nullptr || list->is_null()) {
    const Result<int64_t> interval = base::JsonInt(o, "full_attention_interval", 4);
    if (!interval) return interval.error();
    if (*interval < 1)
      return Error{Code::kCorrupt,
                   fmt::format("full_attention_interval is {}: it must be at least 1", *interval)};
    Alternate(*interval, c);
  }
  return Check(c);
}

void ReadDeltaNetKeys(weights::GgufReader& r, Config& c) {
  c.attention_gate = true;
  DeltaNet& d = c.delta;
  d.conv_width = r.Int("ssm.conv_kernel");
  d.k_dim = r.Int("ssm.state_size");
  d.k_heads = r.Int("ssm.group_count");
  d.v_heads = r.Int("ssm.time_step_rank");
  const int64_t inner = r.Int("ssm.inner_size");
  if (r.error()) return;
  if (d.v_heads < 1 || inner % d.v_heads != 0) {
    r.Fail(Code::kCorrupt, "ssm.time_step_rank",
           fmt::format("is {}, with {} {}", d.v_heads, r.Key("ssm.inner_size"), inner));
    return;
  }
  d.v_dim = inner / d.v_heads;
  d.log_a = false;
  d.tiled = c.family != "qwen3_next";
  if (const Status status = Check(c); !status) r.Fail(status.error());

  const std::string key = r.Key("attention.recurrent_layers");
  if (r.metadata().Has(key)) {
    const Result<std::vector<int64_t>> list = r.metadata().Ints(key);
    const int64_t layers = c.num_hidden_layers + c.nextn_layers;
    if (!list) {
      r.Fail(list.error());
    } else if (static_cast<int64_t>(list->size()) != layers) {
      r.Fail(Code::kCorrupt, "attention.recurrent_layers",
             fmt::format("has {} entries for {} layers", list->size(), layers));
    } else {
      for (size_t i = 0; i < c.layer_types.size(); ++i)
        c.layer_types[i] = (*list)[i] != 0 ? LayerType::kLinear : LayerType::kFull;
    }
    return;
  }
  const int64_t interval = r.Int("full_attention_interval", 4);
  if (interval >= 1) {
    Alternate(interval, c);
  } else {
    r.Fail(Code::kCorrupt, "full_attention_interval",
           fmt::format("is {}: it must be at least 1", interval));
  }
}

Status MakeDeltaNetTensors(const Config& c, int64_t layer, weights::LayerTensors& t) {
  if (!c.IsLinear(layer)) {
    const std::string p = "self_attn.";
    const Status status =
        t.Split(p + "q_proj.bias", c.num_heads,
                {{p + "q_proj.bias", c.head_dim}, {p + "q_gate.bias", c.head_dim}}, {});
    if (!status) return status;
    return t.Split(p + "q_proj.weight", c.num_heads,
                   {{p + "q_proj.weight", c.head_dim}, {p + "q_gate.weight", c.head_dim}},
                   {c.hidden_size});
  }
  const DeltaNet& d = c.delta;
  const int64_t ratio = d.v_heads / d.k_heads, v = ratio * d.v_dim;
  const std::string p = "linear_attn.";
  Status status = t.Split(p + "in_proj_qkvz.weight", d.k_heads,
                          {{p + "in_proj_qkv.weight", d.k_dim},
                           {p + "in_proj_qkv.weight", d.k_dim},
                           {p + "in_proj_qkv.weight", v},
                           {p + "in_proj_z.weight", v}},
                          {c.hidden_size});
  if (!status) return status;
  status =
      t.Split(p + "in_proj_ba.weight", d.k_heads,
              {{p + "in_proj_b.weight", ratio}, {p + "in_proj_a.weight", ratio}}, {c.hidden_size});
  t.Reshape(p + "conv1d.weight", {d.channels(), 1, d.conv_width}, {d.channels(), d.conv_width});
  return status;
}

}  // namespace vllm::models
