// What a model is loaded with: the whole vocabulary of settings, with defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vllm::engine {

struct LoadOptions {
  std::string model;            // a .gguf, or a folder with config.json and safetensors
  std::string revision;         // branch, tag or commit of a model that programs fetch by name
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
  int64_t max_model_len = 0;         // tokens of a request; 0: what the model was made for, or
                                     // less where memory holds less
  int64_t max_num_seqs = 1;          // choices in a step; 0: 64, or fewer where a recurrent
                                     // model's states would take too much of the memory
  int64_t max_num_batched_tokens = 512;  // tokens in a step; longer prompts go in pieces
  int64_t block_size = 16;               // tokens a KV block
  double gpu_memory_utilization = 0.9;   // the share of the device's free memory that may be used
  int64_t kv_cache_memory = 0;           // bytes; 0: what is left
  bool enable_prefix_caching = true;
  // Of models with recurrent layers, whose prefixes are cached by snapshots of the state: tokens
  // between two (0: 1024), and how many fit (-1: by the memory there is; 0: no caching).
  int64_t mamba_block_size = 0;
  int64_t mamba_snapshots = -1;
  std::string scheduling_policy = "fcfs";  // or "priority"
  std::optional<uint64_t> seed;            // of requests without one, in the order of their coming
  int64_t max_queue_size = 0;              // choices that may wait; 0: no limit
  bool enforce_eager = false;              // no captured graphs
  std::vector<int64_t> cuda_graph_sizes;   // requests of captured decode steps; empty: a default
  bool score_prompts = false;  // whether logits of every prompt position can be asked for
  std::vector<std::string> module_folders;  // where device modules are; empty: beside the program
  std::function<void(double fraction)> progress;  // called while weights load
  std::function<void(const std::string&)> warn;   // of what is slower than it could be
};

}  // namespace vllm::engine
