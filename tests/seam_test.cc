// The capture contract on every device found, and on backends that break it: the check must be able
// to fail.
#include "tests/seam.h"

#include <gtest/gtest.h>

#include "vt/device/registry.h"

namespace tests {
namespace {

const char* const kModules = VLLM_BINARY_DIR "/examples";

TEST(Seam, EveryDeviceFoundKeepsTheCaptureContract) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  int checked = 0;
  for (vt::Platform* platform : registry.platforms()) {
    std::string why;
    if (platform->Devices(&why).empty()) continue;  // a module without its card
    base::Result<std::unique_ptr<vt::Backend>> backend = platform->Open({});
    ASSERT_TRUE(backend) << backend.error().message;
    if (!(*backend)->SupportsGraphCapture()) continue;
    for (const std::string& breach : CaptureBreaches(**backend))
      ADD_FAILURE() << platform->Name() << ": " << breach;
    ++checked;
  }
  EXPECT_GE(checked, 1) << "no device with graphs was found in " << kModules;
}

TEST(Seam, AnUnknownDeviceIsRefusedWithWhatWasFound) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  const auto none = registry.Find("tpu");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("cpu"), std::string::npos) << none.error().message;
  const auto index = registry.Find("cpu:x");
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, base::Code::kInvalidArgument);
  EXPECT_FALSE(registry.Find("cpu:7"));
}

// Forwards to a real backend, and breaks one rule.
class Breaking : public vt::Backend {
 public:
  enum class Rule { kBakesTheSource, kAllocatesInCapture };
  Breaking(vt::Backend& real, Rule rule) : real_(real), rule_(rule) {}

  vt::DeviceInfo Info() const override { return real_.Info(); }
  base::Result<void*> Allocate(int64_t n) override {
    if (capturing_ && rule_ == Rule::kAllocatesInCapture) {
      kept_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(n) + 256));
      return static_cast<void*>(kept_.back().get());
    }
    return real_.Allocate(n);
  }
  void Free(void* p) override {
    for (const auto& k : kept_) {
      if (k.get() == p) return;
    }
    real_.Free(p);
  }
  bool HostAddressable() const override { return real_.HostAddressable(); }
  base::Result<std::unique_ptr<vt::Queue>> CreateQueue() override { return real_.CreateQueue(); }
  base::Status CopyToDevice(vt::Queue& q, void* d, const void* s, int64_t n) override {
    return real_.CopyToDevice(q, d, s, n);
  }
  base::Status CopyToHost(vt::Queue& q, void* d, const void* s, int64_t n) override {
    return real_.CopyToHost(q, d, s, n);
  }
  base::Status CopyOnDevice(vt::Queue& q, void* d, const void* s, int64_t n) override {
    if (capturing_ && rule_ == Rule::kBakesTheSource) {  // keeps the bytes of now, not the address
      baked_.assign(static_cast<const char*>(s), static_cast<size_t>(n));
      s = baked_.data();
    }
    return real_.CopyOnDevice(q, d, s, n);
  }
  base::Status Fill(vt::Queue& q, void* d, uint8_t v, int64_t n) override {
    return real_.Fill(q, d, v, n);
  }
  base::Status Synchronize(vt::Queue& q) override { return real_.Synchronize(q); }
  base::Result<std::unique_ptr<vt::Event>> CreateEvent() override { return real_.CreateEvent(); }
  base::Status Record(vt::Queue& q, vt::Event& e) override { return real_.Record(q, e); }
  base::Status Wait(vt::Event& e) override { return real_.Wait(e); }
  base::Result<bool> Ready(vt::Event& e) override { return real_.Ready(e); }
  base::Status Repack(const vt::WeightView& v, const vt::ir::WeightLayout& l, void* d) override {
    return real_.Repack(v, l, d);
  }
  int64_t StateBlockBytes(const vt::ir::StateGroup& g, int64_t n) const override {
    return real_.StateBlockBytes(g, n);
  }
  base::Result<std::unique_ptr<vt::Executable>> Compile(vt::ir::Plan p,
                                                        const vt::Bindings& b) override {
    return real_.Compile(std::move(p), b);
  }
  bool SupportsGraphCapture() const override { return true; }
  base::Status BeginCapture(vt::Queue& q) override {
    base::Status s = real_.BeginCapture(q);
    capturing_ = capturing_ || s.ok();
    return s;
  }
  base::Result<vt::GraphHandle> EndCaptureGraph(vt::Queue& q) override {
    capturing_ = false;
    return real_.EndCaptureGraph(q);
  }
  base::Status ReplayGraph(vt::Queue& q, vt::GraphHandle g) override {
    return real_.ReplayGraph(q, g);
  }
  void DestroyGraph(vt::GraphHandle g) override { real_.DestroyGraph(g); }

  std::string TargetName() const override { return real_.TargetName(); }
  bool Supports(const vt::ir::Graph& g, const vt::ir::Node& n,
                const vt::ir::Bucket& b) const override {
    return real_.Supports(g, n, b);
  }
  int64_t Launches(const vt::ir::Plan& plan) const override { return real_.Launches(plan); }
  vt::ir::DType ValueType() const override { return real_.ValueType(); }
  vt::ir::DType ActivationFormat(vt::ir::DType w, const vt::ir::Bucket& b) const override {
    return real_.ActivationFormat(w, b);
  }
  vt::ir::WeightLayout LayoutFor(vt::ir::DType f, int64_t r, int64_t c,
                                 vt::ir::WeightUse u) const override {
    return real_.LayoutFor(f, r, c, u);
  }
  std::string PickKernel(const vt::ir::Graph& g, const vt::ir::Node& n,
                         const vt::ir::Bucket& b) const override {
    return real_.PickKernel(g, n, b);
  }
  vt::ir::Rates MachineRates() const override { return real_.MachineRates(); }

 private:
  vt::Backend& real_;
  Rule rule_;
  bool capturing_ = false;
  std::string baked_;
  std::vector<std::unique_ptr<std::byte[]>> kept_;
};

class PlantedFault : public testing::Test {
 protected:
  void SetUp() override {
    const auto cpu = registry_.Find("cpu");
    ASSERT_TRUE(cpu) << cpu.error().message;
    base::Result<std::unique_ptr<vt::Backend>> backend = cpu->first->Open({});
    ASSERT_TRUE(backend) << backend.error().message;
    backend_ = *std::move(backend);
  }
  vt::DeviceRegistry registry_ = vt::DeviceRegistry::Load({kModules});
  std::unique_ptr<vt::Backend> backend_;
};

TEST_F(PlantedFault, ABakedSourceIsSeen) {
  Breaking breaking(*backend_, Breaking::Rule::kBakesTheSource);
  const std::vector<std::string> breaches = CaptureBreaches(breaking);
  ASSERT_FALSE(breaches.empty());
  EXPECT_NE(breaches[0].find("new value"), std::string::npos) << breaches[0];
}

TEST_F(PlantedFault, AnAllocationInACaptureIsSeen) {
  Breaking breaking(*backend_, Breaking::Rule::kAllocatesInCapture);
  const std::vector<std::string> breaches = CaptureBreaches(breaking);
  ASSERT_FALSE(breaches.empty());
  EXPECT_NE(breaches[0].find("allocation"), std::string::npos) << breaches[0];
}

}  // namespace
}  // namespace tests
