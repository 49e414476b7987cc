// The contract of graph capture, as checks that any device must pass. A backend's own tests call
// them, and they are themselves tested against backends that break the contract.
#pragma once

#include <string>
#include <vector>

#include "vt/device/backend.h"

namespace tests {

// Empty when the backend keeps the contract, else one sentence for each breach.
std::vector<std::string> CaptureBreaches(vt::Backend& backend);

}  // namespace tests
