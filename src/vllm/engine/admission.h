// From what a caller asks to what the loop runs: prompts to ids, and every check that can be made
// before a request is queued. All functions are safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/engine/options.h"
#include "vllm/engine/request.h"
#include "vllm/engine/sampler_settings.h"

namespace vllm::engine {

// Plain text, with the BOS token in front where the model has one and `add_special_tokens`; text
// that begins with it gets no second.
base::Result<std::vector<int32_t>> EncodePrompt(const LoadedModel& model, std::string_view text,
                                                bool add_special_tokens = true);
// A conversation by the model's template; message content cannot form control tokens.
base::Result<std::vector<int32_t>> EncodeChat(const LoadedModel& model,
                                              const text::ChatInput& chat);

// Not empty, inside the vocabulary, at most `longest` tokens.
base::Status CheckPrompt(const LoadedModel& model, std::span<const int32_t> ids, int64_t longest);

struct Admitted {
  std::shared_ptr<const Request> request;
  SamplerSettings sampler;
};
// Draws the seed where none is given. Errors: kInvalidArgument.
base::Result<Admitted> Admit(const LoadedModel& model, const LoadOptions& options, Request request);

}  // namespace vllm::engine
