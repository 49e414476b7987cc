#include "vt/gpu/emulated/memory.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "vt/gpu/emulated/sanitizer.h"

namespace vt::gpu::emulated {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kGuardBytes = 256;
constexpr int kGuard = 0xc9, kNew = 0xff, kFreed = 0xdd;
// Freed memory that is kept, to catch who still uses it.
constexpr int64_t kKeptBytes = 8 << 20;

bool AllAre(const char* p, int64_t n, int value) {
  // The first byte is right and all are equal.
  return n == 0 || (static_cast<unsigned char>(p[0]) == value &&
                    std::memcmp(p, p + 1, static_cast<size_t>(n - 1)) == 0);
}

}  // namespace

Memory::~Memory() {
  for (const auto& [p, r] : live_) {
    Unpoison(p - kGuardBytes, static_cast<size_t>(r.bytes + 2 * kGuardBytes));
  }
  for (const auto& [p, r] : freed_) {
    Unpoison(p - kGuardBytes, static_cast<size_t>(r.bytes + 2 * kGuardBytes));
  }
}

std::string Memory::Describe(const char* p, const Region& r) const {
  return fmt::format("{} bytes of {} at {} (allocation {})", r.bytes, what_,
                     static_cast<const void*>(p), r.number);
}

base::Result<void*> Memory::Allocate(int64_t bytes) {
  if (bytes <= 0)
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("an allocation of {} bytes of {}", bytes, what_)};
  if (bytes > total_ - live_bytes_)
    return base::Error{base::Code::kResourceExhausted,
                       fmt::format("{} bytes of {} were asked for and {} of {} are free", bytes,
                                   what_, total_ - live_bytes_, total_)};
  Region r;
  r.bytes = bytes;
  r.number = ++count_;
  r.storage = std::make_unique_for_overwrite<char[]>(
      static_cast<size_t>(bytes + 2 * kGuardBytes + kAlignment));
  char* const p = reinterpret_cast<char*>(
      (reinterpret_cast<uintptr_t>(r.storage.get()) + kGuardBytes + kAlignment - 1) &
      ~static_cast<uintptr_t>(kAlignment - 1));
  std::memset(p - kGuardBytes, kGuard, kGuardBytes);
  std::memset(p, kNew, static_cast<size_t>(bytes));
  std::memset(p + bytes, kGuard, kGuardBytes);
  Poison(p - kGuardBytes, kGuardBytes);
  Poison(p + bytes, kGuardBytes);
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  live_.emplace(p, std::move(r));
  return static_cast<void*>(p);
}

base::Status Memory::CheckGuard(const char* p, const Region& r) const {
  if (kAsan) return {};  // poisoned: the write itself was reported
  const bool low = AllAre(p - kGuardBytes, kGuardBytes, kGuard);
  if (low && AllAre(p + r.bytes, kGuardBytes, kGuard)) return {};
  return base::Error{base::Code::kInternal,
                     fmt::format("a write just {} {}", low ? "past" : "before", Describe(p, r))};
}

base::Status Memory::CheckFreed(const char* p, const Region& r) const {
  if (kAsan || AllAre(p, r.bytes, kFreed)) return {};
  return base::Error{base::Code::kInternal,
                     fmt::format("a write into {} after it was freed", Describe(p, r))};
}

base::Status Memory::CheckGuards() const {
  for (const auto& [p, r] : live_) {
    if (base::Status s = CheckGuard(p, r); !s) return s;
  }
  return {};
}

base::Status Memory::Free(void* p) {
  const auto found = live_.find(static_cast<const char*>(p));
  if (found == live_.end()) {
    for (const auto& [q, r] : freed_) {
      if (q == p)
        return base::Error{base::Code::kInternal,
                           fmt::format("{} is freed a second time", Describe(q, r))};
    }
    return base::Error{base::Code::kInternal,
                       fmt::format("{} is freed, and no {} begins there", p, what_)};
  }
  base::Status status = CheckGuard(found->first, found->second);
  Region r = std::move(found->second);
  live_.erase(found);
  live_bytes_ -= r.bytes;
  std::memset(p, kFreed, static_cast<size_t>(r.bytes));
  Poison(p, static_cast<size_t>(r.bytes));
  freed_bytes_ += r.bytes;
  freed_.emplace_back(static_cast<const char*>(p), std::move(r));
  while (freed_bytes_ > kKeptBytes) {
    const auto& [q, old] = freed_.front();
    if (base::Status s = CheckFreed(q, old); !s && status) status = s;
    Unpoison(q - kGuardBytes, static_cast<size_t>(old.bytes + 2 * kGuardBytes));
    freed_bytes_ -= old.bytes;
    freed_.pop_front();
  }
  return status;
}

bool Memory::Owns(const void* p) const {
  const auto at = live_.lower_bound(static_cast<const char*>(p));  // the last that begins by p
  return at != live_.end() && static_cast<const char*>(p) < at->first + at->second.bytes;
}

bool Memory::WasFreed(const void* p) const {
  const auto* at = static_cast<const char*>(p);
  return std::any_of(freed_.begin(), freed_.end(), [at](const auto& entry) {
    return entry.first <= at && at < entry.first + entry.second.bytes;
  });
}

base::Status Memory::Inside(const void* p, int64_t bytes) const {
  const auto* first = static_cast<const char*>(p);
  const auto at = live_.lower_bound(first);
  if (at != live_.end() && first + bytes <= at->first + at->second.bytes) return {};
  std::string why = fmt::format("no live {}", what_);
  if (at != live_.end() && first < at->first + at->second.bytes) {
    why = fmt::format("{} bytes past the end of {}", first + bytes - (at->first + at->second.bytes),
                      Describe(at->first, at->second));
  } else {
    for (const auto& [q, r] : freed_) {
      if (q <= first && first < q + r.bytes) why = "freed: " + Describe(q, r);
    }
  }
  return base::Error{base::Code::kInternal, fmt::format("[{}, + {} bytes) is {}", p, bytes, why)};
}

}  // namespace vt::gpu::emulated
