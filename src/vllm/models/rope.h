// Rotary frequencies from a configuration's rope settings.
#pragma once

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vt/ir/graph.h"

namespace vllm::models {

// Types default, linear, dynamic, llama3, yarn, longrope and proportional. `head_dim` is that of
// the attention heads. Dynamic scaling and longrope's list are those of a sequence of
// `max_model_len` tokens (the frequencies cannot change while older keys are in the cache). Errors:
// kUnsupported with the type's name.
base::Result<vt::ir::RopeAttrs> MakeRope(const weights::Rope& rope, int64_t head_dim,
                                         int64_t max_model_len, bool interleaved);

// Which layers don't rotate: those of a 0 in no_rope_layers or, without it, every
// no_rope_layer_interval-th (a family's option).
base::Status ReadUnrotated(const boost::json::object& o, weights::Config& c);
void SkipEvery(int64_t interval, weights::Config& c);

}  // namespace vllm::models
