// A block of the emulated device: its threads run as fibers of one thread of the host, in an order
// that a seed shuffles, and meet where kernels say so. What kernels call stands here;
// gpu_emulated.h gives it the words of gpu.h. launch.h runs blocks.
//
// A fault (a barrier that not all threads reach, lanes of a wave that meet at different places, a
// shared memory overrun, a lane that is not of the wave) ends the launch with an error that names
// the kernel, the block and the thread. What a missing barrier or copy wait lets a thread read is
// NaN or a neighbour's old value, under some seed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vt::gpu::emulated {

class Block;

// Of the fiber that runs now.
struct Running {
  int thread = 0;
  int threads = 0;
  int block_x = 0, block_y = 0;
  int grid_x = 0;
  char* shared = nullptr;
  Block* block = nullptr;
};
// Found without a call, although modules are opened at run time: kernels ask for their thread all
// the time. It takes 40 bytes of the C library's reserve for that.
extern constinit thread_local Running running __attribute__((tls_model("initial-exec")));

inline int ThreadIndex() { return running.thread; }
inline int ThreadCount() { return running.threads; }
inline int BlockX() { return running.block_x; }
inline int BlockY() { return running.block_y; }
inline int GridX() { return running.grid_x; }
inline char* SharedMemory() { return running.shared; }

// Where a kernel meets: threads that meet must be at the same place.
struct Site {
  const char* what;
  const char* file;
  int line;
};

// All threads of the block.
void SyncBlock(Site site);
// All threads of the wave: the last to come runs work(what the lanes brought, in lane order), then
// all go on. `work` may be nullptr.
using Work = void (*)(void** all);
void Together(void* mine, Work work, Site site);

// 16 bytes of which `valid` are copied and the rest zeroed; until the wait of its group, the target
// is NaN.
void CopyAsync(void* to, const void* from, int valid);
void CopyCommit();
void CopyWait(int groups_left);

// sum[16][16] += a[16][32] b[32][16]: here, where it is compiled once and for speed.
void MultiplyAdd(const float (*a)[32], const float (*b)[16], float (*sum)[16]);

[[noreturn]] void Fault(const char* what);  // of the running thread
// A read of what other blocks write. Blocks run one after the other, so a kernel that waits for a
// later one would wait forever: a fault after very many of these.
void CountVolatile();

inline void CheckAligned(const void* p, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0)
    Fault("an address that must be a multiple of 16 is not");
}

// --- kernels by name
struct Kernel {
  const char* name;
  size_t args_bytes;
  int most_threads;
  void (*body)(const void* args);
};
struct KernelRegistration {
  KernelRegistration(const char* name, size_t args_bytes, int most_threads,
                     void (*body)(const void* args));
};
const Kernel* FindKernel(const char* name);  // nullptr: there is none

}  // namespace vt::gpu::emulated
