// Ranges named after nodes, for the profilers of NVIDIA (NVTX) and AMD (roctx): Nsight Systems and
// rocprofv3 then show what a kernel was launched for. The libraries belong to the profilers and are
// opened at run time; without one a range is nothing.
#pragma once

#include <string>
#include <vector>

namespace vt::gpu {

class Ranges {
 public:
  Ranges() = default;  // none
  // Of the first library that opens and has <prefix>RangePushA and <prefix>RangePop.
  static Ranges Of(const std::vector<std::string>& libraries, const std::string& prefix);

  void Push(const std::string& name) const {
    if (push_ != nullptr) push_(name.c_str());
  }
  void Pop() const {
    if (pop_ != nullptr) pop_();
  }

 private:
  int (*push_)(const char*) = nullptr;
  int (*pop_)() = nullptr;
};

}  // namespace vt::gpu
