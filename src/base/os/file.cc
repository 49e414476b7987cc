#include "base/os/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/strings.h"

namespace base::os {
namespace {

Error FromErrno(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound
                    : error == ENOSPC                   ? Code::kResourceExhausted
                                                        : Code::kUnavailable;
  return {code, path + ": " + std::strerror(error)};
}

// Closes a descriptor at the end of its scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  // Not to wait for a pipe's writer: that is for the pipes that a shell passes by names in /dev.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return FromErrno(path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return FromErrno(path, errno);
  if (S_ISDIR(info.st_mode))
    return Error{Code::kInvalidArgument, path + ": is a directory, not a file"};
  if (S_ISFIFO(info.st_mode) && path.rfind("/dev/", 0) != 0)
    return Error{Code::kInvalidArgument, path + ": is a pipe, not a file"};
  if (::fcntl(file.fd, F_SETFL, 0) != 0) return FromErrno(path, errno);
  std::string out;
  if (info.st_size > 0 && static_cast<size_t>(info.st_size) <= max_bytes)
    out.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(path, errno);
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > max_bytes) {
      return Error{Code::kCorrupt,
                   fmt::format("{}: longer than the limit of {}", path, HumanBytes(max_bytes))};
    }
    out.append(buffer, static_cast<size_t>(n));
  }
}

Status WriteFile(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  {
    Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.fd < 0) return FromErrno(temporary, errno);
    while (!bytes.empty()) {
      const ssize_t n = ::write(file.fd, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int error = errno;
        ::unlink(temporary.c_str());
        return FromErrno(path, error);
      }
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return FromErrno(path, error);
  }
  return {};
}

bool FileExists(const std::string& path) {
  std::error_code ec;
  return std::filesystem::is_regular_file(path, ec);
}

bool IsDirectory(const std::string& path) {
  std::error_code ec;
  return std::filesystem::is_directory(path, ec);
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code ec;
  std::filesystem::directory_iterator it(path, ec);
  if (ec) return Error{Code::kNotFound, path + ": " + ec.message()};
  std::vector<std::string> names;
  for (; it != std::filesystem::directory_iterator(); it.increment(ec)) {
    if (ec) return Error{Code::kUnavailable, path + ": " + ec.message()};
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return FromErrno(path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return FromErrno(path, errno);
  if (!S_ISREG(info.st_mode)) return Error{Code::kInvalidArgument, path + ": not a regular file"};
  MappedFile map;
  map.path_ = path;
  map.size_ = static_cast<size_t>(info.st_size);
  if (map.size_ > 0) {
    void* p = ::mmap(nullptr, map.size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (p == MAP_FAILED) return FromErrno(path, errno);
    map.data_ = static_cast<const std::byte*>(p);
  }
  return map;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::DropPages(size_t offset, size_t length) const {
  if (offset >= size_) return;
  length = std::min(length, size_ - offset);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = (offset + page - 1) / page * page;
  const size_t last = (offset + length) / page * page;
  if (last > first) ::madvise(const_cast<std::byte*>(data_ + first), last - first, MADV_DONTNEED);
}

}  // namespace base::os
