// The entry of libvt_cpu.so.
#include "vt/cpu/backend.h"
#include "vt/device/registry.h"

extern "C" __attribute__((visibility("default"))) const vt::ModuleEntry* vt_module() {
  static const vt::ModuleEntry entry = {vt::BuildId(), "cpu",
                                        []() -> vt::Platform* { return new vt::cpu::CpuPlatform; }};
  return &entry;
}
