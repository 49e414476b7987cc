// Writes GGUF files, version 3: all that is known first (metadata, names, types, shapes), then the
// tensors' bytes in order, as they come. The file appears under its name when it is whole; until
// then it grows beside it under another one, which is removed when anything fails.
//
//   auto writer = GgufWriter::Create("out.gguf", keys, tensors);
//   for (each tensor) writer->Append(bytes);  // in as many pieces as one likes
//   writer->Finish();
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/disk.h"
#include "base/result.h"
#include "vllm/weights/gguf.h"

namespace vllm::weights {

// Metadata to be written, in the order of its first setting. Setting a key again replaces it.
class GgufKeys {
 public:
  void U32(std::string_view key, uint32_t value);
  void F32(std::string_view key, float value);
  void Bool(std::string_view key, bool value);
  void String(std::string_view key, std::string_view value);
  void Strings(std::string_view key, const std::vector<std::string_view>& values);
  void Bools(std::string_view key, const std::vector<int32_t>& values);  // 0 or 1
  void I32s(std::string_view key, const std::vector<int32_t>& values);
  void F32s(std::string_view key, const std::vector<float>& values);
  void Copy(std::string_view key, const GgufValue& value);
  void Remove(std::string_view key);

  size_t size() const { return entries_.size(); }
  // As in the file.
  std::string Bytes() const;

 private:
  void Set(std::string_view key, std::string value);
  std::vector<std::pair<std::string, std::string>> entries_;  // key; type and value as in the file
};

class GgufWriter {
 public:
  // `tensors`: names, types and shapes; offsets and sizes follow. Writes all but their data.
  // Errors: kInvalidArgument for what the format cannot hold, kResourceExhausted where the disk has
  // no room for the whole file.
  static base::Result<GgufWriter> Create(const std::string& path, const GgufKeys& keys,
                                         std::vector<GgufTensor> tensors);
  GgufWriter(GgufWriter&& other) noexcept;
  GgufWriter& operator=(GgufWriter&&) = delete;
  ~GgufWriter();  // removes what is not finished

  // The next bytes of the current tensor. REQUIRES: no more than it has left.
  base::Status Append(std::span<const std::byte> bytes);
  // Waits for the disk and gives the file its name. REQUIRES: all bytes were appended.
  base::Status Finish();

  uint64_t file_bytes() const { return file_bytes_; }

 private:
  GgufWriter(std::string path, std::string temporary, base::os::AppendFile file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}
  base::Status Write(std::string_view bytes);

  std::string path_, temporary_;
  std::optional<base::os::AppendFile> file_;
  std::vector<uint64_t> sizes_;  // of the tensors
  size_t tensor_ = 0;            // the current one
  uint64_t written_ = 0;         // of it
  uint64_t file_bytes_ = 0;
};

// Bytes of a file with these tensors, whose offsets (from the data's begin) and sizes are filled
// in. Errors: kInvalidArgument, naming the tensor.
base::Result<uint64_t> LayOutGguf(const GgufKeys& keys, std::vector<GgufTensor>& tensors);

}  // namespace vllm::weights
