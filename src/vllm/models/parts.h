// What families share: rope from the configuration, MLPs with and without experts, and the
// language-model head.
#pragma once

#include <functional>
#include <string>

#include "vllm/models/registry.h"
#include "vllm/models/rope.h"

namespace vllm::models {

// MakeRope for heads of head_dim (0: the configuration's), with problems reported to the builder.
vt::ir::RopeAttrs RopeOf(vt::ir::Builder& b, const BuildContext& context, const weights::Rope& rope,
                         int64_t head_dim = 0);

// The configuration's hidden_act; one that is not implemented fails the build.
vt::ir::Activation ActivationOf(vt::ir::Builder& b, const weights::Config& c);

// What differs between families in attention that is otherwise the common one.
struct AttentionParts {
  const vt::ir::RopeAttrs* rope = nullptr;  // null: this layer doesn't rotate
  bool qkv_bias = false, out_bias = false;
  // Queries and keys are normed by "q_norm" and "k_norm": each head's, or all heads' as one row.
  enum class Norm : uint8_t { kNone, kHeads, kWhole } norm = Norm::kNone;
  float scale = 0;     // of scores; 0: 1 / sqrt(head_dim)
  bool sinks = false;  // a score of no key a head, "sinks"
};

// q_proj, k_proj and v_proj of `x`, attention with the layer's window, and o_proj; names
// "<prefix>q_proj" and so on, where `prefix` ends in "self_attn.".
vt::ir::ValueId SelfAttention(vt::ir::Builder& b, const weights::Config& c, int64_t layer,
                              const std::string& prefix, vt::ir::ValueId x,
                              const AttentionParts& parts);

// lm_head where the checkpoint has one; else the embedding, unless the configuration says that they
// are not tied.
vt::ir::ValueId LmHead(vt::ir::Builder& b, const weights::Config& c, vt::ir::ValueId x);

// down(act(gate(x)) * up(x)) of `width` between, names "<prefix>gate_proj" and so on.
vt::ir::ValueId GatedMlp(vt::ir::Builder& b, const weights::Config& c, const std::string& prefix,
                         vt::ir::ValueId x, int64_t width);

// What the experts `ids` [T, k] of "<prefix>experts." make of x [T, hidden_size]: [T, k,
// hidden_size].
vt::ir::ValueId GatedExperts(vt::ir::Builder& b, const weights::Config& c,
                             const std::string& prefix, vt::ir::ValueId x, vt::ir::ValueId ids);

// The layer's MLP: a gated one, or experts where the configuration says so. Names
// "<prefix>gate_proj" or "<prefix>experts.gate_proj" and so on.
vt::ir::ValueId Mlp(vt::ir::Builder& b, const weights::Config& c, int64_t layer,
                    const std::string& prefix, vt::ir::ValueId x);

// Llama's layers over `x`: a norm before attention and one before the MLP, each added to what its
// norm read; then the rows that are wanted, normed. `parts` are those of a layer.
vt::ir::ValueId DecoderLayers(vt::ir::Builder& b, const weights::Config& c, vt::ir::ValueId x,
                              const std::function<AttentionParts(int64_t layer)>& parts);

// [T, heads, width] as rows: Heads taken back.
vt::ir::ValueId JoinHeads(vt::ir::Builder& b, const std::string& prefix, vt::ir::ValueId x,
                          int64_t heads, int64_t width);

}  // namespace vllm::models
