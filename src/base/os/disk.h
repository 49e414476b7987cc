// What downloads need of the file system: appending, locks between processes, free space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace base::os {

// A file that is written at its end. Movable; closed on destruction.
class AppendFile {
 public:
  // Creates it when missing; `empty` throws away what it held. Errors name the path.
  static Result<AppendFile> Open(const std::string& path, bool empty);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  // kResourceExhausted: the disk is full.
  Status Write(std::string_view bytes);
  // Waits until the disk has it.
  Status Sync();

 private:
  AppendFile() = default;
  int fd_ = -1;
  std::string path_;
};

// Held by one process (or thread) at a time; let go on destruction and when the process ends.
class FileLock {
 public:
  // Creates the file when missing and waits until no other holds it.
  static Result<FileLock> Take(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  FileLock() = default;
  int fd_ = -1;
};

// Bytes that may still be written below `folder`; UINT64_MAX when the system does not say.
uint64_t FreeBytes(const std::string& folder);

// Of this process: for names of temporary files.
int ProcessId();

}  // namespace base::os
