// The entry of libvt_null.so.
#include "vt/device/registry.h"
#include "vt/null/null.h"

extern "C" __attribute__((visibility("default"))) const vt::ModuleEntry* vt_module() {
  static const vt::ModuleEntry entry = {
      vt::BuildId(), "null", []() -> vt::Platform* { return new vt::null::NullPlatform; }};
  return &entry;
}
