// Runs a kernel on the emulated device: block after block, in an order that the seed picks.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "vt/gpu/emulated/block.h"

namespace vt::gpu::emulated {

struct Shape {
  int grid_x = 1, grid_y = 1;
  int threads = 1;
  int shared_bytes = 0;
};

// The wave of this build of the emulated device.
int WaveSize();

// Errors: a shape that the kernel was not compiled for, or no whole number of waves.
base::Status CheckShape(const Kernel& kernel, const Shape& shape);

// Keeps the stacks of the fibers between launches. One launch at a time.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  // Runs all blocks to their end. The same seed gives the same order of blocks and threads. An
  // error is the kernel's fault. REQUIRES: CheckShape is content.
  base::Status Run(const Kernel& kernel, const void* args, const Shape& shape, uint64_t seed);

 private:
  std::unique_ptr<Block> block_;
};

}  // namespace vt::gpu::emulated
