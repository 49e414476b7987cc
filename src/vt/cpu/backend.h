// The CPU as a device: plain memory, synchronous queues, panels of weights for the machine's
// instruction set.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "vt/cpu/executor.h"
#include "vt/cpu/kernels.h"
#include "vt/cpu/thread_team.h"
#include "vt/device/backend.h"

namespace vt::cpu {

class CpuBackend : public Backend {
 public:
  CpuBackend(KernelSet kernels, int threads);
  ~CpuBackend() override;

  // --- Target
  std::string TargetName() const override { return "cpu-" + kernels_.name; }
  int64_t Launches(const ir::Plan& plan) const override;
  bool Supports(const ir::Graph& graph, const ir::Node& node,
                const ir::Bucket& bucket) const override;
  int64_t WorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) const override;
  ir::DType ValueType() const override { return ir::DType::kF32; }
  ir::DType ActivationFormat(ir::DType weight, const ir::Bucket& bucket) const override;
  ir::WeightLayout LayoutFor(ir::DType format, int64_t rows, int64_t columns,
                             ir::WeightUse use) const override;
  std::string PickKernel(const ir::Graph& graph, const ir::Node& node,
                         const ir::Bucket& bucket) const override;
  ir::Rates MachineRates() const override;

  // --- Backend
  DeviceInfo Info() const override;
  base::Result<void*> Allocate(int64_t bytes) override;
  void Free(void* p) override;
  bool HostAddressable() const override { return true; }
  base::Result<std::unique_ptr<Queue>> CreateQueue() override;
  base::Status CopyToDevice(Queue& q, void* dst, const void* src, int64_t bytes) override;
  base::Status CopyToHost(Queue& q, void* dst, const void* src, int64_t bytes) override;
  base::Status CopyOnDevice(Queue& q, void* dst, const void* src, int64_t bytes) override;
  base::Status Fill(Queue& q, void* dst, uint8_t value, int64_t bytes) override;
  base::Status Synchronize(Queue& q) override;
  base::Result<std::unique_ptr<Event>> CreateEvent() override;
  base::Status Record(Queue& q, Event& e) override;
  base::Status Wait(Event& e) override;
  base::Result<bool> Ready(Event& e) override;
  base::Status Repack(const WeightView& src, const ir::WeightLayout& layout, void* dst) override;
  int64_t StateBlockBytes(const ir::StateGroup& group, int64_t block_size) const override;
  base::Result<std::unique_ptr<Executable>> Compile(ir::Plan plan,
                                                    const Bindings& bindings) override;
  bool SupportsGraphCapture() const override { return true; }
  base::Status BeginCapture(Queue& q) override;
  base::Result<GraphHandle> EndCaptureGraph(Queue& q) override;
  base::Status ReplayGraph(Queue& q, GraphHandle graph) override;
  void DestroyGraph(GraphHandle graph) override;

 private:
  using Recording = std::vector<std::function<base::Status()>>;
  // An error naming `call` while a capture is on; it also spoils the capture.
  base::Status RefuseInCapture(const char* call);

  KernelSet kernels_;
  ThreadTeam team_;
  std::set<void*> blocks_;
  std::vector<std::shared_ptr<RopeTable>> rope_tables_;
  CpuQueue* capturing_ = nullptr;
  std::string capture_fault_;  // what was called in the capture and may not be
  std::map<GraphHandle, Recording> graphs_;
  GraphHandle next_graph_ = 1;
  mutable std::unique_ptr<ir::Rates> rates_;
};

class CpuPlatform : public Platform {
 public:
  std::string Name() const override { return "cpu"; }
  // Replaying saves nothing where launching a node is a function call.
  bool support_static_graph_mode() const override { return false; }
  int64_t DefaultKvBytes() const override { return int64_t{4} << 30; }
  std::vector<DeviceInfo> Devices(std::string* why) override;
  base::Result<std::unique_ptr<Backend>> Open(const Options& options) override;
};

}  // namespace vt::cpu
