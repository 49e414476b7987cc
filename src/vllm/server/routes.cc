// Which path does what, who may ask, and the answers that need no engine.
#include <algorithm>

#include "base/strings.h"
#include "net/request.h"
#include "vllm/server/generate_session.h"
#include "vllm/server/json_text.h"
#include "vllm/server/service.h"

namespace vllm::server {
namespace {

enum class Route {
  kUnknown,
  kChat,
  kCompletions,
  kEmbeddings,
  kClassify,
  kScore,
  kRerank,
  kTranscribe,
  kTokenize,
  kDetokenize,
  kModels,
  kHealth,
  kPing,
  kVersion,
  kMetrics,
  kPage
};

struct RouteEntry {
  std::string_view path;
  Route route;
  bool post;
  bool open;  // asked without a key
};
constexpr RouteEntry kRoutes[] = {
    {"/v1/chat/completions", Route::kChat, true, false},
    {"/v1/completions", Route::kCompletions, true, false},
    {"/v1/embeddings", Route::kEmbeddings, true, false},
    {"/v1/classify", Route::kClassify, true, false},
    {"/classify", Route::kClassify, true, false},
    {"/v1/score", Route::kScore, true, false},
    {"/score", Route::kScore, true, false},
    {"/v1/rerank", Route::kRerank, true, false},
    {"/v2/rerank", Route::kRerank, true, false},
    {"/rerank", Route::kRerank, true, false},
    {"/v1/audio/transcriptions", Route::kTranscribe, true, false},
    {"/tokenize", Route::kTokenize, true, false},
    {"/detokenize", Route::kDetokenize, true, false},
    {"/v1/models", Route::kModels, false, false},
    {"/health", Route::kHealth, false, true},
    {"/ping", Route::kPing, false, true},
    {"/version", Route::kVersion, false, true},
    {"/metrics", Route::kMetrics, false, true},
    {"/", Route::kPage, false, true},
};
constexpr std::string_view kModelPrefix = "/v1/models/";

const RouteEntry* Find(std::string_view path) {
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  for (const RouteEntry& e : kRoutes) {
    if (e.path == path) return &e;
    if (e.route == Route::kModels && base::StartsWith(path, kModelPrefix)) return &e;
  }
  return nullptr;
}

// JSON is always UTF-8, so only that charset can be meant.
std::optional<ApiError> CheckContentType(const net::HttpRequest& r) {
  const std::string type = net::LowerCase(net::HeaderOf(r, "content-type"));
  std::string essence = type.substr(0, type.find(';'));
  while (!essence.empty() && essence.back() == ' ') essence.pop_back();
  const size_t at = type.find("charset=");
  std::string charset = at == std::string::npos ? "utf-8" : type.substr(at + 8);
  charset.erase(std::remove(charset.begin(), charset.end(), '"'), charset.end());
  charset = charset.substr(0, charset.find_first_of("; "));
  if (essence == "application/json" && (charset == "utf-8" || charset == "utf8")) return {};
  ApiError e;
  e.status = 415;
  e.message = fmt::format("the body must be JSON in UTF-8: send Content-Type: application/json{}",
                          type.empty() ? "" : ", not " + base::Printable(type));
  return e;
}

std::optional<ApiError> CheckContentEncoding(const net::HttpRequest& r) {
  const std::string& encoding = net::HeaderOf(r, "content-encoding");
  if (encoding.empty() || net::LowerCase(encoding) == "identity") return {};
  ApiError e;
  e.status = 415;
  e.param = "Content-Encoding";
  e.message = fmt::format(
      "Content-Encoding is '{}', but bodies are taken as they are: send it "
      "without",
      base::Printable(encoding));
  return e;
}

std::string RequestId(const net::HttpRequest& r) {
  const std::string given = net::HeaderOf(r, "x-request-id");
  const bool plain =
      !given.empty() && given.size() <= 128 &&
      std::all_of(given.begin(), given.end(), [](char c) { return c > ' ' && c < 0x7F; });
  return plain ? given : NewId("");
}

}  // namespace

bool KeyMatches(std::string_view given, const std::vector<std::string>& keys) {
  bool match = false;
  for (const std::string& key : keys) {
    // Every byte of the key is looked at, whatever was given.
    unsigned difference = given.size() == key.size() ? 0 : 1;
    for (size_t i = 0; i < key.size(); ++i) {
      const char g = i < given.size() ? given[i] : '\0';
      difference |= static_cast<unsigned char>(g) ^ static_cast<unsigned char>(key[i]);
    }
    match |= difference == 0;
  }
  return match;
}

std::string Service::HttpError(int status, std::string_view sentence) {
  ApiError e;
  e.status = status;
  e.message = sentence;
  return ErrorBody(e);
}

std::shared_ptr<Reply> Service::MakeReply(std::shared_ptr<net::Exchange> exchange) {
  std::string id = RequestId(exchange->request());
  const auto ended = [this](const net::HttpRequest& r, int status, double seconds) {
    const RouteEntry* e = Find(r.path);
    const bool known = r.method == "GET" || r.method == "POST";
    http_.Add(std::string(e == nullptr ? "none" : e->path), known ? r.method : "other", status,
              seconds);
    if (!options_.log_requests) return;
    const LogLevel level = e != nullptr && !e->post ? LogLevel::kDebug : LogLevel::kInfo;
    if (!log_.Shows(level)) return;
    log_.Write(level, fmt::format("{} {} {} {} {:.3f} s", r.peer, base::Printable(r.method),
                                  base::Printable(r.path), status, seconds));
  };
  return std::make_shared<Reply>(std::move(exchange), std::move(id), ended);
}

bool Service::Allowed(const net::HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  const std::string header = net::HeaderOf(request, "authorization");
  if (net::LowerCase(header.substr(0, kBearer.size())) != kBearer) return false;
  return KeyMatches(std::string_view(header).substr(kBearer.size()), options_.api_keys);
}

std::optional<ApiError> Service::NotReady() const {
  const State state = state_.load();
  if (state == State::kReady) return {};
  ApiError e;
  e.status = 503;
  e.retry_after = 5;
  e.message = state == State::kStarting   ? "the model is still loading"
              : state == State::kDraining ? "the server is shutting down"
                                          : "the engine has died: " + death_;
  return e;
}

std::optional<ApiError> Service::WrongModel(const std::string& name) const {
  const std::vector<std::string>& names = options_.model_names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return {};
  ApiError e;
  e.status = 404;
  e.param = "model";
  e.code = "model_not_found";
  e.message = fmt::format("the model '{}' is not served here; this is '{}'", base::Printable(name),
                          names.front());
  return e;
}

std::string Service::ShownModel(const std::string& name) const {
  return name.empty() ? options_.model_names.front() : name;
}

void Service::Handle(std::shared_ptr<net::Exchange> exchange) {
  const std::shared_ptr<Reply> reply = MakeReply(std::move(exchange));
  const net::HttpRequest& request = reply->request();
  const RouteEntry* entry = Find(request.path);
  if (entry == nullptr) {
    ApiError e;
    e.status = 404;
    e.message = fmt::format("there is nothing at {}", base::Printable(request.path));
    return reply->Error(e);
  }
  const bool head = request.method == "HEAD" && !entry->post;
  if (request.method != (entry->post ? "POST" : "GET") && !head) {
    ApiError e;
    e.status = 405;
    e.param = entry->post ? "POST" : "GET";
    e.message =
        fmt::format("{} takes {}, not {}", entry->path, e.param, base::Printable(request.method));
    return reply->Error(e);
  }
  if (!entry->open && !Allowed(request)) {
    ApiError e;
    e.status = 401;
    e.code = "invalid_api_key";
    e.message = "the API key is missing or wrong: send Authorization: Bearer <key>";
    return reply->Error(e);
  }
  switch (entry->route) {
    case Route::kHealth:
    case Route::kPing:
      return Health(reply);
    case Route::kVersion:
      return reply->Json(R"({"version":")" VLLM_VERSION R"("})");
    case Route::kMetrics:
      return Metrics(reply);
    case Route::kPage:
      return reply->Send(200, "text/html; charset=utf-8", std::string(Page()));
    default:
      break;
  }
  if (const std::optional<ApiError> e = NotReady()) return reply->Error(*e);
  if (entry->route == Route::kModels) return Models(reply);
  if (model_->encoder() && (entry->route == Route::kChat || entry->route == Route::kCompletions)) {
    return reply->Error({.message = "this model is an encoder and writes no text: ask it for "
                                    "/v1/embeddings, /v1/score, /v1/rerank or /v1/classify"});
  }
  const bool form = entry->route == Route::kTranscribe;  // which checks its own type
  if (const std::optional<ApiError> e = form ? std::nullopt : CheckContentType(request))
    return reply->Error(*e);
  if (const std::optional<ApiError> e = CheckContentEncoding(request)) return reply->Error(*e);
  const auto prepare = [this, reply, route = entry->route] {
    try {
      switch (route) {
        case Route::kChat:
          return Chat(reply);
        case Route::kCompletions:
          return Completions(reply);
        case Route::kEmbeddings:
          return Embeddings(reply);
        case Route::kClassify:
          return Classify(reply);
        case Route::kScore:
        case Route::kRerank:
          return Score(reply, route == Route::kRerank);
        case Route::kTranscribe:
          return Transcribe(reply);
        case Route::kTokenize:
          return Tokenize(reply);
        default:
          return Detokenize(reply);
      }
    } catch (const std::exception& e) {  // memory that is not there must cost one request
      log_.Error(fmt::format("{}: {}", reply->request().path, e.what()));
      reply->Error({.status = 500, .message = "the request could not be prepared"});
    }
  };
  if (workers_->Post(prepare, request.body.size())) return;
  reply->Error({.status = 429,
                .message = "too many prompts wait to be read: try again later",
                .code = "rate_limit_exceeded",
                .retry_after = 1});
}

void Service::Health(const std::shared_ptr<Reply>& reply) const {
  if (const std::optional<ApiError> e = NotReady()) return reply->Error(*e);
  reply->Send(200, "text/plain", "");
}

void Service::Metrics(const std::shared_ptr<Reply>& reply) const {
  const State state = state_.load();
  // Stats need the model, which is there from the first kReady on.
  const bool loaded = state == State::kReady || (state != State::kStarting && model_ != nullptr);
  const engine::EngineStats stats = loaded ? model_->Stats() : engine::EngineStats();
  reply->Send(
      200, "text/plain; version=0.0.4; charset=utf-8",
      MetricsText(stats, options_.model_names.front(), http_, connections_ ? connections_() : 0));
}

void Service::Models(const std::shared_ptr<Reply>& reply) const {
  const auto one = [&](const std::string& name, std::string& out) {
    out += R"({"id":)";
    AppendJsonString(name, out);
    out += R"(,"object":"model","created":)";
    AppendInt(started_, out);
    out += R"(,"owned_by":"vllm","root":)";
    AppendJsonString(options_.model_names.front(), out);
    out += R"(,"parent":null,"max_model_len":)";
    AppendInt(model_->max_model_len(), out);
    out += '}';
  };
  std::string out;
  const std::string& path = reply->request().path;
  if (base::StartsWith(path, kModelPrefix) && path.size() > kModelPrefix.size()) {
    const std::string name = path.substr(kModelPrefix.size());
    if (const std::optional<ApiError> e = WrongModel(name)) return reply->Error(*e);
    one(name, out);
    return reply->Json(std::move(out));
  }
  out = R"({"object":"list","data":[)";
  for (const std::string& name : options_.model_names) {
    if (&name != &options_.model_names.front()) out += ',';
    one(name, out);
  }
  out += "]}";
  reply->Json(std::move(out));
}

}  // namespace vllm::server
