// Any bytes as a GGUF file: metadata, tensors, every typed read, and the configuration.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "vllm/weights/config.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/name_map.h"

using vllm::weights::GgufFile;
using vllm::weights::GgufTensor;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const base::Result<GgufFile> file =
      vllm::weights::ParseGguf(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  for (const GgufTensor& t : file->tensors) {
    if (t.offset > size || t.bytes > size - t.offset) std::abort();
    (void)vllm::weights::HfFromGguf("gemma3", t.name);
  }
  for (const std::string_view key : file->metadata.keys()) {
    (void)file->metadata.Int(key);
    (void)file->metadata.Number(key);
    (void)file->metadata.Bool(key, false);
    (void)file->metadata.String(key);
    (void)file->metadata.Strings(key);
    (void)file->metadata.Ints(key);
    (void)file->metadata.Floats(key);
  }
  (void)vllm::weights::SplitOf(file->metadata);
  const auto config = vllm::weights::ConfigFromGguf(file->metadata, [&](const std::string& name) {
    for (const GgufTensor& t : file->tensors) {
      if (t.name == name) return t.shape;
    }
    return std::vector<int64_t>{};
  });
  if (config && config->layer_types.size() != static_cast<size_t>(config->num_hidden_layers))
    std::abort();
  return 0;
}
