#include "vllm/weights/quantisation.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <string>

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
using Method = Quantisation::Method;

bool IsEmpty(const json::value* v) {
  return v == nullptr || (v->is_object() && v->get_object().empty()) ||
         (v->is_array() && v->get_array().empty()) || (v->is_bool() && !v->get_bool());
}

Error Unknown(std::string_view field, const json::value& v, std::string_view known) {
  return {Code::kUnsupported, fmt::format("{} = {} is not implemented ({})", field,
                                          Printable(json::serialize(v)), known)};
}
// The field, which must be one of those.
Result<std::string> OneOf(const json::object& o, std::string_view key, std::string_view fallback,
                          std::initializer_list<std::string_view> known) {
  Result<std::string> v = base::JsonString(o, key, fallback);
  if (v && std::find(known.begin(), known.end(), *v) == known.end())
    return Unknown(key, json::value(*v), fmt::format("{}", fmt::join(known, ", ")));
  return v;
}

// Scales are those of blocks of 32 values, at the least.
Status AddGroup(const json::object& o, Quantisation& q) {
  const Result<int64_t> size = base::JsonInt(o, "group_size", -1);
  if (!size) return size.error();
  if (*size != -1 && (*size < 32 || *size % 32 != 0 || *size > (1 << 20)))
    return Unknown("group_size", json::value(*size), "-1 and multiples of 32");
  q.groups.push_back(*size == -1 ? 0 : *size);
  return {};
}

// weight_block_size, block_structure: [rows, columns].
Status ReadBlock(const json::object& o, std::string_view key, Quantisation& q) {
  const json::value* v = base::JsonGiven(o, key);
  if (v == nullptr) return {};
  const json::array* sizes = v->if_array();
  if (sizes == nullptr || sizes->size() != 2 || !(*sizes)[0].is_int64() || !(*sizes)[1].is_int64())
    return Error{Code::kCorrupt, fmt::format("field '{}' must be two integers", key)};
  q.block_rows = (*sizes)[0].get_int64();
  q.block_columns = (*sizes)[1].get_int64();
  if (q.block_rows < 1 || q.block_columns < 32 || q.block_columns % 32 != 0 ||
      std::max(q.block_rows, q.block_columns) > (1 << 20))
    return Unknown(key, *v, "rows, and columns in multiples of 32");
  return {};
}

Status ReadFp8(const json::object& o, Quantisation& q) {
  const Result<std::string> format = OneOf(o, "fmt", "e4m3", {"e4m3", "float8_e4m3fn"});
  if (!format) return format.error();
  return ReadBlock(o, "weight_block_size", q);
}

Status ReadAwq(const json::object& o, Quantisation& q) {
  const Result<std::string> version = OneOf(o, "version", "gemm", {"gemm", "GEMM"});
  if (!version) return version.error();
  const Result<int64_t> bits = base::JsonInt(o, "bits", 4);
  if (!bits) return bits.error();
  if (*bits != 4) return Unknown("bits", json::value(*bits), "AWQ has 4");
  q.bits = 4;
  return AddGroup(o, q);
}

Status ReadGptq(const json::object& o, Quantisation& q) {
  const Result<int64_t> bits = base::JsonInt(o, "bits", 4);
  if (!bits) return bits.error();
  const Result<bool> symmetric = base::JsonBool(o, "sym", true);
  if (!symmetric) return symmetric.error();
  if (*bits != 4 && *bits != 8) return Unknown("bits", json::value(*bits), "4 and 8");
  if (*bits == 8 && !*symmetric)
    return Unknown("sym", json::value(false), "8 bits are, where zeros are the middle code");
  const Result<std::string> format = OneOf(o, "checkpoint_format", "gptq", {"gptq", "gptq_v2"});
  if (!format) return format.error();
  const json::value* dynamic = base::JsonGiven(o, "dynamic");
  if (!IsEmpty(dynamic)) return Unknown("dynamic", *dynamic, "modules of one kind are");
  q.bits = static_cast<int>(*bits);
  q.symmetric = *symmetric;
  q.zeros_less_one = *format == "gptq";
  return AddGroup(o, q);
}

// One of compressed-tensors' groups of modules.
Status ReadScheme(const json::object& scheme, Quantisation& q) {
  const json::value* value = base::JsonGiven(scheme, "weights");
  if (value == nullptr) return {};  // of activations alone
  if (!value->is_object()) return Error{Code::kCorrupt, "field 'weights' must be an object"};
  const json::object& w = value->get_object();
  const Result<std::string> type = OneOf(w, "type", "int", {"int", "float"});
  if (!type) return type.error();
  const Result<int64_t> bits = base::JsonInt(w, "num_bits", 8);
  if (!bits) return bits.error();
  if (*bits != 4 && *bits != 8) return Unknown("num_bits", json::value(*bits), "4 and 8");
  const Result<std::string> strategy =
      OneOf(w, "strategy", "tensor", {"tensor", "channel", "group", "block"});
  if (!strategy) return strategy.error();
  const Status status = ReadBlock(w, "block_structure", q);
  if (!status) return status;
  if (*strategy == "group") return AddGroup(w, q);
  q.groups.push_back(0);
  return {};
}

Status ReadCompressedTensors(const json::object& o, Quantisation& q) {
  const auto check = [](const json::object& of) -> Status {
    const Result<std::string> format =
        OneOf(of, "format", "pack-quantized",
              {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
               "mxfp4-pack-quantized", "mixed-precision"});
    return format ? Status() : Status(format.error());
  };
  Status status = check(o);
  if (!status) return status;
  for (const std::string_view key : {"transform_config", "sparsity_config"}) {
    const json::value* v = base::JsonGiven(o, key);
    const json::value* format =
        !IsEmpty(v) && v->is_object() ? base::JsonGiven(v->get_object(), "format") : nullptr;
    const bool dense = format != nullptr && format->is_string() && format->get_string() == "dense";
    if (!IsEmpty(v) && !dense) return Unknown(key, *v, "none is");
  }
  const json::value* groups = base::JsonGiven(o, "config_groups");
  if (groups == nullptr || !groups->is_object())
    return Error{Code::kCorrupt, "field 'config_groups' must be an object"};
  for (const auto& [name, scheme] : groups->get_object()) {
    if (!scheme.is_object())
      return Unknown("config_groups." + Printable(name), scheme, "an object is");
    status = check(scheme.get_object());
    if (status) status = ReadScheme(scheme.get_object(), q);
    if (!status) return status.error().In("config_groups." + Printable(name));
  }
  return {};
}

Status ReadMethod(const json::object& o, Quantisation& q) {
  const Result<std::string> method = base::JsonString(o, "quant_method", "");
  if (!method) return method.error();
  struct Known {
    std::string_view name;
    Method method;
    Status (*read)(const json::object&, Quantisation&);
  };
  static constexpr Known kKnown[] = {
      {"fp8", Method::kFp8, ReadFp8},
      {"awq", Method::kAwq, ReadAwq},
      {"gptq", Method::kGptq, ReadGptq},
      {"compressed-tensors", Method::kCompressedTensors, ReadCompressedTensors},
      {"mxfp4", Method::kMxfp4, [](const json::object&, Quantisation&) { return Status(); }}};
  std::string names;
  for (const Known& k : kKnown) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", k.name);
    if (*method != k.name) continue;
    q.method = k.method;
    return k.read(o, q);
  }
  return Error{Code::kUnsupported,
               fmt::format("quantisation method '{}' is not implemented (these are: {}); take the "
                           "unquantised model or a GGUF of it",
                           method->empty() ? "unnamed" : Printable(*method), names)};
}

}  // namespace

Result<Quantisation> ReadQuantisation(const json::object& config) {
  Quantisation q;
  for (const std::string_view key : {"quantization_config", "compression_config", "quantization"}) {
    const json::value* v = base::JsonGiven(config, key);
    if (IsEmpty(v)) continue;
    if (!v->is_object())
      return Error{Code::kCorrupt, fmt::format("field '{}' must be an object", key)};
    const Status status = ReadMethod(v->get_object(), q);
    if (!status) return status.error().In(std::string(key));
    return q;
  }
  return q;
}

}  // namespace vllm::weights
