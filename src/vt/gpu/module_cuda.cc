// The entry of libvt_cuda.so.
#include "vt/device/registry.h"
#include "vt/gpu/backend.h"
#include "vt/gpu/embedded_code.h"
#include "vt/gpu/vendor_driver.h"

namespace vt::gpu {
std::span<const EmbeddedCode> CudaCode();
}

extern "C" __attribute__((visibility("default"))) const vt::ModuleEntry* vt_module() {
  static const vt::ModuleEntry entry = {
      vt::BuildId(), "cuda", []() -> vt::Platform* {
        vt::gpu::ModuleTraits traits;
        traits.name = "cuda";
        traits.has_blas = true;
        traits.range_libraries = {"libnvtx3interop.so.1", "libnvToolsExt.so.1"};
        traits.range_prefix = "nvtx";
        traits.make_driver = [] { return vt::gpu::MakeVendorDriver(vt::gpu::Vendor::kCuda); };
        for (const vt::gpu::EmbeddedCode& code : vt::gpu::CudaCode())
          traits.images.push_back({std::string(code.arch), code.bytes});
        return new vt::gpu::GpuPlatform(std::move(traits));
      }};
  return &entry;
}
