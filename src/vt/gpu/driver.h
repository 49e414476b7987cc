// What this backend asks of a GPU's driver, in one set of words. Implemented over the functions of
// CUDA's and HIP's drivers, opened at run time (vendor_driver.h), and by the emulated device
// (emulated/emulated_driver.h).
//
// A Driver acts on one device after Open; before, it can only list. Any thread may call it, one at
// a time, after MakeCurrent on that thread. Handles are 0 (nullptr) for "none"; streams are in
// order; sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace vt::gpu {

struct DeviceProperties {
  std::string name;  // "NVIDIA H200"
  std::string arch;  // "sm_90", "gfx1200"
  uint64_t total_bytes = 0, free_bytes = 0;
  int units = 1;                    // multiprocessors, compute units
  int wave = 32;                    // threads that run in lockstep
  int64_t shared_bytes = 48 << 10;  // that a block may have
  int driver_version = 0;           // as the vendor counts
  bool early_launch = false;        // programmatic dependent launch
};

using Stream = void*;
using EventHandle = void*;
using Module = void*;
using Function = void*;
using GraphExec = void*;

struct LaunchConfig {
  Function function = nullptr;
  unsigned grid_x = 1, grid_y = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;
  // May start before its predecessor in the stream has ended: the kernel waits for it itself.
  bool early = false;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // Errors: kUnavailable with one sentence on what is missing (library, driver, card).
  virtual base::Result<int> DeviceCount() = 0;
  virtual base::Result<DeviceProperties> Properties(int index) = 0;
  virtual base::Status Open(int index) = 0;
  virtual base::Status MakeCurrent() = 0;

  // --- memory. Errors: kResourceExhausted. Free and FreeHost of nullptr do nothing.
  virtual base::Result<void*> Allocate(int64_t bytes) = 0;
  virtual base::Status Free(void* p) = 0;
  virtual base::Result<void*> AllocateHost(int64_t bytes) = 0;  // pinned
  virtual base::Status FreeHost(void* p) = 0;
  virtual base::Result<std::pair<uint64_t, uint64_t>> MemoryInfo() = 0;  // free, total

  // --- streams, events, copies
  virtual base::Result<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream s) = 0;
  virtual base::Status Synchronize(Stream s) = 0;
  virtual base::Status CopyToDevice(Stream s, void* dst, const void* src, int64_t bytes) = 0;
  virtual base::Status CopyToHost(Stream s, void* dst, const void* src, int64_t bytes) = 0;
  virtual base::Status CopyOnDevice(Stream s, void* dst, const void* src, int64_t bytes) = 0;
  virtual base::Status Fill(Stream s, void* dst, uint8_t value, int64_t bytes) = 0;
  virtual base::Result<EventHandle> CreateEvent(bool timed) = 0;
  virtual void DestroyEvent(EventHandle e) = 0;
  virtual base::Status Record(Stream s, EventHandle e) = 0;
  virtual base::Status Wait(EventHandle e) = 0;  // the host waits
  virtual base::Result<bool> Ready(EventHandle e) = 0;
  virtual base::Result<double> Seconds(EventHandle begin, EventHandle end) = 0;  // both timed, done

  // --- kernels. Errors of LoadModule: kUnsupported when the image has no code for this device.
  virtual base::Result<Module> LoadModule(std::span<const std::byte> image) = 0;
  virtual void UnloadModule(Module m) = 0;
  virtual base::Result<Function> FindFunction(Module m, const char* name) = 0;
  // Lets launches of `f` have this much shared memory.
  virtual base::Status AllowShared(Function f, int64_t bytes) = 0;
  // `args` is the kernel's one parameter, copied by the call.
  virtual base::Status Launch(Stream s, const LaunchConfig& config, void* args,
                              size_t args_bytes) = 0;

  // --- graphs. Everything between Begin and End on `s` is recorded, by this thread alone.
  virtual base::Status BeginCapture(Stream s) = 0;
  // Ends a capture and makes it ready to launch; `nodes` gets the number of recorded operations.
  virtual base::Result<GraphExec> EndCapture(Stream s, int64_t* nodes) = 0;
  virtual base::Status LaunchGraph(Stream s, GraphExec g) = 0;
  virtual void DestroyGraph(GraphExec g) = 0;
};

}  // namespace vt::gpu
