// /v1/classify, as vLLM's API has it: of each text the probabilities of a model's classes.
#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "vllm/server/generate_session.h"
#include "vllm/server/json_text.h"
#include "vllm/server/service.h"

namespace vllm::server {
namespace {

using engine::ClassHead;

void ToProbabilities(ClassHead::Scale scale, std::vector<float>& scores) {
  if (scale == ClassHead::Scale::kNone || scores.empty()) return;
  const float most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& x : scores) {
    const double e = scale == ClassHead::Scale::kSigmoid ? 1 / (1 + std::exp(-double{x}))
                                                         : std::exp(double{x} - most);
    sum += e;
    x = static_cast<float>(e);
  }
  if (scale == ClassHead::Scale::kSigmoid) return;
  for (float& x : scores) x = static_cast<float>(x / sum);
}

class ClassifySession : public VectorSession {
 public:
  ClassifySession(std::shared_ptr<Reply> reply, std::string model, const ClassHead& head,
                  const std::vector<size_t>& prompt_tokens)
      : VectorSession(std::move(reply), prompt_tokens.size()),
        model_(std::move(model)),
        head_(head) {
    for (const size_t n : prompt_tokens) tokens_ += static_cast<int64_t>(n);
  }

 protected:
  std::string Answer(std::vector<std::vector<float>> scores) override {
    std::string out = ListBegin("classify-", model_);
    for (size_t i = 0; i < scores.size(); ++i) {
      std::vector<float>& probs = scores[i];
      ToProbabilities(head_.scale, probs);
      const auto best =
          static_cast<size_t>(std::max_element(probs.begin(), probs.end()) - probs.begin());
      out += i > 0 ? R"(,{"index":)" : R"({"index":)";
      AppendInt(static_cast<int64_t>(i), out);
      out += R"(,"label":)";
      AppendJsonString(best < head_.labels.size() ? head_.labels[best] : "", out);
      out += R"(,"probs":[)";
      for (size_t c = 0; c < probs.size(); ++c) {
        if (c > 0) out += ',';
        AppendFloat(probs[c], out);
      }
      out += R"(],"num_classes":)";
      AppendInt(static_cast<int64_t>(probs.size()), out);
      out += '}';
    }
    out += ']';
    AppendPromptUsage(tokens_, out);
    return out;
  }

 private:
  std::string model_;
  const ClassHead& head_;  // the model's
  int64_t tokens_ = 0;
};

}  // namespace

void Service::Classify(const std::shared_ptr<Reply>& reply) {
  Parsed<EmbeddingRequest> parsed = ParseClassify(reply->request().body);
  if (const auto* e = std::get_if<ApiError>(&parsed)) return reply->Error(*e);
  const EmbeddingRequest& r = std::get<EmbeddingRequest>(parsed);
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  if (model_->class_head().labels.empty()) {
    return reply->Error({.message = "this model tells no classes apart: it has no head for them"});
  }
  std::vector<engine::Request> requests;
  std::vector<size_t> tokens;
  if (const std::optional<ApiError> e = EmbedInputs(r, requests, tokens)) return reply->Error(*e);
  Submit(
      std::make_shared<ClassifySession>(reply, ShownModel(r.model), model_->class_head(), tokens),
      std::move(requests), "input");
}

}  // namespace vllm::server
