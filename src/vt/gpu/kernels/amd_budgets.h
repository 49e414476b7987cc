// What kernels of decode steps may take of an AMD card, so that as many blocks are there at once as
// hide its latency. Checked by tests/hip/code_test.cc against the compiled code.
//
// A decode kernel waits for memory. To keep it busy a card needs its bandwidth times its latency
// under way: RX 9060 XT 320 GB/s x 0.8 us / 16 work-group processors = 16 KB each, RX 7900 XTX 960
// GB/s x 0.8 us / 48 = 16 KB, MI300X 5.3 TB/s x 1 us / 304 compute units = 17 KB. Linears have 128
// to 256 bytes of weights a lane under way, so that one block of 512 threads is four times enough.
// The others ask for 16 or 32 bytes a lane at a time and wait at barriers: they need two blocks.
// A block's registers follow from its threads:
//   waves a SIMD = blocks x (threads / wave) / 4, registers = 1536 (RDNA), 512 (CDNA) / waves a
//   SIMD.
#pragma once

namespace vt::gpu {

struct AmdBudget {
  const char* kernel;  // a name, or its beginning and '*'
  int blocks;          // at once, on a work-group processor (RDNA) or compute unit (CDNA)
};

// The first that fits a name counts. What is not here is no decode kernel: it only must not spill.
inline constexpr AmdBudget kAmdBudgets[] = {
    {"linear_tile*", 0},        // prefill
    {"attention_prefill*", 0},  // prefill
    {"linear_*", 1},            // much under way in each lane
    {"attention_begin*", 1},    // one block a step
    {"attention_decode*", 2},   // waits at barriers
    {"kv_write*", 2},          {"rows_*", 2}, {"token_feed*", 2}, {"argmax*", 1}, {"sample_*", 1},
};

// Kernels that spill registers to private memory on RDNA, to be cured: tiles of 32 queries a wave
// are too many for heads this wide. None of them runs in decode from a cache of the values' own
// type.
inline constexpr const char* kAmdSpills[] = {
    "attention_prefill_d128*",         "attention_prefill_d256*",
    "attention_prefill_convert_d128*", "attention_prefill_convert_d256*",
    "attention_decode_convert_d128*",
};

}  // namespace vt::gpu
