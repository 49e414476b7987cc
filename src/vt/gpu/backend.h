// A GPU as a Backend: one class for CUDA, ROCm and the emulated device, over a Driver.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "vt/device/backend.h"
#include "vt/gpu/blas_lt.h"
#include "vt/gpu/executor.h"
#include "vt/gpu/target.h"
#include "vt/gpu/timeline.h"

namespace vt::gpu {

// Machine code of kernels. `arch` is "" when the driver picks from within (a CUDA fat binary).
struct CodeImage {
  std::string arch;
  std::span<const std::byte> bytes;
};

// What makes a module: its name, how to reach its driver, and its kernels.
struct ModuleTraits {
  std::string name;  // "cuda"
  std::function<std::unique_ptr<Driver>()> make_driver;
  // The emulated device has one without bytes: it finds kernels by name.
  std::vector<CodeImage> images;
  // Whether the vendor has a library of matrix products.
  bool has_blas = false;
  // Where the vendor's profilers have ranges, and how their functions' names begin (ranges.h).
  std::vector<std::string> range_libraries;
  std::string range_prefix;
};

class GpuBackend : public Backend {
 public:
  // Opens the device. Errors: kUnavailable, kUnsupported (no code for this card).
  static base::Result<std::unique_ptr<Backend>> Open(const ModuleTraits& traits, int index,
                                                     ir::DType value_type);
  ~GpuBackend() override;

  // --- Target
  std::string TargetName() const override { return target_.TargetName(); }
  bool Supports(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b) const override {
    return target_.Supports(g, n, b);
  }
  int64_t WorkspaceBytes(const ir::Graph& g, const ir::Bucket& b) const override {
    return target_.WorkspaceBytes(g, b);
  }
  int64_t Launches(const ir::Plan& plan) const override { return target_.Launches(plan); }
  ir::DType ValueType() const override { return target_.ValueType(); }
  ir::DType ActivationFormat(ir::DType w, const ir::Bucket& b) const override {
    return target_.ActivationFormat(w, b);
  }
  ir::DType HeldFormat(ir::DType stored) const override { return target_.HeldFormat(stored); }
  ir::WeightLayout LayoutFor(ir::DType f, int64_t rows, int64_t columns,
                             ir::WeightUse use) const override {
    return target_.LayoutFor(f, rows, columns, use);
  }
  std::string PickKernel(const ir::Graph& g, const ir::Node& n,
                         const ir::Bucket& b) const override {
    return target_.PickKernel(g, n, b);
  }
  ir::Rates MachineRates() const override { return target_.MachineRates(); }

  // --- Backend
  DeviceInfo Info() const override;
  base::Result<void*> Allocate(int64_t bytes) override;
  void Free(void* p) override;
  bool HostAddressable() const override { return false; }
  base::Result<void*> AllocateHost(int64_t bytes) override;
  void FreeHost(void* p) override;
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
  int64_t CapturedNodes(GraphHandle graph) const override;

 private:
  struct Graph {
    GraphExec exec = nullptr;
    int64_t nodes = 0;
  };
  struct Upload;  // staging of weights

  GpuBackend(std::string name, std::unique_ptr<Driver> driver, std::unique_ptr<BlasLt> blas,
             GpuTarget target);
  // What a capture may not contain; also makes the device current.
  base::Status Outside(const char* call);
  base::Result<Function> FunctionOf(const std::string& kernel, int64_t shared_bytes);
  base::Result<void*> ConstantOf(const void* data, int64_t bytes);

  std::string name_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<BlasLt> blas_;  // none: linears do without
  GpuTarget target_;
  Ranges ranges_;
  std::unique_ptr<Timeline> timeline_;
  std::vector<Module> modules_;
  struct Known {
    Function function = nullptr;
    int64_t shared_bytes = 0;  // that it has leave for
  };
  std::map<std::string, Known> functions_;
  std::unordered_set<void*> blocks_;
  std::vector<void*> constants_;
  RopeTables rope_tables_;
  std::map<GraphHandle, Graph> graphs_;
  GraphHandle next_graph_ = 1;
  Queue* capturing_ = nullptr;
  std::string capture_fault_;
  std::unique_ptr<Upload> upload_;
};

class GpuPlatform : public Platform {
 public:
  explicit GpuPlatform(ModuleTraits traits) : traits_(std::move(traits)) {}
  std::string Name() const override { return traits_.name; }
  bool support_static_graph_mode() const override { return true; }
  int64_t DefaultKvBytes() const override { return 0; }
  std::vector<DeviceInfo> Devices(std::string* why) override;
  base::Result<std::unique_ptr<Backend>> Open(const Options& options) override;
  base::Result<std::unique_ptr<ir::Target>> Describe(const std::string& card,
                                                     const std::string& dtype) override;

 private:
  base::Result<ir::DType> ValueTypeOf(const std::string& dtype) const;

  ModuleTraits traits_;
};

}  // namespace vt::gpu
