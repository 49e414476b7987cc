#include "tests/server_testing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/os/file.h"
#include "vllm/engine/engine_stats.h"

namespace tests {
namespace json = boost::json;
using vllm::server::Service;

RunningServer::RunningServer(vllm::engine::LoadOptions load, net::ServerOptions http,
                             vllm::server::ServiceOptions service)
    : service_(std::move(service), log_) {
  http.port = 0;
  auto server = net::HttpServer::Listen(
      http, [this](std::shared_ptr<net::Exchange> e) { service_.Handle(std::move(e)); },
      Service::HttpError);
  if (!server) {
    ADD_FAILURE() << server.error().message;
    return;
  }
  http_ = *std::move(server);
  service_.CountConnections([this] { return http_->connections(); });
  http_->Start();
  EXPECT_EQ(Get("/health").status, 503) << "before the model is ready";
  load.module_folders = {std::string(VLLM_BINARY_DIR) + "/examples"};
  auto engine = vllm::engine::Engine::Load(std::move(load), service_);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return;
  }
  engine_ = *std::move(engine);
  service_.Ready(vllm::server::ServeEngine(*engine_));
  EXPECT_EQ(Get("/health").status, 200);
}

RunningServer::~RunningServer() {
  if (http_ != nullptr) http_->Stop(0);
  service_.Stop();
}

Answer RunningServer::Send(const std::string& request) const {
  net::testing::RawSocket socket(http_->port(), 0, 120);
  Answer answer;
  if (!socket.Send(request)) {
    ADD_FAILURE() << "the server is gone";
    return answer;
  }
  net::testing::RawAnswer raw = net::testing::ReadAnswer(socket);
  EXPECT_TRUE(raw.complete) << raw.body;
  answer.status = raw.status;
  answer.headers = std::move(raw.headers);
  answer.body = std::move(raw.body);
  const std::string type = answer.headers["content-type"];
  if (type.find("application/json") == 0) {
    base::Result<json::value> v = base::ParseJson(answer.body);
    if (!v) ADD_FAILURE() << v.error().message << "\n" << answer.body;
    if (v) answer.json = *std::move(v);
  }
  if (type.find("text/event-stream") != 0) return answer;
  bool done = false;
  for (size_t at = 0; at < answer.body.size();) {
    const size_t end = answer.body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "half a frame: " << answer.body.substr(at);
      break;
    }
    const std::string frame = answer.body.substr(at, end - at);
    at = end + 2;
    if (frame[0] == ':') continue;
    EXPECT_FALSE(done) << "data after [DONE]";
    if (frame == "data: [DONE]") {
      done = true;
      continue;
    }
    base::Result<json::value> v = base::ParseJson(frame.substr(6));
    if (frame.compare(0, 6, "data: ") != 0 || !v) {
      ADD_FAILURE() << "not a frame: " << frame;
      break;
    }
    answer.chunks.push_back(*std::move(v));
  }
  EXPECT_TRUE(done) << "no [DONE]";
  return answer;
}

Answer RunningServer::Post(const std::string& path, const std::string& body,
                           const std::string& headers) const {
  return Send(net::testing::Post(path, body, headers));
}

Answer RunningServer::Get(const std::string& path) const { return Send(net::testing::Get(path)); }

int64_t RunningServer::Live() const {
  const vllm::engine::EngineStats s = engine_->Stats();
  return s.running + s.waiting;
}

vllm::engine::LoadOptions TinyModel(const std::string& name) {
  namespace fs = std::filesystem;
  const std::string path =
      (fs::temp_directory_path() / ("vllm_template_" + std::to_string(::getpid()) + ".jinja"))
          .string();
  const base::Status written = base::os::WriteFile(
      path,
      "{% if messages[0].role == 'system' and messages[0].content == 'refuse' %}"
      "{{ raise_exception('no system turn here') }}{% endif %}"
      "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<s>assistant\n{% endif %}");
  EXPECT_TRUE(written.ok());
  vllm::engine::LoadOptions o;
  o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/" + name;
  o.device = "cpu";
  o.threads = 1;
  o.dtype = "float32";
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 64;
  o.chat_template = path;
  return o;
}

vllm::engine::LoadOptions SmolLm2() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string path =
      (cache != nullptr && *cache != 0 ? cache : std::string(home ? home : "") + "/.cache") +
      "/vllm.cpp/SmolLM2-135M-Instruct.Q4_1.gguf";
  vllm::engine::LoadOptions o;
  if (!base::os::FileExists(path)) return o;
  o.model = path;
  o.device = "cpu";
  o.max_num_seqs = 8;
  o.max_model_len = 2048;
  return o;
}

std::string Text(const json::value& v) { return std::string(v.get_string()); }

std::string Streamed(const Answer& answer, int64_t index) {
  std::string text;
  for (const json::value& chunk : answer.chunks) {
    for (const json::value& c : chunk.at("choices").get_array()) {
      if (c.at("index").to_number<int64_t>() != index) continue;
      const json::object& o = c.get_object();
      if (o.contains("text")) text += Text(o.at("text"));
      if (!o.contains("delta")) continue;
      const json::object& delta = o.at("delta").get_object();
      if (delta.contains("content")) text += Text(delta.at("content"));
    }
  }
  return text;
}

}  // namespace tests
