// Any bytes as a GGUF file: metadata, tensors, every typed read, and the configuration.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>

#include "vllm/weights/config.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/name_map.h"
#include "vllm/weights/virtual_tensors.h"

using vllm::weights::GgufFile;
using vllm::weights::GgufTensor;
using vllm::weights::TensorInfo;

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
  if (!config) return 0;
  if (config->layer_types.size() != static_cast<size_t>(config->num_hidden_layers)) std::abort();
  // As a checkpoint names them; tensors made of row ranges stay inside of the file.
  std::map<std::string, TensorInfo> tensors;
  for (const GgufTensor& t : file->tensors) {
    tensors.emplace(vllm::weights::HfFromGguf(config->family, t.name).value_or(t.name),
                    TensorInfo{t.dtype, t.shape, {{0, t.offset, t.bytes}}, t.bytes});
  }
  if (!vllm::weights::MakeVirtualTensors(*config, tensors)) return 0;
  for (const auto& [name, info] : tensors) {
    uint64_t bytes = 0;
    for (const auto& piece : info.pieces) {
      if (piece.offset > size || piece.bytes > size - piece.offset) std::abort();
      bytes += piece.bytes;
    }
    if (bytes != info.bytes) std::abort();
  }
  return 0;
}
