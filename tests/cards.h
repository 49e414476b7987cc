// The cards of this machine, for tests that have more to say where there is one.
#pragma once

#include <string>
#include <vector>

namespace vllm::testing {

// "cuda:0", "rocm:1", ...: what the modules built beside the tests find. Empty on most machines.
std::vector<std::string> Cards();

}  // namespace vllm::testing
