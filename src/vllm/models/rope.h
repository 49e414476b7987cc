// Rotary frequencies from a configuration's rope settings.
#pragma once

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vt/ir/graph.h"

namespace vllm::models {

// Types default, linear, dynamic, llama3, yarn and longrope. `head_dim` is that of the attention
// heads. Dynamic scaling and longrope's list are those of a sequence of `max_model_len` tokens (the
// frequencies cannot change while older keys are in the cache). Errors: kUnsupported with the
// type's name.
base::Result<vt::ir::RopeAttrs> MakeRope(const weights::Rope& rope, int64_t head_dim,
                                         int64_t max_model_len, bool interleaved);

}  // namespace vllm::models
