#include "vt/gpu/ranges.h"

#include "base/os/module.h"

namespace vt::gpu {

Ranges Ranges::Of(const std::vector<std::string>& libraries, const std::string& prefix) {
  for (const std::string& name : libraries) {
    const base::Result<void*> library = base::os::OpenModule(name);
    if (!library) continue;
    const base::Result<void*> push = base::os::FindSymbol(*library, prefix + "RangePushA");
    const base::Result<void*> pop = base::os::FindSymbol(*library, prefix + "RangePop");
    if (!push || !pop) continue;
    Ranges r;
    r.push_ = reinterpret_cast<int (*)(const char*)>(*push);
    r.pop_ = reinterpret_cast<int (*)()>(*pop);
    return r;
  }
  return {};
}

}  // namespace vt::gpu
