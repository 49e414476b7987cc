// One request's answer while it is being made: outputs of the engine in, HTTP out.
//
// Used by the thread that prepares the request, then by the one that hands out tokens, and by the
// network's when the client leaves; each holds `mutex` for as long as it touches anything here.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "vllm/engine/request.h"
#include "vllm/server/answer_json.h"
#include "vllm/server/api_error.h"

namespace vllm::server {

// How answers go out: counts and logs them, adds the headers that all have.
class Reply {
 public:
  using Ended = std::function<void(const net::HttpRequest&, int status, double seconds)>;
  Reply(std::shared_ptr<net::Exchange> exchange, std::string request_id, Ended ended);

  net::Exchange& exchange() { return *exchange_; }
  const net::HttpRequest& request() const { return exchange_->request(); }
  const std::string& request_id() const { return request_id_; }
  void Send(int status, std::string_view content_type, std::string body,
            std::vector<std::pair<std::string, std::string>> headers = {});
  void Json(std::string body) { Send(200, "application/json", std::move(body)); }
  void Error(const ApiError& error);
  void StartEvents();
  void EndEvents();
  void Gone();  // the client left: 499 in the counts

 private:
  void End(int status);

  std::shared_ptr<net::Exchange> exchange_;
  std::string request_id_;
  Ended ended_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Session {
 public:
  explicit Session(std::shared_ptr<Reply> reply) : reply_(std::move(reply)) {}
  virtual ~Session() = default;

  std::mutex mutex;
  std::vector<engine::RequestId> ids;  // of the engine's requests, a prompt each
  bool ended = false;                  // answered, refused or left

  Reply& reply() { return *reply_; }
  // The engine has taken all prompts.
  virtual void Begin() {}
  // An output of prompt `part`. True: the engine must be told to cancel this choice.
  virtual bool Take(size_t part, engine::Output& output) = 0;
  // After all outputs of a step: sends what they gave; sets `ended` with the last.
  virtual void Flush() = 0;

  // Ends it with an error.
  void FailWith(const std::string& message);

 private:
  std::shared_ptr<Reply> reply_;
};

// Gathers a vector a prompt, and answers when all are there.
class VectorSession : public Session {
 public:
  VectorSession(std::shared_ptr<Reply> reply, size_t prompts)
      : Session(std::move(reply)), vectors_(prompts), open_(prompts) {}
  bool Take(size_t part, engine::Output& output) override;
  void Flush() override;

 protected:
  // The answer's JSON.
  virtual std::string Answer(std::vector<std::vector<float>> vectors) = 0;

 private:
  std::vector<std::vector<float>> vectors_;
  size_t open_;
};

class EmbeddingSession : public VectorSession {
 public:
  EmbeddingSession(std::shared_ptr<Reply> reply, std::string model, bool base64,
                   const std::vector<size_t>& prompt_tokens);

 protected:
  std::string Answer(std::vector<std::vector<float>> vectors) override;

 private:
  std::string model_;
  bool base64_;
  int64_t tokens_ = 0;
};

// ,"usage":{...}} of an answer without tokens of its own: its end.
void AppendPromptUsage(int64_t tokens, std::string& out);

// {"object": "list", "data": [...]}; the vectors are made unit length.
std::string EmbeddingAnswer(const std::string& model, std::vector<std::vector<float>> vectors,
                            bool base64, int64_t tokens);

}  // namespace vllm::server
