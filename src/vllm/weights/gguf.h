// GGUF files, versions 2 and 3, little-endian (the format: ggml's docs/gguf.md). Parsing only:
// nothing is copied but names; metadata values and tensors are views into the mapped file.
//
// Every count is checked against the bytes left before anything is allocated, and no product can
// wrap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 1;                // of an array
  std::span<const std::byte>
      bytes;  // the value as stored: a string without its length, an array's elements
};

// Key -> value. Views: valid as long as the file's map. Thread-safe for reading.
// Typed reads: integers of any width convert when the value fits; a wrong type or a missing key is
// an error that names the key. With a fallback a missing key is no error, a wrong type still is.
class GgufMetadata {
 public:
  bool Has(std::string_view key) const { return index_.contains(key); }
  const GgufValue* Find(std::string_view key) const;
  const std::vector<std::string_view>& keys() const { return keys_; }  // in file order

  base::Result<int64_t> Int(std::string_view key) const;
  base::Result<int64_t> Int(std::string_view key, int64_t fallback) const;
  base::Result<double> Number(std::string_view key) const;
  base::Result<double> Number(std::string_view key, double fallback) const;
  base::Result<bool> Bool(std::string_view key, bool fallback) const;
  base::Result<std::string_view> String(std::string_view key) const;
  base::Result<std::string_view> String(std::string_view key, std::string_view fallback) const;

  base::Result<std::vector<std::string_view>> Strings(std::string_view key) const;
  base::Result<std::vector<int64_t>> Ints(std::string_view key) const;  // also of bools
  base::Result<std::vector<float>> Floats(std::string_view key) const;

  // False when the key is there already.
  bool Add(std::string_view key, const GgufValue& value);

 private:
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> index_;
};

struct GgufTensor {
  std::string name;  // as in the file
  vt::ir::DType dtype = vt::ir::DType::kF32;
  std::vector<int64_t> shape;  // outermost first (the file has the innermost first)
  uint64_t offset = 0;         // of the data, from the file's begin
  uint64_t bytes = 0;
};

// One file, parsed. Split parts are files of their own: see GgufSplit.
struct GgufFile {
  uint32_t version = 0;
  uint32_t alignment = 32;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in file order
  uint64_t data_end = 0;            // end of the last tensor, padded to the alignment
};

// Where a file stands among the parts of a split model. `count` is 1 for a whole model.
struct GgufSplit {
  int64_t no = 0;  // from 0
  int64_t count = 1;
  int64_t tensors = -1;  // of all parts together; -1 where the file doesn't say
};

// Errors: kCorrupt or kUnsupported, naming the key or tensor and the reason (not the file: callers
// add it).
base::Result<GgufFile> ParseGguf(std::span<const std::byte> file);

// The split.* keys of a parsed file.
base::Result<GgufSplit> SplitOf(const GgufMetadata& metadata);

// Paths of all parts, in order, for a path to any part, to a whole file, or to a folder that holds
// one model. Looks at names only. Errors: kNotFound naming the part that is missing,
// kInvalidArgument for a folder of several models.
base::Result<std::vector<std::string>> FindGgufParts(const std::string& path);

// "Q4_K" for a ggml type id, also of types that aren't implemented here; the number for ids that
// ggml doesn't have.
std::string GgmlTypeName(uint32_t type);

}  // namespace vllm::weights
