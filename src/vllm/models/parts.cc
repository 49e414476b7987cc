#include "vllm/models/parts.h"

#include "base/strings.h"

namespace vllm::models {

using vt::ir::Activation;
using vt::ir::ValueId;

vt::ir::RopeAttrs RopeOf(vt::ir::Builder& b, const BuildContext& context,
                         const weights::Rope& rope) {
  const weights::Config& c = context.config;
  base::Result<vt::ir::RopeAttrs> attrs =
      MakeRope(rope, c.head_dim, context.max_model_len, c.rope_interleaved);
  if (attrs) return *attrs;
  b.Fail(attrs.error().message);
  return {};
}

ValueId LmHead(vt::ir::Builder& b, const weights::Config& c, ValueId x) {
  b.MarkHidden(x);
  if (b.Has("lm_head.weight")) return b.Linear(x, "lm_head", c.vocab_size);
  if (c.tie_word_embeddings.has_value() && !*c.tie_word_embeddings) {
    b.Fail("tensor 'lm_head.weight' is missing, and tie_word_embeddings is false");
  }
  return b.Linear(x, "model.embed_tokens", c.vocab_size);
}

ValueId GatedMlp(vt::ir::Builder& b, const weights::Config& c, const std::string& prefix,
                 ValueId x) {
  Activation act = Activation::kSilu;
  if (c.hidden_act == "gelu_pytorch_tanh" || c.hidden_act == "gelu_new") {
    act = Activation::kGeluTanh;
  } else if (c.hidden_act == "gelu") {
    act = Activation::kGelu;
  } else if (c.hidden_act == "relu") {
    act = Activation::kRelu;
  } else if (c.hidden_act != "silu" && c.hidden_act != "swish") {
    b.Fail(fmt::format("hidden_act '{}' is not implemented", base::Printable(c.hidden_act)));
  }
  const ValueId gate = b.Linear(x, prefix + "gate_proj", c.intermediate_size, c.mlp_bias);
  const ValueId up = b.Linear(x, prefix + "up_proj", c.intermediate_size, c.mlp_bias);
  return b.Linear(b.Mul(b.Act(gate, act), up), prefix + "down_proj", c.hidden_size, c.mlp_bias);
}

}  // namespace vllm::models
