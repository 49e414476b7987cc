// vllm-server: the OpenAI API over one model.
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>

#include "apps/fetch_model.h"
#include "apps/model_flags.h"
#include "apps/serving_flags.h"
#include "base/json.h"
#include "base/os/module.h"
#include "base/strings.h"
#include "net/http_server.h"
#include "vllm/engine/engine.h"
#include "vllm/server/service.h"

namespace {

using vllm::engine::Engine;
using vllm::server::Log;
using vllm::server::LogLevel;
using vllm::server::Service;

constexpr const char* kName = "vllm-server";

struct Flags {
  net::ServerOptions http;
  vllm::server::ServiceOptions service;
  std::string log_level = "info";
  std::string tool_parser;
  bool enable_auto_tools = false;
  bool disable_log_requests = false;
  double drain_seconds = 60;
  std::string on_engine_death = "exit";
  std::vector<std::string> origins, methods, headers;
};

// vLLM takes these as a JSON list; plain words are taken too.
base::Result<std::vector<std::string>> List(const std::string& flag,
                                            const std::vector<std::string>& given) {
  if (given.size() != 1 || given[0].empty() || given[0][0] != '[') return given;
  const base::Error bad{base::Code::kInvalidArgument,
                        flag + " must be a JSON list of strings or plain words"};
  const base::Result<boost::json::value> v = base::ParseJson(given[0]);
  if (!v || !v->is_array()) return bad;
  std::vector<std::string> words;
  for (const boost::json::value& word : v->get_array()) {
    if (!word.is_string()) return bad;
    words.emplace_back(word.get_string());
  }
  return words;
}

void AddHttpFlags(CLI::App& app, Flags& f) {
  net::ServerOptions& h = f.http;
  app.add_option("--host", h.host, "Address to listen on; 0.0.0.0 is every one")
      ->capture_default_str();
  app.add_option("--port", h.port, "Port; 0 is any free one")->capture_default_str();
  app.add_option("--served-model-name", f.service.model_names,
                 "Names that requests may use (default: --model as given)");
  app.add_option("--api-key", f.service.api_keys,
                 "Keys, one of which requests must have; / and /health and /metrics need none");
  app.add_option("--ssl-keyfile", h.tls_key_file, "PEM file of the key, for HTTPS");
  app.add_option("--ssl-certfile", h.tls_certificate_file, "PEM file of the certificate");
  app.add_option("--allowed-origins", f.origins, "Origins for CORS (default: any)");
  app.add_option("--allowed-methods", f.methods, "Methods for CORS (default: any)");
  app.add_option("--allowed-headers", f.headers, "Headers for CORS (default: any)");
  app.add_flag("--allow-credentials", h.allow_credentials, "Cookies and the like across origins");
  app.add_option("--timeout-keep-alive", h.idle_seconds,
                 "Seconds that a connection may wait between requests")
      ->check(apps::Within(0.1, 86400))
      ->capture_default_str();
  app.add_option("--request-timeout", f.service.request_timeout,
                 "Seconds after which a request is ended; 0: no limit")
      ->check(apps::Within(0, 1e9))
      ->capture_default_str();
  app.add_option("--drain-timeout", f.drain_seconds,
                 "Seconds that answers under way get after SIGTERM")
      ->check(apps::Within(0, 86400))
      ->capture_default_str();
  app.add_option(
         "--on-engine-death", f.on_engine_death,
         "When the device is lost: exit with 1, restart the program, or stay, answering 503")
      ->check(CLI::IsMember({"exit", "restart", "stay"}))
      ->capture_default_str();
  app.add_option("--log-level", f.log_level, "Least of what is logged")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app.add_flag("--disable-log-requests", f.disable_log_requests, "No line a request");
  app.add_option("--tool-call-parser", f.tool_parser,
                 "How the model writes tool calls; auto: as its chat template says")
      ->check(CLI::IsMember({"auto", "none", "hermes", "llama3_json", "mistral", "openai"}))
      ->default_str("auto");
  app.add_flag("--enable-auto-tool-choice", f.enable_auto_tools,
               "Do not start where tool calls cannot be parsed");
}

base::Status Settle(Flags& f, const std::string& model) {
  net::ServerOptions& h = f.http;
  const auto list = [](const char* flag, const std::vector<std::string>& given,
                       std::vector<std::string>& out) -> base::Status {
    if (given.empty()) return {};
    base::Result<std::vector<std::string>> words = List(flag, given);
    if (!words) return words.error();
    out = *std::move(words);
    return {};
  };
  if (base::Status s = list("--allowed-origins", f.origins, h.allowed_origins); !s) return s;
  if (base::Status s = list("--allowed-methods", f.methods, h.allowed_methods); !s) return s;
  if (base::Status s = list("--allowed-headers", f.headers, h.allowed_headers); !s) return s;
  if (h.host.empty()) {
    return base::Error{base::Code::kInvalidArgument,
                       "--host is empty: give an address, 0.0.0.0 for every one"};
  }
  for (const std::string& key : f.service.api_keys) {
    if (key.empty()) return base::Error{base::Code::kInvalidArgument, "--api-key is empty"};
  }
  for (const std::string& name : f.service.model_names) {
    if (name.empty()) {
      return base::Error{base::Code::kInvalidArgument, "--served-model-name is empty"};
    }
  }
  if (h.tls_key_file.empty() != h.tls_certificate_file.empty()) {
    return base::Error{base::Code::kInvalidArgument,
                       "--ssl-keyfile and --ssl-certfile go together: give both"};
  }
  // A name on the hub is the name; of a path the last part, which says nothing of this machine.
  if (f.service.model_names.empty()) {
    const std::filesystem::path path(model);
    std::error_code ec;
    const bool local = std::filesystem::exists(path, ec);
    const std::filesystem::path last =
        path.has_filename() ? path.filename() : path.parent_path().filename();
    f.service.model_names = {local ? last.string() : model};
  }
  f.service.log_requests = !f.disable_log_requests;
  f.service.auto_tools = f.tool_parser.empty() || f.tool_parser == "auto";
  f.service.tools = vllm::server::ToolFormatNamed(f.tool_parser);
  h.max_body_bytes = size_t{32} << 20;  // a prompt of a million tokens is a fifth of it
  return {};
}

// The first SIGTERM or SIGINT asks the program to finish, the second ends it. The signals must be
// blocked in every thread, so this is made before any other.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { Wait(); });
    thread_.detach();  // it waits in the kernel until the process ends
  }

  // From now on a first signal lets Stopped() return instead of ending the program.
  void Graceful() {
    const std::lock_guard lock(mutex_);
    graceful_ = true;
  }
  // Whether a signal came; false: the engine died.
  bool Stopped() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stop_ || died_; });
    return stop_;
  }
  void EngineDied() {
    const std::lock_guard lock(mutex_);
    died_ = true;
    wake_.notify_all();
  }

 private:
  void Wait() {
    while (true) {
      int signal = 0;
      if (::sigwait(&set_, &signal) != 0) continue;
      const std::lock_guard lock(mutex_);
      // Nothing is under way before the model is ready, so that is a clean end too.
      if (!graceful_) std::_Exit(0);
      if (stop_) std::_Exit(128 + signal);
      stop_ = true;
      wake_.notify_all();
    }
  }

  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool graceful_ = false, stop_ = false, died_ = false;
  std::thread thread_;
};

constexpr int kRestart = -1;

// The exit code, or kRestart.
int Serve(Flags& flags, vllm::engine::LoadOptions options, Signals& signals) {
  const Log log(*vllm::server::LogLevelNamed(flags.log_level));
  if (flags.on_engine_death != "stay")
    flags.service.on_engine_death = [&signals] { signals.EngineDied(); };
  Service service(flags.service, log);
  base::Result<std::unique_ptr<net::HttpServer>> server = net::HttpServer::Listen(
      flags.http,
      [&](std::shared_ptr<net::Exchange> exchange) { service.Handle(std::move(exchange)); },
      Service::HttpError);
  if (!server) return apps::Fail(kName, server.error());
  service.CountConnections([&] { return (*server)->connections(); });
  (*server)->Start();
  const char* scheme = flags.http.tls_key_file.empty() ? "http" : "https";
  log.Info(fmt::format("listening on {}://{}:{}, 503 until the model is ready", scheme,
                       flags.http.host, (*server)->port()));
  const base::Status fetched =
      apps::FetchModel(options, [&](const std::string& line) { log.Info(line); });
  if (!fetched) {
    (*server)->Stop(0);
    service.Stop();
    return apps::Fail(kName, fetched.error());
  }
  log.Info(fmt::format("loading {}", options.model));
  options.warn = [&log](const std::string& line) { log.Warning(line); };
  base::Result<std::unique_ptr<Engine>> engine = Engine::Load(std::move(options), service);
  if (!engine) {
    (*server)->Stop(0);
    service.Stop();
    return apps::Fail(kName, engine.error());
  }
  log.Info((*engine)->description());
  for (const std::string& line : base::Split((*engine)->memory_summary(), '\n')) {
    if (!line.empty()) log.Info(line);
  }
  service.Ready(vllm::server::ServeEngine(**engine));
  if (flags.enable_auto_tools && !service.tool_format()) {
    (*server)->Stop(0);
    service.Stop();
    return apps::Fail(kName, {base::Code::kInvalidArgument,
                              "--enable-auto-tool-choice needs --tool-call-parser: this model's "
                              "chat template shows no form of calls that is known"});
  }
  signals.Graceful();
  log.Info(fmt::format("ready: {}, context {} tokens", flags.service.model_names.front(),
                       (*engine)->options().max_model_len));
  if (!signals.Stopped()) {
    (*server)->Stop(5);  // for readers to take their errors
    service.Stop();
    const bool restart = flags.on_engine_death == "restart";
    log.Error(restart ? "starting again" : "ending");
    return restart ? kRestart : 1;
  }
  log.Info(
      fmt::format("finishing the answers under way, {} s at the most; a second signal ends now",
                  flags.drain_seconds));
  service.Draining();
  (*engine)->Drain(flags.drain_seconds);
  (*server)->Stop(5);  // for readers to take what is left
  service.Stop();
  engine->reset();
  log.Info("done");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Signals signals;
  Flags flags;
  vllm::engine::LoadOptions options;
  CLI::App app("Serve a model through the OpenAI API.", kName);
  apps::AddModelFlags(app, options);
  apps::AddServingFlags(app, options);
  AddHttpFlags(app, flags);
  apps::AddConfigFlag(app);
  // As in "vllm serve MODEL".
  CLI::Option* model = app.get_option("--model");
  model->required(false);
  app.add_option("--seed", options.seed,
                 "Makes requests without a seed repeatable too, by the order of their coming");
  app.add_option("MODEL", options.model, "The same as --model")->excludes(model);
  if (const int code = apps::Parse(app, argc, argv); code >= 0) return code;
  if (options.model.empty()) {
    return apps::Fail(kName, {base::Code::kInvalidArgument, "--model is missing"});
  }
  base::Status settled = Settle(flags, options.model);
  if (settled) settled = apps::CheckGraphFlags(options, argc, argv);
  if (!settled) return apps::Fail(kName, settled.error());
  apps::ShowProgress(options);
  const int code = Serve(flags, std::move(options), signals);
  if (code != kRestart) return code;
  // A driver that lost its device gives it back to a new program at best.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execv("/proc/self/exe", argv);
  return apps::Fail(kName, {base::Code::kInternal, "the program cannot be started again"});
}
