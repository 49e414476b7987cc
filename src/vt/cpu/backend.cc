#include "vt/cpu/backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/strings.h"
#include "vt/cpu/formats.h"
#include "vt/cpu/host.h"
#include "vt/cpu/isa.h"
#include "vt/cpu/repack.h"
#include "vt/ir/quant.h"

namespace vt::cpu {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePage = 2 << 20;

// Asks for huge pages where whole ones fit: a token reads each weight and state once, so that with
// small pages every 4 KiB of them would begin with a walk of the page table, and prefetchers stop
// at a page's end. The rest behind the last whole one stays in small pages and takes no more than
// it needs.
void* AllocatePages(int64_t bytes) {
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const auto size = static_cast<size_t>((bytes + alignment) / alignment * alignment);
  void* p = std::aligned_alloc(static_cast<size_t>(alignment), size);
#if defined(MADV_HUGEPAGE)
  // Refused where the system has none: then pages are small.
  if (p != nullptr && alignment == kHugePage)
    madvise(p, static_cast<size_t>(bytes / kHugePage * kHugePage), MADV_HUGEPAGE);
#endif
  return p;
}

// Queues are synchronous, so an event has happened as soon as it is recorded.
class CpuEvent : public Event {};

CpuQueue& Mine(Queue& q) { return static_cast<CpuQueue&>(q); }

}  // namespace

CpuBackend::CpuBackend(KernelSet kernels, int threads)
    : kernels_(std::move(kernels)), team_(threads) {}
CpuBackend::~CpuBackend() {
  for (void* p : blocks_) std::free(p);
}

// --- Target

bool CpuBackend::Supports(const ir::Graph& graph, const ir::Node& node, const ir::Bucket&) const {
  using ir::Op;
  const auto type = [&](size_t i) { return graph.value(node.inputs[i]).dtype; };
  const auto kernel = [&](size_t i) {
    // Through a pointer: GCC 13's UBSan reads a null one for an index into a choice of two arrays.
    const LinearFn* table = type(0) == ir::DType::kBF16 ? kernels_.brain_linear : kernels_.linear;
    return table[static_cast<int>(type(i))];
  };
  switch (node.op) {
    case Op::kLinear: {
      const auto& a = node.attrs.as<ir::LinearAttrs>();
      for (int i = 0; i < a.segments; ++i) {
        if (kernel(static_cast<size_t>(1 + i)) == nullptr) return false;
      }
      return true;
    }
    case Op::kLinearAdd:
      return kernel(1) != nullptr;
    case Op::kGroupedLinear:
    case Op::kGroupedLinearActMul:
    case Op::kGroupedLinearSum:
      for (size_t i = node.op == Op::kGroupedLinearSum ? 3 : 2; i < node.inputs.size(); ++i) {
        if (kernel(i) == nullptr) return false;
      }
      return true;
    case Op::kKvWrite:
      return type(0) != ir::DType::kF8_E4M3;
    case Op::kAttention:
    case Op::kCompress:
    case Op::kEntryAttention:
      return type(1) != ir::DType::kF8_E4M3;
    case Op::kIndexEntries:
      return type(2) != ir::DType::kF8_E4M3;
    case Op::kGatedDeltaNet: {
      const auto& parts = node.attrs.as<ir::FusedAttrs>().parts;
      return parts[1].as<ir::UnaryAttrs>().fn == ir::Activation::kSilu &&
             parts[4].as<ir::UnaryAttrs>().fn == ir::Activation::kSilu;
    }
    case Op::kHeadLinear:
      return kernel(1) != nullptr && !TakesInt8(type(1));
    // These save launches, which are cheap here.
    case Op::kLatentWrite:
    case Op::kLatentQuery:
    case Op::kLatentQueryWrite:
    case Op::kRopeKvWrite:
    case Op::kNormRopeKvWrite:
    case Op::kRopeAttention:
    case Op::kNormRopeAttention:
    case Op::kRmsNormLinear:
    case Op::kLinearActMul:
    case Op::kRmsNormLinearActMul:
    case Op::kNormAddNormLinear:
    case Op::kNormAddNormLinearActMul:
    case Op::kRmsNormQuantizeLinear:
    case Op::kQuantizeLinearAdd:
    case Op::kActMulQuantizeLinearAdd:
    case Op::kNormRouter:
    case Op::kNormRouterGate:
    case Op::kRmsNormRouter:
    case Op::kGroupedLinearActMulQuantize:
    case Op::kExpertsUp:
    case Op::kGroupedLinearSumAdd:
    case Op::kGroupedLinearSumAddAdd:
    case Op::kExpertsDown:
    case Op::kExpertsActMul:
    case Op::kExpertsDownUngated:
      return false;
    default:
      return true;
  }
}

int64_t CpuBackend::Launches(const ir::Plan& plan) const { return ir::CountComputed(plan); }

int64_t CpuBackend::WorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) const {
  return std::max(GroupedWorkspaceBytes(graph, bucket), RecurrentWorkspaceBytes(graph, bucket));
}

ir::DType CpuBackend::ActivationFormat(ir::DType weight, const ir::Bucket& bucket) const {
  if (kernels_.brain_linear[static_cast<int>(weight)] != nullptr &&
      (weight == ir::DType::kBF16 || bucket.tokens >= kernels_.brain_tokens)) {
    return ir::DType::kBF16;
  }
  return TakesInt8(weight) ? ir::DType::kQ8_A32 : ir::DType::kF32;
}

ir::WeightLayout CpuBackend::LayoutFor(ir::DType format, int64_t rows, int64_t columns,
                                       ir::WeightUse use) const {
  if (use == ir::WeightUse::kPlain) return {kVectorLayout, rows * columns * 4};
  if (use == ir::WeightUse::kEmbedding) return {kRowLayout, rows * ir::Bytes(format, columns)};
  const int64_t panel = PanelBytesOf(format, kernels_.nr, kernels_.pairs, columns);
  // The kernels fetch ahead but never read ahead; a cache line more keeps the last panel's end off
  // the next buffer.
  return {PanelLayoutName(kernels_, format), (rows + kernels_.nr - 1) / kernels_.nr * panel + 64};
}

std::string CpuBackend::PickKernel(const ir::Graph& graph, const ir::Node& node,
                                   const ir::Bucket& bucket) const {
  if (node.op == ir::Op::kLinear || node.op == ir::Op::kLinearAdd) {
    const ir::Shape& x = graph.value(node.inputs[0]).shape;
    const int64_t rows = x.size() > 1 ? ir::Rows(x, bucket) : 1;
    return fmt::format("{}.{}.{}", rows < 4 ? "gemv" : "gemm",
                       ir::Name(graph.value(node.inputs[1]).dtype), kernels_.name);
  }
  return fmt::format("{}.{}", ir::Name(node.op), kernels_.name);
}

// Measured once: reading memory and a chain-free int8 product are what the roofline is made of.
ir::Rates CpuBackend::MachineRates() const {
  if (rates_) return *rates_;
  auto& team = const_cast<ThreadTeam&>(team_);
  const auto seconds = [](auto&& f) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      f();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  ir::Rates r;
  constexpr size_t kBytes = 64 << 20;  // past the caches of most machines
  std::vector<uint64_t> data(kBytes / 8, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(team.size()) * 8);
  r.bytes_per_second = kBytes / seconds([&] {
                         team.Run([&](int m) {
                           const size_t n = data.size() / static_cast<size_t>(team.size());
                           uint64_t s = 0;
                           for (size_t i = 0; i < n; ++i) s += data[static_cast<size_t>(m) * n + i];
                           sums[static_cast<size_t>(m) * 8] = s;
                         });
                       });
  // A GEMM whose weight stays in cache: 64 rows of 512, 64 rows of x.
  constexpr int64_t kN = 64, kK = 512, kRows = 64;
  for (const bool int8 : {false, true}) {
    const ir::DType t = int8 ? ir::DType::kQ4_0 : ir::DType::kF32;
    LinearArgs a;
    a.k = kK;
    a.n = kN;
    a.rows = kRows;
    a.panel_bytes = PanelBytesOf(t, kernels_.nr, false, kK);
    const int64_t panels = kN / kernels_.nr;
    std::vector<std::byte> w(static_cast<size_t>(panels * a.panel_bytes + 64));
    a.w = w.data();
    a.x_stride = int8 ? kK / 32 * 40 : kK * 4;
    std::vector<std::byte> x(static_cast<size_t>(kRows * a.x_stride));
    a.x = x.data();
    a.out_stride = kN;
    double& rate = int8 ? r.int8_ops_per_second : r.flops_per_second;
    rate = 2.0 * kN * kK * kRows * team.size() / seconds([&] {
             team.Run([&](int) {
               std::vector<float> out(kRows * kN);
               std::vector<std::byte> scratch(
                   static_cast<size_t>(LinearScratchBytes(kernels_.nr, kK)));
               LinearArgs mine = a;
               mine.out = out.data();
               kernels_.linear[static_cast<int>(t)](mine, 0, panels, scratch.data());
             });
           });
  }
  constexpr int kBarriers = 100;
  r.seconds_per_node = seconds([&] {
                         team.Run([&](int) {
                           for (int i = 0; i < kBarriers; ++i) team.Barrier();
                         });
                       }) /
                       kBarriers;
  rates_ = std::make_unique<ir::Rates>(r);
  return r;
}

// --- memory

DeviceInfo CpuBackend::Info() const {
  const HostMemory m = MemoryOfHost();
  return {"cpu", fmt::format("{}, {} threads, {}", ProcessorName(), team_.size(), kernels_.name),
          m.total, m.available};
}

base::Status CpuBackend::RefuseInCapture(const char* call) {
  if (capturing_ == nullptr) return {};
  capture_fault_ = call;
  return base::Error{base::Code::kInternal,
                     fmt::format("{} inside a graph capture: do it before BeginCapture", call)};
}

base::Result<void*> CpuBackend::Allocate(int64_t bytes) {
  if (const base::Status s = RefuseInCapture("Allocate"); !s) return s.error();
  const uint64_t available = MemoryOfHost().available;
  void* p = nullptr;
  if (bytes >= 0 && static_cast<uint64_t>(bytes) < available) {
    p = AllocatePages(bytes);
  }
  if (p == nullptr) {
    return base::Error{
        base::Code::kResourceExhausted,
        fmt::format("cpu: {} asked for, {} of memory available",
                    base::HumanBytes(static_cast<uint64_t>(bytes)), base::HumanBytes(available))};
  }
  blocks_.insert(p);
  return p;
}

void CpuBackend::Free(void* p) {
  if (!RefuseInCapture("Free")) return;
  if (blocks_.erase(p) > 0) std::free(p);
}

// --- queues

base::Result<std::unique_ptr<Queue>> CpuBackend::CreateQueue() {
  return std::unique_ptr<Queue>(new CpuQueue);
}

base::Status CpuBackend::CopyToDevice(Queue& q, void* dst, const void* src, int64_t bytes) {
  return Mine(q).Submit([=]() -> base::Status {
    std::memmove(dst, src, static_cast<size_t>(bytes));
    return {};
  });
}
base::Status CpuBackend::CopyToHost(Queue& q, void* dst, const void* src, int64_t bytes) {
  return CopyToDevice(q, dst, src, bytes);
}
base::Status CpuBackend::CopyOnDevice(Queue& q, void* dst, const void* src, int64_t bytes) {
  return CopyToDevice(q, dst, src, bytes);
}
base::Status CpuBackend::Fill(Queue& q, void* dst, uint8_t value, int64_t bytes) {
  return Mine(q).Submit([=]() -> base::Status {
    std::memset(dst, value, static_cast<size_t>(bytes));
    return {};
  });
}
base::Status CpuBackend::Synchronize(Queue&) { return RefuseInCapture("Synchronize"); }
base::Result<std::unique_ptr<Event>> CpuBackend::CreateEvent() {
  return std::unique_ptr<Event>(new CpuEvent);
}
base::Status CpuBackend::Record(Queue&, Event&) { return {}; }
base::Status CpuBackend::Wait(Event&) { return RefuseInCapture("Wait"); }
base::Result<bool> CpuBackend::Ready(Event&) {
  const base::Status allowed = RefuseInCapture("Ready");
  if (!allowed) return allowed.error();
  return true;  // work is done when it is enqueued
}

// --- weights and state

base::Status CpuBackend::Repack(const WeightView& src, const ir::WeightLayout& layout, void* dst) {
  const int64_t count = src.rows * src.columns;
  auto* out = static_cast<std::byte*>(dst);
  if (layout.name == kVectorLayout) {
    ir::Dequantize(src.format, src.data, static_cast<float*>(dst), count);
    return {};
  }
  if (layout.name == kRowLayout) {
    std::memcpy(dst, src.data, static_cast<size_t>(src.rows * ir::Bytes(src.format, src.columns)));
    return {};
  }
  if (layout.name != PanelLayoutName(kernels_, src.format) ||
      PanelBytesOf(src.format, kernels_.nr, kernels_.pairs, src.columns) == 0) {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("cpu: no layout '{}' for {} rows of {} values of {}",
                                   layout.name, src.rows, src.columns, ir::Name(src.format))};
  }
  const int64_t panels = (src.rows + kernels_.nr - 1) / kernels_.nr;
  const int64_t step = std::max<int64_t>(
      1, (64 << 10) / PanelBytesOf(src.format, kernels_.nr, kernels_.pairs, src.columns));
  // In stretches, after each of which the source may go.
  const int64_t row_bytes = ir::Bytes(src.format, src.columns);
  const int64_t stretch =
      std::max<int64_t>(step, (16 << 20) / (row_bytes * kernels_.nr) / step * step);
  for (int64_t begin = 0; begin < panels; begin += stretch) {
    const int64_t end = std::min(begin + stretch, panels);
    team_.ForEach((end - begin + step - 1) / step, [&](int64_t i) {
      const int64_t first = begin + i * step;
      RepackPanels(src, kernels_.nr, kernels_.pairs, first, std::min(first + step, end), out);
    });
    if (src.release) {
      src.release(begin * kernels_.nr * row_bytes,
                  std::min(end * kernels_.nr, src.rows) * row_bytes);
    }
  }
  return {};
}

int64_t CpuBackend::StateBlockBytes(const ir::StateGroup& group, int64_t block_size) const {
  if (group.kind == ir::StateGroup::Kind::kSlot) return group.slot_bytes;
  return KvLayerOf(group, block_size).block_bytes;
}

base::Result<std::unique_ptr<Executable>> CpuBackend::Compile(ir::Plan plan,
                                                              const Bindings& bindings) {
  const auto tables = [this](const ir::RopeAttrs& attrs) {
    for (const auto& t : rope_tables_) {
      if (t->attrs() == attrs) return t;
    }
    rope_tables_.push_back(std::make_shared<RopeTable>(attrs));
    return rope_tables_.back();
  };
  base::Result<std::unique_ptr<CpuExecutable>> e =
      CpuExecutable::Compile(std::move(plan), bindings, kernels_, team_, tables);
  if (!e) return e.error();
  return std::unique_ptr<Executable>(*std::move(e));
}

// --- capture: operations are kept instead of run

base::Status CpuBackend::BeginCapture(Queue& q) {
  if (capturing_ != nullptr) return RefuseInCapture("BeginCapture");
  capturing_ = &Mine(q);
  capturing_->capturing = true;
  capture_fault_.clear();
  return {};
}

base::Result<GraphHandle> CpuBackend::EndCaptureGraph(Queue& q) {
  if (capturing_ != &Mine(q)) {
    return base::Error{base::Code::kInvalidArgument,
                       "EndCaptureGraph without BeginCapture on this queue"};
  }
  Recording recording = std::move(capturing_->recorded);
  capturing_->recorded.clear();
  capturing_->capturing = false;
  capturing_ = nullptr;
  if (!capture_fault_.empty()) {
    return base::Error{base::Code::kInternal,
                       fmt::format("the capture is void: {} was called inside it", capture_fault_)};
  }
  graphs_[next_graph_] = std::move(recording);
  return next_graph_++;
}

base::Status CpuBackend::ReplayGraph(Queue& q, GraphHandle graph) {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end())
    return base::Error{base::Code::kInvalidArgument, fmt::format("no graph {} to replay", graph)};
  for (const auto& work : it->second) {
    if (const base::Status s = Mine(q).Submit(work); !s) return s;
  }
  return {};
}

void CpuBackend::DestroyGraph(GraphHandle graph) { graphs_.erase(graph); }

// --- platform

std::vector<DeviceInfo> CpuPlatform::Devices(std::string*) {
  const HostMemory m = MemoryOfHost();
  return {{"cpu",
           fmt::format("{}, {} cores, {}", ProcessorName(), UsableCores(),
                       fmt::join(AvailableIsas(), " ")),
           m.total, m.available}};
}

base::Result<std::unique_ptr<Backend>> CpuPlatform::Open(const Options& options) {
  if (options.index != 0) {
    return base::Error{
        base::Code::kNotFound,
        fmt::format("there is no cpu:{}; the CPU is one device, cpu", options.index)};
  }
  if (!options.dtype.empty() && options.dtype != "auto" && options.dtype != "float32") {
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("--dtype {}: on a CPU values are f32 whatever the weights are; "
                                   "give auto, or float32 to expand the weights too",
                                   base::Printable(options.dtype))};
  }
  constexpr int kMostThreads = 1024;
  if (options.threads < 0 || options.threads > kMostThreads) {
    return base::Error{
        base::Code::kInvalidArgument,
        fmt::format("{} threads; give 0 (one a core) to {}", options.threads, kMostThreads)};
  }
  base::Result<KernelSet> kernels = KernelsFor(options.isa);
  if (!kernels) return kernels.error();
  return std::unique_ptr<Backend>(
      new CpuBackend(*std::move(kernels), options.threads == 0 ? UsableCores() : options.threads));
}

}  // namespace vt::cpu
