// What the tests of attention's kernels share.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "vt/gpu/context.h"
#include "vt/gpu/emulated/launch.h"

namespace vt::gpu::attention_testing {

// Memory of the device, on a multiple of 16 bytes.
struct Bytes {
  std::vector<std::byte> data;
  explicit Bytes(int64_t size = 0, std::byte fill = {})
      : data(static_cast<size_t>(size + 16), fill) {}
  std::byte* at() {
    return data.data() + (16 - reinterpret_cast<uintptr_t>(data.data()) % 16) % 16;
  }
};

inline void RunAll(const std::vector<Launch>& launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& l = launches[i];
    const emulated::Kernel* k = emulated::FindKernel(l.kernel.c_str());
    ASSERT_NE(k, nullptr) << l.kernel;
    ASSERT_EQ(k->args_bytes, l.args.size());
    const emulated::Shape shape{
        static_cast<int>(l.config.grid_x), static_cast<int>(l.config.grid_y),
        static_cast<int>(l.config.threads), static_cast<int>(l.config.shared_bytes)};
    base::Status status = emulated::CheckShape(*k, shape);
    ASSERT_TRUE(status) << status.error().message;
    status = emulated::BlockRunner().Run(*k, l.args.data(), shape, i);
    ASSERT_TRUE(status) << status.error().message;
  }
}

}  // namespace vt::gpu::attention_testing
