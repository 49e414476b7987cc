// The real server over a real engine, in process, on a free port.
#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "net/net_testing.h"
#include "vllm/engine/engine.h"
#include "vllm/server/service.h"

namespace tests {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;
  boost::json::value json;                 // of a whole answer
  std::vector<boost::json::value> chunks;  // of a stream, checked: one [DONE], at the end
};

class RunningServer {
 public:
  explicit RunningServer(vllm::engine::LoadOptions load, net::ServerOptions http = {},
                         vllm::server::ServiceOptions service = {.model_names = {"m"}});
  ~RunningServer();

  bool ok() const { return engine_ != nullptr; }
  uint16_t port() const { return http_->port(); }
  vllm::engine::Engine& engine() { return *engine_; }
  vllm::server::Service& service() { return service_; }

  Answer Post(const std::string& path, const std::string& body,
              const std::string& headers = "Content-Type: application/json\r\n") const;
  Answer Get(const std::string& path) const;
  Answer Send(const std::string& request) const;  // as it stands
  // Choices that run or wait.
  int64_t Live() const;

 private:
  vllm::server::Log log_{vllm::server::LogLevel::kError};
  vllm::server::Service service_;
  std::unique_ptr<net::HttpServer> http_;
  std::unique_ptr<vllm::engine::Engine> engine_;
};

// Options for a small random model of tests/goldens/models that reads and writes bytes, with a
// chat template of its own.
vllm::engine::LoadOptions TinyModel(const std::string& name = "llama_tied");
// The real SmolLM2, or an empty model name where it is not there.
vllm::engine::LoadOptions SmolLm2();

std::string Text(const boost::json::value& v);
// What choice `index` says in the chunks of a stream.
std::string Streamed(const Answer& answer, int64_t index = 0);

}  // namespace tests
