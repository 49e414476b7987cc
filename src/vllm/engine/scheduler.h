// Who runs in the next step: admission, chunked prefill, pre-emption, KV blocks, stops.
//
// Pure bookkeeping: no device, no threads, no clock of its own. The loop asks Schedule() for a
// step, launches it, and hands its results to Retire(), in the order of launches. A step may be
// scheduled before the one before it has been retired: a sampled token that is still on the device
// counts as known. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "vllm/engine/block_pool.h"
#include "vllm/engine/request.h"
#include "vllm/engine/sampler_settings.h"
#include "vllm/engine/snapshot_pool.h"
#include "vllm/engine/step_runner.h"
#include "vllm/engine/window_pool.h"

namespace vllm::engine {

struct SchedulerOptions {
  int64_t max_num_seqs = 1;
  int64_t max_num_batched_tokens = 512;
  int64_t output_rows = 1;  // of a step; at least max_num_seqs
  int64_t max_model_len = 0;
  bool priority = false;  // by Request::priority; else first come, first served
  std::vector<int32_t> end_ids = {};
  // Of encoders, whose tokens see those after them: a prompt is computed in one step.
  bool whole_prompts = false;
  // Of models with recurrent layers. A running sequence has the recurrent slot of its sampler
  // slot's number; those from max_num_seqs on are snapshots, without which no prefix is found.
  bool recurrent = false;
  int64_t snapshots = 0;
  int64_t snapshot_every = 1024;  // tokens; a multiple of the block size
};

// One choice of a request.
struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kFinished };

  RequestId request = 0;
  int32_t choice = 0;
  std::shared_ptr<const Request> input;
  uint64_t order = 0;          // of arrival
  Sequence* leader = nullptr;  // the first choice, whose prompt this one shares

  State state = State::kWaiting;
  std::vector<int32_t> tokens;  // prompt and output, as far as the host knows
  int64_t prompt_length = 0;
  int64_t computed = 0;   // tokens whose keys and values are there or in a step in flight
  int64_t retired = 0;    // likewise, without the steps in flight
  int32_t pending = 0;    // sampled tokens that are still on the device
  int32_t in_flight = 0;  // steps
  uint64_t step = 0;      // the last one that it was put in
  std::vector<int32_t> blocks;
  WindowTable window;          // of layers with windows, where they have blocks of their own
  uint64_t table = 0;          // a name for both since the last admission
  PrefixNode node = 0;         // of the last published block
  int64_t published = 0;       // blocks
  int64_t cached_tokens = -1;  // of the prompt, found at the first admission
  int32_t slot = -1;
  int32_t recurrent = -1;  // the slot of the recurrent state after `computed` tokens; -1: zero
  struct Mark {
    int32_t slot = -1;
    int64_t tokens = 0;
  };
  std::vector<Mark> marks;   // snapshots written whose block isn't published yet; held
  PrefixNode last_mark = 0;  // kept for what follows the answer, until the next one is
  SamplerSettings sampler;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<float> embedding;  // sum so far

  double arrival = 0, admitted = 0, first_token = 0, last_token = 0;  // seconds; 0: not yet

  // Which rows of its prompt's hidden states are wanted: of all, or of the end.
  bool means() const { return input->pooling == Pooling::kMean; }
  bool embeds() const { return input->embeds(); }
  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t known() const { return size() + pending; }
  int64_t output_length() const { return size() - prompt_length; }
};

// A sequence's share of a step.
struct Scheduled {
  Sequence* sequence = nullptr;
  int64_t start = 0, count = 0;
  StepRow::Outputs outputs = StepRow::Outputs::kNone;
  bool samples = false;                       // the last of its tokens is followed by a draw
  bool admitted = false;                      // its sampler slot must be written first
  int32_t state_read = -1, state_write = -1;  // recurrent slots

  int64_t OutputRows() const {
    if (outputs == StepRow::Outputs::kNone) return 0;
    return outputs == StepRow::Outputs::kAll ? count : 1;
  }
};

struct ScheduledStep {
  std::vector<Scheduled> rows;
  bool embeds = false;
  bool waits = false;  // a running sequence is left out until a step in flight has ended
  int64_t tokens = 0, outputs = 0;
};

// Hears of what metrics count.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;
  virtual void OnToken(const Sequence& s, double now) = 0;  // last_token: of the one before
  virtual void OnFinish(const Sequence& s, FinishReason reason, double now) = 0;
};

class Scheduler {
 public:
  struct Counters {
    int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;
  };

  Scheduler(BlockPool& pool, WindowPool& windows, const SchedulerOptions& options,
            SchedulerObserver* observer);

  // All choices of a request; `sampler` is the first one's.
  void Add(RequestId id, std::shared_ptr<const Request> request, const SamplerSettings& sampler,
           double now);
  // The next step; empty when nothing can run.
  void Schedule(ScheduledStep& step, double now);
  // Results of the oldest step that was not retired. Appends what each choice gained.
  void Retire(const ScheduledStep& step, const StepResult& result, double now,
              std::vector<Output>& outputs);

  // Ends a choice (-1: all of them), with a last output each when `outputs` is given.
  void Finish(RequestId id, int32_t choice, FinishReason reason, double now,
              std::vector<Output>* outputs, const std::string& error = {});
  void FinishAll(FinishReason reason, double now, std::vector<Output>& outputs,
                 const std::string& error = {});
  // Ends what is past its deadline.
  void Expire(double now, std::vector<Output>& outputs);

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  const Counters& counters() const { return counters_; }
  const SnapshotPool& snapshots() const { return snapshots_; }

  // A sampler and recurrent slot for steps by hand; -1 when all are taken.
  int32_t TakeSlot();
  void GiveSlot(int32_t slot) { free_slots_.push_back(slot); }

 private:
  struct Order {
    bool operator()(const Sequence* a, const Sequence* b) const;
    bool priority;
  };
  using Choices = std::vector<std::unique_ptr<Sequence>>;

  bool WantsScores(const Sequence& s) const;
  int64_t Affordable(const Sequence& s, const ScheduledStep& step) const;
  bool Reserve(Sequence& s, int64_t tokens);
  bool WaitsForItself(const Sequence& s, int64_t tokens) const;
  bool Continue(Sequence& s, ScheduledStep& step);
  void Admit(ScheduledStep& step, double now);
  void Put(Sequence& s, int64_t count, bool admitted, ScheduledStep& step);
  Sequence* VictimFor(const Sequence& s) const;
  void Preempt(Sequence& s);
  void Publish(Sequence& s);
  void FindPrefix(Sequence& s);
  void ReleaseBlocks(Sequence& s);
  // Recurrent state: scheduler_state.cc.
  int64_t UntilSnapshot(const Sequence& s) const;
  bool SnapshotAt(const Sequence& s, int64_t tokens) const;
  void MoveState(Sequence& s, Scheduled& row);
  void KeepMark(Sequence& s, int64_t tokens);
  void DropState(Sequence& s);
  void TakeScores(const Scheduled& row, const StepResult& result, int64_t first_row) const;
  void TakeHidden(const Scheduled& row, const StepResult& result, int64_t first_row) const;
  FinishReason StopOf(const Sequence& s, int32_t token) const;
  void End(Sequence& s, FinishReason reason, double now);
  void Free(Sequence& s);

  BlockPool& pool_;
  WindowPool& windows_;
  SchedulerOptions options_;
  SnapshotPool snapshots_;
  SchedulerObserver* observer_;
  std::map<RequestId, Choices> requests_;
  std::set<Sequence*, Order> waiting_;
  std::vector<Sequence*> running_;  // in the order of admission
  std::vector<int32_t> free_slots_;
  uint64_t arrivals_ = 0, steps_ = 0, tables_ = 0;
  int64_t embeds_ = 0, generates_ = 0;  // choices that have not finished
  int64_t deadlines_ = 0;
  bool embedded_last_ = false;
  const Sequence* refused_ = nullptr;  // waits for blocks; nobody behind it is admitted
  Counters counters_;
};

// A row of log-probabilities of a step's result, with the `best` most probable tokens.
TokenLogprobs LogprobsOf(const StepResult& result, int64_t row, int32_t best);

}  // namespace vllm::engine
