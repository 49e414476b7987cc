// What kernels of decode steps may take of an AMD card, so that as many blocks are there at once as
// hide its latency. Checked by tests/hip: registers in the compiled code (code_test), shared memory
// as launched (module_test).
//
// A decode kernel waits for memory. To keep it busy a card needs its bandwidth times its latency
// under way: RX 9060 XT 320 GB/s x 0.8 us / 16 work-group processors = 16 KB each, RX 7900 XTX 960
// GB/s x 0.8 us / 48 = 16 KB, MI300X 5.3 TB/s x 1 us / 304 compute units = 17 KB. Linears have 128
// to 256 bytes of weights a lane under way, so that one block of 512 threads is four times enough.
// Attention asks for 64 bytes a lane at a time: two blocks of 4 waves of 32, or one of 4 of 64.
// The others ask for 16 or 32 and wait at barriers: they need two blocks.
// A block's share follows: of registers 1536 (RDNA) or 512 (CDNA) / waves a SIMD, where waves a
// SIMD = blocks x (threads / wave) / 4; of shared memory 128 KB (RDNA) or 64 KB (CDNA) / blocks.
#pragma once

#include <string_view>

namespace vt::gpu {

struct AmdBudget {
  const char* kernel;  // a name, or its beginning and '*'
  int rdna, cdna;      // blocks at once, on a work-group processor or compute unit; 0: at all
};

// The first that fits a name counts. What is not here is no decode kernel: it only must not spill.
inline constexpr AmdBudget kAmdBudgets[] = {
    {"linear_tile*", 0, 0},        // prefill
    {"attention_prefill*", 0, 0},  // prefill
    {"linear_*", 1, 1},            // much under way in each lane
    {"attention_begin*", 1, 1},    // one block a step
    {"attention_decode*", 2, 1},
    {"attention_latent*", 1, 1},  // 63 KB of shared memory a block
    {"attention_join*", 2, 2},
    {"attention_wide*", 1, 1},  // 58 KB likewise
    {"latent_write*", 2, 2},
    {"head_linear_many*", 0, 0},  // prefill
    {"head_linear*", 1, 1},       // a head's rows, fetched ahead
    {"latent_query_write*", 1, 1},
    {"kv_write*", 2, 2},
    {"rows_*", 2, 2},
    {"token_feed*", 2, 2},
    {"argmax*", 1, 1},
    {"sample_*", 1, 1},
    {"quant_tile*", 0, 0},         // prefill
    {"quant_expert_tile*", 0, 0},  // prefill
    {"quant_gemv_from*", 1, 1},    // one block of 24 waves, which quantises its row once
    {"quant_*", 2, 2},             // 64 bytes a lane and more under way, blocks of 256
    {"quantize*", 2, 2},
    {"router*", 2, 2},
    {"norm_router*", 2, 2},
    {"expert_sum*", 2, 2},
    {"experts_*", 2, 1},     // 256 bytes a lane under way; rows of x take up to 60 KB
    {"expert_sort*", 1, 1},  // one block a node
};
inline const AmdBudget* BudgetOf(std::string_view kernel) {
  for (const AmdBudget& b : kAmdBudgets) {
    const std::string_view pattern = b.kernel;
    if (pattern.ends_with('*') ? kernel.starts_with(pattern.substr(0, pattern.size() - 1))
                               : kernel == pattern)
      return &b;
  }
  return nullptr;
}
inline constexpr int kRdnaSharedBytes = 128 << 10, kCdnaSharedBytes = 64 << 10;  // of a unit

}  // namespace vt::gpu
