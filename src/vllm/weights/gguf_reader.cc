#include "vllm/weights/gguf_reader.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/strings.h"

namespace vllm::weights {

using base::Code;
using base::Result;

int64_t GgufReader::Int(std::string_view name, std::optional<int64_t> fallback) {
  const std::string key = Key(name);
  const GgufValue* v = m_.Find(key);
  if (v == nullptr && fallback) return *fallback;
  if (v != nullptr && v->type == GgufType::kArray) {
    const Result<std::vector<int64_t>> list = m_.Ints(key);
    if (!list) return Fail(list.error());
    if (list->empty() ||
        std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
      return Fail({Code::kUnsupported,
                   fmt::format("metadata key '{}': layers that differ are not implemented",
                               base::Printable(key))});
    }
    return list->front();
  }
  const Result<int64_t> n = m_.Int(key);
  return n ? *n : Fail(n.error());
}

double GgufReader::Number(std::string_view name, std::optional<double> fallback) {
  if (fallback && !Has(name)) return *fallback;
  if (const Result<bool> flag = m_.Bool(Key(name), false); flag && Has(name)) return *flag ? 1 : 0;
  const Result<double> n = m_.Number(Key(name));
  return n ? *n : static_cast<double>(Fail(n.error()));
}

std::string GgufReader::String(std::string_view name, std::string_view fallback) {
  const Result<std::string_view> s = m_.String(Key(name), fallback);
  if (s) return std::string(*s);
  Fail(s.error());
  return {};
}

int64_t GgufReader::Fail(base::Error error) {
  if (!error_) error_ = std::move(error);
  return 0;
}

int64_t GgufReader::Fail(Code code, std::string_view name, std::string_view what) {
  return Fail({code, fmt::format("metadata key '{}' {}", base::Printable(Key(name)), what)});
}

}  // namespace vllm::weights
