// Files: whole reads with a limit, and read-only memory maps whose pages can be given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace base::os {

// Reads a whole file. Errors: kNotFound, kCorrupt when longer than `max_bytes`, kUnavailable for
// I/O errors.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Writes a whole file through a temporary beside it, so that a full disk never leaves half a file.
Status WriteFile(const std::string& path, std::string_view bytes);

bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);

// Names (not paths) of a directory's entries, sorted.
Result<std::vector<std::string>> ListDirectory(const std::string& path);

// A read-only map of a whole regular file. Movable; unmapped on destruction. Thread-safe for
// reading.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the system that the pages inside [offset, offset + length) are not needed any more (a
  // later read brings them back), so that a repacked weight is not in memory twice.
  void DropPages(size_t offset, size_t length) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

}  // namespace base::os
