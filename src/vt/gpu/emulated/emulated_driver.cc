#include "vt/gpu/emulated/emulated_driver.h"

#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/strings.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/emulated/memory.h"

namespace vt::gpu::emulated {
namespace {

using Clock = std::chrono::steady_clock;

// What a kernel may have without AllowShared, as on every card.
constexpr int64_t kPlainShared = 48 << 10;

base::Error Wrong(std::string what) { return {base::Code::kInvalidArgument, std::move(what)}; }
base::Error Broken(std::string what) { return {base::Code::kInternal, std::move(what)}; }

struct StreamState;
struct EventState {
  bool timed = false;
  std::weak_ptr<StreamState> stream;
  int64_t recorded = 0, done = 0;  // how often
  bool asked = false;              // whether Ready has been called since
  Clock::time_point time;
};
struct GraphState;

struct Op {
  enum class Kind { kKernel, kToDevice, kToHost, kOnDevice, kFill, kRecord, kGraph };
  Kind kind = Kind::kKernel;
  const Kernel* kernel = nullptr;
  Shape shape = {};
  std::vector<std::byte> args = {};
  void* dst = nullptr;
  const void* src = nullptr;
  int64_t bytes = 0;
  uint8_t value = 0;
  std::shared_ptr<EventState> event = nullptr;
  std::shared_ptr<const GraphState> graph = nullptr;
};
struct GraphState {
  std::vector<Op> ops;
};
struct StreamState {
  std::deque<Op> queue;
};
struct FunctionState {
  const Kernel* kernel = nullptr;
  int64_t shared_bytes = kPlainShared;
};
struct ModuleState {
  std::map<const Kernel*, void*> functions;
};

}  // namespace

const char* Name(Call call) {
  static constexpr const char* kNames[] = {
      "Allocate",     "AllocateHost", "MemoryInfo", "CreateStream", "Synchronize", "Copy",
      "Fill",         "CreateEvent",  "Record",     "Wait",         "Ready",       "LoadModule",
      "FindFunction", "AllowShared",  "Launch",     "BeginCapture", "EndCapture",  "LaunchGraph",
  };
  static_assert(std::size(kNames) == static_cast<size_t>(Call::kCount));
  return kNames[static_cast<size_t>(call)];
}

class EmulatedDriver::Device {
 public:
  explicit Device(const Options& o)
      : options(o), memory("device memory", o.memory_bytes), pinned("pinned memory", 1LL << 40) {}

  // Begins every call that can fail.
  enum class InCapture { kAllowed, kRefused };
  base::Status Enter(Call call, InCapture rule) {
    ++counters.calls[static_cast<size_t>(call)];
    ++counters.all_calls;
    if (!lost.empty()) return Broken(lost);
    if (base::Status s = Current(Name(call)); !s) return s;
    if (rule == InCapture::kRefused) {
      if (base::Status s = Refuse(Name(call)); !s) return s;
    }
    int64_t& planned = fail_call[static_cast<size_t>(call)];
    bool fails = planned > 0 && --planned == 0;
    if (fail_any > 0 && --fail_any == 0) fails = true;
    if (!fails) return {};
    if (capturing != nullptr) Void(fmt::format("{} failed", Name(call)));
    const bool memory_call = call == Call::kAllocate || call == Call::kAllocateHost;
    return base::Error{memory_call ? base::Code::kResourceExhausted : base::Code::kInternal,
                       fmt::format("{} failed, as a test planned", Name(call))};
  }
  base::Status Current(const char* call) const {
    if (!opened) return Wrong(fmt::format("{} before Open", call));
    if (!current.contains(std::this_thread::get_id()))
      return Wrong(fmt::format("{} on a thread that has not called MakeCurrent", call));
    return {};
  }
  base::Status Refuse(const char* call) {
    if (capturing == nullptr) return {};
    Void(fmt::format("{} was called inside it", call));
    return Broken(
        fmt::format("{} inside a capture: a graph's work may not allocate, free, wait or "
                    "query",
                    call));
  }
  void Void(std::string why) {
    if (void_because.empty()) void_because = std::move(why);
  }
  void Complain(std::string what) {
    if (complaint.empty()) complaint = std::move(what);
  }

  void* NewHandle() { return reinterpret_cast<void*>(next_handle += 16); }
  template <class State>
  static base::Result<std::shared_ptr<State>> Find(
      const std::map<void*, std::shared_ptr<State>>& all, void* handle, const char* call,
      const char* what) {
    const auto found = all.find(handle);
    if (found != all.end()) return found->second;
    return Wrong(fmt::format("{}: {} is no {} (or no longer)", call, handle, what));
  }

  base::Status CheckHost(const void* p, int64_t bytes) const {
    if (memory.Owns(p)) return Wrong(fmt::format("{} is device memory, not the host's", p));
    if (pinned.WasFreed(p)) return Wrong(fmt::format("{} is pinned memory that was freed", p));
    if (pinned.Owns(p)) return pinned.Inside(p, bytes);
    if (p == nullptr) return Wrong("nullptr is no host memory");
    return {};
  }
  base::Status CheckOperands(const Op& op) const {
    base::Status s;
    switch (op.kind) {
      case Op::Kind::kToDevice:
        s = CheckHost(op.src, op.bytes);
        if (s) s = memory.Inside(op.dst, op.bytes);
        return s ? s : s.error().In("copy to the device");
      case Op::Kind::kToHost:
        s = CheckHost(op.dst, op.bytes);
        if (s) s = memory.Inside(op.src, op.bytes);
        return s ? s : s.error().In("copy to the host");
      case Op::Kind::kOnDevice:
        s = memory.Inside(op.src, op.bytes);
        if (s) s = memory.Inside(op.dst, op.bytes);
        return s ? s : s.error().In("copy on the device");
      case Op::Kind::kFill:
        s = memory.Inside(op.dst, op.bytes);
        return s ? s : s.error().In("fill");
      default:
        return {};
    }
  }

  // Queues work, or records it.
  base::Status Add(Call call, Stream stream, Op op) {
    if (base::Status s = Enter(call, InCapture::kAllowed); !s) return s;
    const base::Result<std::shared_ptr<StreamState>> found =
        Find(streams, stream, Name(call), "stream");
    if (!found) return found.error();
    if (op.bytes < 0) return Wrong(fmt::format("{} of {} bytes", Name(call), op.bytes));
    if (op.bytes > 0) {
      if (base::Status s = CheckOperands(op); !s) return s;
    }
    if (capturing == nullptr) {
      (*found)->queue.push_back(std::move(op));
      return {};
    }
    if (capturing != stream) {
      Void(fmt::format("{} on another stream", Name(call)));
      return Broken(fmt::format("{} on another stream than the one that is captured", Name(call)));
    }
    if (op.kind == Op::Kind::kRecord || op.kind == Op::Kind::kGraph) return Refuse(Name(call));
    recorded.push_back(std::move(op));
    return {};
  }

  base::Status RunOp(const Op& op) {
    if (op.bytes > 0) {
      if (base::Status s = CheckOperands(op); !s) return s;
    }
    const auto bytes = static_cast<size_t>(op.bytes);
    switch (op.kind) {
      case Op::Kind::kKernel:
        return RunKernel(op);
      case Op::Kind::kToDevice:
      case Op::Kind::kToHost:
      case Op::Kind::kOnDevice:
        if (bytes > 0) std::memmove(op.dst, op.src, bytes);
        return {};
      case Op::Kind::kFill:
        if (bytes > 0) std::memset(op.dst, op.value, bytes);
        return {};
      case Op::Kind::kRecord:
        ++op.event->done;
        op.event->time = Clock::now();
        return {};
      case Op::Kind::kGraph:
        for (const Op& inner : op.graph->ops) {
          if (base::Status s = RunOp(inner); !s) return s;
        }
        return {};
    }
    return {};
  }
  base::Status RunKernel(const Op& op) {
    ++counters.kernels_run;
    if (lose_at > 0 && --lose_at == 0)
      return Broken(
          fmt::format("the device was lost in kernel {}, as a test planned", op.kernel->name));
    const uint64_t seed = (options.seed << 32) + static_cast<uint64_t>(counters.kernels_run);
    if (base::Status s = runner.Run(*op.kernel, op.args.data(), op.shape, seed); !s) return s;
    for (const Memory* m : {&memory, &pinned}) {
      if (base::Status s = m->CheckGuards(); !s)
        return s.error().In(fmt::format("kernel {}", op.kernel->name));
    }
    return {};
  }
  // Runs what the stream holds, up to the given record of an event.
  base::Status Run(StreamState& stream, const EventState* until = nullptr) {
    while (!stream.queue.empty()) {
      if (until != nullptr && until->done >= until->recorded) break;
      const Op op = std::move(stream.queue.front());
      stream.queue.pop_front();
      if (base::Status s = RunOp(op); !s) {
        lost = s.error().message;
        for (auto& [handle, state] : streams) state->queue.clear();
        return s;
      }
    }
    return {};
  }
  base::Status RunAll() {
    for (auto& [handle, state] : streams) {
      if (base::Status s = Run(*state); !s) return s;
    }
    return {};
  }

  // Both kinds of memory are freed alike: after all work that was queued before.
  base::Status FreeFrom(Memory& from, void* p, const char* call) {
    if (p == nullptr) return {};
    base::Status before = lost.empty() ? Current(call) : Broken(lost);
    if (before) {
      if (base::Status s = Refuse(call); !s) return s;
      before = RunAll();
    }
    base::Status freed = from.Free(p);
    if (!freed) Complain(freed.error().message);
    return before ? freed : before;
  }

  // Ends the void calls: what they cannot return is kept.
  template <class State>
  void Destroy(std::map<void*, std::shared_ptr<State>>& all, void* handle, const char* call,
               bool in_capture) {
    if (handle == nullptr) return;
    if (!in_capture) {
      if (base::Status s = Refuse(call); !s) Complain(s.error().message);
    }
    if (all.erase(handle) == 0)
      Complain(fmt::format("{} of {}, which is none (or no longer)", call, handle));
  }

  Options options;
  Memory memory, pinned;
  BlockRunner runner;
  bool opened = false;
  std::set<std::thread::id> current;
  std::map<void*, std::shared_ptr<StreamState>> streams;
  std::map<void*, std::shared_ptr<EventState>> events;
  std::map<void*, std::shared_ptr<ModuleState>> modules;
  std::map<void*, std::shared_ptr<FunctionState>> functions;
  std::map<void*, std::shared_ptr<GraphState>> graphs;
  uintptr_t next_handle = 0x1000;
  Stream capturing = nullptr;
  std::vector<Op> recorded;
  std::string void_because;
  std::string lost;  // why, once the device is lost
  std::string complaint;
  Counters counters;
  std::array<int64_t, static_cast<size_t>(Call::kCount)> fail_call = {};
  int64_t fail_any = 0, lose_at = 0;
};

EmulatedDriver::EmulatedDriver(const Options& options)
    : device_(std::make_shared<Device>(options)) {}
EmulatedDriver::~EmulatedDriver() = default;

// --- planted faults

base::Status EmulatedDriver::Plan(std::string_view text) {
  if (text.empty()) return {};
  for (const std::string& word : base::Split(text, ',')) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    std::string value = word.substr(std::min(equals + 1, word.size())), kind;
    if (const size_t colon = value.find(':'); key == "fail" && colon != std::string::npos) {
      kind = value.substr(0, colon);
      value = value.substr(colon + 1);
    }
    int64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    const bool number = error == std::errc() && end == value.data() + value.size() && n >= 0;
    int call = 0;
    while (call < static_cast<int>(Call::kCount) && kind != Name(static_cast<Call>(call))) ++call;
    if (number && key == "fail" && kind == "any") {
      FailAnyCall(n);
    } else if (number && key == "fail" && call < static_cast<int>(Call::kCount)) {
      FailCall(static_cast<Call>(call), n);
    } else if (number && key == "lose") {
      LoseDeviceAtKernel(n);
    } else if (number && key == "memory") {
      device_->memory.set_total(n);
    } else if (number && key == "seed") {
      device_->options.seed = static_cast<uint64_t>(n);
    } else {
      return Wrong(fmt::format("the emulated device knows no plan '{}': see emulated_driver.h",
                               base::Printable(word)));
    }
  }
  return {};
}

void EmulatedDriver::FailCall(Call call, int64_t n) {
  device_->fail_call[static_cast<size_t>(call)] = n;
}
void EmulatedDriver::FailAnyCall(int64_t n) { device_->fail_any = n; }
void EmulatedDriver::LoseDeviceAtKernel(int64_t n) { device_->lose_at = n; }
const std::string& EmulatedDriver::complaint() const { return device_->complaint; }

Counters EmulatedDriver::counters() const {
  const Device& d = *device_;
  Counters c = d.counters;
  c.allocations = d.memory.live();
  c.allocated_bytes = d.memory.live_bytes();
  c.peak_bytes = d.memory.peak_bytes();
  c.host_allocations = d.pinned.live();
  c.host_bytes = d.pinned.live_bytes();
  c.streams = static_cast<int64_t>(d.streams.size());
  c.events = static_cast<int64_t>(d.events.size());
  c.modules = static_cast<int64_t>(d.modules.size());
  c.graphs = static_cast<int64_t>(d.graphs.size());
  return c;
}

// --- the device

base::Result<int> EmulatedDriver::DeviceCount() { return 1; }

base::Result<DeviceProperties> EmulatedDriver::Properties(int index) {
  if (index != 0)
    return base::Error{base::Code::kUnavailable,
                       fmt::format("there is no emulated device {}", index)};
  const Device& d = *device_;
  DeviceProperties p;
  p.name = fmt::format("emulated GPU, wave {}", WaveSize());
  p.arch = fmt::format("emulated{}", WaveSize());
  p.total_bytes = static_cast<uint64_t>(d.memory.total());
  p.free_bytes = static_cast<uint64_t>(d.memory.total() - d.memory.live_bytes());
  p.units = d.options.units;
  p.wave = WaveSize();
  p.shared_bytes = d.options.shared_bytes;
  return p;
}

base::Status EmulatedDriver::Open(int index) {
  const base::Result<DeviceProperties> p = Properties(index);
  if (!p) return p.error();
  device_->opened = true;
  return MakeCurrent();
}

base::Status EmulatedDriver::MakeCurrent() {
  if (!device_->opened) return Wrong("MakeCurrent before Open");
  device_->current.insert(std::this_thread::get_id());
  return {};
}

// --- memory

base::Result<void*> EmulatedDriver::Allocate(int64_t bytes) {
  if (base::Status s = device_->Enter(Call::kAllocate, Device::InCapture::kRefused); !s)
    return s.error();
  return device_->memory.Allocate(bytes);
}
base::Status EmulatedDriver::Free(void* p) { return device_->FreeFrom(device_->memory, p, "Free"); }
base::Result<void*> EmulatedDriver::AllocateHost(int64_t bytes) {
  if (base::Status s = device_->Enter(Call::kAllocateHost, Device::InCapture::kRefused); !s)
    return s.error();
  return device_->pinned.Allocate(bytes);
}
base::Status EmulatedDriver::FreeHost(void* p) {
  return device_->FreeFrom(device_->pinned, p, "FreeHost");
}
base::Result<std::pair<uint64_t, uint64_t>> EmulatedDriver::MemoryInfo() {
  if (base::Status s = device_->Enter(Call::kMemoryInfo, Device::InCapture::kRefused); !s)
    return s.error();
  const Memory& m = device_->memory;
  return std::pair{static_cast<uint64_t>(m.total() - m.live_bytes()),
                   static_cast<uint64_t>(m.total())};
}

// --- streams, events, copies

base::Result<Stream> EmulatedDriver::CreateStream() {
  if (base::Status s = device_->Enter(Call::kCreateStream, Device::InCapture::kRefused); !s)
    return s.error();
  void* const handle = device_->NewHandle();
  device_->streams[handle] = std::make_shared<StreamState>();
  return handle;
}

void EmulatedDriver::DestroyStream(Stream s) {
  const auto found = device_->streams.find(s);
  if (found != device_->streams.end() && device_->capturing == nullptr) {
    // A failure stays: the device is lost then.
    if (base::Status run = device_->Run(*found->second); !run)
      device_->Complain(run.error().message);
  }
  device_->Destroy(device_->streams, s, "DestroyStream", false);
}

base::Status EmulatedDriver::Synchronize(Stream s) {
  if (base::Status r = device_->Enter(Call::kSynchronize, Device::InCapture::kRefused); !r)
    return r;
  const auto found = Device::Find(device_->streams, s, "Synchronize", "stream");
  if (!found) return found.error();
  return device_->Run(**found);
}

base::Status EmulatedDriver::CopyToDevice(Stream s, void* dst, const void* src, int64_t bytes) {
  return device_->Add(Call::kCopy, s,
                      {.kind = Op::Kind::kToDevice, .dst = dst, .src = src, .bytes = bytes});
}
base::Status EmulatedDriver::CopyToHost(Stream s, void* dst, const void* src, int64_t bytes) {
  return device_->Add(Call::kCopy, s,
                      {.kind = Op::Kind::kToHost, .dst = dst, .src = src, .bytes = bytes});
}
base::Status EmulatedDriver::CopyOnDevice(Stream s, void* dst, const void* src, int64_t bytes) {
  return device_->Add(Call::kCopy, s,
                      {.kind = Op::Kind::kOnDevice, .dst = dst, .src = src, .bytes = bytes});
}
base::Status EmulatedDriver::Fill(Stream s, void* dst, uint8_t value, int64_t bytes) {
  return device_->Add(Call::kFill, s,
                      {.kind = Op::Kind::kFill, .dst = dst, .bytes = bytes, .value = value});
}

base::Result<EventHandle> EmulatedDriver::CreateEvent(bool timed) {
  if (base::Status s = device_->Enter(Call::kCreateEvent, Device::InCapture::kRefused); !s)
    return s.error();
  void* const handle = device_->NewHandle();
  device_->events[handle] = std::make_shared<EventState>();
  device_->events[handle]->timed = timed;
  return handle;
}
void EmulatedDriver::DestroyEvent(EventHandle e) {
  device_->Destroy(device_->events, e, "DestroyEvent", false);
}

base::Status EmulatedDriver::Record(Stream s, EventHandle e) {
  const auto event = Device::Find(device_->events, e, "Record", "event");
  if (!event) return event.error();
  if (base::Status r = device_->Add(Call::kRecord, s, {.kind = Op::Kind::kRecord, .event = *event});
      !r)
    return r;
  (*event)->stream = device_->streams[s];
  ++(*event)->recorded;
  (*event)->asked = false;
  return {};
}

base::Status EmulatedDriver::Wait(EventHandle e) {
  if (base::Status s = device_->Enter(Call::kWait, Device::InCapture::kRefused); !s) return s;
  const auto event = Device::Find(device_->events, e, "Wait", "event");
  if (!event) return event.error();
  const std::shared_ptr<StreamState> stream = (*event)->stream.lock();
  return stream == nullptr ? base::Status() : device_->Run(*stream, event->get());
}

base::Result<bool> EmulatedDriver::Ready(EventHandle e) {
  if (base::Status s = device_->Enter(Call::kReady, Device::InCapture::kRefused); !s)
    return s.error();
  const auto event = Device::Find(device_->events, e, "Ready", "event");
  if (!event) return event.error();
  EventState& state = **event;
  if (state.done >= state.recorded) return true;
  if (!std::exchange(state.asked, true)) return false;
  if (const std::shared_ptr<StreamState> stream = state.stream.lock()) {
    if (base::Status s = device_->Run(*stream, &state); !s) return s.error();
  }
  return true;
}

base::Result<double> EmulatedDriver::Seconds(EventHandle begin, EventHandle end) {
  if (!device_->lost.empty()) return Broken(device_->lost);
  const auto first = Device::Find(device_->events, begin, "Seconds", "event");
  if (!first) return first.error();
  const auto last = Device::Find(device_->events, end, "Seconds", "event");
  if (!last) return last.error();
  for (const EventState* e : {first->get(), last->get()}) {
    if (!e->timed) return Wrong("Seconds between events that are not timed");
    if (e->recorded == 0 || e->done < e->recorded)
      return Wrong("Seconds between events that have not happened");
  }
  return std::chrono::duration<double>((*last)->time - (*first)->time).count();
}

// --- kernels

base::Result<Module> EmulatedDriver::LoadModule(std::span<const std::byte> /*image*/) {
  if (base::Status s = device_->Enter(Call::kLoadModule, Device::InCapture::kRefused); !s)
    return s.error();
  void* const handle = device_->NewHandle();
  device_->modules[handle] = std::make_shared<ModuleState>();
  return handle;
}

void EmulatedDriver::UnloadModule(Module m) {
  const auto found = device_->modules.find(m);
  if (found != device_->modules.end()) {
    for (const auto& [kernel, function] : found->second->functions)
      device_->functions.erase(function);
  }
  device_->Destroy(device_->modules, m, "UnloadModule", false);
}

base::Result<Function> EmulatedDriver::FindFunction(Module m, const char* name) {
  if (base::Status s = device_->Enter(Call::kFindFunction, Device::InCapture::kAllowed); !s)
    return s.error();
  const auto module = Device::Find(device_->modules, m, "FindFunction", "module");
  if (!module) return module.error();
  const Kernel* kernel = FindKernel(name);
  if (kernel == nullptr)
    return base::Error{base::Code::kNotFound, fmt::format("there is no kernel {}", name)};
  void*& handle = (*module)->functions[kernel];
  if (handle == nullptr) {
    handle = device_->NewHandle();
    device_->functions[handle] = std::make_shared<FunctionState>(FunctionState{.kernel = kernel});
  }
  return handle;
}

base::Status EmulatedDriver::AllowShared(Function f, int64_t bytes) {
  if (base::Status s = device_->Enter(Call::kAllowShared, Device::InCapture::kAllowed); !s)
    return s;
  const auto function = Device::Find(device_->functions, f, "AllowShared", "function");
  if (!function) return function.error();
  if (bytes > device_->options.shared_bytes)
    return Wrong(fmt::format("kernel {}: {} bytes of shared memory, but a block can have {}",
                             (*function)->kernel->name, bytes, device_->options.shared_bytes));
  (*function)->shared_bytes = std::max(kPlainShared, bytes);
  return {};
}

base::Status EmulatedDriver::Launch(Stream s, const LaunchConfig& config, void* args,
                                    size_t args_bytes) {
  const auto function = Device::Find(device_->functions, config.function, "Launch", "function");
  if (!function) return function.error();
  const Kernel& kernel = *(*function)->kernel;
  if (args_bytes != kernel.args_bytes)
    return Wrong(fmt::format("kernel {} takes {} bytes of arguments, not {}", kernel.name,
                             kernel.args_bytes, args_bytes));
  if (config.shared_bytes > (*function)->shared_bytes)
    return Wrong(fmt::format("kernel {}: {} bytes of shared memory, but AllowShared let it have {}",
                             kernel.name, config.shared_bytes, (*function)->shared_bytes));
  const Shape shape = {static_cast<int>(config.grid_x), static_cast<int>(config.grid_y),
                       static_cast<int>(config.threads), static_cast<int>(config.shared_bytes)};
  if (base::Status r = CheckShape(kernel, shape); !r) return r;
  const auto* bytes = static_cast<const std::byte*>(args);
  return device_->Add(Call::kLaunch, s,
                      {.kind = Op::Kind::kKernel,
                       .kernel = &kernel,
                       .shape = shape,
                       .args = std::vector<std::byte>(bytes, bytes + args_bytes)});
}

// --- graphs

base::Status EmulatedDriver::BeginCapture(Stream s) {
  if (base::Status r = device_->Enter(Call::kBeginCapture, Device::InCapture::kRefused); !r)
    return r;
  const auto stream = Device::Find(device_->streams, s, "BeginCapture", "stream");
  if (!stream) return stream.error();
  device_->capturing = s;
  device_->recorded.clear();
  device_->void_because.clear();
  return {};
}

base::Result<GraphExec> EmulatedDriver::EndCapture(Stream s, int64_t* nodes) {
  base::Status entered = device_->Enter(Call::kEndCapture, Device::InCapture::kAllowed);
  if (device_->capturing == nullptr || device_->capturing != s)
    return entered ? Wrong("EndCapture on a stream that is not captured") : entered.error();
  device_->capturing = nullptr;
  auto graph = std::make_shared<GraphState>();
  graph->ops.swap(device_->recorded);
  if (!entered) return entered.error();
  if (!device_->void_because.empty())
    return Broken(fmt::format("the capture is void: {}", device_->void_because));
  if (nodes != nullptr) *nodes = static_cast<int64_t>(graph->ops.size());
  void* const handle = device_->NewHandle();
  device_->graphs[handle] = std::move(graph);
  return handle;
}

base::Status EmulatedDriver::LaunchGraph(Stream s, GraphExec g) {
  const auto graph = Device::Find(device_->graphs, g, "LaunchGraph", "graph");
  if (!graph) return graph.error();
  return device_->Add(Call::kLaunchGraph, s, {.kind = Op::Kind::kGraph, .graph = *graph});
}

void EmulatedDriver::DestroyGraph(GraphExec g) {
  device_->Destroy(device_->graphs, g, "DestroyGraph", true);
}

}  // namespace vt::gpu::emulated
