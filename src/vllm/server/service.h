// The OpenAI API over one model: HTTP requests in, engine requests out, and the answers back.
//
//   Service service(options, log);
//   HttpServer::Listen(o, [&](auto x) { service.Handle(std::move(x)); }, Service::HttpError);
//   auto engine = Engine::Load(load, service);   // the service is the engine's sink
//   service.Ready(ServeEngine(**engine));        // until now /health and the rest answer 503
//
// Threads: Handle returns at once, whatever it was given; prompts are parsed and tokenised on
// threads of their own; tokens become text and frames on output threads; the engine's thread only
// hands over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/http_server.h"
#include "vllm/engine/request.h"
#include "vllm/server/log.h"
#include "vllm/server/metrics.h"
#include "vllm/server/protocol.h"
#include "vllm/server/served_model.h"
#include "vllm/server/session.h"
#include "vllm/server/tool_parser.h"
#include "vllm/server/workers.h"

namespace vllm::server {

struct ServiceOptions {
  std::vector<std::string> model_names;    // at least one; the first stands in answers
  std::vector<std::string> api_keys = {};  // none: everyone may ask
  std::optional<ToolFormat> tools = {};    // none: as the chat template shows
  bool auto_tools = true;                  // whether the chat template may decide
  bool log_requests = true;
  double request_timeout = 0;  // seconds that a request may take; 0: no limit
  int prepare_threads = 2;
  int output_threads = 1;
  size_t max_waiting_bytes = size_t{256} << 20;  // of bodies that no thread has begun to read
  std::function<void()> on_engine_death = {};    // called on the engine's thread
};

class Service : public engine::OutputSink {
 public:
  Service(ServiceOptions options, const Log& log);
  ~Service() override;

  // The HTTP handler. Thread-safe.
  void Handle(std::shared_ptr<net::Exchange> exchange);
  static std::string HttpError(int status, std::string_view sentence);

  void Ready(std::unique_ptr<ServedModel> model);
  // New requests are answered with 503 from now on.
  void Draining();
  // Ends the threads; what arrives later is dropped. Before the engine goes.
  void Stop();
  void CountConnections(std::function<int64_t()> count);
  size_t sessions() const;
  // The format in use; none: tools are refused.
  std::optional<ToolFormat> tool_format() const;

  void Deliver(std::span<engine::Output> outputs) override;
  void EngineDied(const std::string& why) override;

 private:
  enum class State { kStarting, kReady, kDraining, kDead };
  struct Place {
    std::shared_ptr<Session> session;
    size_t part = 0;
  };
  // One output thread's queue.
  struct Lane {
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<engine::Output> outputs;
    bool stop = false;
    std::thread thread;
  };

  std::shared_ptr<Reply> MakeReply(std::shared_ptr<net::Exchange> exchange);
  bool Allowed(const net::HttpRequest& request) const;
  std::optional<ApiError> NotReady() const;
  std::optional<ApiError> WrongModel(const std::string& name) const;
  std::string ShownModel(const std::string& name) const;

  void Chat(const std::shared_ptr<Reply>& reply);
  void Completions(const std::shared_ptr<Reply>& reply);
  void Embeddings(const std::shared_ptr<Reply>& reply);
  void Classify(const std::shared_ptr<Reply>& reply);
  void Score(const std::shared_ptr<Reply>& reply, bool rerank);
  void Transcribe(const std::shared_ptr<Reply>& reply);
  void Tokenize(const std::shared_ptr<Reply>& reply);
  void Detokenize(const std::shared_ptr<Reply>& reply);
  void Models(const std::shared_ptr<Reply>& reply) const;
  void Metrics(const std::shared_ptr<Reply>& reply) const;
  void Health(const std::shared_ptr<Reply>& reply) const;

  base::Result<std::vector<int32_t>> Encode(const Prompt& prompt, bool add_special_tokens) const;
  // A request of the engine's for each input, and how many tokens it has.
  std::optional<ApiError> EmbedInputs(const EmbeddingRequest& r,
                                      std::vector<engine::Request>& requests,
                                      std::vector<size_t>& tokens) const;
  // Settles max_tokens and what is given in words; an error is the client's. `prompt`: its field.
  std::optional<ApiError> Settle(GenerateFields& g, std::string_view prompt, size_t prompt_tokens,
                                 int64_t otherwise) const;
  std::vector<int32_t> Breakers(const std::vector<std::string>& strings) const;
  std::vector<std::vector<int32_t>> BadWords(const std::vector<std::string>& words) const;

  // `field`: of the prompts, for errors.
  void Submit(const std::shared_ptr<Session>& session, std::vector<engine::Request> requests,
              std::string_view field);
  void Leave(const std::shared_ptr<Session>& session);
  void Forget(const std::vector<engine::RequestId>& ids);
  void RunLane(Lane& lane);
  void HandOut(std::vector<engine::Output>& outputs);

  ServiceOptions options_;
  const Log& log_;
  std::atomic<State> state_{State::kStarting};
  std::string death_;  // written before kDead
  std::string fingerprint_;
  std::optional<ToolFormat> tool_format_;
  int64_t started_;
  std::function<int64_t()> connections_;
  HttpCounts http_;

  mutable std::mutex sessions_mutex_;
  std::unordered_map<engine::RequestId, Place> sessions_;

  // What was asked last: to find the tokens takes a walk over the vocabulary.
  mutable std::mutex breakers_mutex_;
  mutable std::vector<std::string> breakers_of_;
  mutable std::vector<int32_t> breakers_;

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<ServedModel> model_;  // goes first: it may have a sink's thread of its own
};

// Whether `given` is one of `keys`, in time that depends on neither's content.
bool KeyMatches(std::string_view given, const std::vector<std::string>& keys);
// The chat page.
std::string_view Page();

}  // namespace vllm::server
