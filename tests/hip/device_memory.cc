#include "tests/hip/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hip {
namespace {

// Far from where programs, libraries, stacks and the sanitizers' shadows are put.
char* const kBase = reinterpret_cast<char*>(0x300000000000);
constexpr size_t kAlignment = 256, kGuard = 256;
constexpr unsigned char kNew = 0xff, kGuardByte = 0xa5;

size_t Room(size_t bytes) { return (bytes + kGuard + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceMemory::DeviceMemory(size_t total_bytes) : total_(total_bytes) {
  mapped_ = kArgumentBytes + total_ + total_ / 4 + (64 << 20);  // guards take of the rest
  file_ = memfd_create("hip_stand_in", 0);
  void* p = MAP_FAILED;
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(mapped_)) == 0) {
    p = mmap(kBase, mapped_, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file_, 0);
  }
  if (p == MAP_FAILED) {
    std::fprintf(stderr, "hip stand-in: no memory can be mapped at a fixed address\n");
    std::abort();
  }
  base_ = static_cast<char*>(p);
}

DeviceMemory::~DeviceMemory() {
  munmap(base_, mapped_);
  close(file_);
}

void* DeviceMemory::Allocate(size_t bytes) {
  if (bytes == 0 || bytes > total_ - live_bytes_) return nullptr;
  char* at = base_ + kArgumentBytes;
  for (const auto& [p, size] : live_) {
    if (static_cast<size_t>(p - at) >= Room(bytes)) break;
    at = p + Room(size);
  }
  if (Room(bytes) > static_cast<size_t>(base_ + mapped_ - at)) return nullptr;
  live_[at] = bytes;
  live_bytes_ += bytes;
  std::memset(at, kNew, bytes);
  std::memset(at + bytes, kGuardByte, kGuard);
  return at;
}

bool DeviceMemory::Free(void* p) {
  const auto found = live_.find(static_cast<char*>(p));
  if (found == live_.end()) return false;
  live_bytes_ -= found->second;
  std::memset(found->first, 0xdd, found->second);
  live_.erase(found);
  return true;
}

bool DeviceMemory::Inside(const void* p, size_t bytes) const {
  const char* at = static_cast<const char*>(p);
  auto next = live_.upper_bound(const_cast<char*>(at));
  if (next == live_.begin()) return false;
  --next;
  const size_t offset = static_cast<size_t>(at - next->first);
  return offset <= next->second && bytes <= next->second - offset;
}

std::string DeviceMemory::BrokenGuard() const {
  for (const auto& [p, size] : live_) {
    for (size_t i = 0; i < kGuard; ++i) {
      if (static_cast<unsigned char>(p[size + i]) == kGuardByte) continue;
      return "byte " + std::to_string(i) + " behind an allocation of " + std::to_string(size) +
             " bytes was written";
    }
  }
  return "";
}

}  // namespace hip
