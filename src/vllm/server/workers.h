// A few threads that take tasks from one queue: parsing, templates and tokenising, which may take
// long and must hold up neither the engine nor the network.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace vllm::server {

class Workers {
 public:
  Workers(int threads, size_t max_waiting_bytes);
  ~Workers();

  // Ends the threads; what has not begun is dropped.
  void Stop();

  // `bytes`: what the task holds in memory. False when tasks with max_waiting_bytes wait already:
  // this one is dropped then.
  bool Post(std::function<void()> task, size_t bytes);

 private:
  struct Task {
    std::function<void()> run;
    size_t bytes = 0;
  };
  void Run();

  const size_t max_waiting_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  size_t waiting_bytes_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace vllm::server
