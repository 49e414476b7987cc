// Tensor names. Everything beyond this room uses one set, Hugging Face's for a plain text model:
// "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight", "model.norm.weight",
// "lm_head.weight".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vllm::weights {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; nothing for names that
// `family` doesn't have.
std::optional<std::string> HfFromGguf(std::string_view family, std::string_view gguf_name);

// The inverse.
std::optional<std::string> GgufFromHf(std::string_view family, std::string_view hf_name);

// Removes the prefixes of multimodal checkpoints: "model.language_model.layers..." and
// "language_model.model.layers..." become "model.layers...", "language_model.lm_head.weight"
// becomes "lm_head.weight"; and gives a model that was stored without its head its own:
// "layers..." becomes "model.layers...". Nothing for tensors that a text model doesn't read: those
// of a vision or audio part ("vision_tower.", "visual.", "multi_modal_projector.") and those that
// only predict further tokens ("mtp."). A model that `hears` reads its audio part.
std::optional<std::string> CanonicalName(std::string_view name, bool hears = false);

}  // namespace vllm::weights
