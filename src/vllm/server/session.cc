#include "vllm/server/session.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/base64.h"
#include "vllm/server/json_text.h"

namespace vllm::server {

Reply::Reply(std::shared_ptr<net::Exchange> exchange, std::string request_id, Ended ended)
    : exchange_(std::move(exchange)),
      request_id_(std::move(request_id)),
      ended_(std::move(ended)) {}

void Reply::Send(int status, std::string_view content_type, std::string body,
                 std::vector<std::pair<std::string, std::string>> headers) {
  headers.emplace_back("X-Request-Id", request_id_);
  End(status);  // who has the answer finds it counted
  exchange_->Send(status, content_type, std::move(body), std::move(headers));
}

void Reply::Error(const ApiError& error) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (error.retry_after > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 405) headers.emplace_back("Allow", error.param);
  ApiError shown = error;
  if (error.status == 405) shown.param.clear();
  Send(error.status, "application/json", ErrorBody(shown), std::move(headers));
}

void Reply::StartEvents() { exchange_->StartEvents({{"X-Request-Id", request_id_}}); }

void Reply::EndEvents() {
  End(200);
  exchange_->EndEvents();
}

void Reply::Gone() { End(499); }

void Reply::End(int status) {
  if (!ended_) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  ended_(exchange_->request(), status, seconds.count());
  ended_ = nullptr;
}

void Session::FailWith(const std::string& message) {
  ended = true;
  ApiError error;
  error.status = 500;
  error.message = message.empty() ? "the engine failed" : message;
  reply_->Error(error);
}

EmbeddingSession::EmbeddingSession(std::shared_ptr<Reply> reply, std::string model, bool base64,
                                   const std::vector<size_t>& prompt_tokens)
    : VectorSession(std::move(reply), prompt_tokens.size()),
      model_(std::move(model)),
      base64_(base64) {
  for (const size_t n : prompt_tokens) tokens_ += static_cast<int64_t>(n);
}

std::string EmbeddingSession::Answer(std::vector<std::vector<float>> vectors) {
  return EmbeddingAnswer(model_, std::move(vectors), base64_, tokens_);
}

bool VectorSession::Take(size_t part, engine::Output& output) {
  if (ended) return false;
  const bool failed = output.finish == engine::FinishReason::kError ||
                      output.finish == engine::FinishReason::kAbort ||
                      output.finish == engine::FinishReason::kTimeout;
  if (failed) {
    FailWith(output.extra != nullptr && !output.extra->error.empty()
                 ? output.extra->error
                 : "the request was ended before its vector was ready");
    return false;
  }
  if (output.extra != nullptr && !output.extra->embedding.empty()) {
    vectors_[part] = std::move(output.extra->embedding);
  }
  if (output.finish != engine::FinishReason::kNone && open_ > 0) --open_;
  return false;
}

void VectorSession::Flush() {
  if (ended || open_ > 0) return;
  ended = true;
  reply().Json(Answer(std::move(vectors_)));
}

void AppendPromptUsage(int64_t tokens, std::string& out) {
  out += R"(,"usage":{"prompt_tokens":)";
  AppendInt(tokens, out);
  out += R"(,"total_tokens":)";
  AppendInt(tokens, out);
  out += "}}";
}

std::string EmbeddingAnswer(const std::string& model, std::vector<std::vector<float>> vectors,
                            bool base64, int64_t tokens) {
  static_assert(std::endian::native == std::endian::little);  // as the format has its floats
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::vector<float>& v = vectors[i];
    double sum = 0;
    for (const float x : v) sum += static_cast<double>(x) * x;
    const auto scale = static_cast<float>(sum > 0 ? 1 / std::sqrt(sum) : 0);
    for (float& x : v) x *= scale;
    if (i > 0) out += ',';
    out += R"({"object":"embedding","index":)";
    AppendInt(static_cast<int64_t>(i), out);
    out += R"(,"embedding":)";
    if (base64) {
      out += '"';
      base::AppendBase64({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)}, out);
      out += '"';
    } else {
      out += '[';
      for (size_t j = 0; j < v.size(); ++j) {
        if (j > 0) out += ',';
        AppendFloat(v[j], out);
      }
      out += ']';
    }
    out += '}';
  }
  out += R"(],"model":)";
  AppendJsonString(model, out);
  AppendPromptUsage(tokens, out);
  return out;
}

}  // namespace vllm::server
