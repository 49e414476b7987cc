// The engine's thread: takes requests in, runs steps, hands tokens out.
//
// One step ahead: while a step is on the device the next one is scheduled and launched, and only
// then the first one's tokens are read. A device that has finished by itself (a CPU computes inside
// the launch) is read first, so that nothing waits there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "vllm/engine/block_pool.h"
#include "vllm/engine/engine_stats.h"
#include "vllm/engine/media.h"
#include "vllm/engine/request.h"
#include "vllm/engine/scheduler.h"
#include "vllm/engine/step_runner.h"

namespace vllm::engine {

struct LoopOptions {
  SchedulerOptions scheduler;
  int64_t kv_blocks = 0, block_size = 16;
  int64_t page_blocks = 0;                // where kv_blocks are pages: see KvLayout; else 0
  int64_t window = 0, window_blocks = 0;  // see WindowPool
  bool prefix_caching = true;
  int64_t max_queue_size = 0;     // waiting choices; 0: no limit
  MediaEncoder* media = nullptr;  // of models that hear
};

class EngineLoop : private SchedulerObserver {
 public:
  // `runner` and `sink` must outlive it. The thread is not started: Start, or RunOnce by hand.
  EngineLoop(StepRunner& runner, OutputSink& sink, const LoopOptions& options);
  ~EngineLoop() override;  // aborts what runs, without output

  void Start();

  // From any thread. As Engine's.
  base::Result<RequestId> Submit(std::shared_ptr<const Request> request,
                                 const SamplerSettings& sampler,
                                 const std::function<void(RequestId)>& taken = {});
  void Cancel(RequestId id, int32_t choice, bool deliver);
  void Drain(double seconds);
  EngineStats Stats() const;

  // The KV blocks and slots, for callers that run steps of their own while the loop is idle.
  BlockPool& pool() { return pool_; }
  WindowPool& windows() { return windows_; }
  Scheduler& scheduler() { return scheduler_; }

  // Takes in what was submitted, then retires, schedules and launches what is due. False when there
  // was nothing to do. REQUIRES: not started.
  bool RunOnce();

 private:
  struct Arrival {
    RequestId id;
    std::shared_ptr<const Request> request;
    SamplerSettings sampler;
    double time;
  };
  struct Cancellation {
    RequestId id;
    int32_t choice;
    bool deliver;
  };

  void Run();
  void TakeIn(double now);
  base::Status Encode();
  base::Status Launch();
  base::Status Retire();
  void Deliver();
  void Die(const base::Error& why);
  void Publish();
  int64_t MaxRunning() const { return options_.scheduler.max_num_seqs; }
  void OnToken(const Sequence& s, double now) override;
  void OnFinish(const Sequence& s, FinishReason reason, double now) override;

  StepRunner& runner_;
  OutputSink& sink_;
  const LoopOptions options_;
  BlockPool pool_;
  WindowPool windows_;
  Scheduler scheduler_;
  ScheduledStep steps_[StepRunner::kMaxInFlight];
  int next_ = 0;
  ScheduledStep planned_;
  std::vector<StepRow> rows_;
  std::vector<int32_t> feeds_;
  std::vector<Output> outputs_;
  std::deque<std::shared_ptr<Media>> hearing_;  // not encoded yet

  std::mutex mutex_;  // of what is below, to stats_mutex_
  std::condition_variable wake_, drained_;
  std::vector<Arrival> arrivals_;
  std::vector<Cancellation> cancellations_;
  RequestId last_id_ = 0;
  bool sleeping_ = false, stopping_ = false, draining_ = false, abort_all_ = false, idle_ = true;
  std::string dead_;       // why, once it is
  int64_t queued_ = 0;     // choices that wait, arrivals included
  int64_t available_ = 0;  // places of a step that nobody has

  mutable std::mutex stats_mutex_;  // of what is below, to thread_
  EngineStats stats_;
  decltype(StepRunner::Counters::eager) eager_{};

  std::thread thread_;
};

struct LoadedModel;
struct LoadOptions;
LoopOptions LoopOptionsOf(const LoadedModel& model, const LoadOptions& options);

}  // namespace vllm::engine
