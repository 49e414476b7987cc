// Counters and histograms of an engine, in the terms of vLLM's metrics. Times are seconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vllm::engine {

// Cumulative counts at fixed upper bounds, as Prometheus has them.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void Add(double value, int64_t times = 1) {
    size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    counts_[i] += times;
    sum_ += value * static_cast<double>(times);
    count_ += times;
  }
  const std::vector<double>& bounds() const { return bounds_; }   // rising; +inf is implied
  const std::vector<int64_t>& counts() const { return counts_; }  // of each interval, not summed up
  double sum() const { return sum_; }
  int64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
  int64_t count_ = 0;
};

struct EngineStats {
  EngineStats();  // with vLLM's bucket bounds

  int64_t running = 0, waiting = 0;  // choices
  // Blocks, or pages (KvLayout); used: held by requests; cached ones count as free.
  int64_t kv_blocks = 0, kv_blocks_used = 0;
  int64_t window_blocks = 0, window_blocks_used = 0;  // of layers with windows, without pages
  int64_t block_size = 0;                             // tokens of one of kv_blocks
  int64_t max_model_len = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  // prompt tokens looked up and found
  // Of recurrent state: how many fit, are kept for later requests or in use, and are in use; hits:
  // requests that went on from one.
  int64_t snapshots = 0, snapshots_used = 0, snapshots_held = 0;
  int64_t snapshots_written = 0, snapshot_hits = 0, snapshot_evictions = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0;
  int64_t preemptions = 0;
  int64_t steps_captured = 0, steps_replayed = 0;  // graphs captured; steps that replayed one
  std::map<std::string, int64_t> steps_eager;      // by reason
  std::map<std::string, int64_t> finished;  // choices by reason: "stop", "length", "abort", ...

  Histogram ttft, tpot, itl, e2e, queue, prefill, decode, inference;  // seconds
  Histogram prompt_length, output_length, step_tokens, max_tokens, n;
};

}  // namespace vllm::engine
