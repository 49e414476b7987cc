// Driver over the functions of CUDA's driver (libcuda) or HIP's runtime (libamdhip64), opened at
// run time: the two have the same functions under other names, and where they differ the table of
// names says how. Nothing of either is needed to build this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vt/gpu/driver.h"

namespace vt::gpu {

enum class Vendor { kCuda, kRocm };

// `libraries`: names to try instead of the usual ones (tests).
std::unique_ptr<Driver> MakeVendorDriver(Vendor vendor, std::vector<std::string> libraries = {});

}  // namespace vt::gpu
