#include "apps/bench/server_client.h"

#include <algorithm>
#include <atomic>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

#include "apps/bench/sse.h"
#include "base/json.h"
#include "base/strings.h"
#include "net/http_client.h"

namespace apps::bench {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using Clock = std::chrono::steady_clock;

// A prompt may wait long for its first token behind others; a server that says nothing for so long
// has failed.
constexpr double kSilenceSeconds = 600;
constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr size_t kMaxThreads = 4096;

double Since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// What an OpenAI-shaped error, or any other, says.
std::string ErrorText(const json::value& v) {
  const json::object* o = v.if_object();
  const json::value* error = o == nullptr ? nullptr : o->if_contains("error");
  if (error == nullptr) error = &v;
  if (const json::object* e = error->if_object()) {
    const json::value* message = e->if_contains("message");
    if (message != nullptr && message->is_string()) return std::string(message->get_string());
  }
  return error->is_string() ? std::string(error->get_string()) : json::serialize(*error);
}

// One line of untrusted text, not endless.
std::string OneLine(std::string text) {
  constexpr size_t kMost = 300;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  return text;
}

std::string StatusText(int status, const std::string& body) {
  const base::Result<json::value> v = base::ParseJson(body);
  return fmt::format("HTTP {}: {}", status, OneLine(v ? ErrorText(*v) : body));
}

// The token ids that a chunk's choice carries; nullptr where the server gives none.
const json::array* TokenIds(const json::object& choice) {
  const json::value* ids = choice.if_contains("token_ids");
  return ids == nullptr ? nullptr : ids->if_array();
}

bool HasText(const json::object& choice) {
  const auto text = [](const json::object& o, const char* name) {
    const json::value* v = o.if_contains(name);
    return v != nullptr && v->is_string() && !v->get_string().empty();
  };
  if (text(choice, "text")) return true;
  const json::value* delta = choice.if_contains("delta");
  return delta != nullptr && delta->is_object() &&
         (text(delta->get_object(), "content") || text(delta->get_object(), "reasoning_content"));
}

}  // namespace

void AnswerReader::Event(std::string_view data, double now, RequestRecord& record) {
  if (data == "[DONE]") {
    finished_ = true;
    return;
  }
  const base::Result<json::value> v = base::ParseJson(data);
  const json::object* o = v ? v->if_object() : nullptr;
  if (o == nullptr) {
    error_ = "an event is no JSON object: " + base::Printable(data);
    return;
  }
  if (o->contains("error") && !o->at("error").is_null()) {
    error_ = OneLine(ErrorText(*v));
    return;
  }
  if (const json::value* usage = o->if_contains("usage"); usage != nullptr && usage->is_object()) {
    const json::object& u = usage->get_object();
    const base::Result<int64_t> prompt = base::JsonInt(u, "prompt_tokens", 0);
    const base::Result<int64_t> output = base::JsonInt(u, "completion_tokens", -1);
    if (prompt && output && *output >= 0) {
      usage_ = true;
      record.prompt_tokens = *prompt;
      record.output_tokens = *output;
    }
    const json::value* details = u.if_contains("prompt_tokens_details");
    if (details != nullptr && details->is_object()) {
      const auto cached = base::JsonInt(details->get_object(), "cached_tokens", 0);
      if (cached) record.cached_tokens = *cached;
    }
  }
  const json::value* choices = o->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
  const json::object* choice = choices->get_array()[0].if_object();
  if (choice == nullptr) return;
  const json::value* finish = choice->if_contains("finish_reason");
  if (finish != nullptr && finish->is_string()) finished_ = true;
  const json::array* ids = TokenIds(*choice);
  if (ids != nullptr) {
    for (const json::value& id : *ids) {
      boost::system::error_code wrong;
      record.ids.push_back(id.to_number<int32_t>(wrong));
    }
  }
  if (HasText(*choice) || (ids != nullptr && !ids->empty())) record.times.push_back(now);
  record.end = now;
}

std::string AnswerReader::Problem() const {
  if (!error_.empty()) return error_;
  if (!finished_) return "the stream ended early";
  if (!usage_) return "the server gave no usage, so its tokens cannot be counted";
  return "";
}

ServerClient::ServerClient(ServerOptions options) : options_(std::move(options)) {
  headers_ = {{"content-type", "application/json"}};
  if (!options_.api_key.empty()) {
    headers_.emplace_back("authorization", "Bearer " + options_.api_key);
  }
}

base::Result<std::unique_ptr<ServerClient>> ServerClient::Connect(ServerOptions options) {
  while (base::EndsWith(options.url, "/")) options.url.pop_back();
  if (options.endpoint.empty() || options.endpoint[0] != '/') {
    options.endpoint = "/" + options.endpoint;
  }
  std::unique_ptr<ServerClient> client(new ServerClient(std::move(options)));
  ServerOptions& o = client->options_;
  if (!o.model.empty()) return client;
  net::HttpClient http;
  const auto answer = http.Send("GET", o.url + "/v1/models", client->headers_);
  if (!answer) return answer.error().In("--url");
  if (answer->status == 200) {
    const base::Result<json::value> v = base::ParseJson(answer->body);
    boost::system::error_code missing;
    const json::value* id = v ? v->find_pointer("/data/0/id", missing) : nullptr;
    if (id != nullptr && id->is_string()) o.model = std::string(id->get_string());
  }
  if (o.model.empty()) {
    return Error{Code::kUnavailable,
                 fmt::format("--url: {}/v1/models names no model (HTTP {}): "
                             "give --served-model-name, or --api-key where it wants one",
                             base::Printable(o.url), answer->status)};
  }
  return client;
}

bool ServerClient::chat() const { return base::EndsWith(options_.endpoint, "/chat/completions"); }

std::string ServerClient::Body(const Work& work, size_t index) const {
  const Prompt& p = work.prompts[index];
  json::object body = {{"model", options_.model},
                       {"max_tokens", p.output_tokens},
                       {"temperature", work.temperature},
                       {"stream", true},
                       {"stream_options", json::object{{"include_usage", true}}}};
  if (chat()) {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", p.text}}};
  } else if (options_.send_text) {
    body["prompt"] = p.text;
  } else {
    body["prompt"] = json::array(p.ids.begin(), p.ids.end());
  }
  if (work.ignore_eos) body["ignore_eos"] = true;
  if (work.temperature > 0) body["seed"] = (work.seed + index) & 0x7fffffff;
  if (work.ids) body["return_token_ids"] = true;
  for (const auto& [name, value] : options_.extra_body) body[name] = value;
  return json::serialize(body);
}

RunRecord ServerClient::Run(const Work& work, const OnDone& on_done) {
  RunRecord run;
  run.requests.resize(work.prompts.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  const std::string url = options_.url + options_.endpoint;
  const Clock::time_point began = Clock::now();

  const auto ask = [&](net::HttpClient& http, size_t index) {
    RequestRecord& r = run.requests[index];
    r.prompt_tokens = static_cast<int64_t>(work.prompts[index].ids.size());
    const std::string body = Body(work, index);
    AnswerReader reader;
    SseReader events;
    int status = 0;
    std::string error_body;
    r.start = r.end = Since(began);
    const auto answer = http.Send(
        "POST", url, headers_, body,
        [&](const net::ClientResponse& head) {
          status = head.status;
          return true;
        },
        [&](std::string_view piece) {
          if (status != 200) {
            error_body +=
                piece.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body.size()));
            return true;
          }
          const double now = Since(began);
          events.Push(piece, [&](std::string_view data) { reader.Event(data, now, r); });
          return true;
        });
    if (!answer) {
      r.error = answer.error().message;
    } else if (status != 200) {
      r.error = StatusText(status, error_body);
    } else {
      r.error = reader.Problem();
    }
    if (!r.ok()) r.end = Since(began);
  };
  const auto work_off = [&] {
    net::ClientOptions silence;
    silence.read_seconds = kSilenceSeconds;
    net::HttpClient http(silence);
    for (size_t i = next++; i < work.prompts.size(); i = next++) {
      std::this_thread::sleep_until(began + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(work.arrivals[i])));
      ask(http, i);
      const std::lock_guard lock(mutex);
      if (on_done) on_done(run.requests[i]);
    }
  };

  // A thread for each request that may be under way.
  const size_t most =
      work.concurrency > 0 ? static_cast<size_t>(work.concurrency) : work.prompts.size();
  std::vector<std::thread> threads;
  try {
    for (size_t i = 0; i < std::min({most, work.prompts.size(), kMaxThreads}); ++i) {
      threads.emplace_back(work_off);
    }
  } catch (const std::system_error&) {  // fewer threads than asked for: fewer requests at once
  }
  if (threads.empty()) work_off();
  for (std::thread& t : threads) t.join();
  return run;
}

}  // namespace apps::bench
