// What several blocks have made, and one of them goes on with.
#pragma once

#include "vt/gpu/gpu.h"

namespace vt::gpu {

// Whether this block is the last of `blocks` that come here, in all of its threads: what the others
// wrote before can be read (load_volatile). The counter is zero before and after; `last`: an int of
// shared memory.
GPU_FN bool LastOf(int* counter, int blocks, int* last) {
  ::gpu::sync();
  // One thread's fences are enough: they count for what reached it, and for whom it reaches, by way
  // of the block's meetings.
  if (::gpu::thread() == 0) {
    ::gpu::fence();
    *last = ::gpu::atomic_add(counter, 1) == blocks - 1 ? 1 : 0;
    if (*last != 0) *counter = 0;
    ::gpu::fence();
  }
  ::gpu::sync();
  const bool is = *last != 0;
  ::gpu::sync();
  return is;
}

}  // namespace vt::gpu
