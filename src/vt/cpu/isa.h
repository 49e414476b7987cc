// Which instruction sets this machine has, and their kernels.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "vt/cpu/kernels.h"

namespace vt::cpu {

// Names of the sets that this machine can run, best first; "scalar" is always the last.
std::vector<std::string> AvailableIsas();

// The kernels of one set; "" picks the best. Errors: kInvalidArgument for an unknown name,
// kUnsupported for a set that this machine lacks.
base::Result<KernelSet> KernelsFor(const std::string& isa);

}  // namespace vt::cpu
