// The seam that every device implements: memory, queues, events, copies, compilation and graph
// capture.
//
// One Backend instance a device index; nothing is process-wide. Methods may be called from one
// thread at a time unless said otherwise. Sizes are in bytes. Pointers are device pointers (on the
// CPU: plain memory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vt/ir/passes.h"
#include "vt/ir/target.h"

namespace vt {

struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "AMD EPYC, 2 threads, AVX2"
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

// An ordered stream of work on the device. Opaque; owned by the Backend that made it.
class Queue {
 public:
  virtual ~Queue() = default;
};

// A point in a queue that the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

// A captured graph. 0 is "none".
using GraphHandle = uint64_t;

// What a weight looks like in the file: `data` has rows * columns values of `format`, row-major.
struct WeightView {
  const std::byte* data = nullptr;
  ir::DType format = ir::DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  // Told of bytes [begin, end) of `data` that will not be read again, so that a large tensor is
  // never in memory twice. May be empty.
  std::function<void(int64_t begin, int64_t end)> release = {};
};

// A weight on the device, in the layout that the backend chose.
struct DeviceWeight {
  void* data = nullptr;
  ir::DType format = ir::DType::kF32;
  ir::WeightLayout layout;
};

// What an Executable runs on. All pointers outlive it.
struct Bindings {
  std::map<std::string, DeviceWeight> weights;  // by checkpoint name
  std::vector<std::vector<void*>> state;        // [group][layer]: blocks of this layer, contiguous
  std::vector<int64_t> state_blocks;            // [group]: number of blocks, or slots
  int64_t block_size = 16;                      // tokens
  void* arena = nullptr;                        // at least the largest plan's arena_bytes
  void* inputs = nullptr;  // the packed input buffer (StepLayout) on the device
};

// Nodes of one bucket, compiled.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const ir::Plan& plan() const = 0;
  // Enqueues all nodes. Everything that changes from step to step is read from Bindings::inputs on
  // the device.
  virtual base::Status Run(Queue& queue) = 0;
  // Runs nodes [begin, end) and waits, where [0, begin) ran before; for tools that compare values
  // with the interpreter.
  virtual base::Status RunNodes(Queue& queue, int begin, int end) = 0;
  // Runs once with a clock around every node; seconds by node.
  virtual base::Result<std::vector<double>> Profile(Queue& queue) = 0;
  // Where a value lives on the device (nullptr for weights and states).
  virtual void* ValueAddress(ir::ValueId id) const = 0;
};

class Backend : public ir::Target {
 public:
  virtual DeviceInfo Info() const = 0;

  // --- memory. Errors: kResourceExhausted with the bytes asked for and those free; kInternal
  // inside a capture.
  virtual base::Result<void*> Allocate(int64_t bytes) = 0;  // aligned to 256
  virtual void Free(void* p) = 0;
  // Host memory that copies need not wait for (pinned, on devices that know such a thing).
  virtual base::Result<void*> AllocateHost(int64_t bytes);
  virtual void FreeHost(void* p);
  // Whether host code may read and write device pointers directly.
  virtual bool HostAddressable() const = 0;

  // --- queues, events, copies. A copy is ordered in its queue; host memory must live until it ran.
  virtual base::Result<std::unique_ptr<Queue>> CreateQueue() = 0;
  virtual base::Status CopyToDevice(Queue& q, void* dst, const void* src, int64_t bytes) = 0;
  virtual base::Status CopyToHost(Queue& q, void* dst, const void* src, int64_t bytes) = 0;
  virtual base::Status CopyOnDevice(Queue& q, void* dst, const void* src, int64_t bytes) = 0;
  virtual base::Status Fill(Queue& q, void* dst, uint8_t value, int64_t bytes) = 0;
  virtual base::Status Synchronize(Queue& q) = 0;
  virtual base::Result<std::unique_ptr<Event>> CreateEvent() = 0;
  virtual base::Status Record(Queue& q, Event& e) = 0;
  virtual base::Status Wait(Event& e) = 0;         // the host waits
  virtual base::Result<bool> Ready(Event& e) = 0;  // whether Wait would return at once

  // --- weights and state
  // Writes a checkpoint tensor into `dst` (LayoutFor(...).bytes long) in the layout of its use.
  virtual base::Status Repack(const WeightView& src, const ir::WeightLayout& layout, void* dst) = 0;
  // Bytes of one block of one layer, or of one slot.
  virtual int64_t StateBlockBytes(const ir::StateGroup& group, int64_t block_size) const = 0;

  // --- compilation
  virtual base::Result<std::unique_ptr<Executable>> Compile(ir::Plan plan,
                                                            const Bindings& bindings) = 0;

  // --- graph capture. Contract: all work of a capture is on one queue; nothing in it allocates,
  // synchronises, frees or queries; what it reads through an address is read again at each replay.
  virtual bool SupportsGraphCapture() const = 0;
  virtual base::Status BeginCapture(Queue& q) = 0;
  virtual base::Result<GraphHandle> EndCaptureGraph(Queue& q) = 0;
  virtual base::Status ReplayGraph(Queue& q, GraphHandle graph) = 0;
  virtual void DestroyGraph(GraphHandle graph) = 0;
  // Operations of a captured graph; -1 where the device does not say.
  virtual int64_t CapturedNodes(GraphHandle) const { return -1; }
  // One current graph, in terms of the handles above: EndCapture keeps it, Replay runs it.
  base::Status EndCapture(Queue& q);
  base::Status Replay(Queue& q);

 private:
  GraphHandle current_graph_ = 0;
};

// Policy of a kind of device.
class Platform {
 public:
  virtual ~Platform() = default;
  virtual std::string Name() const = 0;  // "cpu", "cuda", "rocm", "vulkan"
  virtual bool support_static_graph_mode() const = 0;
  // Bytes that a KV cache takes unless more are asked for or one request needs more; 0: all that is
  // left. A card serves one program; a computer has others to run.
  virtual int64_t DefaultKvBytes() const = 0;
  // Devices present. Empty when a driver or card is missing; `why` then says so in a sentence.
  virtual std::vector<DeviceInfo> Devices(std::string* why) = 0;
  struct Options {
    int index = 0;
    int threads = 0;  // CPUs: 0 means one a core
    std::string isa;  // CPUs: "" picks the best; else "scalar", "avx2", ... (refused where absent)
    // Type of values between nodes: "auto", "bfloat16", "float16", "float32". CPUs know f32 alone.
    std::string dtype;
  };
  virtual base::Result<std::unique_ptr<Backend>> Open(const Options& options) = 0;
  // What is known of a card by its name ("h200", "rx9060xt"), present or not, so that plans can be
  // made for it. Errors: kNotFound.
  virtual base::Result<std::unique_ptr<ir::Target>> Describe(const std::string& card,
                                                             const std::string& dtype);
};

// Capture is used only where ability and policy agree.
inline bool UseGraphs(const Platform& p, const Backend& b) {
  return p.support_static_graph_mode() && b.SupportsGraphCapture();
}

}  // namespace vt
