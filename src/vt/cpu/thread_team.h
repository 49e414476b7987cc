// A persistent team of threads that execute one function together, with a cheap barrier.
//
// The caller of Run is member 0. Members spin for a few tens of microseconds at the barrier and
// between runs, then sleep, so that an idle team costs nothing and a team larger than the machine
// still advances. Run may be called from one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace vt::cpu {

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Calls fn(member) on every member and returns when all have finished.
  template <typename F>
  void Run(F&& fn) {
    RunErased([](void* f, int member) { (*static_cast<std::remove_reference_t<F>*>(f))(member); },
              const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Calls fn(i) for 0 <= i < count, each once, by whichever member is free.
  template <typename F>
  void ForEach(int64_t count, F&& fn) {
    std::atomic<int64_t> next{0};
    Run([&](int) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) fn(i);
    });
  }

  // Inside Run, by every member: returns when all members have called it; what they wrote before is
  // then visible.
  void Barrier();

 private:
  void RunErased(void (*call)(void*, int), void* f);
  void Loop(int member);
  // Spins, then sleeps, until `word` differs from `old`.
  void WaitWhile(std::atomic<uint32_t>& word, uint32_t old);

  const int size_;
  const int spins_;
  void (*call_)(void*, int) = nullptr;
  void* argument_ = nullptr;
  // Each on its own cache line: one is written by the arriving, the others read by the waiting.
  alignas(64) std::atomic<uint32_t> start_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace vt::cpu
