// The entry of libvt_rocm.so.
#include <cstdlib>

#include "vt/device/registry.h"
#include "vt/gpu/backend.h"
#include "vt/gpu/embedded_code.h"
#include "vt/gpu/vendor_driver.h"

namespace vt::gpu {
std::span<const EmbeddedCode> RocmCode();
}

extern "C" __attribute__((visibility("default"))) const vt::ModuleEntry* vt_module() {
  static const vt::ModuleEntry entry = {
      vt::BuildId(), "rocm", []() -> vt::Platform* {
        vt::gpu::ModuleTraits traits;
        traits.name = "rocm";
        traits.has_blas = true;
        // Tests put a stand-in there.
        std::vector<std::string> libraries;
        if (const char* library = std::getenv("VLLM_HIP_LIBRARY")) libraries.push_back(library);
        traits.range_libraries = {"librocprofiler-sdk-roctx.so.1", "libroctx64.so.4"};
        if (!libraries.empty()) traits.range_libraries = libraries;
        traits.range_prefix = "roctx";
        traits.make_driver = [libraries] {
          return vt::gpu::MakeVendorDriver(vt::gpu::Vendor::kRocm, libraries);
        };
        for (const vt::gpu::EmbeddedCode& code : vt::gpu::RocmCode())
          traits.images.push_back({std::string(code.arch), code.bytes});
        return new vt::gpu::GpuPlatform(std::move(traits));
      }};
  return &entry;
}
