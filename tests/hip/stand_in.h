// Tests' hold on the stand-in for the HIP runtime (libamdhip64.so.6 in tests/hip of a build
// folder): one AMD card over the host's memory. Copies and fills work; kernels run on the emulator
// of instructions where TINYGRAD names its folder, and are only counted elsewhere. What a call may
// do inside a capture is enforced strictly (thread-local mode): no allocation, free,
// synchronisation or query, no other stream, no graph.
//
// Variables of the environment, for whole programs:
//   HIP_STAND_IN_ARCH    gfx1200 (the default), gfx1100, gfx942, ... or "none": no card
//   HIP_STAND_IN_MEMORY  MiB of device memory, 512
//   HIP_STAND_IN_FAIL    "hipMalloc:3": that call fails, the third time
//   HIP_STAND_IN_REPORT  a file that gets, at exit, a line a call ("hipMalloc 12") and a kernel
//                        ("kernel rows_norm_bf16 7"; "shared rows_norm_bf16 64": the most bytes of
//                        dynamic shared memory that it ran with; "part add.w1 rows_map_bf16 12": of
//                        the blocks of a kernel that ran in a part, hip_stand_in_part, the threads)
#pragma once

#include <cstdint>

extern "C" {

// The n-th call of that name from now on fails with hipErrorUnknown, or hipErrorOutOfMemory where
// it allocates; 0 takes it back.
void hip_stand_in_fail(const char* call, int64_t n);
// How often a function was called; "kernels": how many kernels ran, by launches and graphs, "kernel
// NAME": how often that one did; "range NAME": how often a range of that name was opened; "live":
// handles and allocations that were made and not given back, and ranges that were not closed.
int64_t hip_stand_in_count(const char* call);
// The most dynamic shared memory that each kernel ran with: a line "rows_norm_bf16 64" a kernel.
const char* hip_stand_in_shared();
// Names the part of a test that begins, without spaces, for the report.
void hip_stand_in_part(const char* name);
// Names of kernels that were loaded and have not run, a line each.
const char* hip_stand_in_idle();
// Whether kernels run.
int hip_stand_in_emulates();
}
