#include "vllm/server/protocol_fields.h"

#include <iterator>

namespace vllm::server {
namespace {

constexpr std::string_view kNoGrammar = "answers are not constrained to a format yet";
constexpr std::string_view kNoEffort =
    "give chat_template_kwargs where the model's template has such a switch";

// Of chat and of plain completions.
constexpr Field kShared[] = {
    {"model"},
    {"frequency_penalty"},
    {"presence_penalty"},
    {"logit_bias"},
    {"logprobs"},
    {"max_tokens"},
    {"n"},
    {"seed"},
    {"stop"},
    {"stream"},
    {"stream_options"},
    {"temperature"},
    {"top_p"},
    {"user", "<string>"},
    // vLLM's
    {"top_k"},
    {"min_p"},
    {"repetition_penalty"},
    {"min_tokens"},
    {"stop_token_ids"},
    {"include_stop_str_in_output"},
    {"ignore_eos"},
    {"skip_special_tokens"},
    {"bad_words"},
    {"allowed_token_ids"},
    {"prompt_logprobs"},
    {"priority"},
    {"cache_salt"},
    {"request_id"},
    {"return_token_ids"},
    {"spaces_between_special_tokens", "true", "text is always joined as the tokenizer joins it"},
    {"return_tokens_as_token_ids", "false", "use return_token_ids"},
    {"use_beam_search", "false", "answers are sampled"},
    {"length_penalty", "1", "it belongs to beam search"},
    {"truncate_prompt_tokens", "-1", "shorten the prompt before sending it"},
    {"logits_processors", "[]", "no code is taken from requests"},
    {"guided_json", "null", kNoGrammar},
    {"guided_regex", "null", kNoGrammar},
    {"guided_choice", "null", kNoGrammar},
    {"guided_grammar", "null", kNoGrammar},
    {"guided_decoding_backend", "null", kNoGrammar},
    {"guided_whitespace_pattern", "null", kNoGrammar},
    {"structured_outputs", "null", kNoGrammar},
    {"structural_tag", "null", kNoGrammar},
    {"response_format", R"({"type":"text"})", kNoGrammar},
    {"kv_transfer_params", "null", "caches are not moved between servers"},
    {"vllm_xargs", "{}", "there are no extensions to pass them to"},
    // llama.cpp's samplers
    {"typical_p"},
    {"top_n_sigma"},
    {"dry_multiplier"},
    {"dry_base"},
    {"dry_allowed_length"},
    {"dry_penalty_last_n"},
    {"dry_sequence_breakers"},
    {"xtc_probability"},
    {"xtc_threshold"},
};

constexpr Field kChat[] = {
    {"messages"},
    {"max_completion_tokens"},
    {"top_logprobs"},
    {"tools"},
    {"tool_choice"},
    {"parallel_tool_calls", "true", "the number of calls is the model's choice"},
    {"metadata", "<object>"},
    {"store", "false", "answers are not kept here"},
    {"service_tier", R"("auto"|"default")", "there is one tier"},
    {"safety_identifier", "<string>"},
    {"prompt_cache_key", "<string>"},
    {"prompt_cache_retention", R"("in_memory"|"in-memory")", "the prefix cache lives in memory"},
    {"modalities", R"(["text"])", "answers are text"},
    {"audio", "null", "answers are text"},
    {"prediction", "null", "predicted outputs are not used"},
    {"web_search_options", "null", "nothing is searched"},
    {"functions", "[]", "it is OpenAI's old form: use tools"},
    {"function_call", R"("none")", "it is OpenAI's old form: use tool_choice"},
    {"reasoning_effort", "null", kNoEffort},
    {"verbosity", "null", kNoEffort},
    // vLLM's
    {"add_generation_prompt"},
    {"continue_final_message"},
    {"documents"},
    {"chat_template_kwargs"},
    {"chat_template", "null", "start the server with --chat-template"},
    {"add_special_tokens", "false", "the chat template writes them"},
    {"echo", "false", "use /v1/completions, or continue_final_message"},
    {"include_reasoning", "true", "reasoning stays in the text"},
    {"thinking_token_budget", "null", "reasoning is not counted apart"},
    {"mm_processor_kwargs", "null", "the served model takes text alone"},
    {"media_io_kwargs", "null", "the served model takes text alone"},
};

constexpr Field kCompletion[] = {
    {"prompt"},
    {"echo"},
    {"add_special_tokens"},
    {"best_of", "1", "answers are not ranked: use n"},
    {"suffix", R"("")", "the text after the gap is not taken"},
    {"prompt_embeds", "null", "prompts are text or token ids"},
};

constexpr Field kEmbedding[] = {
    {"model"},
    {"input"},
    {"encoding_format"},
    {"dimensions", "null", "vectors have the model's own size"},
    {"user", "<string>"},
    {"add_special_tokens"},
    {"priority"},
    {"truncate_prompt_tokens", "-1", "shorten the input before sending it"},
};

constexpr Field kClassify[] = {
    {"model"},
    {"input"},
    {"user", "<string>"},
    {"add_special_tokens"},
    {"priority"},
    {"activation", "true", "probabilities are as the model's files say"},
    {"softmax", "true", "probabilities are as the model's files say"},
    {"truncate_prompt_tokens", "-1", "shorten the input before sending it"},
};

constexpr std::string_view kShorten = "shorten the texts before sending them";
constexpr Field kScore[] = {
    {"model"},
    {"text_1"},
    {"text_2"},
    {"priority"},
    {"user", "<string>"},
    {"encoding_format", R"("float")", "scores are numbers"},
    {"activation", "true", "scores are the model's own"},
    {"softmax", "true", "scores are the model's own"},
    {"truncate_prompt_tokens", "-1", kShorten},
    {"mm_processor_kwargs", "null", "the served model takes text alone"},
};
constexpr Field kRerank[] = {
    {"model"},
    {"query"},
    {"documents"},
    {"top_n"},
    {"priority"},
    {"user", "<string>"},
    {"return_documents", "<any>"},
    {"max_tokens_per_doc", "null", kShorten},
    {"activation", "true", "scores are the model's own"},
    {"truncate_prompt_tokens", "-1", kShorten},
    {"mm_processor_kwargs", "null", "the served model takes text alone"},
};

constexpr Field kTokenize[] = {
    {"model"},
    {"prompt"},
    {"messages"},
    {"add_special_tokens"},
    {"return_token_strs"},
    {"add_generation_prompt"},
    {"continue_final_message"},
    {"chat_template_kwargs"},
    {"tools"},
    {"documents"},
    {"chat_template", "null", "start the server with --chat-template"},
    {"mm_processor_kwargs", "null", "the served model takes text alone"},
};

constexpr Field kDetokenize[] = {{"model"}, {"tokens"}, {"skip_special_tokens"}};

constexpr Field kStreamOptions[] = {
    {"include_usage"},
    {"continuous_usage_stats"},
    {"include_obfuscation", "false", "events are not padded"},
};

// What clients send back of an answer counts too.
constexpr Field kMessage[] = {
    {"role"},
    {"content"},
    {"name"},
    {"tool_calls"},
    {"tool_call_id"},
    {"refusal", "<string>"},
    {"reasoning_content"},
    {"reasoning"},
    {"annotations", "[]", "text is all that reaches the model"},
    {"audio", "null", "the served model takes text alone"},
    {"function_call", "null", "it is OpenAI's old form: use tool_calls"},
};

template <size_t A, size_t B>
struct Joined {
  Field fields[A + B];
};
template <size_t A, size_t B>
constexpr Joined<A, B> Join(const Field (&a)[A], const Field (&b)[B]) {
  Joined<A, B> joined{};
  for (size_t i = 0; i < A; ++i) joined.fields[i] = a[i];
  for (size_t i = 0; i < B; ++i) joined.fields[A + i] = b[i];
  return joined;
}
constexpr auto kAllChat = Join(kShared, kChat);
constexpr auto kAllCompletion = Join(kShared, kCompletion);

}  // namespace

std::span<const Field> ChatFields() { return kAllChat.fields; }
std::span<const Field> CompletionFields() { return kAllCompletion.fields; }
std::span<const Field> EmbeddingFields() { return kEmbedding; }
std::span<const Field> ClassifyFields() { return kClassify; }
std::span<const Field> ScoreFields() { return kScore; }
std::span<const Field> RerankFields() { return kRerank; }
std::span<const Field> TokenizeFields() { return kTokenize; }
std::span<const Field> DetokenizeFields() { return kDetokenize; }
std::span<const Field> StreamOptionFields() { return kStreamOptions; }
std::span<const Field> MessageFields() { return kMessage; }

}  // namespace vllm::server
