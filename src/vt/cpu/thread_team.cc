#include "vt/cpu/thread_team.h"

#include <pthread.h>

#include <string>

namespace vt::cpu {
namespace {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// A pause takes 15 to 45 ns on current cores, so 2000 of them are 30 to 90 microseconds: longer
// than any node of a decode step, shorter than a scheduler's tick. A team larger than the machine
// must not spin: the thread that it waits for may need the core.
ThreadTeam::ThreadTeam(int threads)
    : size_(threads < 1 ? 1 : threads),
      spins_(static_cast<unsigned>(size_) > std::thread::hardware_concurrency() ? 16 : 2000) {
  for (int i = 1; i < size_; ++i) {
    threads_.emplace_back([this, i] { Loop(i); });
    pthread_setname_np(threads_.back().native_handle(), ("vt-cpu-" + std::to_string(i)).c_str());
  }
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true);
  start_.fetch_add(1);
  start_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadTeam::WaitWhile(std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  // Sequentially consistent with the waker's store and its look at sleepers_: one of the two sees
  // the other.
  sleepers_.fetch_add(1);
  while (word.load() == old) word.wait(old);
  sleepers_.fetch_sub(1);
}

void ThreadTeam::Barrier() {
  if (size_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1);
    if (sleepers_.load() > 0) phase_.notify_all();
    return;
  }
  WaitWhile(phase_, phase);
}

void ThreadTeam::RunErased(void (*call)(void*, int), void* f) {
  if (size_ == 1) return call(f, 0);
  call_ = call;
  argument_ = f;
  start_.fetch_add(1);
  if (sleepers_.load() > 0) start_.notify_all();
  call(f, 0);
  Barrier();
}

void ThreadTeam::Loop(int member) {
  for (uint32_t seen = 0;;) {
    WaitWhile(start_, seen);
    ++seen;
    if (stop_.load()) return;
    call_(argument_, member);
    Barrier();
  }
}

}  // namespace vt::cpu
