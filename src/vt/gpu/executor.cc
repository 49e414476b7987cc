#include "vt/gpu/executor.h"

#include <algorithm>
#include <span>

#include "base/strings.h"

namespace vt::gpu {
namespace {

const std::string kBeginning = "the step's beginning";

}  // namespace

GpuExecutable::GpuExecutable(ir::Plan plan, const Bindings& bindings, Driver& driver,
                             const Ranges& ranges, std::vector<Launch> launches)
    : plan_(std::move(plan)),
      arena_(bindings.arena),
      inputs_(bindings.inputs),
      layout_(plan_.graph, plan_.bucket),
      driver_(driver),
      ranges_(ranges),
      launches_(std::move(launches)) {}

base::Status GpuExecutable::Start(Launch& launch, Stream stream, bool may_be_early) {
  const std::string& name =
      launch.node < 0 ? kBeginning : plan_.graph.nodes[static_cast<size_t>(launch.node)].name;
  ranges_.Push(name);
  base::Status done;
  if (launch.library) {
    done = launch.library(stream);
  } else {
    LaunchConfig config = launch.config;
    config.early = config.early && may_be_early;
    done = driver_.Launch(stream, config, launch.args.data(), launch.args.size());
  }
  ranges_.Pop();
  if (done) return {};
  return done.error().In(launch.node < 0 ? name : "node '" + name + "'");
}

// The first launch of a step waits for all before it: what it reads may come from a copy.
base::Status GpuExecutable::Run(Queue& queue) {
  base::Status done = driver_.MakeCurrent();
  const Stream stream = static_cast<GpuQueue&>(queue).stream;
  for (size_t i = 0; i < launches_.size() && done; ++i) done = Start(launches_[i], stream, i > 0);
  return done;
}

base::Status GpuExecutable::RunNodes(Queue& queue, int begin, int end) {
  base::Status done = driver_.MakeCurrent();
  const Stream stream = static_cast<GpuQueue&>(queue).stream;
  for (size_t i = 0; i < launches_.size() && done; ++i) {
    const int node = std::max(launches_[i].node, 0);  // the step's beginning goes with its first
    if (node < begin || node >= end) continue;
    std::span<Launch> launches(&launches_[i], 1);
    if (!launches[0].alone.empty()) launches = launches[0].alone;
    for (Launch& launch : launches)
      if (done) done = Start(launch, stream, false);
  }
  return done ? driver_.Synchronize(stream) : done;
}

base::Result<std::vector<double>> GpuExecutable::Profile(Queue& queue) {
  if (base::Status s = driver_.MakeCurrent(); !s) return s.error();
  const Stream stream = static_cast<GpuQueue&>(queue).stream;
  std::vector<EventHandle> events;
  base::Status done;
  const auto mark = [&] {
    if (!done) return;
    base::Result<EventHandle> e = driver_.CreateEvent(true);
    if (!e) {
      done = e.error();
      return;
    }
    events.push_back(*e);
    done = driver_.Record(stream, *e);
  };
  mark();
  for (Launch& launch : launches_) {
    if (done) done = Start(launch, stream, false);
    mark();
  }
  if (done) done = driver_.Synchronize(stream);
  std::vector<double> seconds(plan_.graph.nodes.size(), 0.0);
  for (size_t i = 0; i < launches_.size() && done; ++i) {
    const base::Result<double> took = driver_.Seconds(events[i], events[i + 1]);
    if (!took) {
      done = took.error();
    } else if (!seconds.empty()) {
      // The step's beginning counts to its first node.
      seconds[static_cast<size_t>(launches_[i].node < 0 ? 0 : launches_[i].node)] += *took;
    }
  }
  for (const EventHandle e : events) driver_.DestroyEvent(e);
  if (!done) return done.error();
  return seconds;
}

void* GpuExecutable::ValueAddress(ir::ValueId id) const {
  const ir::Placement& p = plan_.memory.places[static_cast<size_t>(id)];
  if (p.buffer != ir::kNone) return static_cast<std::byte*>(arena_) + p.offset;
  for (const StepLayout::Field& f : layout_.fields()) {
    if (f.value == id) return static_cast<std::byte*>(inputs_) + f.offset;
  }
  return nullptr;
}

}  // namespace vt::gpu
