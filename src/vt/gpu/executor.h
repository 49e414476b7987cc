// Runs a compiled plan: its launches one after the other on a stream, which may be capturing.
#pragma once

#include <memory>
#include <vector>

#include "vt/device/backend.h"
#include "vt/gpu/ranges.h"
#include "vt/gpu/target.h"

namespace vt::gpu {

class GpuQueue : public Queue {
 public:
  GpuQueue(Driver& driver, Stream stream) : stream(stream), driver_(driver) {}
  ~GpuQueue() override { driver_.DestroyStream(stream); }
  const Stream stream;

 private:
  Driver& driver_;
};

class GpuExecutable : public Executable {
 public:
  // `launches` have their functions. All references outlive it.
  GpuExecutable(ir::Plan plan, const Bindings& bindings, Driver& driver, const Ranges& ranges,
                std::vector<Launch> launches);
  const ir::Plan& plan() const override { return plan_; }
  base::Status Run(Queue& queue) override;
  base::Status RunNodes(Queue& queue, int begin, int end) override;
  base::Result<std::vector<double>> Profile(Queue& queue) override;
  void* ValueAddress(ir::ValueId id) const override;
  const std::vector<Launch>& launches() const { return launches_; }

 private:
  base::Status Start(Launch& launch, Stream stream, bool may_be_early);

  ir::Plan plan_;
  void* arena_;
  void* inputs_;
  StepLayout layout_;
  Driver& driver_;
  const Ranges& ranges_;
  std::vector<Launch> launches_;
};

}  // namespace vt::gpu
