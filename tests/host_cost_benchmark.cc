// What a step costs the host: scheduling, building the inputs and handing out tokens, with a device
// that computes nothing. Google Benchmark; run by hand, recorded in docs/benchmarks.md.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>

#include "vllm/engine/admission.h"
#include "vllm/engine/engine_loop.h"
#include "vllm/engine/loaded_model.h"

namespace vllm {
namespace {

// The shape of SmolLM2-135M, whose vocabulary and context decide the sizes of the inputs.
constexpr const char* kConfig = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
  "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
  "rms_norm_eps": 1e-5, "rope_theta": 100000, "tie_word_embeddings": true, "hidden_act": "silu"})";

class Counter : public engine::OutputSink {
 public:
  void Deliver(std::span<engine::Output> outputs) override { tokens += outputs.size(); }
  void EngineDied(const std::string&) override {}
  size_t tokens = 0;
};

// range(0): requests that run; range(1): 1 is one step ahead, 0 waits for each step.
void Step(benchmark::State& state) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "vllm_host_cost_benchmark";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  engine::LoadOptions options;
  options.model = folder;
  options.device = "null";
  options.isa = state.range(1) == 1 ? "" : "sync";
  options.load_format = "dummy";
  options.max_num_seqs = 256;
  options.max_num_batched_tokens = 2048;
  options.score_prompts = true;
  options.module_folders = {std::string(VLLM_BINARY_DIR) + "/examples"};
  auto model = engine::LoadModel(options);
  if (!model) {
    state.SkipWithError(model.error().message.c_str());
    return;
  }
  Counter sink;
  engine::EngineLoop loop(*(*model)->runner, sink, engine::LoopOptionsOf(**model, options));
  const auto submit = [&](int32_t first) {
    engine::Request r;
    for (int32_t i = 0; i < 128; ++i) r.prompt.push_back(first + i);
    r.sampling.max_tokens = 7000;
    r.sampling.ignore_eos = true;
    const auto admitted = engine::Admit(**model, options, r);
    (void)*loop.Submit(admitted->request, admitted->sampler);
  };
  int64_t steps = 0;
  for (auto _ : state) {
    if (steps++ % 6000 == 0) {  // start, and again when they are all at their end
      state.PauseTiming();
      for (int64_t i = 0; i < state.range(0); ++i) submit(static_cast<int32_t>(i));
      while (loop.Stats().waiting > 0) loop.RunOnce();
      for (int i = 0; i < 4; ++i) loop.RunOnce();
      state.ResumeTiming();
    }
    loop.RunOnce();
  }
  state.counters["tokens_a_step"] = static_cast<double>(sink.tokens) / static_cast<double>(steps);
}
BENCHMARK(Step)
    ->ArgNames({"requests", "ahead"})
    ->ArgsProduct({{1, 16, 64, 256}, {1, 0}})
    ->Iterations(5000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace vllm

BENCHMARK_MAIN();
