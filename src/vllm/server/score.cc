// Scores of pairs of texts, as vLLM's API has them: of a model with a head for one class the
// sigmoid of what it says of a pair, of others the cosine between the two texts' embeddings.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/strings.h"
#include "vllm/server/generate_session.h"
#include "vllm/server/json_text.h"
#include "vllm/server/service.h"

namespace vllm::server {
namespace {

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

class ScoreSession : public VectorSession {
 public:
  // `pairs`: the model is asked for a pair each; else for the first texts, then for the second.
  ScoreSession(std::shared_ptr<Reply> reply, std::string model, ScoreRequest request, bool pairs,
               size_t parts, int64_t tokens)
      : VectorSession(std::move(reply), parts),
        model_(std::move(model)),
        request_(std::move(request)),
        pairs_(pairs),
        tokens_(tokens) {}

 protected:
  std::string Answer(std::vector<std::vector<float>> vectors) override {
    vectors_ = std::move(vectors);
    return request_.rerank ? Rerank() : Scores();
  }

 private:
  double ScoreOf(size_t i) const {
    if (pairs_) return 1 / (1 + std::exp(-static_cast<double>(vectors_[i][0])));
    const size_t firsts = request_.first.size();
    return Cosine(vectors_[firsts == 1 ? 0 : i], vectors_[firsts + i]);
  }
  std::string Scores() {
    std::string out = ListBegin("score-", model_);
    for (size_t i = 0; i < request_.second.size(); ++i) {
      out += i > 0 ? R"(,{"index":)" : R"({"index":)";
      AppendInt(static_cast<int64_t>(i), out);
      out += R"(,"object":"score","score":)";
      AppendFloat(static_cast<float>(ScoreOf(i)), out);
      out += '}';
    }
    out += ']';
    AppendPromptUsage(tokens_, out);
    return out;
  }

  std::string Rerank() {
    std::vector<double> scores(request_.second.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = ScoreOf(i);
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    if (request_.top_n > 0) order.resize(std::min(order.size(), request_.top_n));
    std::string out = R"({"id":")" + NewId("rerank-") + R"(","model":)";
    AppendJsonString(model_, out);
    out += R"(,"results":[)";
    for (const size_t i : order) {
      out += i != order.front() ? R"(,{"index":)" : R"({"index":)";
      AppendInt(static_cast<int64_t>(i), out);
      out += R"(,"document":{"text":)";
      AppendJsonString(request_.second[i], out);
      out += R"(},"relevance_score":)";
      AppendFloat(static_cast<float>(scores[i]), out);
      out += '}';
    }
    out += ']';
    AppendPromptUsage(tokens_, out);
    return out;
  }

  std::string model_;
  ScoreRequest request_;
  bool pairs_;
  int64_t tokens_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace

void Service::Score(const std::shared_ptr<Reply>& reply, bool rerank) {
  Parsed<ScoreRequest> parsed =
      rerank ? ParseRerank(reply->request().body) : ParseScore(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  ScoreRequest& r = std::get<ScoreRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  if (model_->classes() > 1) {
    return reply->Error({.message = fmt::format("this model tells {} classes apart: scores need a "
                                                "model of one, ask it for /v1/classify",
                                                model_->classes())});
  }
  if (model_->tokenizer() == nullptr)
    return reply->Error({.message = "this model has no tokenizer, which texts need"});
  std::vector<engine::Request> requests;
  int64_t tokens = 0;
  std::optional<ApiError> error;
  const auto add = [&](base::Result<text::Tokenizer::Pair> encoded, const char* field) {
    if (error) return;
    if (!encoded) {
      error = ApiError{.message = encoded.error().message, .param = field};
      return;
    }
    const auto length = static_cast<int64_t>(encoded->ids.size());
    if (length > model_->max_model_len()) {
      error =
          ApiError{.message = fmt::format("{} has a text of {} tokens, but the context holds {}: "
                                          "shorten it",
                                          field, length, model_->max_model_len()),
                   .param = field,
                   .code = "context_length_exceeded"};
      return;
    }
    tokens += length;
    engine::Request request;
    request.kind = engine::Request::Kind::kEmbed;
    request.prompt = std::move(encoded->ids);
    request.priority = r.priority;
    request.pooling = model_->pooling();
    request.first_segment = encoded->first_segment;
    requests.push_back(std::move(request));
  };
  const char* const first_field = rerank ? "query" : "text_1";
  const char* const second_field = rerank ? "documents" : "text_2";
  const bool pairs = model_->classes() > 0;
  if (pairs) {
    for (size_t i = 0; i < r.second.size(); ++i) {
      const std::string& first = r.first[r.first.size() == 1 ? 0 : i];
      add(model_->tokenizer()->EncodePair(first, r.second[i]), second_field);
    }
  } else {
    const auto alone = [&](const std::string& text) -> base::Result<text::Tokenizer::Pair> {
      base::Result<std::vector<int32_t>> ids = model_->EncodePrompt(text, true);
      if (!ids) return ids.error();
      return text::Tokenizer::Pair{*std::move(ids), INT64_MAX};
    };
    for (const std::string& text : r.first) add(alone(text), first_field);
    for (const std::string& text : r.second) add(alone(text), second_field);
  }
  if (error) return reply->Error(*error);
  const size_t parts = requests.size();
  Submit(std::make_shared<ScoreSession>(reply, ShownModel(r.model), std::move(r), pairs, parts,
                                        tokens),
         std::move(requests), second_field);
}

}  // namespace vllm::server
