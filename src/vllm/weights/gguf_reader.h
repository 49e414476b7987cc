// Reads the metadata keys of one architecture, "<architecture>.<name>"; the first error stays, so
// that readers need no checks of their own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "vllm/weights/gguf.h"

namespace vllm::weights {

class GgufReader {
 public:
  // `metadata` must outlive the reader.
  GgufReader(const GgufMetadata& metadata, std::string_view architecture)
      : m_(metadata), prefix_(std::string(architecture) + ".") {}

  const GgufMetadata& metadata() const { return m_; }
  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return m_.Has(Key(name)); }

  // An integer, or an array of equal ones (a value a layer).
  int64_t Int(std::string_view name, std::optional<int64_t> fallback = std::nullopt);
  // A number; of a bool 0 or 1.
  double Number(std::string_view name, std::optional<double> fallback = std::nullopt);
  std::string String(std::string_view name, std::string_view fallback);

  // Records an error unless there is one. Returns 0.
  int64_t Fail(base::Error error);
  // Likewise: "metadata key '<architecture>.<name>' <what>".
  int64_t Fail(base::Code code, std::string_view name, std::string_view what);
  const std::optional<base::Error>& error() const { return error_; }

 private:
  const GgufMetadata& m_;
  std::string prefix_;
  std::optional<base::Error> error_;
};

}  // namespace vllm::weights
