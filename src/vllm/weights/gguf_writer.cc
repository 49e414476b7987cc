#include "vllm/weights/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/strings.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

constexpr uint64_t kAlignment = 32;  // the format's default; other values would need a key
constexpr size_t kMaxName = 64, kMaxDims = 4;

template <typename T>
std::string Raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}
std::string Text(std::string_view s) { return Raw<uint64_t>(s.size()) + std::string(s); }
std::string TypeOf(GgufType type) { return Raw(static_cast<uint32_t>(type)); }

template <typename T>
std::string Array(GgufType element, const std::vector<T>& values) {
  std::string out = TypeOf(GgufType::kArray) + TypeOf(element) + Raw<uint64_t>(values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

uint64_t Padded(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

std::string Header(const GgufKeys& keys, const std::vector<GgufTensor>& tensors) {
  std::string out = "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(tensors.size()) +
                    Raw<uint64_t>(keys.size()) + keys.Bytes();
  for (const GgufTensor& t : tensors) {
    out += Text(t.name) + Raw(static_cast<uint32_t>(t.shape.size()));
    for (size_t d = t.shape.size(); d-- > 0;) out += Raw(static_cast<uint64_t>(t.shape[d]));
    out += Raw(static_cast<uint32_t>(vt::ir::Info(t.dtype).ggml_type)) + Raw(t.offset);
  }
  out.resize(Padded(out.size()));
  return out;
}

}  // namespace

void GgufKeys::Set(std::string_view key, std::string value) {
  for (auto& [name, old] : entries_) {
    if (name != key) continue;
    old = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
}

void GgufKeys::U32(std::string_view key, uint32_t v) { Set(key, TypeOf(GgufType::kU32) + Raw(v)); }
void GgufKeys::F32(std::string_view key, float v) { Set(key, TypeOf(GgufType::kF32) + Raw(v)); }
void GgufKeys::Bool(std::string_view key, bool v) {
  Set(key, TypeOf(GgufType::kBool) + Raw(static_cast<uint8_t>(v)));
}
void GgufKeys::String(std::string_view key, std::string_view v) {
  Set(key, TypeOf(GgufType::kString) + Text(v));
}
void GgufKeys::Strings(std::string_view key, const std::vector<std::string_view>& values) {
  std::string out =
      TypeOf(GgufType::kArray) + TypeOf(GgufType::kString) + Raw<uint64_t>(values.size());
  for (const std::string_view s : values) out += Text(s);
  Set(key, std::move(out));
}
void GgufKeys::Bools(std::string_view key, const std::vector<int32_t>& values) {
  Set(key, Array(GgufType::kBool, std::vector<uint8_t>(values.begin(), values.end())));
}
void GgufKeys::I32s(std::string_view key, const std::vector<int32_t>& values) {
  Set(key, Array(GgufType::kI32, values));
}
void GgufKeys::F32s(std::string_view key, const std::vector<float>& values) {
  Set(key, Array(GgufType::kF32, values));
}

void GgufKeys::Copy(std::string_view key, const GgufValue& v) {
  std::string out = TypeOf(v.type);
  if (v.type == GgufType::kArray) out += TypeOf(v.element) + Raw(v.count);
  if (v.type == GgufType::kString) out += Raw<uint64_t>(v.bytes.size());
  out.append(reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size());
  Set(key, std::move(out));
}

void GgufKeys::Remove(std::string_view key) {
  std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; });
}

std::string GgufKeys::Bytes() const {
  std::string out;
  for (const auto& [key, value] : entries_) out += Text(key) + value;
  return out;
}

Result<uint64_t> LayOutGguf(const GgufKeys& keys, std::vector<GgufTensor>& tensors) {
  uint64_t end = 0;
  for (GgufTensor& t : tensors) {
    const auto bad = [&](const std::string& why) {
      return Error{Code::kInvalidArgument,
                   fmt::format("tensor '{}': GGUF {}", Printable(t.name), why)};
    };
    if (t.name.empty() || t.name.size() > kMaxName)
      return bad(fmt::format("allows names of 1 to {} bytes", kMaxName));
    if (t.shape.size() > kMaxDims) return bad(fmt::format("allows {} dimensions", kMaxDims));
    const vt::ir::DTypeInfo& info = vt::ir::Info(t.dtype);
    if (info.ggml_type < 0) return bad(fmt::format("has no type {}", info.name));
    int64_t count = 1;
    for (const int64_t d : t.shape) count *= d;
    if (!t.shape.empty() && t.shape.back() % info.block != 0)
      return bad(fmt::format("rows of {} values are no whole number of {} blocks", t.shape.back(),
                             info.name));
    t.offset = end;
    t.bytes = static_cast<uint64_t>(vt::ir::Bytes(t.dtype, count));
    end = Padded(end + t.bytes);
  }
  return Header(keys, tensors).size() + end;
}

Result<GgufWriter> GgufWriter::Create(const std::string& path, const GgufKeys& keys,
                                      std::vector<GgufTensor> tensors) {
  const Result<uint64_t> bytes = LayOutGguf(keys, tensors);
  if (!bytes) return bytes.error();
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const uint64_t free = base::os::FreeBytes(folder);
  if (*bytes > free) {
    return Error{Code::kResourceExhausted,
                 fmt::format("{}: the file takes {}, and the disk has {} left", path,
                             base::HumanBytes(*bytes), base::HumanBytes(free))};
  }
  std::string temporary = fmt::format("{}.part-{}", path, base::os::ProcessId());
  Result<base::os::AppendFile> file = base::os::AppendFile::Open(temporary, true);
  if (!file) return file.error();
  GgufWriter writer(path, std::move(temporary), *std::move(file));
  writer.file_bytes_ = *bytes;
  for (const GgufTensor& t : tensors) writer.sizes_.push_back(t.bytes);
  const Status status = writer.Write(Header(keys, tensors));
  if (!status) return status.error();
  return writer;
}

GgufWriter::GgufWriter(GgufWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      file_(std::move(other.file_)),
      sizes_(std::move(other.sizes_)),
      tensor_(other.tensor_),
      written_(other.written_),
      file_bytes_(other.file_bytes_) {}

GgufWriter::~GgufWriter() {
  if (temporary_.empty()) return;
  std::error_code ec;
  std::filesystem::remove(temporary_, ec);
}

Status GgufWriter::Write(std::string_view bytes) {
  const Status status = file_->Write(bytes);
  if (status) return {};
  return Error{status.error().code,
               fmt::format("{} (nothing is left behind; the whole file takes {})",
                           status.error().message, base::HumanBytes(file_bytes_))};
}

Status GgufWriter::Append(std::span<const std::byte> bytes) {
  while (tensor_ < sizes_.size() && sizes_[tensor_] == 0) ++tensor_;
  if (bytes.empty()) return {};
  if (tensor_ == sizes_.size() || bytes.size() > sizes_[tensor_] - written_)
    return Error{Code::kInternal, path_ + ": more bytes than the tensors have"};
  Status status = Write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!status) return status;
  written_ += bytes.size();
  if (written_ < sizes_[tensor_]) return {};
  status = Write(std::string(Padded(written_) - written_, '\0'));
  ++tensor_;
  written_ = 0;
  return status;
}

Status GgufWriter::Finish() {
  while (tensor_ < sizes_.size() && sizes_[tensor_] == 0) ++tensor_;
  if (tensor_ != sizes_.size()) return Error{Code::kInternal, path_ + ": tensors are missing"};
  const Status status = file_->Sync();
  if (!status) return status;
  std::error_code ec;
  std::filesystem::rename(temporary_, path_, ec);
  if (ec) return Error{Code::kUnavailable, fmt::format("{}: {}", path_, ec.message())};
  temporary_.clear();
  return {};
}

}  // namespace vllm::weights
