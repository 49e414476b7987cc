// /metrics: the engine's counters under vLLM's names, and what HTTP saw, as Prometheus text.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "vllm/engine/engine_stats.h"

namespace vllm::server {

// Requests by route, method and class of status. Thread-safe.
class HttpCounts {
 public:
  void Add(const std::string& route, const std::string& method, int status, double seconds);
  void Append(std::string& out) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, std::string, int>, int64_t> requests_;
  std::map<std::pair<std::string, std::string>, engine::Histogram> seconds_;
};

std::string MetricsText(const engine::EngineStats& stats, const std::string& model,
                        const HttpCounts& http, int64_t connections);

}  // namespace vllm::server
