#include "vt/gpu/vendor_driver.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/os/module.h"
#include "base/strings.h"
#include "vt/gpu/vendor_names.h"

namespace vt::gpu {
namespace {

// Codes that both drivers share.
constexpr int kOutOfMemory = 2, kNoDevice = 100, kNoBinary = 209, kNotReady = 600;
constexpr unsigned kEventUntimed = 2, kNonBlocking = 1, kThreadLocalCapture = 1;
constexpr int kMaxDynamicShared = 8, kSharedShare = 9;  // attributes of a CUDA function

// CUlaunchConfig and CUlaunchAttribute.
struct EarlyAttribute {
  int id = 6;  // programmatic stream serialization
  int pad = 0;
  int allowed = 1;
  char rest[60] = {};
};
struct EarlyConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  EarlyAttribute* attributes;
  unsigned attribute_count;
};

class VendorDriver : public Driver {
 public:
  VendorDriver(const VendorNames& names, std::vector<std::string> libraries)
      : names_(names), libraries_(std::move(libraries)) {
    if (libraries_.empty()) libraries_ = names.libraries;
  }

  base::Result<int> DeviceCount() override {
    if (base::Status s = Load(); !s) return s.error();
    int count = 0;
    const int code = device_count_(&count);
    if (base::Status s = Check(code, names_.device_count); !s) return s.error();
    if (count == 0) return NoCard();
    return count;
  }

  base::Result<DeviceProperties> Properties(int index) override {
    if (base::Status s = Load(); !s) return s.error();
    DeviceProperties p;
    char name[256] = {};
    size_t total = 0;
    int major = 0, minor = 0, shared = 0;
    base::Status s = Check(device_name_(name, sizeof name - 1, index), names_.device_name);
    if (s) s = Check(total_memory_(&total, index), names_.total_memory);
    const auto attribute = [&](int* to, int which) {
      if (s) s = Check(device_attribute_(to, which, index), names_.device_attribute);
    };
    attribute(&p.units, names_.units);
    attribute(&p.wave, names_.wave);
    attribute(&shared, names_.shared_per_block);
    attribute(&major, names_.major);
    attribute(&minor, names_.minor);
    if (s) s = Check(driver_version_(&p.driver_version), names_.driver_version);
    if (!s) return s.error();
    p.name = name;
    p.total_bytes = p.free_bytes = total;
    p.shared_bytes = shared;
    if (properties_ != nullptr) {
      p.arch = Architecture(index);
    } else {
      p.arch = fmt::format("sm_{}{}", major, minor);
    }
    p.early_launch = launch_early_ != nullptr && major >= 9;
    return p;
  }

  base::Status Open(int index) override {
    const base::Result<int> count = DeviceCount();
    if (!count) return count.error();
    index_ = index;
    if (retain_ != nullptr) {
      if (base::Status s = Check(retain_(&context_, index), names_.retain); !s) return s;
    }
    return MakeCurrent();
  }
  base::Status MakeCurrent() override {
    return Check(retain_ != nullptr ? current_context_(context_) : current_index_(index_),
                 names_.current);
  }

  base::Result<void*> Allocate(int64_t bytes) override {
    void* p = nullptr;
    if (base::Status s = Check(allocate_(&p, static_cast<size_t>(bytes)), names_.allocate); !s)
      return s.error();
    return p;
  }
  base::Status Free(void* p) override {
    return p == nullptr ? base::Status() : Check(free_(p), names_.free);
  }
  base::Result<void*> AllocateHost(int64_t bytes) override {
    void* p = nullptr;
    if (base::Status s =
            Check(allocate_host_(&p, static_cast<size_t>(bytes), 0), names_.allocate_host);
        !s)
      return s.error();
    return p;
  }
  base::Status FreeHost(void* p) override {
    return p == nullptr ? base::Status() : Check(free_host_(p), names_.free_host);
  }
  base::Result<std::pair<uint64_t, uint64_t>> MemoryInfo() override {
    size_t free = 0, total = 0;
    if (base::Status s = Check(memory_info_(&free, &total), names_.memory_info); !s)
      return s.error();
    return std::pair<uint64_t, uint64_t>(free, total);
  }

  base::Result<Stream> CreateStream() override {
    Stream s = nullptr;
    if (base::Status done = Check(stream_create_(&s, kNonBlocking), names_.stream_create); !done)
      return done.error();
    return s;
  }
  void DestroyStream(Stream s) override { stream_destroy_(s); }
  base::Status Synchronize(Stream s) override {
    return Check(stream_synchronize_(s), names_.stream_synchronize);
  }
  base::Status CopyToDevice(Stream s, void* dst, const void* src, int64_t bytes) override {
    return Check(copy_to_device_(dst, src, static_cast<size_t>(bytes), s), names_.copy_to_device);
  }
  base::Status CopyToHost(Stream s, void* dst, const void* src, int64_t bytes) override {
    return Check(copy_to_host_(dst, src, static_cast<size_t>(bytes), s), names_.copy_to_host);
  }
  base::Status CopyOnDevice(Stream s, void* dst, const void* src, int64_t bytes) override {
    return Check(copy_on_device_(dst, src, static_cast<size_t>(bytes), s), names_.copy_on_device);
  }
  base::Status Fill(Stream s, void* dst, uint8_t value, int64_t bytes) override {
    return Check(fill_(dst, value, static_cast<size_t>(bytes), s), names_.fill);
  }

  base::Result<EventHandle> CreateEvent(bool timed) override {
    EventHandle e = nullptr;
    if (base::Status s = Check(event_create_(&e, timed ? 0 : kEventUntimed), names_.event_create);
        !s)
      return s.error();
    return e;
  }
  void DestroyEvent(EventHandle e) override { event_destroy_(e); }
  base::Status Record(Stream s, EventHandle e) override {
    return Check(event_record_(e, s), names_.event_record);
  }
  base::Status Wait(EventHandle e) override { return Check(event_wait_(e), names_.event_wait); }
  base::Result<bool> Ready(EventHandle e) override {
    const int code = event_query_(e);
    if (code == kNotReady) return false;
    if (base::Status s = Check(code, names_.event_query); !s) return s.error();
    return true;
  }
  base::Result<double> Seconds(EventHandle begin, EventHandle end) override {
    float milliseconds = 0;
    if (base::Status s = Check(event_elapsed_(&milliseconds, begin, end), names_.event_elapsed); !s)
      return s.error();
    return milliseconds * 1e-3;
  }

  base::Result<Module> LoadModule(std::span<const std::byte> image) override {
    Module m = nullptr;
    if (base::Status s = Check(module_load_(&m, image.data()), names_.module_load); !s)
      return s.error();
    return m;
  }
  void UnloadModule(Module m) override { module_unload_(m); }
  base::Result<Function> FindFunction(Module m, const char* name) override {
    Function f = nullptr;
    if (base::Status s = Check(module_function_(&f, m, name), names_.module_function); !s)
      return s.error();
    return f;
  }
  base::Status AllowShared(Function f, int64_t bytes) override {
    if (function_attribute_ == nullptr) return {};
    base::Status s = Check(function_attribute_(f, kMaxDynamicShared, static_cast<int>(bytes)),
                           names_.function_attribute);
    // All that there is, so that several blocks share a multiprocessor. Kernels that need little
    // keep a large cache instead: their loads under way are held in it.
    if (s) s = Check(function_attribute_(f, kSharedShare, 100), names_.function_attribute);
    return s;
  }
  base::Status Launch(Stream s, const LaunchConfig& c, void* args, size_t) override {
    void* params[] = {args};
    if (c.early && launch_early_ != nullptr) {
      EarlyAttribute attribute;
      const EarlyConfig config = {c.grid_x, c.grid_y,       1, c.threads,  1,
                                  1,        c.shared_bytes, s, &attribute, 1};
      return Check(launch_early_(&config, c.function, params, nullptr), names_.launch_early);
    }
    return Check(launch_(c.function, c.grid_x, c.grid_y, 1, c.threads, 1, 1, c.shared_bytes, s,
                         params, nullptr),
                 names_.launch);
  }

  base::Status BeginCapture(Stream s) override {
    return Check(capture_begin_(s, kThreadLocalCapture), names_.capture_begin);
  }
  base::Result<GraphExec> EndCapture(Stream s, int64_t* nodes) override {
    void* graph = nullptr;
    if (base::Status done = Check(capture_end_(s, &graph), names_.capture_end); !done)
      return done.error();
    size_t count = 0;
    base::Status done = Check(graph_nodes_(graph, nullptr, &count), names_.graph_nodes);
    GraphExec exec = nullptr;
    if (done) {
      const int code = names_.instantiate_takes_log
                           ? instantiate_log_(&exec, graph, nullptr, nullptr, 0)
                           : instantiate_flags_(&exec, graph, 0);
      done = Check(code, names_.graph_instantiate);
    }
    graph_destroy_(graph);
    if (!done) return done.error();
    if (nodes != nullptr) *nodes = static_cast<int64_t>(count);
    return exec;
  }
  base::Status LaunchGraph(Stream s, GraphExec g) override {
    return Check(graph_launch_(g, s), names_.graph_launch);
  }
  void DestroyGraph(GraphExec g) override { exec_destroy_(g); }

 private:
  template <typename F>
  void Find(F& to, const std::string& name) {
    if (name.empty() || !status_) return;
    base::Result<void*> symbol = base::os::FindSymbol(library_, name);
    if (symbol) {
      to = reinterpret_cast<F>(*symbol);
    } else {
      status_ =
          base::Error{base::Code::kUnavailable,
                      fmt::format("{}: the driver is too old: it has no {}", names_.label, name)};
    }
  }

  // Once; the answer is kept.
  base::Status Load() {
    if (loaded_) return status_;
    loaded_ = true;
    for (const std::string& name : libraries_) {
      base::Result<void*> library = base::os::OpenModule(name);
      if (!library) continue;
      library_ = *library;
      break;
    }
    if (library_ == nullptr) {
      status_ = base::Error{base::Code::kUnavailable,
                            fmt::format("{}: {}", names_.label, names_.missing)};
      return status_;
    }
    Find(init_, names_.init);
    Find(driver_version_, names_.driver_version);
    Find(device_count_, names_.device_count);
    Find(device_name_, names_.device_name);
    Find(device_attribute_, names_.device_attribute);
    Find(total_memory_, names_.total_memory);
    Find(retain_, names_.retain);
    if (retain_ != nullptr) {
      Find(current_context_, names_.current);
    } else {
      Find(current_index_, names_.current);
    }
    Find(allocate_, names_.allocate);
    Find(free_, names_.free);
    Find(allocate_host_, names_.allocate_host);
    Find(free_host_, names_.free_host);
    Find(memory_info_, names_.memory_info);
    Find(stream_create_, names_.stream_create);
    Find(stream_destroy_, names_.stream_destroy);
    Find(stream_synchronize_, names_.stream_synchronize);
    Find(copy_to_device_, names_.copy_to_device);
    Find(copy_to_host_, names_.copy_to_host);
    Find(copy_on_device_, names_.copy_on_device);
    Find(fill_, names_.fill);
    Find(event_create_, names_.event_create);
    Find(event_destroy_, names_.event_destroy);
    Find(event_record_, names_.event_record);
    Find(event_wait_, names_.event_wait);
    Find(event_query_, names_.event_query);
    Find(event_elapsed_, names_.event_elapsed);
    Find(module_load_, names_.module_load);
    Find(module_unload_, names_.module_unload);
    Find(module_function_, names_.module_function);
    Find(launch_, names_.launch);
    Find(function_attribute_, names_.function_attribute);
    Find(launch_early_, names_.launch_early);
    Find(capture_begin_, names_.capture_begin);
    Find(capture_end_, names_.capture_end);
    if (names_.instantiate_takes_log) {
      Find(instantiate_log_, names_.graph_instantiate);
    } else {
      Find(instantiate_flags_, names_.graph_instantiate);
    }
    Find(graph_nodes_, names_.graph_nodes);
    Find(graph_launch_, names_.graph_launch);
    Find(graph_destroy_, names_.graph_destroy);
    Find(exec_destroy_, names_.exec_destroy);
    if (names_.error_text_by_pointer) {
      Find(error_text_to_, names_.error_text);
    } else {
      Find(error_text_, names_.error_text);
    }
    if (!names_.properties.empty()) {
      // The structure grew in ROCm 6, which has the new one under a name of its own.
      base::Result<void*> newer = base::os::FindSymbol(library_, names_.properties + "R0600");
      if (newer) {
        properties_ = reinterpret_cast<decltype(properties_)>(*newer);
      } else {
        Find(properties_, names_.properties);
      }
    }
    if (status_) status_ = Check(init_(0), names_.init);
    if (!status_ && status_.error().code == base::Code::kInternal) {
      status_ = base::Error{base::Code::kUnavailable, status_.error().message};
    }
    return status_;
  }

  // "gfx1200": searched for in the properties, whose layout differs from version to version.
  std::string Architecture(int index) {
    std::vector<char> p(16384);
    if (properties_(p.data(), index) != 0) return "gfx?";
    for (size_t i = 0; i + 3 < p.size(); ++i) {
      if (std::memcmp(&p[i], "gfx", 3) != 0) continue;
      std::string arch(&p[i]);
      return arch.substr(0, arch.find(':'));  // without features, like ":sramecc+"
    }
    return "gfx?";
  }

  base::Error NoCard() const {
    return {base::Code::kUnavailable,
            fmt::format("{}: the driver is there, but no card", names_.label)};
  }

  base::Status Check(int code, const std::string& call) {
    if (code == 0) return {};
    if (code == kNoDevice) return NoCard();
    const char* text = nullptr;
    if (error_text_to_ != nullptr) {
      error_text_to_(code, &text);
    } else if (error_text_ != nullptr) {
      text = error_text_(code);
    }
    base::Code kind = base::Code::kInternal;
    if (code == kOutOfMemory) kind = base::Code::kResourceExhausted;
    if (code == kNoBinary) kind = base::Code::kUnsupported;
    return base::Error{kind, fmt::format("{}: {} failed: {} ({})", names_.label, call,
                                         text != nullptr ? text : "unknown error", code)};
  }

  const VendorNames& names_;
  std::vector<std::string> libraries_;
  void* library_ = nullptr;
  bool loaded_ = false;
  base::Status status_;
  int index_ = 0;
  void* context_ = nullptr;

  int (*init_)(unsigned) = nullptr;
  int (*driver_version_)(int*) = nullptr;
  int (*device_count_)(int*) = nullptr;
  int (*device_name_)(char*, int, int) = nullptr;
  int (*device_attribute_)(int*, int, int) = nullptr;
  int (*total_memory_)(size_t*, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*current_context_)(void*) = nullptr;
  int (*current_index_)(int) = nullptr;
  int (*properties_)(void*, int) = nullptr;
  int (*allocate_)(void**, size_t) = nullptr;
  int (*free_)(void*) = nullptr;
  int (*allocate_host_)(void**, size_t, unsigned) = nullptr;
  int (*free_host_)(void*) = nullptr;
  int (*memory_info_)(size_t*, size_t*) = nullptr;
  int (*stream_create_)(Stream*, unsigned) = nullptr;
  int (*stream_destroy_)(Stream) = nullptr;
  int (*stream_synchronize_)(Stream) = nullptr;
  int (*copy_to_device_)(void*, const void*, size_t, Stream) = nullptr;
  int (*copy_to_host_)(void*, const void*, size_t, Stream) = nullptr;
  int (*copy_on_device_)(void*, const void*, size_t, Stream) = nullptr;
  int (*fill_)(void*, unsigned char, size_t, Stream) = nullptr;
  int (*event_create_)(EventHandle*, unsigned) = nullptr;
  int (*event_destroy_)(EventHandle) = nullptr;
  int (*event_record_)(EventHandle, Stream) = nullptr;
  int (*event_wait_)(EventHandle) = nullptr;
  int (*event_query_)(EventHandle) = nullptr;
  int (*event_elapsed_)(float*, EventHandle, EventHandle) = nullptr;
  int (*module_load_)(Module*, const void*) = nullptr;
  int (*module_unload_)(Module) = nullptr;
  int (*module_function_)(Function*, Module, const char*) = nullptr;
  int (*function_attribute_)(Function, int, int) = nullptr;
  int (*launch_)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                 Stream, void**, void**) = nullptr;
  int (*launch_early_)(const EarlyConfig*, Function, void**, void**) = nullptr;
  int (*capture_begin_)(Stream, unsigned) = nullptr;
  int (*capture_end_)(Stream, void**) = nullptr;
  int (*instantiate_flags_)(GraphExec*, void*, unsigned long long) = nullptr;
  int (*instantiate_log_)(GraphExec*, void*, void*, char*, size_t) = nullptr;
  int (*graph_nodes_)(void*, void*, size_t*) = nullptr;
  int (*graph_launch_)(GraphExec, Stream) = nullptr;
  int (*graph_destroy_)(void*) = nullptr;
  int (*exec_destroy_)(GraphExec) = nullptr;
  const char* (*error_text_)(int) = nullptr;
  int (*error_text_to_)(int, const char**) = nullptr;
};

}  // namespace

std::unique_ptr<Driver> MakeVendorDriver(Vendor vendor, std::vector<std::string> libraries) {
  const VendorNames& names = vendor == Vendor::kCuda ? CudaNames() : RocmNames();
  return std::make_unique<VendorDriver>(names, std::move(libraries));
}

}  // namespace vt::gpu
