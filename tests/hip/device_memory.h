// The memory of the card that stands in for an AMD one: a file in memory at a fixed address, so
// that another process (the emulator of instructions) has it at the same addresses.
//
// New memory is NaN in every format; a guard behind each allocation tells of writes beyond it. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace hip {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t total_bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // nullptr: there is not so much left in one piece.
  void* Allocate(size_t bytes);
  // False: p is no live allocation.
  bool Free(void* p);
  // Whether all of [p, p + bytes) lies in one live allocation.
  bool Inside(const void* p, size_t bytes) const;
  // Which allocation was written beyond its end, or "".
  std::string BrokenGuard() const;

  int file() const { return file_; }
  char* base() const { return base_; }
  // Of the mapping: more than what may be allocated, for kernels' arguments.
  size_t mapped_bytes() const { return mapped_; }
  char* arguments() const { return base_; }
  static constexpr size_t kArgumentBytes = 64 << 10;
  size_t total_bytes() const { return total_; }
  size_t live_bytes() const { return live_bytes_; }
  size_t live() const { return live_.size(); }

 private:
  int file_ = -1;
  char* base_ = nullptr;
  size_t mapped_ = 0, total_ = 0, live_bytes_ = 0;
  std::map<char*, size_t> live_;  // by address
};

}  // namespace hip
