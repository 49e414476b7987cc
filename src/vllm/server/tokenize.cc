// /tokenize and /detokenize, in vLLM's shapes.
#include "vllm/server/json_text.h"
#include "vllm/server/service.h"
#include "vllm/text/unicode.h"

namespace vllm::server {

void Service::Tokenize(const std::shared_ptr<Reply>& reply) {
  Parsed<TokenizeRequest> parsed = ParseTokenize(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  const TokenizeRequest& r = std::get<TokenizeRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  const base::Result<std::vector<int32_t>> ids =
      r.prompt ? model_->EncodePrompt(*r.prompt, r.add_special_tokens.value_or(true))
               : model_->EncodeChat(r.chat);
  if (!ids) {
    ApiError e = FromError(ids.error());
    if (e.status != 500) e.status = 400;
    return reply->Error(e);
  }
  std::string out = R"({"count":)";
  AppendInt(static_cast<int64_t>(ids->size()), out);
  out += R"(,"max_model_len":)";
  AppendInt(model_->max_model_len(), out);
  out += R"(,"tokens":[)";
  for (size_t i = 0; i < ids->size(); ++i) {
    if (i > 0) out += ',';
    AppendInt((*ids)[i], out);
  }
  out += R"(],"token_strs":)";
  if (!r.return_token_strs) {
    out += "null";
  } else {
    out += '[';
    for (size_t i = 0; i < ids->size(); ++i) {
      if (i > 0) out += ',';
      std::string text;
      text::AppendLossy(model_->tokenizer()->TokenText((*ids)[i]), &text);
      AppendJsonString(text, out);
    }
    out += ']';
  }
  out += '}';
  reply->Json(std::move(out));
}

void Service::Detokenize(const std::shared_ptr<Reply>& reply) {
  Parsed<DetokenizeRequest> parsed = ParseDetokenize(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  const DetokenizeRequest& r = std::get<DetokenizeRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  ApiError bad;
  bad.param = "tokens";
  if (model_->tokenizer() == nullptr) {
    bad.message = "this model has no tokenizer";
    return reply->Error(bad);
  }
  for (const int32_t id : r.tokens) {
    if (id >= model_->vocabulary() && !model_->tokenizer()->HasToken(id)) {
      bad.message = "tokens has " + std::to_string(id) + ", which is outside the vocabulary";
      return reply->Error(bad);
    }
  }
  std::string out = R"({"prompt":)";
  AppendJsonString(model_->tokenizer()->Decode(r.tokens, r.skip_special_tokens), out);
  out += '}';
  reply->Json(std::move(out));
}

}  // namespace vllm::server
