// Tensors that models ask for and files store otherwise: experts one by one or gate and up in one,
// projections interleaved by head. They are made of row ranges of what is stored, so model files
// read like the formula and nothing is copied before it is needed.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "vllm/weights/checkpoint.h"
#include "vllm/weights/config.h"

namespace vllm::weights {

// Replaces stored tensors (by canonical name) by those that the family's model asks for:
//   mlp.experts.<e>.gate_proj.weight .. or mlp.experts.gate_up_proj [E, 2N, K]
//       -> mlp.experts.gate_proj.weight, up_proj [E, N, K] and down_proj [E, K, N]
//   self_attn.q_proj of gated attention (a head's query, then its gate) -> q_proj and q_gate
//   linear_attn.in_proj_qkvz and in_proj_ba (by key head) -> in_proj_qkv, in_proj_z, in_proj_b,
//       in_proj_a
//   linear_attn.conv1d.weight [C, 1, W] -> [C, W]; mlp.shared_expert_gate.weight [K] -> [1, K]
// Mixtral's names (block_sparse_moe, w1, w2, w3) become the others'. Errors name the stored tensor:
// kCorrupt for a shape that is not the configuration's or experts beyond its count, kNotFound for a
// missing expert.
base::Status MakeVirtualTensors(const Config& config, std::map<std::string, TensorInfo>& tensors);

}  // namespace vllm::weights
