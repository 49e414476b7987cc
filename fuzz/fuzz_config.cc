// Any text as a config.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "vllm/weights/config.h"
#include "vllm/weights/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = base::ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  const auto config = vllm::weights::ConfigFromJson(*json, *json);
  if (!config) return 0;
  if (config->layer_types.size() != static_cast<size_t>(config->num_hidden_layers)) std::abort();
  if (config->num_hidden_layers < 64) (void)vllm::weights::ExpectedTensors(*config);
  return 0;
}
