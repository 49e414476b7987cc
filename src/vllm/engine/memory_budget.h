// How many KV blocks fit, and whether a model fits at all: sums, made before anything is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace vllm::engine {

// Bytes unless said otherwise.
struct MemoryBudget {
  int64_t weights = 0, activations = 0, slots = 0;  // what the plans say; slots: the sampler's
  int64_t state = 0;  // of a slot of recurrent layers, of which each sequence has one; 0: none
  int64_t block = 0;  // of a KV block of all layers, but for those with windows
  int64_t block_size = 16;    // tokens
  int64_t window_block = 0;   // of a KV block of all layers with windows
  int64_t page = 0;           // of a page, which holds either (KvLayout); 0: there are none
  int64_t page_blocks = 1;    // of layers without windows
  int64_t window = 0;         // the longest of them, in tokens
  int64_t step_tokens = 0;    // of a step
  int64_t free = 0;           // on the device now
  double utilization = 0.9;   // the share of `free` that may be taken
  int64_t kv_asked = 0;       // --kv-cache-memory; 0: what is left
  int64_t kv_default = 0;     // not more than this unless asked or one request needs it; 0: all
  int64_t max_model_len = 0;  // tokens of a request
  bool length_asked = false;  // by the user: it must fit; else it is lowered to what does
  int64_t max_num_seqs = 1;   // more blocks than these can hold are never taken
  // Snapshots of recurrent state (snapshot_pool.h), one every so many tokens; -1: what a quarter of
  // the memory for the KV cache holds, but at least a few, and no more than can be of use.
  int64_t snapshots = 0, snapshot_every = 1024;
};

struct KvFit {
  int64_t blocks = 0, window_blocks = 0;  // or pages, and none
  int64_t max_model_len = 0;
  int64_t snapshots = 0;
};

// Errors: kResourceExhausted with the sums, and the largest length or the most sequences that would
// fit.
base::Result<KvFit> FitKvCache(const MemoryBudget& budget);

// How many sequences run where the user left it open: `most`, or as many as have their recurrent
// states in a quarter of what is left beside the weights. Of budget: weights, state, free and
// utilization.
int64_t FitSequences(const MemoryBudget& budget, int64_t most);

}  // namespace vllm::engine
