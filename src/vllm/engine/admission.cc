#include "vllm/engine/admission.h"

#include <algorithm>
#include <random>

#include "base/strings.h"

namespace vllm::engine {
namespace {

base::Error Invalid(std::string message) {
  return {base::Code::kInvalidArgument, std::move(message)};
}

}  // namespace

base::Result<std::vector<int32_t>> EncodePrompt(const LoadedModel& model, std::string_view text,
                                                bool add_special_tokens) {
  if (model.tokenizer == nullptr) return Invalid("this model has no tokenizer: give token ids");
  return model.tokenizer->Encode(text,
                                 {.add_special_tokens = add_special_tokens, .parse_special = true});
}

base::Result<std::vector<int32_t>> EncodeChat(const LoadedModel& model,
                                              const text::ChatInput& chat) {
  if (model.tokenizer == nullptr) return Invalid("this model has no tokenizer: give token ids");
  if (model.chat_template == nullptr) {
    return Invalid(fmt::format(
        "this model has no chat template{}: give one with --chat-template, or use a plain prompt",
        model.why_no_template.empty() ? "" : " (" + model.why_no_template + ")"));
  }
  base::Result<std::vector<text::PromptSegment>> parts = model.chat_template->RenderSegments(chat);
  if (!parts) return parts.error();
  std::vector<text::Segment> segments;
  for (const text::PromptSegment& s : *parts) {
    std::string_view rest = s.text;
    for (const auto& [mark, place] : chat.places) {  // in the order of the conversation
      const size_t at = rest.find(mark);
      if (at == std::string_view::npos) continue;
      segments.push_back({rest.substr(0, at), s.from_template});
      segments.push_back({place, true});
      rest.remove_prefix(at + mark.size());
    }
    segments.push_back({rest, s.from_template});
  }
  // Templates write the BOS token themselves; the tokenizer adds one only where none stands.
  return model.tokenizer->EncodeSegments(segments, true);
}

base::Status CheckPrompt(const LoadedModel& model, std::span<const int32_t> ids, int64_t longest) {
  if (ids.empty()) return Invalid("prompt is empty: give at least one token");
  if (static_cast<int64_t>(ids.size()) > longest) {
    return Invalid(
        fmt::format("the prompt has {} tokens, but at most {} fit into the context of this server: "
                    "shorten it or raise --max-model-len",
                    ids.size(), longest));
  }
  const int64_t vocabulary = model.config.vocab_size;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary) {
      return Invalid(
          fmt::format("prompt: token id {} is outside the vocabulary of {}", id, vocabulary));
    }
  }
  return {};
}

base::Result<Admitted> Admit(const LoadedModel& model, const LoadOptions& options,
                             Request request) {
  const bool embeds = request.embeds();
  if (embeds && model.runner->hidden_size() == 0) {
    return Invalid("this model gives no hidden states: embeddings are not available");
  }
  if (!embeds && model.encoder) {
    return Invalid("this model is an encoder: it gives vectors (/v1/embeddings), not text");
  }
  // A token of the answer needs a place too.
  const bool generates = !embeds && request.sampling.max_tokens > 0;
  const base::Status prompt =
      CheckPrompt(model, request.prompt, options.max_model_len - (generates ? 1 : 0));
  if (!prompt) return prompt.error();
  if (request.priority != 0 && options.scheduling_policy != "priority") {
    return Invalid(
        fmt::format("priority is {}, but this server schedules first come, first served: "
                    "start it with --scheduling-policy priority",
                    request.priority));
  }
  if (request.media != nullptr) {
    const base::Status media =
        embeds ? Invalid("embeddings are of text alone")
               : PrepareMedia(model.config.audio, request.prompt, *request.media);
    if (!media) return media.error();
    // Prefixes are shared by those who hear the same.
    request.cache_salt += '\0' + DigestOf(request.media->mel);
  }
  Admitted out;
  // Of a causal model the first token has seen itself alone.
  if (embeds && request.pooling == Pooling::kFirst && !model.encoder) request.prompt.resize(1);
  if (!embeds) {
    const base::Status valid = Validate(request.sampling, model.runner->vocab_size());
    if (!valid) return valid.error();
    if (request.sampling.prompt_logprobs >= 0 && !options.score_prompts) {
      return Invalid(
          "prompt_logprobs are not available: the model was loaded without score_prompts");
    }
    uint64_t seed = 0;
    if (request.sampling.seed) {
      seed = *request.sampling.seed;
    } else if (options.seed) {
      seed = *options.seed + model.drawn_seeds++;
    } else {
      std::random_device entropy;
      seed = (uint64_t{entropy()} << 32) | entropy();
    }
    base::Result<SamplerSettings> sampler =
        MakeSamplerSettings(request.sampling, seed, static_cast<int64_t>(request.prompt.size()),
                            model.eos_ids, model.sampler);
    if (!sampler) return sampler.error();
    out.sampler = *std::move(sampler);
  }
  out.request = std::make_shared<const Request>(std::move(request));
  return out;
}

}  // namespace vllm::engine
