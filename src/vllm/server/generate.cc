// From a parsed request to the engine: prompts to ids, limits settled, a session made.
#include <algorithm>
#include <ctime>

#include "base/strings.h"
#include "vllm/server/generate_session.h"
#include "vllm/server/service.h"
#include "vllm/server/sounds.h"

namespace vllm::server {
namespace {

constexpr int64_t kCompletionTokens = 16;  // OpenAI's default

ApiError Bad(std::string param, std::string message) {
  ApiError e;
  e.param = std::move(param);
  e.message = std::move(message);
  return e;
}

AnswerHead MakeHead(bool chat, const GenerateFields& g) {
  AnswerHead head;
  head.chat = chat;
  const std::string_view prefix = chat ? "chatcmpl-" : "cmpl-";
  head.id = g.request_id.empty() ? NewId(prefix) : std::string(prefix) + g.request_id;
  head.created = std::time(nullptr);
  head.logprobs = g.sampling.logprobs >= 0;
  head.token_ids = g.return_token_ids;
  head.include_usage = g.include_usage;
  head.continuous_usage = g.continuous_usage;
  return head;
}

engine::Request EngineRequest(const GenerateFields& g, std::vector<int32_t> prompt) {
  engine::Request r;
  r.prompt = std::move(prompt);
  r.sampling = g.sampling;
  r.priority = g.priority;
  r.cache_salt = g.cache_salt;
  return r;
}

// Names the field in an error of the tokenizer or template that names none.
ApiError About(std::string_view param, const base::Error& error) {
  ApiError e = FromError(error);
  // A text that this tokenizer cannot take, or a template that never ends, is the request's fault.
  if (error.code == base::Code::kResourceExhausted) {
    e = ApiError{};
    e.message = error.message;
  }
  if (e.param.empty() && e.status == 400) e.param = param;
  return e;
}

}  // namespace

base::Result<std::vector<int32_t>> Service::Encode(const Prompt& prompt,
                                                   bool add_special_tokens) const {
  if (prompt.is_text) return model_->EncodePrompt(prompt.text, add_special_tokens);
  return prompt.ids;
}

std::optional<ApiError> Service::Settle(GenerateFields& g, std::string_view prompt,
                                        size_t prompt_tokens, int64_t otherwise) const {
  const int64_t context = model_->max_model_len();
  const int64_t room = context - static_cast<int64_t>(prompt_tokens);
  if (room < (g.max_tokens == 0 ? 0 : 1)) {
    ApiError e;
    e.param = prompt;
    e.code = "context_length_exceeded";
    e.message = fmt::format(
        "the prompt has {} tokens, but the context holds {} with the answer: shorten it",
        prompt_tokens, context);
    return e;
  }
  if (g.max_tokens && *g.max_tokens > room) {
    ApiError e = Bad(std::string(g.max_tokens_field),
                     fmt::format("{} is {}, but the context of {} tokens has room for {} after a "
                                 "prompt of {}",
                                 g.max_tokens_field, *g.max_tokens, context, room, prompt_tokens));
    e.code = "context_length_exceeded";
    return e;
  }
  const int64_t wanted = otherwise > 0 ? std::min(otherwise, room) : room;
  g.sampling.max_tokens = g.max_tokens.value_or(wanted);
  if (g.sampling.min_tokens > g.sampling.max_tokens) {
    return Bad("min_tokens",
               fmt::format("min_tokens is {}, over {}, which is {}", g.sampling.min_tokens,
                           g.max_tokens_field, g.sampling.max_tokens));
  }
  const bool words = !g.bad_words.empty() || !g.sampling.stop.empty();
  if (words && model_->tokenizer() == nullptr) {
    return Bad(g.bad_words.empty() ? "stop" : "bad_words",
               "this model has no tokenizer: stop and bad_words need one");
  }
  if (g.sampling.bad_words.empty()) g.sampling.bad_words = BadWords(g.bad_words);
  if (g.sampling.dry_multiplier > 0 && g.sampling.dry_breakers.empty()) {
    g.sampling.dry_breakers =
        Breakers(g.dry_breakers.value_or(std::vector<std::string>{"\n", ":", "\"", "*"}));
  }
  return {};
}

// Each word as it stands at the text's beginning and behind a space.
std::vector<std::vector<int32_t>> Service::BadWords(const std::vector<std::string>& words) const {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& word : words) {
    for (const bool space : {false, true}) {
      const std::string text = space && word[0] != ' ' ? " " + word : word;
      base::Result<std::vector<int32_t>> ids =
          model_->tokenizer()->Encode(text, {.add_special_tokens = false, .parse_special = true});
      if (!ids || ids->empty()) continue;
      if (std::find(sequences.begin(), sequences.end(), *ids) == sequences.end()) {
        sequences.push_back(*std::move(ids));
      }
    }
  }
  return sequences;
}

// The tokens that contain one of `strings`.
std::vector<int32_t> Service::Breakers(const std::vector<std::string>& strings) const {
  std::vector<int32_t> ids;
  const text::Tokenizer* tokenizer = model_->tokenizer();
  if (tokenizer == nullptr) return ids;
  const std::lock_guard lock(breakers_mutex_);
  if (strings == breakers_of_) return breakers_;
  const auto most =
      static_cast<int32_t>(std::min<int64_t>(tokenizer->vocab_size(), model_->vocabulary()));
  for (int32_t id = 0; id < most; ++id) {
    if (!tokenizer->HasToken(id)) continue;
    const std::string bytes = tokenizer->TokenBytes(id);
    const bool breaks = std::any_of(strings.begin(), strings.end(), [&](const std::string& s) {
      return bytes.find(s) != std::string::npos;
    });
    if (breaks) ids.push_back(id);
  }
  breakers_of_ = strings;
  breakers_ = ids;
  return ids;
}

void Service::Chat(const std::shared_ptr<Reply>& reply) {
  Parsed<ChatRequest> parsed = ParseChat(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  ChatRequest& r = std::get<ChatRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  const text::ChatTemplate* chat_template = model_->chat_template();
  if (!r.chat.tools.is_null() && chat_template != nullptr) {
    if (!chat_template->traits().takes_tools) {
      return reply->Error(Bad("tools", "tools cannot be shown by this model's chat template"));
    }
    if (r.call_tools && !tool_format_) {
      return reply->Error(Bad("tools",
                              "tools need a known form of calls, which this model's chat "
                              "template does not have: start the server with "
                              "--tool-call-parser"));
    }
  }
  Sounds sounds(model_->audio(), model_->tokenizer(), model_->max_model_len());
  if (const std::optional<ApiError> e = sounds.Take(r.chat)) return reply->Error(*e);
  base::Result<std::vector<int32_t>> ids = model_->EncodeChat(r.chat);
  if (!ids) return reply->Error(About("messages", ids.error()));
  if (const std::optional<ApiError> e = Settle(r, "messages", ids->size(), 0))
    return reply->Error(*e);

  GenerateOptions o;
  o.head = MakeHead(true, r);
  o.head.model = ShownModel(r.model);
  o.head.fingerprint = fingerprint_;
  o.sampling = r.sampling;
  o.tokenizer = model_->tokenizer();
  o.stream = r.stream;
  o.show_prompt_logprobs = r.sampling.prompt_logprobs >= 0;
  if (r.call_tools || tool_format_ == ToolFormat::kHarmony) {
    o.tools = tool_format_;
    if (r.call_tools) o.tool_names = r.tool_names;
    if (NeedsSpecialTokens(*tool_format_)) o.sampling.skip_special_tokens = false;
  }
  std::vector<engine::Request> requests;
  requests.push_back(EngineRequest(r, *ids));
  requests[0].media = sounds.media();
  std::vector<GeneratePrompt> prompts(1);
  prompts[0].ids = *std::move(ids);
  Submit(std::make_shared<GenerateSession>(reply, std::move(o), std::move(prompts)),
         std::move(requests), "messages");
}

void Service::Completions(const std::shared_ptr<Reply>& reply) {
  Parsed<CompletionRequest> parsed = ParseCompletion(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  CompletionRequest& r = std::get<CompletionRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);

  GenerateOptions o;
  o.head = MakeHead(false, r);
  o.head.model = ShownModel(r.model);
  o.head.fingerprint = fingerprint_;
  o.tokenizer = model_->tokenizer();
  o.stream = r.stream;
  o.echo = r.echo;
  o.no_output = r.max_tokens && *r.max_tokens == 0;
  o.show_prompt_logprobs = r.sampling.prompt_logprobs >= 0;
  if (r.echo && o.head.logprobs) {
    r.sampling.prompt_logprobs = std::max(r.sampling.prompt_logprobs, r.sampling.logprobs);
  }
  std::vector<engine::Request> requests;
  std::vector<GeneratePrompt> prompts;
  for (const Prompt& prompt : r.prompts) {
    base::Result<std::vector<int32_t>> ids = Encode(prompt, r.add_special_tokens);
    if (!ids) return reply->Error(About("prompt", ids.error()));
    if (ids->empty()) {
      return reply->Error(Bad("prompt", "prompt is empty: give at least one token"));
    }
    if (const std::optional<ApiError> e = Settle(r, "prompt", ids->size(), kCompletionTokens)) {
      return reply->Error(*e);
    }
    GeneratePrompt p;
    if (r.echo) {
      p.echo = prompt.is_text           ? prompt.text
               : o.tokenizer != nullptr ? o.tokenizer->Decode(*ids, r.sampling.skip_special_tokens)
                                        : "";
    }
    requests.push_back(EngineRequest(r, *ids));
    p.ids = *std::move(ids);
    prompts.push_back(std::move(p));
  }
  o.sampling = r.sampling;
  Submit(std::make_shared<GenerateSession>(reply, std::move(o), std::move(prompts)),
         std::move(requests), "prompt");
}

std::optional<ApiError> Service::EmbedInputs(const EmbeddingRequest& r,
                                             std::vector<engine::Request>& requests,
                                             std::vector<size_t>& tokens) const {
  for (const Prompt& input : r.inputs) {
    base::Result<std::vector<int32_t>> ids = Encode(input, r.add_special_tokens);
    if (!ids) return About("input", ids.error());
    if (static_cast<int64_t>(ids->size()) > model_->max_model_len()) {
      ApiError e = Bad("input", fmt::format("input has a text of {} tokens, but the context holds "
                                            "{}: shorten it",
                                            ids->size(), model_->max_model_len()));
      e.code = "context_length_exceeded";
      return e;
    }
    tokens.push_back(ids->size());
    engine::Request request;
    request.kind = engine::Request::Kind::kEmbed;
    request.prompt = *std::move(ids);
    request.priority = r.priority;
    request.pooling = model_->pooling();
    requests.push_back(std::move(request));
  }
  return {};
}

void Service::Embeddings(const std::shared_ptr<Reply>& reply) {
  Parsed<EmbeddingRequest> parsed = ParseEmbedding(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  const EmbeddingRequest& r = std::get<EmbeddingRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  if (model_->classes() > 0) {
    return reply->Error(
        {.message = fmt::format("this model scores texts and makes no vectors: ask it for /v1/{}",
                                model_->classes() > 1 ? "classify" : "score or /v1/classify")});
  }
  std::vector<engine::Request> requests;
  std::vector<size_t> tokens;
  if (const std::optional<ApiError> e = EmbedInputs(r, requests, tokens)) return reply->Error(*e);
  Submit(std::make_shared<EmbeddingSession>(reply, ShownModel(r.model), r.base64, tokens),
         std::move(requests), "input");
}

}  // namespace vllm::server
