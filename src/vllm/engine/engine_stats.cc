#include "vllm/engine/engine_stats.h"

namespace vllm::engine {
namespace {

// vLLM's bounds, so that dashboards made for it fit.
std::vector<double> TtftBounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
}
std::vector<double> TokenBounds() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
}
std::vector<double> RequestBounds() {
  return {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
          30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
}
// 1, 2, 5, 10, ... up to a million.
std::vector<double> CountBounds() {
  std::vector<double> bounds;
  for (double decade = 1; decade <= 1e5; decade *= 10) {
    for (const double step : {1, 2, 5}) bounds.push_back(decade * step);
  }
  bounds.push_back(1e6);
  return bounds;
}

}  // namespace

EngineStats::EngineStats()
    : ttft(TtftBounds()),
      tpot(TokenBounds()),
      itl(TokenBounds()),
      e2e(RequestBounds()),
      queue(RequestBounds()),
      prefill(RequestBounds()),
      decode(RequestBounds()),
      inference(RequestBounds()),
      prompt_length(CountBounds()),
      output_length(CountBounds()),
      step_tokens({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}),
      max_tokens(CountBounds()),
      n({1, 2, 5, 10, 20}) {}

}  // namespace vllm::engine
