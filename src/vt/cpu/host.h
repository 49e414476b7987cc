// What the operating system says of this machine: cores that this process may use, memory, the
// processor's name.
#pragma once

#include <cstdint>
#include <string>

namespace vt::cpu {

int UsableCores();
std::string ProcessorName();
struct HostMemory {
  uint64_t total = 0, available = 0;  // bytes
};
HostMemory MemoryOfHost();

}  // namespace vt::cpu
