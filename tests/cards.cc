#include "tests/cards.h"

#include "base/strings.h"
#include "vt/device/registry.h"

namespace vllm::testing {

std::vector<std::string> Cards() {
  const auto registry = vt::DeviceRegistry::Load({std::string(VLLM_BINARY_DIR) + "/examples"});
  std::vector<std::string> cards;
  for (vt::Platform* platform : registry.platforms()) {
    if (platform->Name() != "cuda" && platform->Name() != "rocm") continue;
    std::string why;
    const size_t count = platform->Devices(&why).size();
    for (size_t i = 0; i < count; ++i) cards.push_back(fmt::format("{}:{}", platform->Name(), i));
  }
  return cards;
}

}  // namespace vllm::testing
