#include "vllm/weights/safetensors.h"

#include <algorithm>
#include <cstring>

#include "base/json.h"
#include "base/strings.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference library's limit
constexpr size_t kMaxDims = 8;

Error Bad(std::string_view name, const std::string& why) {
  return {Code::kCorrupt, fmt::format("tensor '{}': {}", Printable(name), why)};
}

std::optional<vt::ir::DType> DTypeOf(std::string_view name) {
  using vt::ir::DType;
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  if (name == "I32") return DType::kI32;
  if (name == "I64") return DType::kI64;
  if (name == "I8") return DType::kI8;
  if (name == "U8" || name == "F8_E8M0") return DType::kU8;  // a scale's exponent
  if (name == "F8_E4M3") return DType::kF8_E4M3;
  return std::nullopt;
}

// A JSON integer in [0, 2^63); floats, even integral ones, are not offsets.
std::optional<int64_t> Index(const json::value& v) {
  if (v.is_int64() && v.get_int64() >= 0) return v.get_int64();
  return std::nullopt;
}

Status ReadTensor(std::string_view name, const json::value& entry, SafetensorsTensor& out) {
  if (!entry.is_object()) return Bad(name, "its entry is no object");
  const json::object& o = entry.get_object();
  const json::value* dtype = o.if_contains("dtype");
  const json::value* shape = o.if_contains("shape");
  const json::value* range = o.if_contains("data_offsets");
  if (dtype == nullptr || !dtype->is_string()) return Bad(name, "field 'dtype' must be a string");
  if (shape == nullptr || !shape->is_array()) return Bad(name, "field 'shape' must be an array");
  if (range == nullptr || !range->is_array() || range->get_array().size() != 2) {
    return Bad(name, "field 'data_offsets' must be two integers");
  }
  const std::optional<vt::ir::DType> type = DTypeOf(dtype->get_string());
  if (!type) {
    return Error{Code::kUnsupported, fmt::format("tensor '{}': data type {} is not implemented "
                                                 "(F32, F16, BF16, F8_E4M3 and integers are)",
                                                 Printable(name), Printable(dtype->get_string()))};
  }
  out.name = std::string(name);
  out.dtype = *type;
  const json::array& dims = shape->get_array();
  if (dims.size() > kMaxDims)
    return Bad(name, fmt::format("{} dimensions (at most {} are read)", dims.size(), kMaxDims));
  bool empty = false;
  int64_t elements = 1;
  for (const json::value& d : dims) {
    const std::optional<int64_t> size = Index(d);
    if (!size) return Bad(name, "field 'shape' must hold integers that are not negative");
    out.shape.push_back(*size);
    empty = empty || *size == 0;
    if (!empty && __builtin_mul_overflow(elements, *size, &elements)) {
      return Bad(name, "the product of its dimensions doesn't fit in 64 bits");
    }
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(empty ? 0 : elements,
                             static_cast<int64_t>(vt::ir::Info(out.dtype).bytes), &bytes)) {
    return Bad(name, "its size in bytes doesn't fit in 64 bits");
  }
  const std::optional<int64_t> begin = Index(range->get_array()[0]),
                               end = Index(range->get_array()[1]);
  if (!begin || !end || *begin > *end)
    return Bad(name, "field 'data_offsets' must be two integers, begin and end");
  if (*end - *begin != bytes) {
    return Bad(name, fmt::format("its shape and dtype need {} bytes, data_offsets give {}", bytes,
                                 *end - *begin));
  }
  out.offset = static_cast<uint64_t>(*begin);
  out.bytes = static_cast<uint64_t>(bytes);
  return {};
}

// The ranges, sorted, must cover the data exactly.
Status CheckCover(std::vector<SafetensorsTensor>& tensors, uint64_t data_size) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
            });
  uint64_t at = 0;
  for (const SafetensorsTensor& t : tensors) {
    if (t.offset > data_size || t.bytes > data_size - t.offset) {
      return Bad(t.name, fmt::format("its bytes {} to {} end past the file ({} bytes of data); the "
                                     "download may be incomplete",
                                     t.offset, t.offset + t.bytes, data_size));
    }
    if (t.offset < at)
      return Bad(t.name, fmt::format("its bytes from {} overlap another tensor's", t.offset));
    if (t.offset > at)
      return Bad(t.name,
                 fmt::format("the {} bytes before its data belong to no tensor", t.offset - at));
    at += t.bytes;
  }
  if (at != data_size) {
    return Error{Code::kCorrupt,
                 fmt::format("the last {} bytes of the file belong to no tensor", data_size - at)};
  }
  return {};
}

}  // namespace

Result<std::vector<SafetensorsTensor>> ParseSafetensors(std::span<const std::byte> file) {
  if (file.empty()) return Error{Code::kCorrupt, "the file is empty"};
  uint64_t header = 0;
  if (file.size() < sizeof header)
    return Error{Code::kCorrupt, "too short to be a safetensors file"};
  std::memcpy(&header, file.data(), sizeof header);
  if (header > kMaxHeader || header > file.size() - sizeof header) {
    return Error{Code::kCorrupt,
                 fmt::format("a header of {} bytes, in a file of {} (at most {} are read)", header,
                             file.size(), kMaxHeader)};
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof header, header);
  if (text.empty() || text[0] != '{') return Error{Code::kCorrupt, "the header is no JSON object"};
  const Result<json::value> parsed = base::ParseJson(text, {.max_depth = 8});
  if (!parsed) return parsed.error().In("header");
  if (!parsed->is_object()) return Error{Code::kCorrupt, "the header is no JSON object"};

  std::vector<SafetensorsTensor> out;
  out.reserve(parsed->get_object().size());
  for (const auto& [name, entry] : parsed->get_object()) {
    if (name == "__metadata__") {
      if (!entry.is_object())
        return Error{Code::kCorrupt, "header field '__metadata__' must be an object of strings"};
      continue;
    }
    if (name.empty()) return Error{Code::kCorrupt, "a tensor without a name"};
    const Status status = ReadTensor(name, entry, out.emplace_back());
    if (!status) return status.error();
  }
  const uint64_t data_begin = sizeof header + header;
  const Status status = CheckCover(out, file.size() - data_begin);
  if (!status) return status.error();
  for (SafetensorsTensor& t : out) t.offset += data_begin;
  return out;
}

Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text) {
  const Result<json::value> parsed = base::ParseJson(text);
  if (!parsed) return parsed.error();
  const json::value* map =
      parsed->is_object() ? parsed->get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object())
    return Error{Code::kCorrupt, "field 'weight_map' must be an object"};
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map->get_object()) {
    if (!file.is_string())
      return Error{Code::kCorrupt,
                   fmt::format("weight_map['{}'] must be a file name", Printable(name))};
    const std::string value(file.get_string());
    if (value.empty() || value.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos ||
        value[0] == '.') {
      return Error{
          Code::kCorrupt,
          fmt::format("weight_map['{}'] is '{}': it must be the name of a file beside the index",
                      Printable(name), Printable(value))};
    }
    out.emplace(std::string(name), value);
  }
  return out;
}

}  // namespace vllm::weights
