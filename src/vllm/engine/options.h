// What a model is loaded with and how tokens are chosen: the whole vocabulary of settings, with
// defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vllm::engine {

struct LoadOptions {
  std::string model;            // a .gguf, or a folder with config.json and safetensors
  std::string device = "auto";  // "cpu", "cuda:1", ...
  int threads = 0;              // CPUs: 0 means one a core
  std::string isa;              // CPUs: "" picks the best instruction set
  std::string dtype =
      "auto";  // "auto": weights as stored; "float32": expanded to f32 (for debugging; also KV)
  std::string kv_cache_dtype =
      "auto";                        // "auto" (f16, f32 with dtype float32), "float16", "float32"
  std::string load_format = "auto";  // "auto", "dummy": random weights for a config.json alone
  std::string quantization;          // of dummy weights: a llama.cpp mix such as Q4_K_M
  std::string chat_template;         // path of a Jinja file that replaces the model's own
  int64_t max_model_len = 0;         // tokens of a request; 0: what the model was made for
  int64_t max_num_seqs = 1;          // requests in a step
  int64_t max_num_batched_tokens = 512;  // tokens in a step; longer prompts go in pieces
  int64_t block_size = 16;               // tokens a KV block
  bool score_prompts = false;            // whether logits of every prompt position can be asked for
  std::vector<std::string> module_folders;  // where device modules are; empty: beside the program
  std::function<void(double fraction)> progress;  // called while weights load
};

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  int32_t top_k = 0;         // 0 or -1: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::optional<uint64_t> seed;  // none: 64 bits are drawn
  int64_t max_tokens = 256;
  bool ignore_eos = false;
};

// One step's share of a request: `tokens` stand at positions start.. of sequence slot `sequence`.
struct Chunk {
  int sequence = 0;  // in [0, max_num_seqs)
  int64_t start = 0;
  std::vector<int32_t> tokens;
  enum class Logits : uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
  SamplingParams sampling;
  uint64_t seed = 0;            // resolved: params.seed or drawn
  int64_t output_position = 0;  // how many tokens were generated before
};

}  // namespace vllm::engine
