// Any bytes as a safetensors file, what it may hold quantised included, and as a shard index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vllm/weights/checkpoint.h"
#include "vllm/weights/name_map.h"
#include "vllm/weights/quantised_tensors.h"
#include "vllm/weights/safetensors.h"

namespace {

using vllm::weights::Quantisation;

void Join(std::span<const std::byte> file, std::map<std::string, vllm::weights::TensorInfo> tensors,
          const Quantisation& how) {
  const auto bytes_of = [file](const vllm::weights::TensorPiece& p) {
    return file.subspan(p.offset, p.bytes);
  };
  const auto made = JoinQuantised(how, bytes_of, tensors);
  if (!made) return;
  for (const vllm::weights::QuantisedTensor& t : *made) {
    std::vector<std::byte> row(static_cast<size_t>(t.RowBytes()));
    (void)MakeBlocks(t, bytes_of, 0, 1, row.data());
    (void)MakeBlocks(t, bytes_of, t.rows - 1, 1, row.data());
  }
}

}  // namespace

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
  std::map<std::string, vllm::weights::TensorInfo> infos;
  for (const vllm::weights::SafetensorsTensor& t : *tensors)
    infos[t.name] = {t.dtype, t.shape, {{0, t.offset, t.bytes}}, t.bytes};
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  using Method = Quantisation::Method;
  for (const Method m : {Method::kFp8, Method::kAwq, Method::kGptq, Method::kMxfp4}) {
    for (const int bits : {4, 8}) {
      if (m == Method::kAwq && bits == 8) continue;
      Quantisation how;
      how.method = m;
      how.bits = bits;
      how.groups = {32};
      how.symmetric = bits == 8;
      how.block_rows = how.block_columns = 32;
      Join(file, infos, how);
    }
  }
  return 0;
}
