#include "vllm/server/workers.h"

#include <algorithm>

#include "base/os/socket.h"

namespace vllm::server {

Workers::Workers(int threads, size_t max_waiting_bytes) : max_waiting_bytes_(max_waiting_bytes) {
  for (int i = 0; i < std::max(1, threads); ++i) {
    threads_.emplace_back([this] {
      base::os::NameThread("vllm-prepare");
      Run();
    });
  }
}

Workers::~Workers() { Stop(); }

void Workers::Stop() {
  std::deque<Task> dropped;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(tasks_);
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

bool Workers::Post(std::function<void()> task, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return true;  // dropped like the rest
    if (!tasks_.empty() && waiting_bytes_ + bytes > max_waiting_bytes_) return false;
    waiting_bytes_ += bytes;
    tasks_.push_back({std::move(task), bytes});
  }
  wake_.notify_one();
  return true;
}

void Workers::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    waiting_bytes_ -= task.bytes;
    lock.unlock();
    task.run();
    task = {};
    lock.lock();
  }
}

}  // namespace vllm::server
