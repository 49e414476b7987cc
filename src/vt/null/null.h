// A device that computes nothing, for measuring and testing what surrounds a device.
//
// It obeys the whole seam, and its tokens depend on what a right engine feeds it: after token t at
// position p comes NextToken(t, p). A wrong id, position, slot or order of steps changes what comes
// out. Logits, log-probabilities and hidden states are not computed.
//
// With recurrent layers the token also depends on all tokens before: a slot of the first such layer
// holds how many tokens its state stands for and their Fold. A step that reads a state of another
// length, or writes a slot that another of its requests reads or writes, is an error.
//
// How it behaves is chosen by Platform::Options::isa, a comma-separated list: "sync" (a step is
// done when it is launched, as on a CPU; otherwise only when it is waited for, as on a card that is
// always behind), "fail=N" (the N-th step is an error), "memory=N" (bytes it has).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "vt/device/backend.h"
#include "vt/device/step_layout.h"

namespace vt::null {

// Below the first 3 ids, which many vocabularies keep for control tokens, nothing is chosen.
int32_t NextToken(int32_t token, int32_t position, int64_t vocabulary);

// The state of recurrent layers after one more token; that of no tokens is 0. The token that comes
// next is then NextToken(state, p).
int32_t Fold(int32_t state, int32_t token);

struct NullOptions {
  bool sync = false;
  int64_t fail = 0;
  int64_t memory = int64_t{64} << 30;
};

class NullBackend : public Backend {
 public:
  explicit NullBackend(const NullOptions& options) : options_(options) {}

  std::string TargetName() const override { return "null"; }
  bool Supports(const ir::Graph&, const ir::Node& node, const ir::Bucket&) const override {
    return !ir::IsFused(node.op);
  }
  int64_t Launches(const ir::Plan& plan) const override { return ir::CountComputed(plan); }
  ir::DType ValueType() const override { return ir::DType::kF32; }
  ir::DType ActivationFormat(ir::DType, const ir::Bucket&) const override {
    return ir::DType::kF32;
  }
  ir::WeightLayout LayoutFor(ir::DType, int64_t, int64_t, ir::WeightUse) const override {
    return {"none", 1};
  }
  std::string PickKernel(const ir::Graph&, const ir::Node&, const ir::Bucket&) const override {
    return "null";
  }
  ir::Rates MachineRates() const override { return {}; }

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
  base::Status Repack(const WeightView&, const ir::WeightLayout&, void*) override { return {}; }
  int64_t StateBlockBytes(const ir::StateGroup& group, int64_t block_size) const override;
  base::Result<std::unique_ptr<Executable>> Compile(ir::Plan plan,
                                                    const Bindings& bindings) override;
  bool SupportsGraphCapture() const override { return true; }
  base::Status BeginCapture(Queue& q) override;
  base::Result<GraphHandle> EndCaptureGraph(Queue& q) override;
  base::Status ReplayGraph(Queue& q, GraphHandle graph) override;
  void DestroyGraph(GraphHandle graph) override { graphs_.erase(graph); }

 private:
  friend class NullExecutable;
  using Work = std::function<base::Status()>;
  base::Status Submit(Work work);
  // An error naming `call` while a capture is on; it also voids the capture.
  base::Status RefuseInCapture(const char* call);

  NullOptions options_;
  std::map<void*, int64_t> blocks_;
  int64_t used_ = 0, steps_ = 0;
  bool capturing_ = false;
  std::string capture_fault_;  // what was called in the capture and may not be
  std::vector<Work> recorded_;
  std::map<GraphHandle, std::vector<Work>> graphs_;
  GraphHandle next_graph_ = 1;
};

class NullPlatform : public Platform {
 public:
  std::string Name() const override { return "null"; }
  bool support_static_graph_mode() const override { return true; }
  int64_t DefaultKvBytes() const override { return 0; }
  std::vector<DeviceInfo> Devices(std::string* why) override;
  base::Result<std::unique_ptr<Backend>> Open(const Options& options) override;
};

}  // namespace vt::null
