#include "vllm/server/workers.h"

#include <algorithm>

#include "base/os/socket.h"

namespace vllm::server {

Workers::Workers(int threads) {
  for (int i = 0; i < std::max(1, threads); ++i) {
    threads_.emplace_back([this] {
      base::os::NameThread("vllm-prepare");
      Run();
    });
  }
}

Workers::~Workers() { Stop(); }

void Workers::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(tasks_);
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

void Workers::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Workers::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace vllm::server
