// The driver of the emulated device: the words of driver.h over the host's memory and BlockRunner.
// It is stricter than a card wherever the rules allow a card to be:
//  - Work of a stream runs when the host waits for it (Synchronize, Wait, the second Ready of an
//    event, Free), and not before. A host that reads early sees old bytes. Host memory of a queued
//    copy is read and written when the copy runs, so it must live and stay as it is until then.
//  - In a capture, whatever allocates, frees, synchronises, waits, queries, creates or destroys is
//    refused by name, and so is work on another stream; the capture is void, and EndCapture says
//    what broke it.
//  - Copies, fills and their operands must lie in one live allocation; after each kernel the guards
//    of all allocations are looked at.
//  - A kernel's fault loses the device: every later call is an error with the same sentence.
//
// Faults can be planted: see Plan. Counters tell of leaks.
// Thread-safety: as driver.h says, one call at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "vt/gpu/driver.h"

namespace vt::gpu::emulated {

struct Options {
  int units = 2;
  int64_t memory_bytes = 256 << 20;
  int64_t shared_bytes = 64 << 10;  // a block; AMD's cards have this much
  uint64_t seed = 1;                // of the order of threads; moves on with each launch
};

// Calls that can be made to fail.
enum class Call {
  kAllocate,
  kAllocateHost,
  kMemoryInfo,
  kCreateStream,
  kSynchronize,
  kCopy,
  kFill,
  kCreateEvent,
  kRecord,
  kWait,
  kReady,
  kLoadModule,
  kFindFunction,
  kAllowShared,
  kLaunch,
  kBeginCapture,
  kEndCapture,
  kLaunchGraph,
  kCount,
};
const char* Name(Call call);

struct Counters {
  std::array<int64_t, static_cast<size_t>(Call::kCount)> calls = {};
  int64_t of(Call c) const { return calls[static_cast<size_t>(c)]; }
  int64_t all_calls = 0;    // of those that can fail
  int64_t kernels_run = 0;  // by launches and by graphs
  // What is alive now.
  int64_t allocations = 0, allocated_bytes = 0, peak_bytes = 0;
  int64_t host_allocations = 0, host_bytes = 0;
  int64_t streams = 0, events = 0, modules = 0, graphs = 0;
  bool nothing_left() const {
    return allocations == 0 && host_allocations == 0 && streams == 0 && events == 0 &&
           modules == 0 && graphs == 0;
  }
};

// Copies act on the same device, so a test keeps one and gives a backend another.
class EmulatedDriver : public Driver {
 public:
  explicit EmulatedDriver(const Options& options = {});
  EmulatedDriver(const EmulatedDriver&) = default;
  ~EmulatedDriver() override;

  // --- planted faults. n counts from now; 1 is the next. 0 takes the plan back. Plan reads them
  // from text, separated by commas: "fail=Allocate:3" (the third call of a kind), "fail=any:7",
  // "lose=20" (the device, at the 20th kernel), "memory=1000000", "seed=5". "" plans nothing.
  base::Status Plan(std::string_view text);
  void FailCall(Call call, int64_t n);
  void FailAnyCall(int64_t n);  // of any kind in Call
  // From the n-th kernel that runs (by a launch or in a graph) on, the device is lost.
  void LoseDeviceAtKernel(int64_t n);
  Counters counters() const;
  // The first use of a wrong handle or pointer whose call could not return an error ("" if none).
  const std::string& complaint() const;

  // --- Driver
  base::Result<int> DeviceCount() override;
  base::Result<DeviceProperties> Properties(int index) override;
  base::Status Open(int index) override;
  base::Status MakeCurrent() override;
  base::Result<void*> Allocate(int64_t bytes) override;
  base::Status Free(void* p) override;
  base::Result<void*> AllocateHost(int64_t bytes) override;
  base::Status FreeHost(void* p) override;
  base::Result<std::pair<uint64_t, uint64_t>> MemoryInfo() override;
  base::Result<Stream> CreateStream() override;
  void DestroyStream(Stream s) override;
  base::Status Synchronize(Stream s) override;
  base::Status CopyToDevice(Stream s, void* dst, const void* src, int64_t bytes) override;
  base::Status CopyToHost(Stream s, void* dst, const void* src, int64_t bytes) override;
  base::Status CopyOnDevice(Stream s, void* dst, const void* src, int64_t bytes) override;
  base::Status Fill(Stream s, void* dst, uint8_t value, int64_t bytes) override;
  base::Result<EventHandle> CreateEvent(bool timed) override;
  void DestroyEvent(EventHandle e) override;
  base::Status Record(Stream s, EventHandle e) override;
  base::Status Wait(EventHandle e) override;
  base::Result<bool> Ready(EventHandle e) override;
  base::Result<double> Seconds(EventHandle begin, EventHandle end) override;
  // The image is not looked at: kernels are those that were compiled into this program.
  base::Result<Module> LoadModule(std::span<const std::byte> image) override;
  void UnloadModule(Module m) override;
  base::Result<Function> FindFunction(Module m, const char* name) override;
  base::Status AllowShared(Function f, int64_t bytes) override;
  base::Status Launch(Stream s, const LaunchConfig& config, void* args, size_t args_bytes) override;
  base::Status BeginCapture(Stream s) override;
  base::Result<GraphExec> EndCapture(Stream s, int64_t* nodes) override;
  base::Status LaunchGraph(Stream s, GraphExec g) override;
  void DestroyGraph(GraphExec g) override;

 private:
  class Device;
  std::shared_ptr<Device> device_;
};

}  // namespace vt::gpu::emulated
