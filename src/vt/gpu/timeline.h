// When the blocks of each launch began, had waited and ended, as the kernels themselves write it
// down: what events cannot show of launches that overlap inside a captured graph. For builds with
// VLLM_CUDA_TIMELINE; docs/benchmarks.md says how it is used.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "vt/gpu/driver.h"

namespace vt::gpu {

class Timeline {
 public:
  // VLLM_GPU_TIMELINE: the file that four replays of graphs are written to, from the
  // VLLM_GPU_TIMELINE_FROM-th (40) on; it is made at once, so that one that cannot be is refused
  // before anything runs (kUnavailable). nullptr if it is not set.
  static base::Result<std::unique_ptr<Timeline>> FromEnvironment(Driver& driver);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Kernels of the module write to it from now on. kUnsupported where they cannot.
  base::Status Attach(Module m);
  void Name(const std::string& kernel) { names_.insert(kernel); }
  // Called before each replay on the stream. kUnavailable if the file cannot be written.
  base::Status BeforeReplay(Stream s);

 private:
  Timeline(Driver& driver, std::string file, int from);
  base::Status Clear(Stream s);
  base::Status Write(Stream s);

  Driver& driver_;
  std::string file_;
  int from_ = 0, count_ = 0;
  void* room_ = nullptr;
  std::set<std::string> names_;
};

}  // namespace vt::gpu
