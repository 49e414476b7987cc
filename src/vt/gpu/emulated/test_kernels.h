// Arguments of the tests' own kernels.
#pragma once

#include <cstdint>

namespace vt::gpu::emulated {

struct ReverseArgs {
  const float* in;
  float* out;
  bool synchronised;
};
struct ShiftArgs {
  int* out;
  int rounds;
  bool both_barriers;
};
enum class Divergence : int32_t {
  kNone,
  kHalfSkipsBarrier,  // a wave and a half of the threads return instead
  kWaveSkipsBarrier,  // a whole wave
  kTwoBarriers,       // half of the threads at each of two
  kHalfSkipsShuffle,  // half of each wave
  kTwoMeetings,       // any against shuffle
  kTwoLines,          // two shuffles
  kBarrierOrShuffle,
};
struct DivergeArgs {
  int* out;
  Divergence kind;
};
struct CopyArgs {
  const char* in;
  float* out;  // what each thread saw in shared memory
  int valid;   // bytes of each thread's 16
  int wait;    // 0: for all; 1: for all but the last group; -1: not at all
};
struct SharedArgs {
  float* out;
  int64_t write_at;  // a byte written, from the start of shared memory; -1000: none
};
struct ReduceArgs {
  const float* in;
  float* out;
  int first_mask;  // of the butterfly
};
struct ShuffleArgs {
  int* from;  // [lane]: of the rotation
  int* by_xor;
  int* any_odd;    // [thread]: whether a lane of its wave has a number of its own that is odd
  int* any_wave1;  // [thread]: whether it is in wave 1
};
struct BlocksArgs {
  int* out;  // [block_y][block]: the order it ran in
  int* counter;
};
struct SpinArgs {
  const int* flag;
};
struct OrderArgs {
  int* order;  // threads, in the order they ran
  int* counter;
};
struct AddArgs {
  int* to;
  const int* from;
  int count;
};

struct MmaArgs {
  const void* a;       // [16][32] T
  const void* b;       // [2][16][32] T
  const void* across;  // [32][16] T
  float* c;            // [16][32]: a b^T
  float* maximum;      // [16]: of the first 16 columns
  float* sum;          // [16]
  int* leaders;        // [16]
  float* scaled;       // [16][32]: c of each row times the row's number + 1
  float* second;       // [16][16]: (c as T) across
};

// What vt_timeline_set was given.
inline char* timeline_room = nullptr;

}  // namespace vt::gpu::emulated
