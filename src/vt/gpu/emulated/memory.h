// Memory of the emulated device: plain memory with guards around each allocation.
//
// New memory is NaN in every format (0xff), freed memory is filled with 0xdd and kept for a while,
// so that late reads see rubbish and late writes are found. Aligned to 256. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"

namespace vt::gpu::emulated {

class Memory {
 public:
  // `what` names this memory in errors: "device memory".
  Memory(std::string what, int64_t total) : what_(std::move(what)), total_(total) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  base::Result<void*> Allocate(int64_t bytes);  // kResourceExhausted names what is free
  // Errors: an address that is no live allocation; writes outside it while it lived.
  base::Status Free(void* p);
  // Whether all of [p, p + bytes) is inside one live allocation. The error says where it is
  // instead.
  base::Status Inside(const void* p, int64_t bytes) const;
  // Whether p is in a live allocation.
  bool Owns(const void* p) const;
  // Whether p is in memory that was freed not long ago.
  bool WasFreed(const void* p) const;
  // Errors: a write just outside of a live allocation. (One into freed memory is found when that
  // is given up at last, by some later Free.)
  base::Status CheckGuards() const;

  void set_total(int64_t bytes) { total_ = bytes; }
  int64_t total() const { return total_; }
  int64_t live_bytes() const { return live_bytes_; }
  int64_t live() const { return static_cast<int64_t>(live_.size()); }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Region {
    std::unique_ptr<char[]> storage;
    int64_t bytes = 0;
    int64_t number = 0;  // the how-manieth allocation it was
  };
  base::Status CheckGuard(const char* p, const Region& r) const;
  base::Status CheckFreed(const char* p, const Region& r) const;
  std::string Describe(const char* p, const Region& r) const;

  std::string what_;
  int64_t total_ = 0, live_bytes_ = 0, peak_bytes_ = 0, count_ = 0;
  std::map<const char*, Region, std::greater<>> live_;  // by address, the highest first
  std::deque<std::pair<const char*, Region>> freed_;
  int64_t freed_bytes_ = 0;
};

}  // namespace vt::gpu::emulated
