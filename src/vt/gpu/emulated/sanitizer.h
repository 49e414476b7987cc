// What AddressSanitizer must be told of fibers and guards; nothing in builds without it.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define VT_EMULATED_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VT_EMULATED_ASAN 1
#endif
#endif

#ifdef VT_EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace vt::gpu::emulated {

#ifdef VT_EMULATED_ASAN
inline constexpr bool kAsan = true;
inline void Poison(const void* p, size_t n) { __asan_poison_memory_region(p, n); }
inline void Unpoison(const void* p, size_t n) { __asan_unpoison_memory_region(p, n); }

// Announces every change of stack. The host's own bounds are learnt when the first fiber begins.
class HostStack {
 public:
  void** save() { return &host_; }
  void LeaveForHost(void** mine) { __sanitizer_start_switch_fiber(mine, bottom_, size_); }
  void LeaveForFiber(void** mine, const void* stack, size_t bytes) {
    from_host_ = mine == &host_;
    __sanitizer_start_switch_fiber(mine, stack, bytes);
  }
  void EnterFiber(void* saved) {
    const void* bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(saved, &bottom, &size);
    if (from_host_) {
      bottom_ = bottom;
      size_ = size;
      from_host_ = false;
    }
  }
  void EnterHost() { __sanitizer_finish_switch_fiber(host_, nullptr, nullptr); }

 private:
  void* host_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  bool from_host_ = false;
};
#else
inline constexpr bool kAsan = false;
inline void Poison(const void*, size_t) {}
inline void Unpoison(const void*, size_t) {}

class HostStack {
 public:
  void** save() { return nullptr; }
  void LeaveForHost(void**) {}
  void LeaveForFiber(void**, const void*, size_t) {}
  void EnterFiber(void*) {}
  void EnterHost() {}
};
#endif

}  // namespace vt::gpu::emulated
