// Collects what an engine gives, for tests that wait for it.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "vllm/engine/request.h"

namespace vllm::testing {

struct Answer {
  std::vector<int32_t> tokens;  // with the end token
  std::vector<float> logprobs;  // of them, when asked for
  std::vector<engine::TokenLogprobs> prompt_logprobs;
  std::vector<float> embedding;
  engine::FinishReason finish = engine::FinishReason::kNone;
  int64_t cached_tokens = 0;
  std::string error;
};

class Collector : public engine::OutputSink {
 public:
  void Deliver(std::span<engine::Output> outputs) override {
    const std::lock_guard lock(mutex_);
    for (engine::Output& o : outputs) {
      Answer& a = answers_[{o.request, o.choice}];
      if (a.finish != engine::FinishReason::kNone) ++after_finish_;
      if (o.token >= 0) a.tokens.push_back(o.token);
      a.finish = o.finish;
      a.cached_tokens = o.cached_tokens;
      if (o.extra == nullptr) continue;
      if (o.extra->logprobs.token >= 0) a.logprobs.push_back(o.extra->logprobs.logprob);
      if (!o.extra->prompt_logprobs.empty()) a.prompt_logprobs = o.extra->prompt_logprobs;
      if (!o.extra->embedding.empty()) a.embedding = o.extra->embedding;
      a.error = o.extra->error;
    }
    changed_.notify_all();
  }
  void EngineDied(const std::string& why) override {
    const std::lock_guard lock(mutex_);
    died_ = why;
    changed_.notify_all();
  }

  // Waits for the end of a choice.
  Answer Wait(engine::RequestId id, int32_t choice = 0) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return answers_[{id, choice}].finish != engine::FinishReason::kNone;
    });
    return answers_[{id, choice}];
  }
  // Waits until a choice has at least `count` tokens, or has ended.
  void WaitForTokens(engine::RequestId id, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const Answer& a = answers_[{id, 0}];
      return a.tokens.size() >= count || a.finish != engine::FinishReason::kNone;
    });
  }
  std::string died() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !died_.empty(); });
    return died_;
  }
  int after_finish() {
    const std::lock_guard lock(mutex_);
    return after_finish_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<engine::RequestId, int32_t>, Answer> answers_;
  std::string died_;
  int after_finish_ = 0;  // outputs that came after a finish: there may be none
};

}  // namespace vllm::testing
