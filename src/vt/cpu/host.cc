#include "vt/cpu/host.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace vt::cpu {

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

std::string ProcessorName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

HostMemory MemoryOfHost() {
  HostMemory m;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    uint64_t* to = line.rfind("MemTotal:", 0) == 0       ? &m.total
                   : line.rfind("MemAvailable:", 0) == 0 ? &m.available
                                                         : nullptr;
    if (to != nullptr) *to = std::stoull(line.substr(line.find(':') + 1)) * 1024;
  }
  if (m.total == 0) {
    m.total = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
              static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
    m.available = m.total;
  }
  return m;
}

}  // namespace vt::cpu
