// Runs a plan: a flat list of steps, which the whole team walks together.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "vt/cpu/step.h"
#include "vt/cpu/thread_team.h"
#include "vt/device/backend.h"

namespace vt::cpu {

// Work is enqueued by running it, or, while a capture is on, by keeping it.
class CpuQueue : public Queue {
 public:
  base::Status Submit(std::function<base::Status()> work) {
    if (!capturing) return work();
    recorded.push_back(std::move(work));
    return {};
  }
  bool capturing = false;
  std::vector<std::function<base::Status()>> recorded;
};

class CpuExecutable : public Executable {
 public:
  using RopeTables = std::function<std::shared_ptr<RopeTable>(const ir::RopeAttrs&)>;
  static base::Result<std::unique_ptr<CpuExecutable>> Compile(ir::Plan plan,
                                                              const Bindings& bindings,
                                                              const KernelSet& kernels,
                                                              ThreadTeam& team,
                                                              const RopeTables& rope_tables);

  const ir::Plan& plan() const override { return plan_; }
  base::Status Run(Queue& queue) override;
  base::Status RunNodes(Queue& queue, int begin, int end) override;
  base::Result<std::vector<double>> Profile(Queue& queue) override;
  void* ValueAddress(ir::ValueId id) const override;

 private:
  CpuExecutable(ir::Plan plan, const Bindings& bindings, const KernelSet& kernels,
                ThreadTeam& team);
  // Sizes of this very step; errors when they exceed the bucket.
  base::Result<ir::Bucket> Prepare();
  void Walk(const ir::Bucket& now, size_t begin, size_t end);

  ir::Plan plan_;
  Bindings bindings_;
  StepLayout layout_;
  const KernelSet& kernels_;
  ThreadTeam& team_;
  Steps steps_;
  struct alignas(64) Counter {
    std::atomic<int64_t> next{0};
  };
  std::vector<Counter> counters_;                // by step
  std::vector<std::vector<std::byte>> scratch_;  // by member
  std::vector<std::shared_ptr<RopeTable>> rope_tables_;
  int64_t positions_offset_ = -1;
};

}  // namespace vt::cpu
