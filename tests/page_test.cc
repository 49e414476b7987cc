// The chat page in a real browser (tools/page_test.py), served by the real server over a model that
// says what it is told.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/strings.h"
#include "net/http_server.h"
#include "vllm/server/server_testing.h"
#include "vllm/server/service.h"

namespace vllm::server {
namespace {

// Hands tokens on at a reader's speed, so that there is a middle of an answer to act in.
class Paced : public engine::OutputSink {
 public:
  explicit Paced(engine::OutputSink& next) : next_(next) {}
  void Deliver(std::span<engine::Output> outputs) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    next_.Deliver(outputs);
  }
  void EngineDied(const std::string& why) override { next_.EngineDied(why); }

 private:
  engine::OutputSink& next_;
};

class LongModel : public FakeModel {
 public:
  using FakeModel::FakeModel;
  int64_t max_model_len() const override { return 100000; }
};

// The answer to the last message of the user: what follows "say: " in it.
std::string Script(const engine::Request& request, int32_t /*choice*/) {
  std::string prompt;
  for (const int32_t id : request.prompt) prompt += static_cast<char>(id);
  const std::string last = prompt.substr(prompt.rfind("[user]") + 6);
  const std::string asked = last.substr(0, last.rfind("[assistant]"));
  if (asked == "forever") {
    std::string text;
    for (int i = 0; i < 8000; ++i) text += fmt::format("word{} ", i);
    return text;
  }
  if (base::StartsWith(asked, "say: ")) return asked.substr(5);
  return fmt::format("You said *{}* and the prompt has {} bytes.", asked, prompt.size());
}

struct Served {
  explicit Served(std::vector<std::string> keys)
      : service({.model_names = {"scripted"}, .api_keys = std::move(keys)}, log), paced(service) {
    net::ServerOptions any_port;
    any_port.port = 0;
    auto made = net::HttpServer::Listen(
        any_port, [this](auto exchange) { service.Handle(std::move(exchange)); },
        Service::HttpError);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      return;
    }
    http = *std::move(made);
    http->Start();
    service.Ready(std::make_unique<LongModel>(paced, Script));
  }
  ~Served() {
    if (http != nullptr) http->Stop(0);
    service.Stop();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", http->port()); }

  Log log{LogLevel::kError};
  Service service;
  Paced paced;
  std::unique_ptr<net::HttpServer> http;
};

int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const std::string kScript = std::string(VLLM_SOURCE_DIR) + "/tools/page_test.py";

TEST(Page, WorksInARealBrowser) {
  if (Shell("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "needs python3";
  const Served open({}), keyed({"secret"});
  ASSERT_NE(open.http, nullptr);
  ASSERT_NE(keyed.http, nullptr);
  const int rc = Shell(fmt::format("python3 {} --scripted --url {} --keyed-url {}", kScript,
                                   open.url(), keyed.url()));
  if (rc == 77) GTEST_SKIP() << "needs a browser: apt-get install chromium";
  EXPECT_EQ(rc, 0);
}

// A script or style that changed without its hash is one that browsers refuse to run.
TEST(Page, PolicyAllowsTheScriptAndStyleThatItHas) {
  if (Shell("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "needs python3";
  EXPECT_EQ(Shell(fmt::format("python3 {} --check-hashes", kScript)), 0)
      << "run tools/page_test.py --update-hashes";
}

TEST(Page, IsOneFileThatAsksNothingOfOthers) {
  const std::string page(Page());
  EXPECT_LT(page.size(), 64u << 10);
  for (const char* sink :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_EQ(page.find(sink), std::string::npos) << sink;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.find("src=\""), std::string::npos);
}

// What the server shows once it has done all that it counts.
std::string FullMetrics() {
  engine::EngineStats stats;
  stats.finished["stop"] = 1;
  stats.steps_eager["large"] = 1;
  HttpCounts http;
  http.Add("/v1/chat/completions", "POST", 200, 0.1);
  return MetricsText(stats, "m", http, 1);
}

TEST(Dashboard, PlotsOnlyMetricsThatTheServerHas) {
  std::ifstream file(std::string(VLLM_SOURCE_DIR) + "/docs/grafana-dashboard.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto parsed = base::ParseJson(text.str());
  ASSERT_TRUE(parsed) << parsed.error().message;
  const std::string metrics = FullMetrics();
  size_t plotted = 0;
  const auto check = [&](std::string_view expression) {
    // A metric's name stands before its labels.
    for (size_t brace = expression.find('{'); brace != std::string_view::npos;
         brace = expression.find('{', brace + 1)) {
      size_t begin = brace;
      while (begin > 0 && (std::isalnum(static_cast<unsigned char>(expression[begin - 1])) != 0 ||
                           expression[begin - 1] == '_' || expression[begin - 1] == ':')) {
        --begin;
      }
      const std::string name(expression.substr(begin, brace - begin));
      ++plotted;
      EXPECT_TRUE(metrics.find("\n" + name + "{") != std::string::npos ||
                  metrics.find("\n" + name + " ") != std::string::npos)
          << name;
    }
  };
  const auto walk = [&](const auto& self, const boost::json::value& v) -> void {
    if (const auto* object = v.if_object()) {
      for (const auto& kv : *object) {
        if (kv.key() == "expr") {
          check(std::string_view(kv.value().as_string().data(), kv.value().as_string().size()));
        }
        self(self, kv.value());
      }
    } else if (const auto* array = v.if_array()) {
      for (const auto& item : *array) self(self, item);
    }
  };
  walk(walk, *parsed);
  EXPECT_GE(plotted, 30u);
}

}  // namespace
}  // namespace vllm::server
