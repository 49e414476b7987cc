// The entry of libvt_emulated.so and libvt_emulated64.so, for tests. What --isa says is the plan of
// faults (emulated_driver.h).
#include <optional>

#include "base/strings.h"
#include "vt/device/registry.h"
#include "vt/gpu/backend.h"
#include "vt/gpu/emulated/emulated_driver.h"

namespace vt::gpu::emulated {
namespace {

constexpr const char* kName = GPU_EMULATED_WAVE == 64 ? "emulated64" : "emulated";

// The device that this program opened last, to be asked about afterwards.
std::optional<EmulatedDriver>& Last() {
  static std::optional<EmulatedDriver> last;
  return last;
}

class EmulatedPlatform : public Platform {
 public:
  std::string Name() const override { return kName; }
  bool support_static_graph_mode() const override { return true; }
  int64_t DefaultKvBytes() const override { return 0; }
  std::vector<DeviceInfo> Devices(std::string* why) override {
    return GpuPlatform(Traits(EmulatedDriver())).Devices(why);
  }
  base::Result<std::unique_ptr<Backend>> Open(const Options& options) override {
    EmulatedDriver driver;
    if (base::Status s = driver.Plan(options.isa); !s) return s.error();
    Last().emplace(driver);
    return GpuPlatform(Traits(driver)).Open(options);
  }
  base::Result<std::unique_ptr<ir::Target>> Describe(const std::string& card,
                                                     const std::string& dtype) override {
    return GpuPlatform(Traits(EmulatedDriver())).Describe(card, dtype);
  }

 private:
  static ModuleTraits Traits(const EmulatedDriver& driver) {
    ModuleTraits traits;
    traits.name = kName;
    traits.make_driver = [driver] { return std::make_unique<EmulatedDriver>(driver); };
    traits.images.push_back({"", {}});  // kernels are found by name, in this module
    return traits;
  }
};

}  // namespace
}  // namespace vt::gpu::emulated

extern "C" __attribute__((visibility("default"))) const vt::ModuleEntry* vt_module() {
  static const vt::ModuleEntry entry = {
      vt::BuildId(), vt::gpu::emulated::kName,
      []() -> vt::Platform* { return new vt::gpu::emulated::EmulatedPlatform; }};
  return &entry;
}

// What the device opened last has left behind and complained of: "" when all is well. `calls`
// (may be nullptr) gets how many calls that can fail it had, `kernels` how many kernels it ran.
extern "C" __attribute__((visibility("default"))) const char* vt_emulated_report(int64_t* calls,
                                                                                 int64_t* kernels) {
  static std::string report;
  report = "no device was opened";
  const std::optional<vt::gpu::emulated::EmulatedDriver>& last = vt::gpu::emulated::Last();
  if (!last) return report.c_str();
  const vt::gpu::emulated::Counters c = last->counters();
  if (calls != nullptr) *calls = c.all_calls;
  if (kernels != nullptr) *kernels = c.kernels_run;
  report = last->complaint();
  if (!c.nothing_left()) {
    report += fmt::format(
        "{}left: {} allocations ({} bytes), {} on the host, {} streams, {} events, {} modules, {} "
        "graphs",
        report.empty() ? "" : "; ", c.allocations, c.allocated_bytes, c.host_allocations, c.streams,
        c.events, c.modules, c.graphs);
  }
  return report.c_str();
}
