// How tests of kernels run them on the emulated device.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "vt/gpu/context.h"
#include "vt/gpu/emulated/launch.h"

namespace vt::gpu::kernel_testing {

// Memory of the device, on a multiple of 16 bytes.
struct Bytes {
  std::vector<std::byte> data;
  explicit Bytes(int64_t size = 0, std::byte fill = {})
      : data(static_cast<size_t>(size + 16), fill) {}
  std::byte* at() {
    return data.data() + (16 - reinterpret_cast<uintptr_t>(data.data()) % 16) % 16;
  }
};

// The seed picks the order of blocks.
inline void RunKernel(const std::string& name, const void* args, size_t args_bytes,
                      const emulated::Shape& shape, uint64_t seed) {
  const emulated::Kernel* k = emulated::FindKernel(name.c_str());
  ASSERT_NE(k, nullptr) << name;
  ASSERT_EQ(k->args_bytes, args_bytes) << name;
  base::Status status = emulated::CheckShape(*k, shape);
  ASSERT_TRUE(status) << name << ": " << status.error().message;
  status = emulated::BlockRunner().Run(*k, args, shape, seed);
  ASSERT_TRUE(status) << name << ": " << status.error().message;
}
template <class Args>
void RunKernel(const std::string& name, const Args& args, const emulated::Shape& shape) {
  RunKernel(name, &args, sizeof args, shape, 1);
}

// What steps have made of nodes.
inline void RunAll(const std::vector<Launch>& launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& l = launches[i];
    ASSERT_NO_FATAL_FAILURE(RunKernel(l.kernel, l.args.data(), l.args.size(),
                                      {.grid_x = static_cast<int>(l.config.grid_x),
                                       .grid_y = static_cast<int>(l.config.grid_y),
                                       .threads = static_cast<int>(l.config.threads),
                                       .shared_bytes = static_cast<int>(l.config.shared_bytes)},
                                      i));
  }
}

}  // namespace vt::gpu::kernel_testing
