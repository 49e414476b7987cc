// gpt-oss: attention with a sink a head, every other layer through a window, and experts with
// biases whose gate and up are clamped: down(gate sigmoid(1.702 gate) (up + 1)).
#include <limits>

#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

constexpr const char* kLimit = "swiglu_limit";

ValueId Experts(Builder& b, const weights::Config& c, const std::string& p, ValueId x) {
  const int64_t count = c.experts.count;
  const auto limit = static_cast<float>(c.Option(kLimit));
  const Builder::Routed routed =
      b.Router(b.Linear(x, p + "gate", count, true),
               {.top_k = c.experts.per_token, .normalise = true}, p + "router");
  const auto grouped = [&](ValueId v, const std::string& name, int64_t width) {
    const ValueId y = b.GroupedLinear(v, routed.ids, p + "experts." + name, count, width);
    return b.ExpertBias(y, routed.ids, p + "experts." + name + ".bias", count);
  };
  const int64_t width = c.experts.intermediate_size;
  const ValueId gate =
      b.Clamp(grouped(x, "gate_proj", width), -std::numeric_limits<float>::infinity(), limit);
  const ValueId up = b.Clamp(grouped(x, "up_proj", width), -limit, limit);
  const ValueId h = b.Mul(b.Act(gate, vt::ir::Activation::kQuickGelu), b.Scale(up, 1, 1));
  return b.ExpertSum(grouped(h, "down_proj", c.hidden_size), routed.weights);
}

ValueId BuildGptOss(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const AttentionParts attention = {
      .rope = &rope, .qkv_bias = true, .out_bias = true, .sinks = true};
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = b.RmsNorm(x, p + "input_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, SelfAttention(b, c, layer, p + "self_attn.", h, attention));
    const ValueId m = b.RmsNorm(x, p + "post_attention_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, Experts(b, c, p + "mlp.", m));
  }
  return LmHead(b, c, b.RmsNorm(b.OutputOnly(x), "model.norm.weight", c.rms_norm_eps));
}

// Safetensors have gate and up in turn, row by row (of block formats) or column by column (of plain
// ones, whose matrices stand transposed).
base::Status MakeTensors(const weights::Config& c, int64_t, weights::LayerTensors& t) {
  const int64_t e = c.experts.count, n = c.experts.intermediate_size, k = c.hidden_size;
  const std::string p = "mlp.experts.", both = p + "gate_up_proj";
  base::Status status = t.View(
      both + "_bias", {e, 2 * n},
      {{p + "gate_proj.bias", 0, {e, n}, {2 * n, 2}}, {p + "up_proj.bias", 1, {e, n}, {2 * n, 2}}});
  if (status)
    status = t.View(p + "down_proj_bias", {e, k}, {{p + "down_proj.bias", 0, {e, k}, {k, 1}}});
  if (!status || !t.Has(both + ".weight")) return status;
  if (vt::ir::IsQuantised(t.tensors().at(t.prefix() + both + ".weight").dtype)) {
    const weights::LayerTensors::Shape steps = {2 * n * k, 2 * k, 1};
    return t.View(both + ".weight", {e, 2 * n, k},
                  {{p + "gate_proj.weight", 0, {e, n, k}, steps},
                   {p + "up_proj.weight", k, {e, n, k}, steps}});
  }
  const weights::LayerTensors::Shape steps = {2 * n * k, 2, 2 * n};
  status = t.View(
      both + ".weight", {e, k, 2 * n},
      {{p + "gate_proj.weight", 0, {e, n, k}, steps}, {p + "up_proj.weight", 1, {e, n, k}, steps}});
  if (!status) return status;
  return t.View(p + "down_proj.weight", {e, n, k},
                {{p + "down_proj.weight", 0, {e, k, n}, {n * k, 1, k}}});
}

// GGUF has no key for it.
void ReadKeys(weights::GgufReader&, weights::Config& c) {
  c.rope.truncate = c.rope_local.truncate = false;
}

weights::Family GptOss() {
  return {.name = "gpt_oss",
          .architecture = "GptOssForCausalLM",
          .model_type = "gpt_oss",
          .gguf = "gpt-oss",
          .kv_heads = 8,
          .head_dim = 64,
          .max_position_embeddings = 131072,
          .eps = 1e-5,
          .takes_attention_bias = true,
          .rope_theta = 150000,
          .windows = weights::Windows::kPeriod,
          .window_period = 2,
          .sliding_window = 128,
          .gguf_sliding_window = 128,
          .experts = weights::ExpertOptions{.defaults = {.count = 128, .per_token = 4},
                                            .every_layer = true,
                                            .size_is_intermediate = true},
          .options = {{.json = kLimit, .fallback = 7, .least = 1e-3}},
          .known = {"experts_per_token"},
          .read_gguf = ReadKeys,
          .names = {{"attn_sinks.weight", "self_attn.sinks"},
                    {"post_attention_norm", "post_attention_layernorm"}},
          .renames = {{".mlp.router.", ".mlp.gate."}},
          .make_tensors = MakeTensors};
}

}  // namespace

VLLM_MODEL_FAMILY(gpt_oss, BuildGptOss, GptOss())

}  // namespace vllm::models
