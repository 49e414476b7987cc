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
  explicit Workers(int threads);
  ~Workers();

  // Ends the threads; what has not begun is dropped.
  void Stop();

  void Post(std::function<void()> task);

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace vllm::server
