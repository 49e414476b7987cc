#include "vt/gpu/backend.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/strings.h"
#include "vt/gpu/weights.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
namespace {

constexpr int64_t kStagingBytes = 16 << 20;

Stream StreamOf(Queue& q) { return static_cast<GpuQueue&>(q).stream; }

class GpuEvent : public Event {
 public:
  GpuEvent(Driver& driver, EventHandle handle) : handle(handle), driver_(driver) {}
  ~GpuEvent() override { driver_.DestroyEvent(handle); }
  const EventHandle handle;

 private:
  Driver& driver_;
};

std::string Described(const DeviceProperties& p) {
  return fmt::format("{}, {}, {} units", p.name, p.arch, p.units);
}

}  // namespace

// Two pinned buffers in turn: one is filled while the other's copy runs.
struct GpuBackend::Upload {
  explicit Upload(Driver& driver) : driver(driver) {}
  ~Upload() {
    if (stream == nullptr) return;
    (void)driver.Synchronize(stream);
    for (size_t i = 0; i < 2; ++i) {
      (void)driver.FreeHost(buffers[i]);
      if (events[i] != nullptr) driver.DestroyEvent(events[i]);
    }
    driver.DestroyStream(stream);
  }
  base::Status Open() {
    base::Result<Stream> s = driver.CreateStream();
    if (!s) return s.error();
    stream = *s;
    for (size_t i = 0; i < 2; ++i) {
      base::Result<void*> p = driver.AllocateHost(kStagingBytes);
      if (!p) return p.error();
      buffers[i] = *p;
      base::Result<EventHandle> e = driver.CreateEvent(false);
      if (!e) return e.error();
      events[i] = *e;
    }
    return {};
  }
  // A buffer whose last copy is done.
  base::Result<std::byte*> Next() {
    turn = 1 - turn;
    if (used[turn]) {
      if (base::Status s = driver.Wait(events[turn]); !s) return s.error();
    }
    return static_cast<std::byte*>(buffers[turn]);
  }
  // `bytes` of it from `begin` on.
  base::Status Send(void* dst, int64_t begin, int64_t bytes) {
    used[turn] = true;
    const auto* from = static_cast<const std::byte*>(buffers[turn]) + begin;
    base::Status s = driver.CopyToDevice(stream, dst, from, bytes);
    return s ? driver.Record(stream, events[turn]) : s;
  }

  Driver& driver;
  Stream stream = nullptr;
  std::array<void*, 2> buffers = {};
  std::array<EventHandle, 2> events = {};
  std::array<bool, 2> used = {};
  size_t turn = 0;
};

base::Result<std::unique_ptr<Backend>> GpuBackend::Open(const ModuleTraits& traits, int index,
                                                        ir::DType value_type) {
  std::unique_ptr<Driver> driver = traits.make_driver();
  const base::Result<int> count = driver->DeviceCount();
  if (!count) return count.error();
  if (index < 0 || index >= *count) {
    return base::Error{base::Code::kNotFound, fmt::format("there is no {}:{}; {} of this kind",
                                                          traits.name, index, *count)};
  }
  const base::Result<DeviceProperties> p = driver->Properties(index);
  if (!p) return p.error();
  if (base::Status s = driver->Open(index); !s) return s.error();

  std::unique_ptr<BlasLt> blas;
  if (traits.has_blas) {
    base::Result<std::unique_ptr<BlasLt>> opened = BlasLt::Open(traits.name == "cuda");
    if (opened) blas = *std::move(opened);
  }
  const DeviceFacts facts{*p, value_type, traits.name == "cuda", blas.get()};
  std::unique_ptr<GpuBackend> b(new GpuBackend(fmt::format("{}:{}", traits.name, index),
                                               std::move(driver), std::move(blas),
                                               GpuTarget(facts, RatesOf(*p))));
  // vLLM's name for the wish.
  const char* ranges = std::getenv("VLLM_NVTX_SCOPES_FOR_PROFILING");
  if (ranges != nullptr && std::string_view(ranges) == "1")
    b->ranges_ = Ranges::Of(traits.range_libraries, traits.range_prefix);
  base::Result<std::unique_ptr<Timeline>> timeline = Timeline::FromEnvironment(*b->driver_);
  if (!timeline) return timeline.error().In(b->name_);
  b->timeline_ = *std::move(timeline);
  std::string archs;
  for (const CodeImage& image : traits.images) {
    if (!image.arch.empty() && image.arch != p->arch) {
      if (archs.find(image.arch) == std::string::npos) archs += " " + image.arch;
      continue;
    }
    base::Result<Module> m = b->driver_->LoadModule(image.bytes);
    if (!m && m.error().code == base::Code::kUnsupported) {
      return base::Error{base::Code::kUnsupported,
                         fmt::format("{} ({}): no kernel image for this card in this build",
                                     b->name_, Described(*p))};
    }
    if (!m) return m.error();
    b->modules_.push_back(*m);
    if (b->timeline_ != nullptr) {
      if (base::Status s = b->timeline_->Attach(*m); !s) return s.error().In(b->name_);
    }
  }
  if (b->modules_.empty()) {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("{} ({}): no kernel image for this card; this build has{}",
                                   b->name_, Described(*p), archs)};
  }
  return std::unique_ptr<Backend>(std::move(b));
}

GpuBackend::GpuBackend(std::string name, std::unique_ptr<Driver> driver,
                       std::unique_ptr<BlasLt> blas, GpuTarget target)
    : name_(std::move(name)),
      driver_(std::move(driver)),
      blas_(std::move(blas)),
      target_(std::move(target)) {}

GpuBackend::~GpuBackend() {
  (void)driver_->MakeCurrent();
  upload_.reset();
  for (const auto& [handle, graph] : graphs_) driver_->DestroyGraph(graph.exec);
  for (void* p : constants_) (void)driver_->Free(p);
  for (void* p : blocks_) (void)driver_->Free(p);
  for (const Module m : modules_) driver_->UnloadModule(m);
}

DeviceInfo GpuBackend::Info() const {
  const DeviceProperties& p = target_.facts().properties;
  DeviceInfo info{name_, Described(p), p.total_bytes, p.free_bytes};
  if (driver_->MakeCurrent()) {
    if (const auto memory = driver_->MemoryInfo()) {
      info.free_bytes = memory->first;
      info.total_bytes = memory->second;
    }
  }
  return info;
}

base::Status GpuBackend::Outside(const char* call) {
  if (capturing_ == nullptr) return driver_->MakeCurrent();
  capture_fault_ = call;
  return base::Error{base::Code::kInternal,
                     fmt::format("{} inside a graph capture: do it before BeginCapture", call)};
}

// --- memory

base::Result<void*> GpuBackend::Allocate(int64_t bytes) {
  if (const base::Status s = Outside("Allocate"); !s) return s.error();
  base::Result<void*> p = driver_->Allocate(std::max<int64_t>(bytes, 1));
  if (!p) {
    if (p.error().code != base::Code::kResourceExhausted) return p.error();
    const auto memory = driver_->MemoryInfo();
    return base::Error{base::Code::kResourceExhausted,
                       fmt::format("{}: {} asked for, {} free", name_,
                                   base::HumanBytes(static_cast<uint64_t>(bytes)),
                                   memory ? base::HumanBytes(memory->first) : "an unknown amount")};
  }
  blocks_.insert(*p);
  return p;
}

void GpuBackend::Free(void* p) {
  if (!Outside("Free")) return;
  if (blocks_.erase(p) > 0) (void)driver_->Free(p);
}

base::Result<void*> GpuBackend::AllocateHost(int64_t bytes) {
  if (const base::Status s = Outside("AllocateHost"); !s) return s.error();
  return driver_->AllocateHost(std::max<int64_t>(bytes, 1));
}
void GpuBackend::FreeHost(void* p) {
  if (Outside("FreeHost")) (void)driver_->FreeHost(p);
}

// --- queues

base::Result<std::unique_ptr<Queue>> GpuBackend::CreateQueue() {
  if (const base::Status s = Outside("CreateQueue"); !s) return s.error();
  base::Result<Stream> stream = driver_->CreateStream();
  if (!stream) return stream.error();
  return std::unique_ptr<Queue>(new GpuQueue(*driver_, *stream));
}

base::Status GpuBackend::CopyToDevice(Queue& q, void* dst, const void* src, int64_t bytes) {
  base::Status s = driver_->MakeCurrent();
  return s && bytes > 0 ? driver_->CopyToDevice(StreamOf(q), dst, src, bytes) : s;
}
base::Status GpuBackend::CopyToHost(Queue& q, void* dst, const void* src, int64_t bytes) {
  base::Status s = driver_->MakeCurrent();
  return s && bytes > 0 ? driver_->CopyToHost(StreamOf(q), dst, src, bytes) : s;
}
base::Status GpuBackend::CopyOnDevice(Queue& q, void* dst, const void* src, int64_t bytes) {
  base::Status s = driver_->MakeCurrent();
  return s && bytes > 0 ? driver_->CopyOnDevice(StreamOf(q), dst, src, bytes) : s;
}
base::Status GpuBackend::Fill(Queue& q, void* dst, uint8_t value, int64_t bytes) {
  base::Status s = driver_->MakeCurrent();
  return s && bytes > 0 ? driver_->Fill(StreamOf(q), dst, value, bytes) : s;
}
base::Status GpuBackend::Synchronize(Queue& q) {
  const base::Status s = Outside("Synchronize");
  return s ? driver_->Synchronize(StreamOf(q)) : s;
}
base::Result<std::unique_ptr<Event>> GpuBackend::CreateEvent() {
  if (const base::Status s = Outside("CreateEvent"); !s) return s.error();
  base::Result<EventHandle> e = driver_->CreateEvent(false);
  if (!e) return e.error();
  return std::unique_ptr<Event>(new GpuEvent(*driver_, *e));
}
base::Status GpuBackend::Record(Queue& q, Event& e) {
  const base::Status s = Outside("Record");
  return s ? driver_->Record(StreamOf(q), static_cast<GpuEvent&>(e).handle) : s;
}
base::Status GpuBackend::Wait(Event& e) {
  const base::Status s = Outside("Wait");
  return s ? driver_->Wait(static_cast<GpuEvent&>(e).handle) : s;
}
base::Result<bool> GpuBackend::Ready(Event& e) {
  if (const base::Status s = Outside("Ready"); !s) return s.error();
  return driver_->Ready(static_cast<GpuEvent&>(e).handle);
}

// --- weights and state

base::Status GpuBackend::Repack(const WeightView& src, const ir::WeightLayout& layout, void* dst) {
  if (const base::Status s = Outside("Repack"); !s) return s;
  const bool vector = layout.name == kVectorLayout;
  const bool quantised =
      QuantFormatOf(src.format).has_value() && layout.name == QuantLayoutName(src.format);
  if (!vector && !quantised && layout.name != MatrixLayout(ValueType())) {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("{}: no layout '{}'", name_, layout.name)};
  }
  if (upload_ == nullptr) {
    upload_ = std::make_unique<Upload>(*driver_);
    if (const base::Status s = upload_->Open(); !s) {
      upload_.reset();
      return s;
    }
  }
  const PackedRows rows = quantised ? PackedRows::Quantised(src)
                          : vector  ? PackedRows::Vector(src)
                                    : PackedRows::Matrix(src, ValueType());
  if (rows.row_bytes > kStagingBytes) {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("{}: a row of {} values is longer than {}", name_, src.columns,
                                   base::HumanBytes(kStagingBytes))};
  }
  const int64_t most = kStagingBytes / std::max<int64_t>(rows.row_bytes, 1);
  for (int64_t begin = 0; begin < rows.rows; begin += most) {
    const int64_t count = std::min(most, rows.rows - begin);
    base::Result<std::byte*> buffer = upload_->Next();
    if (!buffer) return buffer.error();
    rows.Write(begin, count, *buffer);
    int64_t at = 0;  // in the buffer
    for (const PackedRows::Plane& plane : rows.planes()) {
      const int64_t bytes = count * plane.row_bytes;
      if (bytes == 0) continue;
      const base::Status sent = upload_->Send(
          static_cast<std::byte*>(dst) + plane.offset + begin * plane.row_bytes, at, bytes);
      if (!sent) return sent;
      at += bytes;
    }
    if (src.release) rows.Release(begin, begin + count);
  }
  return driver_->Synchronize(upload_->stream);
}

int64_t GpuBackend::StateBlockBytes(const ir::StateGroup& group, int64_t block_size) const {
  if (group.kind == ir::StateGroup::Kind::kSlot) return group.slot_bytes;
  return KvLayerOf(group, block_size).block_bytes;
}

// --- compilation

base::Result<Function> GpuBackend::FunctionOf(const std::string& kernel, int64_t shared_bytes) {
  Known& known = functions_[kernel];
  base::Status missing;
  for (size_t m = 0; m < modules_.size() && known.function == nullptr; ++m) {
    base::Result<Function> f = driver_->FindFunction(modules_[m], kernel.c_str());
    if (f) {
      known.function = *f;
    } else {
      missing = f.error();
    }
  }
  if (known.function == nullptr) return missing.error().In("kernel '" + kernel + "'");
  if (timeline_ != nullptr) timeline_->Name(kernel);
  if (shared_bytes > known.shared_bytes && shared_bytes > (48 << 10)) {
    if (const base::Status s = driver_->AllowShared(known.function, shared_bytes); !s)
      return s.error().In("kernel '" + kernel + "'");
    known.shared_bytes = shared_bytes;
  }
  return known.function;
}

base::Result<void*> GpuBackend::ConstantOf(const void* data, int64_t bytes) {
  base::Result<void*> p = driver_->Allocate(std::max<int64_t>(bytes, 1));
  if (!p) return p;
  base::Result<Stream> stream = driver_->CreateStream();
  base::Status done = stream ? base::Status() : base::Status(stream.error());
  if (done) {
    done = driver_->CopyToDevice(*stream, *p, data, bytes);
    if (done) done = driver_->Synchronize(*stream);
    driver_->DestroyStream(*stream);
  }
  if (!done) {
    (void)driver_->Free(*p);
    return done.error();
  }
  constants_.push_back(*p);
  return p;
}

base::Result<std::unique_ptr<Executable>> GpuBackend::Compile(ir::Plan plan,
                                                              const Bindings& bindings) {
  if (const base::Status s = Outside("Compile"); !s) return s.error();
  const auto constants = [this](const void* data, int64_t bytes) {
    return ConstantOf(data, bytes);
  };
  base::Result<std::vector<Launch>> launches =
      CompilePlan(plan, bindings, target_.facts(), constants, &rope_tables_);
  if (!launches) return launches.error().In(name_);
  const bool may_be_early = target_.facts().properties.early_launch;
  const auto resolve = [&](Launch& launch) -> base::Status {
    if (launch.library) return {};
    base::Result<Function> f = FunctionOf(launch.kernel, launch.config.shared_bytes);
    if (!f) return f.error().In(name_);
    launch.config.function = *f;
    launch.config.early = launch.config.early && may_be_early;
    return {};
  };
  for (Launch& launch : *launches) {
    base::Status done = resolve(launch);
    for (Launch& alone : launch.alone)
      if (done) done = resolve(alone);
    if (!done) return done.error();
  }
  return std::unique_ptr<Executable>(
      new GpuExecutable(std::move(plan), bindings, *driver_, ranges_, *std::move(launches)));
}

// --- capture

base::Status GpuBackend::BeginCapture(Queue& q) {
  if (const base::Status s = Outside("BeginCapture"); !s) return s;
  const base::Status s = driver_->BeginCapture(StreamOf(q));
  if (!s) return s;
  capturing_ = &q;
  capture_fault_.clear();
  return {};
}

base::Result<GraphHandle> GpuBackend::EndCaptureGraph(Queue& q) {
  if (capturing_ != &q) {
    return base::Error{base::Code::kInvalidArgument,
                       "EndCaptureGraph without BeginCapture on this queue"};
  }
  capturing_ = nullptr;
  Graph graph;
  base::Result<GraphExec> exec = driver_->EndCapture(StreamOf(q), &graph.nodes);
  if (!capture_fault_.empty()) {
    if (exec) driver_->DestroyGraph(*exec);
    return base::Error{base::Code::kInternal,
                       fmt::format("the capture is void: {} was called inside it", capture_fault_)};
  }
  if (!exec) return exec.error();
  graph.exec = *exec;
  graphs_[next_graph_] = graph;
  return next_graph_++;
}

base::Status GpuBackend::ReplayGraph(Queue& q, GraphHandle graph) {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end())
    return base::Error{base::Code::kInvalidArgument, fmt::format("no graph {} to replay", graph)};
  base::Status s = Outside("ReplayGraph");
  if (s && timeline_ != nullptr) s = timeline_->BeforeReplay(StreamOf(q));
  return s ? driver_->LaunchGraph(StreamOf(q), it->second.exec) : s;
}

void GpuBackend::DestroyGraph(GraphHandle graph) {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end() || !driver_->MakeCurrent()) return;
  driver_->DestroyGraph(it->second.exec);
  graphs_.erase(it);
}

int64_t GpuBackend::CapturedNodes(GraphHandle graph) const {
  const auto it = graphs_.find(graph);
  return it == graphs_.end() ? -1 : it->second.nodes;
}

// --- platform

std::vector<DeviceInfo> GpuPlatform::Devices(std::string* why) {
  const std::unique_ptr<Driver> driver = traits_.make_driver();
  const base::Result<int> count = driver->DeviceCount();
  if (!count) {
    if (why != nullptr) *why = count.error().message;
    return {};
  }
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < *count; ++i) {
    const base::Result<DeviceProperties> p = driver->Properties(i);
    if (!p) continue;
    devices.push_back(
        {fmt::format("{}:{}", traits_.name, i), Described(*p), p->total_bytes, p->free_bytes});
  }
  return devices;
}

base::Result<ir::DType> GpuPlatform::ValueTypeOf(const std::string& dtype) const {
  if (dtype == "float32") return ir::DType::kF32;
  if (dtype.empty() || dtype == "auto" || dtype == "bfloat16") return ir::DType::kBF16;
  if (dtype == "float16" || dtype == "half") return ir::DType::kF16;
  return base::Error{
      base::Code::kInvalidArgument,
      fmt::format("--dtype '{}': {} knows auto, bfloat16, float16 (half) and float32",
                  base::Printable(dtype), traits_.name)};
}

base::Result<std::unique_ptr<Backend>> GpuPlatform::Open(const Options& options) {
  const base::Result<ir::DType> type = ValueTypeOf(options.dtype);
  if (!type) return type.error();
  return GpuBackend::Open(traits_, options.index, *type);
}

base::Result<std::unique_ptr<ir::Target>> GpuPlatform::Describe(const std::string& card,
                                                                const std::string& dtype) {
  const base::Result<ir::DType> type = ValueTypeOf(dtype);
  if (!type) return type.error();
  for (const KnownCard& known : KnownCards()) {
    if (known.name != card) continue;
    const DeviceFacts facts = {known.properties, *type, known.cuda, nullptr};
    return std::unique_ptr<ir::Target>(new GpuTarget(facts, known.rates));
  }
  return Platform::Describe(card, dtype);
}

}  // namespace vt::gpu
