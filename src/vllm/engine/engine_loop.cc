#include "vllm/engine/engine_loop.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/strings.h"

namespace vllm::engine {
namespace {

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kError:
      return "error";
    default:
      return "abort";
  }
}

}  // namespace

EngineLoop::EngineLoop(StepRunner& runner, OutputSink& sink, const LoopOptions& options)
    : runner_(runner),
      sink_(sink),
      options_(options),
      // A recurrent model goes on from snapshots alone.
      pool_(options.kv_blocks, options.block_size * std::max<int64_t>(options.page_blocks, 1),
            options.prefix_caching &&
                (!options.scheduler.recurrent || options.scheduler.snapshots > 0)),
      windows_(options.page_blocks > 0 ? WindowPool(options.window, options.block_size, pool_,
                                                    options.scheduler.max_model_len)
                                       : WindowPool(options.window, options.window_blocks,
                                                    options.block_size, pool_.caching())),
      scheduler_(pool_, windows_, options.scheduler, this) {
  feeds_.reserve(static_cast<size_t>(options.scheduler.max_num_seqs));
  stats_.kv_blocks = options.kv_blocks;
  stats_.block_size = pool_.block_size();
  stats_.window_blocks = windows_.blocks();
  stats_.snapshots = scheduler_.snapshots().count();
  stats_.max_model_len = options.scheduler.max_model_len;
  Publish();
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  while (runner_.in_flight() > 0) (void)runner_.Retire();
}

void EngineLoop::Start() {
  thread_ = std::thread([this] { Run(); });
}

base::Result<RequestId> EngineLoop::Submit(std::shared_ptr<const Request> request,
                                           const SamplerSettings& sampler,
                                           const std::function<void(RequestId)>& taken) {
  const int64_t choices = request->choices();
  RequestId id = 0;
  bool sleeping = false;
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.empty()) return base::Error{base::Code::kUnavailable, "the engine died: " + dead_};
    if (draining_ || stopping_) {
      return base::Error{base::Code::kUnavailable, "the server is shutting down"};
    }
    // Those that find a place in the next step do not wait.
    const int64_t room = options_.max_queue_size + available_;
    if (options_.max_queue_size > 0 && choices > options_.max_queue_size + MaxRunning()) {
      return base::Error{base::Code::kInvalidArgument,
                         fmt::format("n is {}, more than the {} choices that may run and wait here",
                                     choices, options_.max_queue_size + MaxRunning())};
    }
    if (options_.max_queue_size > 0 && queued_ + choices > room) {
      return base::Error{base::Code::kResourceExhausted,
                         fmt::format("{} requests are waiting already: try again later", queued_)};
    }
    id = ++last_id_;
    if (taken) taken(id);
    queued_ += choices;
    idle_ = false;
    arrivals_.push_back({id, std::move(request), sampler, base::Seconds()});
    sleeping = sleeping_;
  }
  if (sleeping) wake_.notify_one();
  return id;
}

void EngineLoop::Cancel(RequestId id, int32_t choice, bool deliver) {
  bool sleeping = false;
  {
    const std::lock_guard lock(mutex_);
    cancellations_.push_back({id, choice, deliver});
    sleeping = sleeping_;
  }
  if (sleeping) wake_.notify_one();
}

void EngineLoop::Drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto over = [&] { return idle_ || !dead_.empty(); };
  if (drained_.wait_for(lock, std::chrono::duration<double>(seconds), over)) return;
  abort_all_ = true;
  wake_.notify_one();
  drained_.wait(lock, over);
}

EngineStats EngineLoop::Stats() const {
  const std::lock_guard lock(stats_mutex_);
  EngineStats stats = stats_;
  for (size_t i = 0; i < eager_.size(); ++i) {
    if (eager_[i] > 0) stats.steps_eager[StepRunner::kEagerNames[i]] = eager_[i];
  }
  return stats;
}

void EngineLoop::TakeIn(double now) {
  std::vector<Arrival> arrivals;
  std::vector<Cancellation> cancellations;
  bool abort_all = false;
  {
    const std::lock_guard lock(mutex_);
    if (arrivals_.empty() && cancellations_.empty() && !abort_all_) return;
    arrivals.swap(arrivals_);
    cancellations.swap(cancellations_);
    abort_all = abort_all_;
  }
  for (const Arrival& a : arrivals) {
    if (a.request->media != nullptr) hearing_.push_back(a.request->media);
  }
  for (Arrival& a : arrivals) scheduler_.Add(a.id, std::move(a.request), a.sampler, a.time);
  for (const Cancellation& c : cancellations) {
    scheduler_.Finish(c.id, c.choice, FinishReason::kAbort, now, c.deliver ? &outputs_ : nullptr);
  }
  if (abort_all) scheduler_.FinishAll(FinishReason::kAbort, now, outputs_);
}

// A piece of sound between two steps, so that those who have heard theirs go on.
base::Status EngineLoop::Encode() {
  Media& media = *hearing_.front();
  const bool wanted = hearing_.front().use_count() > 1;  // its request may be gone
  const base::Status done = wanted ? options_.media->EncodePiece(media) : base::Status();
  if (!wanted || media.ready()) hearing_.pop_front();
  return done;
}

base::Status EngineLoop::Launch() {
  ScheduledStep& step = steps_[next_];
  std::swap(step, planned_);
  rows_.clear();
  feeds_.clear();
  for (const Scheduled& s : step.rows) {
    Sequence& q = *s.sequence;
    if (s.admitted && !step.embeds) {
      base::Status written = runner_.WriteSlot(q.slot, q.sampler.words_offset, q.sampler.words);
      if (written && q.sampler.needs_history) {
        written = runner_.WriteSlot(q.slot, q.sampler.history_offset, q.tokens);
      }
      if (!written) return written;
    }
    StepRow row;
    row.start = s.start;
    row.blocks = q.blocks;
    row.window_blocks = q.window.blocks;
    row.table = q.table;
    row.outputs = s.outputs;
    row.state_read = s.state_read;
    row.state_write = s.state_write;
    row.first_segment = q.input->first_segment;
    if (q.input->media != nullptr) {
      row.media_at = q.input->media->at;
      row.media = q.input->media->rows.data();
    }
    if (s.start < q.size()) {
      row.tokens =
          std::span(q.tokens).subspan(static_cast<size_t>(s.start), static_cast<size_t>(s.count));
    } else {
      feeds_.push_back(-1 - q.slot);  // the token is still on the device
      row.tokens = std::span(feeds_).last(1);
    }
    if (!step.embeds) {
      row.sampling = &q.sampler.row;
      if (s.outputs == StepRow::Outputs::kAll) {
        const int64_t scored = std::min(s.count, q.prompt_length - s.start - 1);
        row.scored = std::span(q.tokens).subspan(static_cast<size_t>(s.start + 1),
                                                 static_cast<size_t>(std::max<int64_t>(scored, 0)));
      }
    }
    rows_.push_back(row);
  }
  next_ = (next_ + 1) % StepRunner::kMaxInFlight;
  return runner_.Launch(rows_, {.logits = false, .hidden = step.embeds});
}

base::Status EngineLoop::Retire() {
  const int oldest =
      (next_ + StepRunner::kMaxInFlight - runner_.in_flight()) % StepRunner::kMaxInFlight;
  base::Result<StepResult*> result = runner_.Retire();
  if (!result) return result.error();
  {
    const std::lock_guard lock(stats_mutex_);
    const ScheduledStep& step = steps_[oldest];
    stats_.step_tokens.Add(static_cast<double>(step.tokens));
    scheduler_.Retire(step, **result, base::Seconds(), outputs_);
  }
  Deliver();
  return {};
}

void EngineLoop::Deliver() {
  if (outputs_.empty()) return;
  sink_.Deliver(outputs_);
  outputs_.clear();
}

bool EngineLoop::RunOnce() {
  bool worked = false;
  base::Status done;
  if (runner_.in_flight() > 0) {
    const base::Result<bool> ready = runner_.Ready();
    if (!ready) {
      done = ready.error();
    } else if (*ready) {
      worked = true;
      done = Retire();
    }
  }
  const double now = base::Seconds();
  {
    const std::lock_guard lock(stats_mutex_);
    TakeIn(now);
    scheduler_.Expire(now, outputs_);
  }
  Deliver();
  if (done && !hearing_.empty()) {
    worked = true;
    done = Encode();
  }
  if (done && runner_.in_flight() < StepRunner::kMaxInFlight) {
    scheduler_.Schedule(planned_, now);
    if (!planned_.rows.empty()) {
      worked = true;
      done = Launch();
    } else if (runner_.in_flight() > 0) {
      worked = true;
      done = Retire();
    }
  } else if (done) {
    worked = true;
    done = Retire();
  }
  if (!done) Die(done.error());
  Publish();
  return worked;
}

void EngineLoop::Die(const base::Error& why) {
  while (runner_.in_flight() > 0) (void)runner_.Retire();
  hearing_.clear();
  {
    const std::lock_guard lock(mutex_);
    dead_ = why.message;
  }
  // First, so that nobody hears of a request's end from an engine that still seems well.
  sink_.EngineDied(why.message);
  {
    const std::lock_guard lock(stats_mutex_);
    TakeIn(base::Seconds());
    scheduler_.FinishAll(FinishReason::kError, base::Seconds(), outputs_, why.message);
  }
  Deliver();
  drained_.notify_all();
}

void EngineLoop::Publish() {
  const std::scoped_lock lock(mutex_, stats_mutex_);
  int64_t arriving = 0;
  for (const Arrival& a : arrivals_) {
    arriving += a.request->choices();
  }
  queued_ = scheduler_.waiting() + arriving;
  available_ = std::max<int64_t>(MaxRunning() - scheduler_.running(), 0);
  stats_.running = scheduler_.running();
  stats_.waiting = queued_;
  stats_.kv_blocks_used = pool_.blocks() - pool_.free_blocks();
  stats_.window_blocks_used = windows_.blocks() - windows_.free_blocks();
  stats_.prefix_queries = scheduler_.counters().prefix_queries;
  stats_.prefix_hits = scheduler_.counters().prefix_hits;
  stats_.preemptions = scheduler_.counters().preemptions;
  const SnapshotPool& snapshots = scheduler_.snapshots();
  stats_.snapshots_used = snapshots.used();
  stats_.snapshots_held = snapshots.held();
  stats_.snapshots_written = snapshots.counters().written;
  stats_.snapshot_hits = snapshots.counters().hits;
  stats_.snapshot_evictions = snapshots.counters().evictions;
  const StepRunner::Counters& c = runner_.counters();
  stats_.steps_captured = c.captured;
  stats_.steps_replayed = c.replayed;
  eager_ = c.eager;
  idle_ = scheduler_.idle() && arrivals_.empty() && runner_.in_flight() == 0;
  if (idle_) drained_.notify_all();
}

void EngineLoop::Run() {
  while (true) {
    bool worked = false;
    try {
      worked = RunOnce();
    } catch (const std::exception& e) {  // out of memory: every request hears of it
      Die({base::Code::kInternal, fmt::format("the engine's thread failed: {}", e.what())});
    }
    std::unique_lock lock(mutex_);
    if (stopping_ || !dead_.empty()) return;
    if (worked) continue;
    sleeping_ = true;
    const auto due = [&] {
      return stopping_ || abort_all_ || !arrivals_.empty() || !cancellations_.empty();
    };
    // Requests with deadlines wait too, so the sleep is bounded while there are any.
    if (scheduler_.idle()) {
      wake_.wait(lock, due);
    } else {
      wake_.wait_for(lock, std::chrono::milliseconds(5), due);
    }
    sleeping_ = false;
  }
}

// Both are called with stats_mutex_ held.
void EngineLoop::OnToken(const Sequence& s, double now) {
  ++stats_.generation_tokens;
  if (s.output_length() == 1) {
    stats_.ttft.Add(now - s.arrival);
    stats_.queue.Add(s.admitted - s.arrival);
    stats_.prefill.Add(now - s.admitted);
    stats_.prompt_tokens += s.prompt_length;
  } else {
    stats_.itl.Add(now - s.last_token);
  }
}

void EngineLoop::OnFinish(const Sequence& s, FinishReason reason, double now) {
  ++stats_.finished[NameOf(reason)];
  stats_.e2e.Add(now - s.arrival);
  stats_.prompt_length.Add(static_cast<double>(s.prompt_length));
  if (s.embeds()) {
    stats_.prompt_tokens += s.prompt_length;
    return;
  }
  stats_.output_length.Add(static_cast<double>(s.output_length()));
  stats_.max_tokens.Add(static_cast<double>(s.input->sampling.max_tokens));
  stats_.n.Add(static_cast<double>(s.input->sampling.n));
  if (s.first_token <= 0) return;
  stats_.decode.Add(s.last_token - s.first_token);
  stats_.inference.Add(now - s.admitted);
  if (s.output_length() > 1) {
    stats_.tpot.Add((s.last_token - s.first_token) / static_cast<double>(s.output_length() - 1));
  }
}

}  // namespace vllm::engine
