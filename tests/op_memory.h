// Memory of a device under test.
#pragma once

#include <algorithm>
#include <vector>

#include "vt/device/backend.h"

namespace tests {

// Frees what it allocated.
class Memory {
 public:
  explicit Memory(vt::Backend& backend) : backend_(backend) {}
  ~Memory() {
    for (void* p : owned_) backend_.Free(p);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  base::Result<void*> Get(int64_t bytes) {
    auto p = backend_.Allocate(std::max<int64_t>(bytes, 1));
    if (p) owned_.push_back(*p);
    return p;
  }

 private:
  vt::Backend& backend_;
  std::vector<void*> owned_;
};

}  // namespace tests
