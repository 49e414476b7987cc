#include "vllm/server/metrics.h"

#include <algorithm>

#include "base/os/module.h"
#include "base/strings.h"

namespace vllm::server {
namespace {

std::string Escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Prometheus writes floats as Python does: 1.0, 0.25, 1e-05.
std::string Float(double v) {
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

class Text {
 public:
  explicit Text(std::string labels, std::string& out) : labels_(std::move(labels)), out_(out) {}

  void Head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void Line(std::string_view name, std::string_view more, double value) {
    const char* comma = labels_.empty() || more.empty() ? "" : ",";
    out_ += fmt::format("{}{{{}{}{}}} {}\n", name, labels_, comma, more, Float(value));
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Head(name, "gauge", help);
    Line(name, "", value);
  }
  void Counter(std::string_view name, std::string_view help, int64_t value) {
    Head(name, "counter", help);
    Line(name, "", static_cast<double>(value));
  }
  void Histogram(const std::string& name, std::string_view help, const engine::Histogram& h) {
    Head(name, "histogram", help);
    Buckets(name, "", h);
  }
  void Buckets(const std::string& name, const std::string& more, const engine::Histogram& h) {
    const std::string comma = more.empty() ? "" : ",";
    int64_t sum = 0;
    for (size_t i = 0; i < h.counts().size(); ++i) {
      sum += h.counts()[i];
      const std::string le = i < h.bounds().size() ? Float(h.bounds()[i]) : "+Inf";
      Line(name + "_bucket", fmt::format("{}{}le=\"{}\"", more, comma, le),
           static_cast<double>(sum));
    }
    Line(name + "_count", more, static_cast<double>(h.count()));
    Line(name + "_sum", more, h.sum());
  }

 private:
  std::string labels_;
  std::string& out_;
};

}  // namespace

void HttpCounts::Add(const std::string& route, const std::string& method, int status,
                     double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, method, status / 100}];
  seconds_
      .try_emplace({route, method},
                   engine::Histogram({0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}))
      .first->second.Add(seconds);
}

void HttpCounts::Append(std::string& out) const {
  const std::lock_guard lock(mutex_);
  Text t("", out);
  if (requests_.empty()) return;
  t.Head("http_requests_total", "counter", "Requests by route, method and class of status.");
  for (const auto& [key, count] : requests_) {
    const auto& [route, method, status] = key;
    t.Line("http_requests_total",
           fmt::format("handler=\"{}\",method=\"{}\",status=\"{}xx\"", route, method, status),
           static_cast<double>(count));
  }
  t.Head("http_request_duration_seconds", "histogram",
         "Seconds from a request to its answer's end.");
  for (const auto& [key, histogram] : seconds_) {
    t.Buckets("http_request_duration_seconds",
              fmt::format("handler=\"{}\",method=\"{}\"", key.first, key.second), histogram);
  }
}

std::string MetricsText(const engine::EngineStats& s, const std::string& model,
                        const HttpCounts& http, int64_t connections) {
  std::string out;
  const std::string labels = fmt::format("engine=\"0\",model_name=\"{}\"", Escaped(model));
  Text t(labels, out);
  t.Gauge("vllm:num_requests_running", "Requests in the running batch.",
          static_cast<double>(s.running));
  t.Gauge("vllm:num_requests_waiting", "Requests waiting to run.", static_cast<double>(s.waiting));
  const auto share = [](int64_t part, int64_t all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
  };
  // Whichever is the scarcer.
  const double used =
      std::max(share(s.kv_blocks_used, s.kv_blocks), share(s.window_blocks_used, s.window_blocks));
  t.Gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 1 is all.", used);
  // Its older name, which many dashboards plot.
  t.Gauge("vllm:gpu_cache_usage_perc", "Share of KV blocks in use, 1 is all.", used);
  t.Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
            s.prefix_queries);
  t.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
            s.prefix_hits);
  if (s.snapshots > 0) {
    t.Gauge("vllm:mamba_cache_usage_perc", "Share of snapshots of recurrent state kept or in use.",
            static_cast<double>(s.snapshots_used) / static_cast<double>(s.snapshots));
    t.Counter("vllm:mamba_snapshots_written_total", "Snapshots of recurrent state written.",
              s.snapshots_written);
    t.Counter("vllm:mamba_snapshot_hits_total", "Requests that went on from a snapshot.",
              s.snapshot_hits);
    t.Counter("vllm:mamba_snapshot_evictions_total", "Snapshots that gave way to others.",
              s.snapshot_evictions);
  }
  t.Counter("vllm:num_preemptions_total", "Requests that gave their blocks up for others.",
            s.preemptions);
  t.Counter("vllm:prompt_tokens_total", "Prompt tokens processed.", s.prompt_tokens);
  t.Counter("vllm:generation_tokens_total", "Tokens generated.", s.generation_tokens);
  t.Head("vllm:request_success_total", "counter", "Finished requests by reason.");
  std::map<std::string, int64_t> finished = {{"abort", 0}, {"length", 0}, {"stop", 0}};
  for (const auto& [reason, count] : s.finished) finished[reason] = count;
  for (const auto& [reason, count] : finished) {
    t.Line("vllm:request_success_total", fmt::format("finished_reason=\"{}\"", reason),
           static_cast<double>(count));
  }
  t.Histogram("vllm:iteration_tokens_total", "Tokens a step.", s.step_tokens);
  t.Histogram("vllm:time_to_first_token_seconds", "Seconds to the first token.", s.ttft);
  // vLLM renamed this one; both names have the same values.
  t.Histogram("vllm:time_per_output_token_seconds", "Seconds between tokens.", s.itl);
  t.Histogram("vllm:inter_token_latency_seconds", "Seconds between tokens.", s.itl);
  t.Histogram("vllm:request_time_per_output_token_seconds",
              "Mean seconds a token of a request after its first.", s.tpot);
  t.Histogram("vllm:e2e_request_latency_seconds", "Seconds from arrival to the end.", s.e2e);
  t.Histogram("vllm:request_queue_time_seconds", "Seconds waiting.", s.queue);
  t.Histogram("vllm:request_inference_time_seconds", "Seconds running.", s.inference);
  t.Histogram("vllm:request_prefill_time_seconds", "Seconds of prefill.", s.prefill);
  t.Histogram("vllm:request_decode_time_seconds", "Seconds of decode.", s.decode);
  t.Histogram("vllm:request_prompt_tokens", "Prompt tokens a request.", s.prompt_length);
  t.Histogram("vllm:request_generation_tokens", "Generated tokens a request.", s.output_length);
  t.Histogram("vllm:request_params_max_tokens", "max_tokens of requests.", s.max_tokens);
  t.Histogram("vllm:request_params_n", "n of requests.", s.n);
  t.Head("vllm:cache_config_info", "gauge", "Settings of the KV cache.");
  t.Line("vllm:cache_config_info",
         fmt::format("block_size=\"{}\",num_gpu_blocks=\"{}\",mamba_snapshots=\"{}\"", s.block_size,
                     s.kv_blocks, s.snapshots),
         1);
  t.Counter("vllm:graphs_captured_total", "Steps captured as graphs.", s.steps_captured);
  t.Counter("vllm:graph_replays_total", "Steps that replayed a graph.", s.steps_replayed);
  if (!s.steps_eager.empty()) {
    t.Head("vllm:eager_steps_total", "counter", "Steps run node by node, by reason.");
    for (const auto& [reason, count] : s.steps_eager) {
      t.Line("vllm:eager_steps_total", fmt::format("reason=\"{}\"", Escaped(reason)),
             static_cast<double>(count));
    }
  }
  http.Append(out);
  Text plain("", out);
  plain.Head("http_connections", "gauge", "Open connections.");
  out += fmt::format("http_connections {}\n", Float(static_cast<double>(connections)));
  plain.Head("process_peak_resident_memory_bytes", "gauge", "Peak resident memory.");
  out += fmt::format("process_peak_resident_memory_bytes {}\n",
                     Float(static_cast<double>(base::os::PeakResidentBytes())));
  return out;
}

}  // namespace vllm::server
