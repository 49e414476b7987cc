// A server for the benchmark to measure.
#pragma once

#include <atomic>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <mutex>
#include <string>

#include "net/http_server.h"

namespace apps::bench {

// Streams max_tokens tokens, 100, 101, .., to each request, and refuses every `fail`th; 0: none.
class StubServer {
 public:
  explicit StubServer(int fail) {
    net::ServerOptions options;
    options.port = 0;
    auto server = net::HttpServer::Listen(
        options, [this, fail](std::shared_ptr<net::Exchange> e) { Answer(*e, fail); },
        [](int, std::string_view s) { return std::string(s); });
    server_ = *std::move(server);
    server_->Start();
  }
  ~StubServer() { server_->Stop(0); }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()) + "/"; }
  std::string last_body() {
    const std::lock_guard lock(mutex_);
    return last_body_;
  }

 private:
  void Answer(net::Exchange& e, int fail) {
    namespace json = boost::json;
    if (e.request().path == "/v1/models") {
      e.Send(200, "application/json", R"({"data":[{"id":"stub"}]})");
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      last_body_ = e.request().body;
    }
    if (fail > 0 && ++requests_ % fail == 0) {
      e.Send(503, "application/json", R"({"error":{"message":"too busy"}})");
      return;
    }
    const json::value body = json::parse(e.request().body);
    const auto tokens = body.at("max_tokens").to_number<int>();
    e.StartEvents();
    for (int i = 0; i < tokens; ++i) {
      e.Event(R"({"choices":[{"text":"w ","finish_reason":null,"token_ids":[)" +
              std::to_string(100 + i) + "]}]}");
    }
    e.Event(R"({"choices":[{"text":"","finish_reason":"length"}]})");
    e.Event(json::serialize(
        json::object{{"choices", json::array()},
                     {"usage", json::object{{"prompt_tokens", body.at("prompt").as_array().size()},
                                            {"completion_tokens", tokens}}}}));
    e.Event("[DONE]");
    e.EndEvents();
  }
  std::atomic<int> requests_ = 0;
  std::mutex mutex_;
  std::string last_body_;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace apps::bench
