// How many KV blocks fit, and whether a model fits at all: sums, made before anything is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace vllm::engine {

// Bytes unless said otherwise.
struct MemoryBudget {
  int64_t weights = 0, activations = 0, slots = 0;  // what the plans say
  int64_t block = 0;                                // of a KV block of all layers
  int64_t block_size = 16;                          // tokens
  int64_t free = 0;                                 // on the device now
  double utilization = 0.9;                         // the share of `free` that may be taken
  int64_t kv_asked = 0;                             // --kv-cache-memory; 0: what is left
  int64_t kv_default = 0;     // not more than this unless asked or one request needs it; 0: all
  int64_t max_model_len = 0;  // tokens of a request
  bool length_asked = false;  // by the user: it must fit; else it is lowered to what does
  int64_t max_num_seqs = 1;   // more blocks than these can hold are never taken
};

struct KvFit {
  int64_t blocks = 0;
  int64_t max_model_len = 0;
};

// Errors: kResourceExhausted with the sums, and the largest length that would fit.
base::Result<KvFit> FitKvCache(const MemoryBudget& budget);

}  // namespace vllm::engine
