#include "apps/bench/engine_client.h"

#include <chrono>
#include <span>
#include <thread>

#include "base/clock.h"

namespace apps::bench {
namespace {

using vllm::engine::Engine;
using vllm::engine::FinishReason;
using vllm::engine::Output;

std::string WhyFailed(const Output& o) {
  switch (o.finish) {
    case FinishReason::kError:
      return o.extra != nullptr && !o.extra->error.empty() ? o.extra->error : "the engine failed";
    case FinishReason::kAbort:
      return "aborted";
    case FinishReason::kTimeout:
      return "timed out";
    default:
      return "";
  }
}

}  // namespace

base::Result<std::unique_ptr<EngineClient>> EngineClient::Load(vllm::engine::LoadOptions options) {
  std::unique_ptr<EngineClient> client(new EngineClient);
  base::Result<std::unique_ptr<Engine>> engine = Engine::Load(std::move(options), *client);
  if (!engine) return engine.error();
  client->engine_ = *std::move(engine);
  return client;
}

void EngineClient::Deliver(std::span<Output> outputs) {
  const std::lock_guard lock(mutex_);
  const double now = base::Seconds() - began_;
  for (const Output& o : outputs) {
    RequestRecord& r = records_[o.request];
    if (o.token >= 0) {
      ++r.output_tokens;
      r.times.push_back(now);
      if (keep_ids_) r.ids.push_back(o.token);
    }
    r.cached_tokens = o.cached_tokens;
    if (o.finish == FinishReason::kNone) continue;
    r.error = WhyFailed(o);
    r.end = now;
    ended_.push_back(o.request);
  }
  if (!ended_.empty()) ended_signal_.notify_one();
}

void EngineClient::EngineDied(const std::string& why) {
  const std::lock_guard lock(mutex_);
  died_ = why;
  ended_signal_.notify_one();
}

void EngineClient::TakeEnded(std::unique_lock<std::mutex>& lock, const OnDone& on_done) {
  std::vector<RequestRecord> ended;
  for (const RequestId id : ended_) ended.push_back(records_[id]);
  under_way_ -= static_cast<int64_t>(ended_.size());
  ended_.clear();
  lock.unlock();
  for (const RequestRecord& r : ended) {
    if (on_done) on_done(r);
  }
  lock.lock();
}

RunRecord EngineClient::Run(const Work& work, const OnDone& on_done) {
  RunRecord run;
  run.requests.resize(work.prompts.size());
  std::vector<RequestId> ids(work.prompts.size(), 0);
  std::unique_lock lock(mutex_);
  records_.clear();
  keep_ids_ = work.ids;
  under_way_ = 0;
  began_ = base::Seconds();
  const auto limit = [&] { return work.concurrency <= 0 || under_way_ < work.concurrency; };
  for (size_t i = 0; i < work.prompts.size(); ++i) {
    const auto due = std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::duration<double>(began_ + work.arrivals[i])));
    while (died_.empty() && std::chrono::steady_clock::now() < due) {
      ended_signal_.wait_until(lock, due, [&] { return !ended_.empty() || !died_.empty(); });
      TakeEnded(lock, on_done);
    }
    while (died_.empty() && !limit()) {
      ended_signal_.wait(lock, [&] { return !ended_.empty() || !died_.empty(); });
      TakeEnded(lock, on_done);
    }
    ++under_way_;
    lock.unlock();
    RequestRecord& r = run.requests[i];
    r.start = base::Seconds() - began_;
    r.prompt_tokens = static_cast<int64_t>(work.prompts[i].ids.size());
    const base::Result<RequestId> id =
        engine_->Submit({.prompt = work.prompts[i].ids,
                         .sampling = {.temperature = work.temperature,
                                      .max_tokens = work.prompts[i].output_tokens,
                                      .ignore_eos = work.ignore_eos,
                                      .seed = work.seed + i},
                         .cache_salt = work.salt});
    lock.lock();
    if (id) {
      ids[i] = *id;
      continue;
    }
    --under_way_;
    r.error = id.error().message;
    r.end = r.start;
    if (on_done) on_done(r);
  }
  while (under_way_ > 0) {
    // A dead engine has finished everything before it says so.
    if (ended_.empty() && !died_.empty()) break;
    ended_signal_.wait(lock, [&] { return !ended_.empty() || !died_.empty(); });
    TakeEnded(lock, on_done);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == 0) continue;
    RequestRecord& r = run.requests[i];
    const double start = r.start;
    const int64_t prompt_tokens = r.prompt_tokens;
    r = std::move(records_[ids[i]]);
    r.start = start;
    r.prompt_tokens = prompt_tokens;
  }
  return run;
}

}  // namespace apps::bench
