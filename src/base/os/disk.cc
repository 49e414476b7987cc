#include "base/os/disk.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace base::os {
namespace {

Error FromErrno(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return {full ? Code::kResourceExhausted : Code::kUnavailable, path + ": " + std::strerror(error)};
}

}  // namespace

Result<AppendFile> AppendFile::Open(const std::string& path, bool empty) {
  AppendFile file;
  file.path_ = path;
  file.fd_ =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (empty ? O_TRUNC : 0), 0644);
  if (file.fd_ < 0) return FromErrno(path, errno);
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept { *this = std::move(other); }

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status AppendFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(path_, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status AppendFile::Sync() {
  if (::fsync(fd_) != 0 && errno != EINVAL) return FromErrno(path_, errno);
  return {};
}

Result<FileLock> FileLock::Take(const std::string& path) {
  FileLock lock;
  lock.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock.fd_ < 0) return FromErrno(path, errno);
  while (::flock(lock.fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return FromErrno(path, errno);
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept { *this = std::move(other); }

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

uint64_t FreeBytes(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return UINT64_MAX;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

int ProcessId() { return static_cast<int>(::getpid()); }

}  // namespace base::os
