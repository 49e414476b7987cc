#include "vt/cpu/executor.h"

#include <algorithm>
#include <chrono>

#include "base/strings.h"

namespace vt::cpu {

CpuExecutable::CpuExecutable(ir::Plan plan, const Bindings& bindings, const KernelSet& kernels,
                             ThreadTeam& team)
    : plan_(std::move(plan)),
      bindings_(bindings),
      layout_(plan_.graph, plan_.bucket),
      kernels_(kernels),
      team_(team) {}

base::Result<std::unique_ptr<CpuExecutable>> CpuExecutable::Compile(ir::Plan plan,
                                                                    const Bindings& bindings,
                                                                    const KernelSet& kernels,
                                                                    ThreadTeam& team,
                                                                    const RopeTables& rope_tables) {
  std::unique_ptr<CpuExecutable> e(new CpuExecutable(std::move(plan), bindings, kernels, team));
  const Context c = {e->plan_,
                     e->bindings_,
                     e->layout_,
                     kernels,
                     team.size(),
                     [&](const ir::RopeAttrs& attrs) {
                       std::shared_ptr<RopeTable> t = rope_tables(attrs);
                       auto& all = e->rope_tables_;
                       if (std::find(all.begin(), all.end(), t) == all.end()) all.push_back(t);
                       return t;
                     },
                     std::make_shared<std::vector<float>>()};
  for (size_t n = 0; n < e->plan_.graph.nodes.size(); ++n) {
    const base::Status s = CompileNode(c, static_cast<ir::NodeId>(n), e->steps_);
    if (!s) return s.error();
  }
  int64_t scratch = 0;
  for (const auto& s : e->steps_) scratch = std::max(scratch, s->ScratchBytes());
  e->scratch_.resize(static_cast<size_t>(team.size()));
  for (auto& s : e->scratch_) s.resize(static_cast<size_t>(scratch) + 256);
  e->counters_ = std::vector<Counter>(e->steps_.size());
  e->positions_offset_ = e->layout_.OffsetOf(ir::kPositions);
  return e;
}

base::Result<ir::Bucket> CpuExecutable::Prepare() {
  const auto* bytes = static_cast<const std::byte*>(bindings_.inputs);
  const auto& h = *reinterpret_cast<const StepHeader*>(bytes);
  const ir::Bucket& b = plan_.bucket;
  const ir::Bucket now = {h.tokens, h.requests, h.outputs};
  if (now.tokens < 0 || now.requests < 0 || now.outputs < 0 || now.tokens > b.tokens ||
      now.requests > b.requests || now.outputs > b.outputs) {
    return base::Error{
        base::Code::kInvalidArgument,
        fmt::format(
            "a step of {} tokens, {} requests, {} outputs does not fit the bucket {}, {}, {}",
            now.tokens, now.requests, now.outputs, b.tokens, b.requests, b.outputs)};
  }
  if (positions_offset_ >= 0 && !rope_tables_.empty()) {
    const auto* positions = reinterpret_cast<const int32_t*>(bytes + positions_offset_);
    int32_t last = 0;
    for (int64_t i = 0; i < now.tokens; ++i) last = std::max(last, positions[i]);
    for (const auto& t : rope_tables_) t->Ensure(int64_t{last} + 1);
  }
  for (const auto& s : steps_) s->Prepare(now);
  return now;
}

// A step of one chunk is member 0's alone, so between two such steps nobody has to wait.
void CpuExecutable::Walk(const ir::Bucket& now, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) counters_[i].next.store(0, std::memory_order_relaxed);
  team_.Run([&](int member) {
    auto& buffer = scratch_[static_cast<size_t>(member)];
    auto* scratch = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(buffer.data()) + 63) &
                                                 ~uintptr_t{63});
    bool fresh = true;         // nothing ran since the last barrier
    bool alone_before = true;  // what ran was member 0's
    for (size_t i = begin; i < end; ++i) {
      const Step& step = *steps_[i];
      const int64_t chunks = step.Chunks(now);
      if (chunks == 0) continue;
      const bool alone = chunks == 1;
      if (!fresh && !(alone && alone_before)) {
        team_.Barrier();
        alone_before = true;
      }
      fresh = false;
      alone_before = alone_before && alone;
      if (alone) {
        if (member == 0) step.Run(now, 0, scratch);
        continue;
      }
      for (int64_t c; (c = counters_[i].next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
        step.Run(now, c, scratch);
      }
    }
  });
}

base::Status CpuExecutable::Run(Queue& queue) {
  return static_cast<CpuQueue&>(queue).Submit([this]() -> base::Status {
    const base::Result<ir::Bucket> now = Prepare();
    if (!now) return now.error();
    Walk(*now, 0, steps_.size());
    return {};
  });
}

base::Status CpuExecutable::RunNodes(Queue& queue, int begin, int end) {
  return static_cast<CpuQueue&>(queue).Submit([this, begin, end]() -> base::Status {
    const base::Result<ir::Bucket> now = Prepare();
    if (!now) return now.error();
    const auto first = [this](int node) {
      size_t i = 0;
      while (i < steps_.size() && steps_[i]->node < node) ++i;
      return i;
    };
    Walk(*now, first(begin), first(end));
    return {};
  });
}

base::Result<std::vector<double>> CpuExecutable::Profile(Queue& queue) {
  if (static_cast<CpuQueue&>(queue).capturing) {
    return base::Error{base::Code::kInvalidArgument,
                       "Profile cannot be captured: end the capture first"};
  }
  const base::Result<ir::Bucket> now = Prepare();
  if (!now) return now.error();
  std::vector<double> seconds(plan_.graph.nodes.size(), 0.0);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    Walk(*now, i, i + 1);
    seconds[static_cast<size_t>(steps_[i]->node)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return seconds;
}

void* CpuExecutable::ValueAddress(ir::ValueId id) const {
  const ir::Placement& p = plan_.memory.places[static_cast<size_t>(id)];
  if (p.buffer != ir::kNone) return static_cast<std::byte*>(bindings_.arena) + p.offset;
  for (const StepLayout::Field& f : layout_.fields()) {
    if (f.value == id) return static_cast<std::byte*>(bindings_.inputs) + f.offset;
  }
  return nullptr;
}

}  // namespace vt::cpu
