#include "vllm/weights/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "base/strings.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

// Far above any published model (about 100 keys, 5,000 tensors), and low enough that a hostile file
// cannot make the tables cost more than a few times its own size.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 18;
constexpr size_t kMaxName = 64;            // of a tensor: the format's limit
constexpr size_t kMaxKey = (1 << 16) - 1;  // the format's limit
constexpr uint32_t kMaxDims = 4;           // the format's limit
// The format asks for a multiple of 8; more than this is only seen in files made to break readers.
constexpr uint32_t kMinAlignment = 8, kMaxAlignment = 1 << 16;

Error Corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }

// Bytes of one element; 0 for strings and arrays.
size_t ElementSize(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

// Reads from the front of the file; every read says whether the bytes were there.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}
  uint64_t position() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }

  template <typename T>
  bool Read(T& out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&out, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool Take(uint64_t count, std::span<const std::byte>& out) {
    if (count > left()) return false;
    out = file_.subspan(at_, count);
    at_ += count;
    return true;
  }
  bool ReadString(std::string_view& out) {
    uint64_t length = 0;
    std::span<const std::byte> bytes;
    if (!Read(length) || !Take(length, bytes)) return false;
    out = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    return true;
  }

 private:
  std::span<const std::byte> file_;
  uint64_t at_ = 0;
};

Status ReadArray(Cursor& in, std::string_view key, GgufValue& value) {
  uint32_t element = 0;
  const Error truncated = Corrupt(
      fmt::format("metadata key '{}': the array runs past the end of the file", Printable(key)));
  if (!in.Read(element) || !in.Read(value.count)) return truncated;
  if (element > static_cast<uint32_t>(GgufType::kF64)) {
    return Corrupt(
        fmt::format("metadata key '{}': array of unknown type {}", Printable(key), element));
  }
  value.element = static_cast<GgufType>(element);
  if (value.element == GgufType::kArray) {
    return Error{Code::kUnsupported,
                 fmt::format("metadata key '{}': arrays of arrays are not read", Printable(key))};
  }
  const uint64_t size = ElementSize(value.element);
  if (size > 0) {
    if (value.count > in.left() / size || !in.Take(value.count * size, value.bytes))
      return truncated;
    return {};
  }
  if (value.count > in.left() / sizeof(uint64_t)) return truncated;
  Cursor begin = in;
  for (uint64_t i = 0; i < value.count; ++i) {
    std::string_view skipped;
    if (!in.ReadString(skipped)) return truncated;
  }
  begin.Take(in.position() - begin.position(), value.bytes);
  return {};
}

Status ReadValue(Cursor& in, std::string_view key, GgufValue& value) {
  uint32_t type = 0;
  const Error truncated = Corrupt(
      fmt::format("metadata key '{}': the value runs past the end of the file", Printable(key)));
  if (!in.Read(type)) return truncated;
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return Corrupt(fmt::format("metadata key '{}': unknown value type {}", Printable(key), type));
  }
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::kArray) return ReadArray(in, key, value);
  if (value.type == GgufType::kString) {
    std::string_view text;
    if (!in.ReadString(text)) return truncated;
    value.bytes = std::as_bytes(std::span<const char>(text.data(), text.size()));
    return {};
  }
  if (!in.Take(ElementSize(value.type), value.bytes)) return truncated;
  if (value.type == GgufType::kBool && std::to_integer<int>(value.bytes[0]) > 1) {
    return Corrupt(fmt::format("metadata key '{}': a bool is {}", Printable(key),
                               std::to_integer<int>(value.bytes[0])));
  }
  return {};
}

Status ReadMetadata(Cursor& in, uint64_t count, GgufMetadata& out) {
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view key;
    if (!in.ReadString(key))
      return Corrupt(
          fmt::format("metadata entry {} of {} runs past the end of the file", i + 1, count));
    if (key.empty() || key.size() > kMaxKey) {
      return Corrupt(fmt::format("metadata entry {}: a key of {} bytes (allowed: 1 to {})", i + 1,
                                 key.size(), kMaxKey));
    }
    GgufValue value;
    const Status status = ReadValue(in, key, value);
    if (!status) return status.error();
    if (!out.Add(key, value))
      return Corrupt(fmt::format("metadata key '{}' is there twice", Printable(key)));
  }
  return {};
}

Result<uint32_t> AlignmentOf(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.Find("general.alignment");
  if (value == nullptr) return 32u;
  if (value->type != GgufType::kU32)
    return Corrupt("metadata key 'general.alignment' must be a 32-bit unsigned integer");
  uint32_t alignment = 0;
  std::memcpy(&alignment, value->bytes.data(), sizeof alignment);
  if (alignment < kMinAlignment || alignment > kMaxAlignment ||
      (alignment & (alignment - 1)) != 0) {
    return Corrupt(fmt::format(
        "metadata key 'general.alignment' is {}: it must be a power of two from {} to {}",
        alignment, kMinAlignment, kMaxAlignment));
  }
  return alignment;
}

// Shape, type, bytes and (still relative) offset of one tensor.
Status ReadTensor(Cursor& in, uint64_t index, uint64_t count, uint32_t alignment, GgufTensor& out) {
  std::string_view name;
  const auto truncated = [&] {
    return Corrupt(fmt::format("the entry of tensor {} of {} runs past the end of the file",
                               index + 1, count));
  };
  if (!in.ReadString(name)) return truncated();
  if (name.empty() || name.size() > kMaxName) {
    return Corrupt(fmt::format("tensor '{}': a name of {} bytes (allowed: 1 to {})",
                               Printable(name), name.size(), kMaxName));
  }
  const auto bad = [&](const std::string& why) {
    return Corrupt(fmt::format("tensor '{}': {}", Printable(name), why));
  };
  out.name = std::string(name);
  uint32_t dims = 0, type = 0;
  if (!in.Read(dims)) return truncated();
  if (dims > kMaxDims)
    return bad(fmt::format("{} dimensions (allowed: at most {})", dims, kMaxDims));
  int64_t elements = 1;
  out.shape.resize(dims);
  for (uint32_t d = 0; d < dims; ++d) {
    uint64_t size = 0;
    if (!in.Read(size)) return truncated();
    if (size > static_cast<uint64_t>(INT64_MAX))
      return bad(fmt::format("dimension {} is {}", d, size));
    if (__builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements)) {
      return bad("the product of its dimensions doesn't fit in 64 bits");
    }
    out.shape[dims - 1 - d] = static_cast<int64_t>(size);
  }
  if (!in.Read(type) || !in.Read(out.offset)) return truncated();
  const std::optional<vt::ir::DType> dtype = type <= static_cast<uint32_t>(INT32_MAX)
                                                 ? vt::ir::FromGgmlType(static_cast<int>(type))
                                                 : std::nullopt;
  if (!dtype) {
    return Error{
        Code::kUnsupported,
        fmt::format("tensor '{}': data type {} is not implemented; convert the model to one of "
                    "f32, f16, bf16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS",
                    Printable(name), GgmlTypeName(type))};
  }
  out.dtype = *dtype;
  const vt::ir::DTypeInfo& info = vt::ir::Info(out.dtype);
  const int64_t row = dims == 0 ? 1 : out.shape.back();
  if (row % info.block != 0) {
    return bad(fmt::format("rows of {} values are no whole number of {} blocks of {}", row,
                           info.name, info.block));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info.block, static_cast<int64_t>(info.bytes), &bytes)) {
    return bad("its size in bytes doesn't fit in 64 bits");
  }
  out.bytes = static_cast<uint64_t>(bytes);
  if (out.offset % alignment != 0)
    return bad(fmt::format("offset {} is no multiple of the alignment {}", out.offset, alignment));
  return {};
}

// Makes offsets absolute and checks that the ranges are inside the file and apart from each other.
Status PlaceTensors(uint64_t data_begin, uint64_t file_size, GgufFile& out) {
  const uint64_t data_size = file_size > data_begin ? file_size - data_begin : 0;
  std::vector<size_t> order;
  order.reserve(out.tensors.size());
  for (size_t i = 0; i < out.tensors.size(); ++i) {
    GgufTensor& t = out.tensors[i];
    if (t.offset > data_size || t.bytes > data_size - t.offset) {
      return Corrupt(fmt::format(
          "tensor '{}': its {} at offset {} end past the file; the download may be incomplete",
          Printable(t.name), base::HumanBytes(t.bytes), t.offset));
    }
    t.offset += data_begin;
    if (t.bytes > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return out.tensors[a].offset < out.tensors[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = out.tensors[order[i - 1]];
    const GgufTensor& after = out.tensors[order[i]];
    if (before.offset + before.bytes > after.offset) {
      return Corrupt(fmt::format("tensors '{}' and '{}' overlap", Printable(before.name),
                                 Printable(after.name)));
    }
  }
  out.data_end = data_begin;
  if (!order.empty())
    out.data_end = out.tensors[order.back()].offset + out.tensors[order.back()].bytes;
  out.data_end = (out.data_end + out.alignment - 1) / out.alignment * out.alignment;
  return {};
}

Result<uint32_t> ReadVersion(Cursor& in) {
  std::array<char, 4> magic{};
  uint32_t version = 0;
  if (in.left() == 0) return Corrupt("the file is empty");
  if (!in.Read(magic)) return Corrupt("too short to be a GGUF file");
  if (std::string_view(magic.data(), 4) != "GGUF") {
    return Corrupt(fmt::format("not a GGUF file: it begins with '{}'",
                               Printable(std::string_view(magic.data(), 4))));
  }
  if (!in.Read(version)) return Corrupt("too short to be a GGUF file");
  if (version == 1)
    return Error{Code::kUnsupported,
                 "GGUF version 1 is not read; convert the model again (version 3)"};
  if (version == 2 || version == 3) return version;
  if ((version & 0xffff) == 0) {
    return Error{Code::kUnsupported, "a big-endian GGUF file; convert it to little-endian"};
  }
  return Error{Code::kUnsupported,
               fmt::format("GGUF version {} is not read (versions 2 and 3 are)", version)};
}

}  // namespace

std::string GgmlTypeName(uint32_t type) {
  // ggml's ids in order; empty where an id was withdrawn.
  static constexpr std::array<std::string_view, 43> kNames = {
      "F32",   "F16",        "Q4_0",       "Q4_1",       "",         "",         "Q5_0",
      "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
      "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
      "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
      "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
      "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
      "Q2_0"};
  if (type < kNames.size() && !kNames[type].empty()) return std::string(kNames[type]);
  return std::to_string(type);
}

Result<GgufFile> ParseGguf(std::span<const std::byte> file) {
  Cursor in(file);
  GgufFile out;
  const Result<uint32_t> version = ReadVersion(in);
  if (!version) return version.error();
  out.version = *version;
  uint64_t tensors = 0, keys = 0;
  if (!in.Read(tensors) || !in.Read(keys)) return Corrupt("the header is cut off");
  // A key takes at least 8 + 1 + 4 + 1 bytes, a tensor 8 + 1 + 4 + 4 + 8.
  if (keys > kMaxKeys || keys > in.left() / 14) {
    return Corrupt(fmt::format(
        "the header speaks of {} metadata keys, more than the file can hold or the limit of {}",
        keys, kMaxKeys));
  }
  if (tensors > kMaxTensors || tensors > in.left() / 25) {
    return Corrupt(fmt::format(
        "the header speaks of {} tensors, more than the file can hold or the limit of {}", tensors,
        kMaxTensors));
  }
  Status status = ReadMetadata(in, keys, out.metadata);
  if (!status) return status.error();
  const Result<uint32_t> alignment = AlignmentOf(out.metadata);
  if (!alignment) return alignment.error();
  out.alignment = *alignment;

  out.tensors.resize(tensors);
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    status = ReadTensor(in, i, tensors, out.alignment, out.tensors[i]);
    if (!status) return status.error();
    if (!names.insert(out.tensors[i].name).second) {
      return Corrupt(fmt::format("tensor '{}' is there twice", Printable(out.tensors[i].name)));
    }
  }
  const uint64_t data_begin = (in.position() + out.alignment - 1) / out.alignment * out.alignment;
  status = PlaceTensors(data_begin, file.size(), out);
  if (!status) return status.error();
  return out;
}

}  // namespace vllm::weights
