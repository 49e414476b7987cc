// Any bytes as a safetensors file, and as a shard index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "vllm/weights/name_map.h"
#include "vllm/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)vllm::weights::ParseSafetensorsIndex(
      std::string_view(reinterpret_cast<const char*>(data), size));
  const auto tensors = vllm::weights::ParseSafetensors(std::as_bytes(std::span(data, size)));
  if (!tensors) return 0;
  uint64_t total = 0;
  for (const vllm::weights::SafetensorsTensor& t : *tensors) {
    if (t.offset > size || t.bytes > size - t.offset) std::abort();
    total += t.bytes;
    (void)vllm::weights::CanonicalName(t.name);
  }
  if (total > size) std::abort();  // two tensors share bytes
  return 0;
}
