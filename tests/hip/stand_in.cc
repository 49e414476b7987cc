// See stand_in.h. Work is done when it is given, so that streams are in order by themselves; what
// is recorded in a capture is done by each launch of its graph.
#include "tests/hip/stand_in.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "tests/hip/code_object.h"
#include "tests/hip/device_memory.h"
#include "tests/hip/emulator.h"

namespace hip {
namespace {

using Clock = std::chrono::steady_clock;

// hipError_t
enum Error {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoBinary = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kLaunchFailure = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kUnknown = 999,
};
constexpr int kThreadLocal = 1;           // hipStreamCaptureMode
constexpr size_t kMostShared = 64 << 10;  // of a block, on all of these cards
constexpr unsigned kUntimed = 2;          // hipEventDisableTiming

struct Card {
  const char* arch;
  const char* name;
  int units, wave;  // work-group processors (two compute units) of RDNA, as HIP counts them
};
constexpr Card kCards[] = {
    {"gfx1200", "AMD Radeon RX 9060 XT", 16, 32},  {"gfx1201", "AMD Radeon RX 9070 XT", 32, 32},
    {"gfx1100", "AMD Radeon RX 7900 XTX", 48, 32}, {"gfx1101", "AMD Radeon RX 7800 XT", 30, 32},
    {"gfx942", "AMD Instinct MI300X", 304, 64},    {"gfx90a", "AMD Instinct MI210", 104, 64},
};

struct Module {
  int id = 0;
  int file = -1;
  CodeObject code;
  std::map<std::string, std::unique_ptr<struct Function>> functions;
};
struct Function {
  Module* module = nullptr;
  const KernelMetadata* kernel = nullptr;
};
using Work = std::function<Error()>;
struct Graph {
  std::vector<Work> work;
};
struct Stream {
  bool capturing = false, broken = false;
  std::thread::id thread;
  std::unique_ptr<Graph> graph;
};
struct Event {
  bool timed = true, recorded = false, captured = false;
  Clock::time_point time;
};

class Runtime {
 public:
  Runtime() : memory(Memory()), emulator(memory) {
    const char* arch = std::getenv("HIP_STAND_IN_ARCH");
    for (const Card& c : kCards) {
      if (std::string(arch != nullptr ? arch : kCards[0].arch) == c.arch) card = &c;
    }
    if (const char* fail = std::getenv("HIP_STAND_IN_FAIL"); fail != nullptr) {
      const std::string text = fail;
      const size_t colon = text.find(':');
      planned[text.substr(0, colon)] =
          colon == std::string::npos ? 1 : std::atoll(text.c_str() + colon + 1);
    }
  }
  ~Runtime() {
    const char* path = std::getenv("HIP_STAND_IN_REPORT");
    if (path == nullptr) return;
    if (FILE* f = std::fopen(path, "w"); f != nullptr) {
      for (const auto& [call, count] : counts)
        std::fprintf(f, "%s %lld\n", call.c_str(), static_cast<long long>(count));
      std::fprintf(f, "live %lld\n", static_cast<long long>(Live()));
      for (const auto& [kernel, bytes] : most_shared)
        std::fprintf(f, "shared %s %lld\n", kernel.c_str(), static_cast<long long>(bytes));
      for (const auto& [kernel, threads] : part_threads)
        std::fprintf(f, "part %s %lld\n", kernel.c_str(), static_cast<long long>(threads));
      std::fclose(f);
    }
  }

  // Begins every call: counts it and says whether it fails at once.
  Error Enter(const char* call, bool refused_in_capture = false, Error failure = kUnknown) {
    ++counts[call];
    if (refused_in_capture) {
      for (const auto& [handle, s] : streams) {
        if (!s->capturing || s->thread != std::this_thread::get_id()) continue;
        s->broken = true;
        return Say(kCaptureUnsupported, fmt::format("{} inside a capture", call));
      }
    }
    if (lost) return kLaunchFailure;
    int64_t& n = planned[call];
    if (n > 0 && --n == 0) {
      Break();
      return failure;
    }
    return card == nullptr ? kNoDevice : kSuccess;
  }
  // A failed call voids the capture that this thread has begun.
  void Break() {
    for (const auto& [handle, s] : streams) {
      if (s->capturing && s->thread == std::this_thread::get_id()) s->broken = true;
    }
  }
  Error Say(Error e, const std::string& what) {
    std::fprintf(stderr, "hip stand-in: %s\n", what.c_str());
    return e;
  }
  template <class T>
  static T* Find(const std::map<void*, std::unique_ptr<T>>& all, void* handle) {
    const auto found = all.find(handle);
    return found == all.end() ? nullptr : found->second.get();
  }
  template <class T>
  void* Keep(std::map<void*, std::unique_ptr<T>>& all, std::unique_ptr<T> object) {
    void* handle = object.get();
    all[handle] = std::move(object);
    return handle;
  }

  // Does or records what a call has put into a stream.
  Error Give(void* handle, const char* call, Work work) {
    Stream* s = Find(streams, handle);
    if (s == nullptr) {
      Break();
      return Say(handle == nullptr ? kCaptureImplicit : kInvalidHandle,
                 fmt::format("{} on what is no stream of this program", call));
    }
    if (s->capturing) {
      if (s->thread != std::this_thread::get_id()) {
        s->broken = true;
        return Say(kCaptureWrongThread,
                   fmt::format("{} on a stream that another thread captures", call));
      }
      if (s->broken) return kCaptureInvalidated;
      s->graph->work.push_back(std::move(work));
      return kSuccess;
    }
    for (const auto& [other, state] : streams) {
      if (!state->capturing || state->thread != std::this_thread::get_id()) continue;
      state->broken = true;
      return Say(kCaptureUnsupported, fmt::format("{} on another stream inside a capture", call));
    }
    return work();
  }

  Error Copy(void* to, const void* from, size_t bytes, bool to_device, bool from_device) {
    if ((to_device && !memory.Inside(to, bytes)) || (from_device && !memory.Inside(from, bytes)))
      return Say(kInvalidValue,
                 fmt::format("a copy of {} bytes is not inside one live allocation", bytes));
    std::memmove(to, from, bytes);
    return kSuccess;
  }

  struct Launch {
    const Function* function = nullptr;
    Emulator::Shape shape;
    std::string arguments;  // the whole segment, hidden ones too
  };
  Error Run(const Launch& l) {
    const std::string& name = l.function->kernel->name;
    ++counts["kernels"];
    ++counts["kernel " + name];
    most_shared[name] = std::max<int64_t>(most_shared[name], l.shape.shared_bytes);
    if (!part.empty())
      part_threads[part + " " + name] +=
          int64_t{1} * l.shape.grid_x * l.shape.grid_y * l.shape.threads;
    if (!Emulator::Wanted()) return kSuccess;
    std::memcpy(memory.arguments(), l.arguments.data(), l.arguments.size());
    std::string failed = emulator.Launch(l.function->module->id, name, l.shape, memory.arguments());
    if (failed.empty()) failed = memory.BrokenGuard();
    if (failed.empty()) return kSuccess;
    lost = true;
    return Say(kLaunchFailure, fmt::format("kernel {}: {}", name, failed));
  }

  int64_t Live() const {
    return static_cast<int64_t>(memory.live() + host.size() + streams.size() + events.size() +
                                modules.size() + graphs.size() + executables.size()) +
           ranges;
  }

  std::recursive_mutex mutex;
  const Card* card = nullptr;
  DeviceMemory memory;
  Emulator emulator;
  bool lost = false;
  std::map<std::string, int64_t> counts, planned, most_shared;
  std::string part;                             // of a test
  std::map<std::string, int64_t> part_threads;  // by part and kernel
  std::set<std::string> kernels;                // that were loaded
  std::set<void*> host;
  std::map<void*, std::unique_ptr<Stream>> streams;
  std::map<void*, std::unique_ptr<Event>> events;
  std::map<void*, std::unique_ptr<Module>> modules;
  std::map<void*, std::unique_ptr<Graph>> graphs, executables;
  int next_module = 0;
  int64_t ranges = 0;  // that are open

 private:
  static size_t Memory() {
    const char* mib = std::getenv("HIP_STAND_IN_MEMORY");
    return (mib != nullptr ? std::strtoull(mib, nullptr, 10) : 512) << 20;
  }
};

Runtime& TheRuntime() {
  static Runtime runtime;  // a driver is one a process
  return runtime;
}

// One call of the runtime: `body(runtime)` after the call was counted and found to be allowed.
template <class Body>
int Call(const char* name, Body body, bool refused_in_capture = false, Error failure = kUnknown) {
  Runtime& r = TheRuntime();
  const std::lock_guard lock(r.mutex);
  if (const Error e = r.Enter(name, refused_in_capture, failure); e != kSuccess) return e;
  return body(r);
}
constexpr bool kRefusedInCapture = true;

// The segment of a kernel's arguments as the runtime fills it.
std::string ArgumentsOf(const KernelMetadata& k, const Emulator::Shape& s, void** values) {
  std::string segment(static_cast<size_t>(k.argument_bytes), '\0');
  const auto put = [&](const KernelArgument& a, uint64_t v) {
    std::memcpy(segment.data() + a.offset, &v, static_cast<size_t>(std::min<int64_t>(a.size, 8)));
  };
  size_t next = 0;
  for (const KernelArgument& a : k.arguments) {
    if (!a.kind.starts_with("hidden_")) {
      std::memcpy(segment.data() + a.offset, values[next++], static_cast<size_t>(a.size));
    } else if (a.kind == "hidden_block_count_x") {
      put(a, s.grid_x);
    } else if (a.kind == "hidden_block_count_y") {
      put(a, s.grid_y);
    } else if (a.kind == "hidden_group_size_x") {
      put(a, s.threads);
    } else if (a.kind == "hidden_block_count_z" || a.kind == "hidden_group_size_y" ||
               a.kind == "hidden_group_size_z") {
      put(a, 1);
    } else if (a.kind == "hidden_grid_dims") {
      put(a, s.grid_y > 1 ? 2 : 1);
    }
  }
  return segment;
}

}  // namespace
}  // namespace hip

using namespace hip;  // NOLINT: the rest is the runtime's C interface

#define HIP_ extern "C" __attribute__((visibility("default")))

HIP_ void hip_stand_in_fail(const char* call, int64_t n) { TheRuntime().planned[call] = n; }
HIP_ int64_t hip_stand_in_count(const char* call) {
  Runtime& r = TheRuntime();
  return std::string(call) == "live" ? r.Live() : r.counts[call];
}
HIP_ const char* hip_stand_in_shared() {
  static std::string lines;
  lines.clear();
  for (const auto& [name, bytes] : TheRuntime().most_shared)
    lines += fmt::format("{} {}\n", name, bytes);
  return lines.c_str();
}
HIP_ void hip_stand_in_part(const char* name) { TheRuntime().part = name; }
HIP_ const char* hip_stand_in_idle() {
  static std::string names;
  Runtime& r = TheRuntime();
  names.clear();
  for (const std::string& k : r.kernels) {
    if (!r.counts.contains("kernel " + k)) names += k + "\n";
  }
  return names.c_str();
}
HIP_ int hip_stand_in_emulates() { return Emulator::Wanted(); }

HIP_ const char* hipGetErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kOutOfMemory:
      return "out of memory";
    case kNoDevice:
      return "no ROCm-capable device is detected";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kNoBinary:
      return "no kernel image is available for execution on the device";
    case kInvalidHandle:
      return "invalid resource handle";
    case kNotFound:
      return "named symbol not found";
    case kLaunchFailure:
      return "unspecified launch failure";
    case kCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case kCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case kCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case kCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case kCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    default:
      return "unknown error";
  }
}
HIP_ int hipGetLastError() { return kSuccess; }

// --- devices
HIP_ int hipInit(unsigned) {
  return Call("hipInit", [](Runtime&) { return kSuccess; });
}
HIP_ int hipDriverGetVersion(int* version) {
  return Call("hipDriverGetVersion", [&](Runtime&) {
    *version = 60443483;  // 6.4.43483
    return kSuccess;
  });
}
HIP_ int hipGetDeviceCount(int* count) {
  *count = 0;
  return Call("hipGetDeviceCount", [&](Runtime&) {
    *count = 1;
    return kSuccess;
  });
}
HIP_ int hipDeviceGetName(char* name, int size, int device) {
  return Call("hipDeviceGetName", [&](Runtime& r) {
    if (device != 0) return kInvalidDevice;
    std::snprintf(name, static_cast<size_t>(size), "%s", r.card->name);
    return kSuccess;
  });
}
HIP_ int hipDeviceGetAttribute(int* value, int attribute, int device) {
  return Call("hipDeviceGetAttribute", [&](Runtime& r) {
    if (device != 0) return kInvalidDevice;
    switch (attribute) {  // hipDeviceAttribute_t
      case 23:            // compute capability: the first digits of the architecture
        *value = r.card->wave == 64 ? 9 : std::atoi(r.card->arch + 3) / 100;
        return kSuccess;
      case 61:
        *value = r.card->wave == 64 ? 4 : 0;
        return kSuccess;
      case 63:
        *value = r.card->units;
        return kSuccess;
      case 74:
        *value = kMostShared;
        return kSuccess;
      case 87:
        *value = r.card->wave;
        return kSuccess;
      default:
        return r.Say(kInvalidValue, fmt::format("attribute {} is not known here", attribute));
    }
  });
}
HIP_ int hipDeviceTotalMem(size_t* bytes, int device) {
  return Call("hipDeviceTotalMem", [&](Runtime& r) {
    if (device != 0) return kInvalidDevice;
    *bytes = r.memory.total_bytes();
    return kSuccess;
  });
}
// As ROCm 6 and 7 have it: the architecture's name is 256 bytes at 1160.
HIP_ int hipGetDevicePropertiesR0600(void* properties, int device) {
  return Call("hipGetDevicePropertiesR0600", [&](Runtime& r) {
    if (device != 0) return kInvalidDevice;
    std::memset(properties, 0, 1472);
    char* p = static_cast<char*>(properties);
    std::snprintf(p, 256, "%s", r.card->name);
    const bool features = r.card->wave == 64;
    std::snprintf(p + 1160, 256, "%s%s", r.card->arch, features ? ":sramecc+:xnack-" : "");
    return kSuccess;
  });
}
HIP_ int hipSetDevice(int device) {
  return Call("hipSetDevice", [&](Runtime&) { return device == 0 ? kSuccess : kInvalidDevice; });
}

// --- memory
HIP_ int hipMalloc(void** p, size_t bytes) {
  return Call(
      "hipMalloc",
      [&](Runtime& r) {
        *p = r.memory.Allocate(bytes);
        return *p != nullptr ? kSuccess : kOutOfMemory;
      },
      kRefusedInCapture, kOutOfMemory);
}
HIP_ int hipFree(void* p) {
  return Call(
      "hipFree", [&](Runtime& r) { return r.memory.Free(p) ? kSuccess : kInvalidValue; },
      kRefusedInCapture);
}
HIP_ int hipHostMalloc(void** p, size_t bytes, unsigned) {
  return Call(
      "hipHostMalloc",
      [&](Runtime& r) {
        *p = std::malloc(bytes);
        std::memset(*p, 0xff, bytes);
        r.host.insert(*p);
        return kSuccess;
      },
      kRefusedInCapture, kOutOfMemory);
}
HIP_ int hipHostFree(void* p) {
  return Call(
      "hipHostFree",
      [&](Runtime& r) {
        if (r.host.erase(p) == 0) return kInvalidValue;
        std::free(p);
        return kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipMemGetInfo(size_t* free, size_t* total) {
  return Call(
      "hipMemGetInfo",
      [&](Runtime& r) {
        *total = r.memory.total_bytes();
        *free = *total - r.memory.live_bytes();
        return kSuccess;
      },
      kRefusedInCapture);
}

// --- streams and copies
HIP_ int hipStreamCreateWithFlags(void** stream, unsigned) {
  return Call(
      "hipStreamCreateWithFlags",
      [&](Runtime& r) {
        *stream = r.Keep(r.streams, std::make_unique<Stream>());
        return kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipStreamDestroy(void* stream) {
  return Call(
      "hipStreamDestroy",
      [&](Runtime& r) { return r.streams.erase(stream) == 1 ? kSuccess : kInvalidHandle; },
      kRefusedInCapture);
}
HIP_ int hipStreamSynchronize(void* stream) {
  return Call(
      "hipStreamSynchronize",
      [&](Runtime& r) { return r.streams.contains(stream) ? kSuccess : kInvalidHandle; },
      kRefusedInCapture);
}
HIP_ int hipMemcpyHtoDAsync(void* to, const void* from, size_t bytes, void* stream) {
  return Call("hipMemcpyHtoDAsync", [&](Runtime& r) {
    return r.Give(stream, "hipMemcpyHtoDAsync",
                  [&r, to, from, bytes] { return r.Copy(to, from, bytes, true, false); });
  });
}
HIP_ int hipMemcpyDtoHAsync(void* to, const void* from, size_t bytes, void* stream) {
  return Call("hipMemcpyDtoHAsync", [&](Runtime& r) {
    return r.Give(stream, "hipMemcpyDtoHAsync",
                  [&r, to, from, bytes] { return r.Copy(to, from, bytes, false, true); });
  });
}
HIP_ int hipMemcpyDtoDAsync(void* to, const void* from, size_t bytes, void* stream) {
  return Call("hipMemcpyDtoDAsync", [&](Runtime& r) {
    return r.Give(stream, "hipMemcpyDtoDAsync",
                  [&r, to, from, bytes] { return r.Copy(to, from, bytes, true, true); });
  });
}
HIP_ int hipMemsetD8Async(void* to, unsigned char value, size_t bytes, void* stream) {
  return Call("hipMemsetD8Async", [&](Runtime& r) {
    return r.Give(stream, "hipMemsetD8Async", [&r, to, value, bytes] {
      if (!r.memory.Inside(to, bytes))
        return r.Say(kInvalidValue, "a fill is not inside one live allocation");
      std::memset(to, value, bytes);
      return kSuccess;
    });
  });
}

// --- events
HIP_ int hipEventCreateWithFlags(void** event, unsigned flags) {
  return Call(
      "hipEventCreateWithFlags",
      [&](Runtime& r) {
        auto e = std::make_unique<Event>();
        e->timed = (flags & kUntimed) == 0;
        *event = r.Keep(r.events, std::move(e));
        return kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipEventDestroy(void* event) {
  return Call("hipEventDestroy",
              [&](Runtime& r) { return r.events.erase(event) == 1 ? kSuccess : kInvalidHandle; });
}
HIP_ int hipEventRecord(void* event, void* stream) {
  return Call("hipEventRecord", [&](Runtime& r) {
    Event* e = r.Find(r.events, event);
    const Stream* s = r.Find(r.streams, stream);
    if (e == nullptr || s == nullptr) return kInvalidHandle;
    e->captured = s->capturing;
    if (s->capturing) return s->broken ? kCaptureInvalidated : kSuccess;
    e->recorded = true;
    e->time = Clock::now();
    return kSuccess;
  });
}
HIP_ int hipEventSynchronize(void* event) {
  return Call(
      "hipEventSynchronize",
      [&](Runtime& r) {
        const Event* e = r.Find(r.events, event);
        if (e == nullptr) return kInvalidHandle;
        return e->captured ? kCapturedEvent : kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipEventQuery(void* event) {
  return Call(
      "hipEventQuery",
      [&](Runtime& r) {
        const Event* e = r.Find(r.events, event);
        if (e == nullptr) return kInvalidHandle;
        return e->captured ? kCapturedEvent : kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return Call(
      "hipEventElapsedTime",
      [&](Runtime& r) {
        const Event *b = r.Find(r.events, begin), *e = r.Find(r.events, end);
        if (b == nullptr || e == nullptr || !b->timed || !e->timed || !b->recorded || !e->recorded)
          return kInvalidHandle;
        *milliseconds = std::chrono::duration<float, std::milli>(e->time - b->time).count();
        return kSuccess;
      },
      kRefusedInCapture);
}

// --- kernels
HIP_ int hipModuleLoadData(void** module, const void* image) {
  return Call(
      "hipModuleLoadData",
      [&](Runtime& r) -> Error {
        const size_t bytes = CodeObjectBytes(image);
        base::Result<CodeObject> code =
            ParseCodeObject({static_cast<const std::byte*>(image), bytes});
        if (!code) return r.Say(kNoBinary, code.error().message);
        if (code->arch != r.card->arch) return kNoBinary;
        auto m = std::make_unique<Module>();
        m->id = ++r.next_module;
        m->code = *std::move(code);
        for (const KernelMetadata& k : m->code.kernels) r.kernels.insert(k.name);
        if (Emulator::Wanted()) {
          m->file = memfd_create("hip_module", MFD_CLOEXEC);
          if (write(m->file, image, bytes) != static_cast<ssize_t>(bytes)) return kOutOfMemory;
          const std::string failed =
              r.emulator.Load(m->id, fmt::format("/proc/{}/fd/{}", getpid(), m->file));
          if (!failed.empty()) return r.Say(kNoBinary, failed);
        }
        *module = r.Keep(r.modules, std::move(m));
        return kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipModuleUnload(void* module) {
  return Call(
      "hipModuleUnload",
      [&](Runtime& r) {
        const Module* m = r.Find(r.modules, module);
        if (m == nullptr) return kInvalidHandle;
        if (m->file >= 0) {
          r.emulator.Unload(m->id);
          close(m->file);
        }
        r.modules.erase(module);
        return kSuccess;
      },
      kRefusedInCapture);
}
HIP_ int hipModuleGetFunction(void** function, void* module, const char* name) {
  return Call("hipModuleGetFunction", [&](Runtime& r) {
    Module* m = r.Find(r.modules, module);
    if (m == nullptr) return kInvalidHandle;
    for (const KernelMetadata& k : m->code.kernels) {
      if (k.name != name) continue;
      std::unique_ptr<Function>& f = m->functions[k.name];
      if (f == nullptr) f = std::make_unique<Function>(Function{m, &k});
      *function = f.get();
      return kSuccess;
    }
    return kNotFound;
  });
}
HIP_ int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, void* stream, void** values, void** extra) {
  return Call("hipModuleLaunchKernel", [&](Runtime& r) {
    const Function* f = nullptr;
    for (const auto& [handle, m] : r.modules) {
      for (const auto& [name, one] : m->functions) {
        if (one.get() == function) f = one.get();
      }
    }
    if (f == nullptr) return r.Say(kInvalidHandle, "a launch of what is no kernel (or no longer)");
    const KernelMetadata& k = *f->kernel;
    const Emulator::Shape shape = {grid_x, grid_y, block_x, shared_bytes};
    if (grid_x == 0 || grid_y == 0 || grid_y > 65535 || grid_z != 1 || block_x == 0 ||
        block_y != 1 || block_z != 1 || extra != nullptr || values == nullptr ||
        block_x > static_cast<unsigned>(k.most_threads) ||
        shared_bytes + static_cast<size_t>(k.shared_bytes) > kMostShared) {
      r.Break();
      return r.Say(
          kInvalidValue,
          fmt::format("kernel {} cannot be launched as {} x {} blocks of {} threads (at most {}) "
                      "with {} bytes of shared memory",
                      k.name, grid_x, grid_y, block_x, k.most_threads, shared_bytes));
    }
    const auto launch =
        std::make_shared<Runtime::Launch>(Runtime::Launch{f, shape, ArgumentsOf(k, shape, values)});
    return r.Give(stream, "hipModuleLaunchKernel", [&r, launch] { return r.Run(*launch); });
  });
}

// --- graphs
HIP_ int hipStreamBeginCapture(void* stream, int mode) {
  return Call("hipStreamBeginCapture", [&](Runtime& r) {
    Stream* s = r.Find(r.streams, stream);
    if (s == nullptr) return kInvalidHandle;
    if (mode != kThreadLocal) return r.Say(kInvalidValue, "captures here are thread-local");
    if (s->capturing) return r.Say(kInvalidValue, "the stream is being captured already");
    *s = {true, false, std::this_thread::get_id(), std::make_unique<Graph>()};
    return kSuccess;
  });
}
HIP_ int hipStreamEndCapture(void* stream, void** graph) {
  *graph = nullptr;
  return Call("hipStreamEndCapture", [&](Runtime& r) {
    Stream* s = r.Find(r.streams, stream);
    if (s == nullptr || !s->capturing) return kInvalidValue;
    if (s->thread != std::this_thread::get_id()) return kCaptureWrongThread;
    s->capturing = false;
    std::unique_ptr<Graph> done = std::move(s->graph);
    if (s->broken) return kCaptureInvalidated;
    *graph = r.Keep(r.graphs, std::move(done));
    return kSuccess;
  });
}
HIP_ int hipGraphGetNodes(void* graph, void** nodes, size_t* count) {
  return Call("hipGraphGetNodes", [&](Runtime& r) {
    const Graph* g = r.Find(r.graphs, graph);
    if (g == nullptr || nodes != nullptr) return kInvalidValue;
    *count = g->work.size();
    return kSuccess;
  });
}
HIP_ int hipGraphInstantiate(void** executable, void* graph, void*, char*, size_t) {
  return Call(
      "hipGraphInstantiate",
      [&](Runtime& r) {
        const Graph* g = r.Find(r.graphs, graph);
        if (g == nullptr) return kInvalidValue;
        *executable = r.Keep(r.executables, std::make_unique<Graph>(*g));
        return kSuccess;
      },
      kRefusedInCapture, kOutOfMemory);
}
HIP_ int hipGraphLaunch(void* executable, void* stream) {
  return Call(
      "hipGraphLaunch",
      [&](Runtime& r) {
        const Graph* g = r.Find(r.executables, executable);
        if (g == nullptr)
          return r.Say(kInvalidValue, "a launch of what is no graph (or no longer)");
        return r.Give(stream, "hipGraphLaunch", [&r, g] {
          for (const Work& work : g->work) {
            if (const Error e = work(); e != kSuccess) return r.lost = true, kLaunchFailure;
          }
          return kSuccess;
        });
      },
      kRefusedInCapture);
}
HIP_ int hipGraphDestroy(void* graph) {
  return Call("hipGraphDestroy",
              [&](Runtime& r) { return r.graphs.erase(graph) == 1 ? kSuccess : kInvalidValue; });
}
HIP_ int hipGraphExecDestroy(void* executable) {
  return Call(
      "hipGraphExecDestroy",
      [&](Runtime& r) { return r.executables.erase(executable) == 1 ? kSuccess : kInvalidValue; },
      kRefusedInCapture);
}

// --- ranges of the profiler (roctx), which belong to a thread: what is popped was pushed
HIP_ int roctxRangePushA(const char* name) {
  Runtime& r = TheRuntime();
  const std::lock_guard lock(r.mutex);
  ++r.counts["roctxRangePushA"];
  ++r.counts[std::string("range ") + name];
  return static_cast<int>(r.ranges++);
}
HIP_ int roctxRangePop() {
  Runtime& r = TheRuntime();
  const std::lock_guard lock(r.mutex);
  ++r.counts["roctxRangePop"];
  return r.ranges == 0 ? -1 : static_cast<int>(--r.ranges);
}
