#include "vllm/engine/scheduler.h"

#include <algorithm>

#include "vllm/engine/media.h"

namespace vllm::engine {
namespace {

using Outputs = StepRow::Outputs;

template <typename T>
bool Contains(const std::vector<T>& all, T x) {
  return std::find(all.begin(), all.end(), x) != all.end();
}

}  // namespace

TokenLogprobs LogprobsOf(const StepResult& result, int64_t row, int32_t best) {
  const float* values = result.logprobs.data() + row * vt::ir::kLogprobValues;
  const int32_t* ids = result.best_ids.data() + row * vt::ir::kBestTokens;
  TokenLogprobs out{
      result.tokens[static_cast<size_t>(row)], values[0], static_cast<int32_t>(values[1]), {}};
  for (int32_t i = 0; i < best && ids[i] >= 0; ++i) out.top.emplace_back(ids[i], values[2 + i]);
  return out;
}

bool Scheduler::Order::operator()(const Sequence* a, const Sequence* b) const {
  if (priority && a->input->priority != b->input->priority) {
    return a->input->priority < b->input->priority;
  }
  return a->order < b->order;
}

Scheduler::Scheduler(BlockPool& pool, WindowPool& windows, const SchedulerOptions& options,
                     SchedulerObserver* observer)
    : pool_(pool),
      windows_(windows),
      options_(options),
      snapshots_(static_cast<int32_t>(options.max_num_seqs),
                 options.recurrent && pool.caching() ? options.snapshots : 0),
      observer_(observer),
      waiting_(Order{options.priority}) {
  if (snapshots_.count() > 0) {
    pool_.OnForget([this](PrefixNode node) { snapshots_.Forget(node); });
  }
  for (auto slot = static_cast<int32_t>(options.max_num_seqs) - 1; slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
}

void Scheduler::Add(RequestId id, std::shared_ptr<const Request> request,
                    const SamplerSettings& sampler, double now) {
  const bool embeds = request->embeds();
  Choices& choices = requests_[id];
  for (int32_t c = 0; c < request->choices(); ++c) {
    auto s = std::make_unique<Sequence>();
    s->request = id;
    s->choice = c;
    s->input = request;
    s->order = arrivals_++;
    s->tokens = request->prompt;
    s->prompt_length = s->size();
    s->sampler = sampler;
    s->sampler.row.choice = static_cast<uint32_t>(c);
    s->arrival = now;
    if (c > 0 && pool_.caching()) s->leader = choices.front().get();
    waiting_.insert(s.get());
    ++(embeds ? embeds_ : generates_);
    if (request->timeout_seconds > 0) ++deadlines_;
    choices.push_back(std::move(s));
  }
}

// Whether all prompt positions' log-probabilities are wanted and not there yet; only choice 0
// carries them.
bool Scheduler::WantsScores(const Sequence& s) const {
  return s.choice == 0 && !s.embeds() && s.input->sampling.prompt_logprobs >= 0 &&
         s.computed + 1 < s.prompt_length &&
         static_cast<int64_t>(s.prompt_logprobs.size()) + 1 < s.prompt_length;
}

// Tokens of `s` that the step still has room for.
int64_t Scheduler::Affordable(const Sequence& s, const ScheduledStep& step) const {
  const int64_t rows = options_.output_rows - step.outputs;
  if (rows <= 0) return 0;
  int64_t n = std::min(s.known() - s.computed, options_.max_num_batched_tokens - step.tokens);
  const bool all = s.embeds() ? s.means() : WantsScores(s);
  if (all) n = std::min(n, rows);
  if (snapshots_.count() > 0) n = std::min(n, UntilSnapshot(s));
  n = std::min(n, windows_.MostTokens(options_.max_model_len));
  if (options_.whole_prompts && n < s.known() - s.computed) return 0;
  return n;
}

// In both tables or in neither.
bool Scheduler::Reserve(Sequence& s, int64_t tokens) {
  const int64_t missing = pool_.Missing(s.blocks.size(), tokens);
  return windows_.Fit(pool_, missing, windows_.Missing(s.window, tokens)) &&
         windows_.Grow(s.window, tokens) && pool_.Allocate(missing, s.blocks);
}

// Whether what its steps in flight leave behind its window is enough for so many tokens.
bool Scheduler::WaitsForItself(const Sequence& s, int64_t tokens) const {
  return s.in_flight > 0 &&
         windows_.Fit(pool_, pool_.Missing(s.blocks.size(), tokens),
                      windows_.Missing(s.window, tokens) - windows_.Behind(s.window, s.computed));
}

void Scheduler::ReleaseBlocks(Sequence& s) {
  pool_.Release(s.blocks);
  windows_.Release(s.window);
}

// The running sequence that comes last in order, after `s`, and is not in the step being made.
Sequence* Scheduler::VictimFor(const Sequence& s) const {
  const Order before{options_.priority};
  Sequence* victim = nullptr;
  for (Sequence* r : running_) {
    if (r == &s || r->step == steps_ || r->blocks.empty() || before(r, &s)) continue;
    if (victim == nullptr || before(victim, r)) victim = r;
  }
  return victim;
}

void Scheduler::Preempt(Sequence& s) {
  ++counters_.preemptions;
  ReleaseBlocks(s);
  DropState(s);
  s.computed = s.retired = s.published = 0;
  s.node = 0;
  s.embedding.clear();  // its rows will be summed anew
  if (s.in_flight == 0) {
    free_slots_.push_back(s.slot);
    s.slot = -1;
  }
  s.state = Sequence::State::kWaiting;
  std::erase(running_, &s);
  waiting_.insert(&s);
}

int32_t Scheduler::TakeSlot() {
  if (free_slots_.empty()) return -1;
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Scheduler::Put(Sequence& s, int64_t count, bool admitted, ScheduledStep& step) {
  Scheduled row{&s, s.computed, count};
  const bool last = s.computed + count == s.known();
  if (s.embeds()) {
    // Of a causal model the first token's prompt ends with it (admission.cc).
    const bool first = options_.whole_prompts && s.input->pooling == Pooling::kFirst;
    row.outputs = s.means() ? Outputs::kAll
                  : first   ? Outputs::kFirst
                  : last    ? Outputs::kLast
                            : Outputs::kNone;
  } else {
    row.samples = last;
    row.outputs = WantsScores(s) ? Outputs::kAll : last ? Outputs::kLast : Outputs::kNone;
  }
  row.admitted = admitted;
  step.tokens += count;
  step.outputs += row.OutputRows();
  s.computed += count;
  s.step = steps_;
  ++s.in_flight;
  const SamplingParams& params = s.input->sampling;
  s.sampler.row.logprobs = row.outputs == Outputs::kAll
                               ? std::max(params.logprobs, params.prompt_logprobs)
                               : params.logprobs;
  if (row.samples) {
    // The draw's place in the output, and the history it sees.
    s.sampler.row.position = static_cast<uint32_t>(s.known() - s.prompt_length);
    s.sampler.row.length = static_cast<int32_t>(s.known());
    ++s.pending;
  }
  if (options_.recurrent) MoveState(s, row);
  step.rows.push_back(row);
}

// Puts a running sequence into the step. False when nothing of it fits.
bool Scheduler::Continue(Sequence& s, ScheduledStep& step) {
  const int64_t count = Affordable(s, step);
  if (count <= 0) return false;
  while (!Reserve(s, s.computed + count)) {
    if (WaitsForItself(s, s.computed + count)) {
      step.waits = true;
      return false;
    }
    if (Sequence* victim = VictimFor(s)) {
      Preempt(*victim);
      continue;
    }
    // Alone, it waits for blocks that a step in flight still holds.
    if (running_.size() > 1) Preempt(s);
    return false;
  }
  Put(s, count, false, step);
  return true;
}

void Scheduler::Admit(ScheduledStep& step, double now) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Sequence& s = **it;
    const bool hears = s.input->media != nullptr && !s.input->media->ready();
    if (s.embeds() != step.embeds || hears) {
      ++it;
      continue;
    }
    if (running() >= options_.max_num_seqs || (s.slot < 0 && free_slots_.empty())) return;
    // A token of it is still on the device; or its prompt is being computed by its first choice.
    const bool shared = s.leader != nullptr && s.leader->state != Sequence::State::kFinished &&
                        s.leader->retired < s.leader->prompt_length;
    if (s.in_flight > 0) return;  // nobody takes the blocks that it waits for
    if (shared) {
      ++it;
      continue;
    }
    // Somebody of the other kind came first and found too few blocks.
    if (refused_ != nullptr && refused_ != &s && waiting_.key_comp()(refused_, &s)) return;
    if (step.waits) return;                // for blocks that come back: nobody else takes them
    if (Affordable(s, step) <= 0) return;  // before its prompt is looked up
    // What is found is held at once. The last token is always computed: its logits are wanted.
    s.node = pool_.Root(s.input->cache_salt);
    if (!WantsScores(s) && !(s.embeds() && s.means())) FindPrefix(s);
    s.published = static_cast<int64_t>(s.blocks.size());
    s.computed = s.published * pool_.block_size();
    const bool scarce =
        !windows_.Fit(pool_, pool_.Missing(s.blocks.size(), s.known()),
                      windows_.Wanted(s.window, s.known(), options_.max_num_batched_tokens));
    const int64_t count = scarce ? 0 : Affordable(s, step);
    if (count <= 0 || !Reserve(s, s.computed + count)) {
      ReleaseBlocks(s);
      DropState(s);
      s.computed = s.published = 0;
      if (scarce && refused_ == nullptr) refused_ = &s;
      return;
    }
    if (refused_ == &s) refused_ = nullptr;
    s.retired = s.computed;
    if (s.cached_tokens < 0) {
      s.cached_tokens = s.computed;
      counters_.prefix_queries += s.prompt_length;
      counters_.prefix_hits += s.computed;
      s.admitted = now;
    }
    if (s.recurrent >= 0) snapshots_.CountHit();
    if (s.slot < 0) s.slot = TakeSlot();
    s.sampler.row.slot = s.slot;
    s.table = ++tables_;
    s.state = Sequence::State::kRunning;
    it = waiting_.erase(it);
    running_.push_back(&s);
    Put(s, count, true, step);
  }
}

void Scheduler::Schedule(ScheduledStep& step, double now) {
  step.rows.clear();
  step.tokens = step.outputs = 0;
  step.waits = false;
  ++steps_;
  // Steps end in tokens or in hidden states; where both are wanted they take turns.
  step.embeds = embeds_ > 0 && (generates_ == 0 || !embedded_last_);
  for (int turn = 0; turn < 2 && step.rows.empty(); ++turn) {
    if (turn == 1) {
      if (embeds_ == 0 || generates_ == 0) break;
      step.embeds = !step.embeds;
    }
    // First those that wait for one token each, then what is left of prompts, then newcomers.
    for (const bool decodes : {true, false}) {
      for (size_t i = 0; i < running_.size();) {
        Sequence& s = *running_[i];
        const bool done = s.known() >= options_.max_model_len ||
                          s.known() - s.prompt_length >= s.input->sampling.max_tokens;
        const bool mine = s.step != steps_ && s.embeds() == step.embeds &&
                          (s.known() - s.computed == 1) == decodes &&
                          (s.embeds() || s.known() == s.prompt_length || !done);
        const size_t before = running_.size();
        if (mine) Continue(s, step);
        // Those that were pre-empted left the list: begin again, past what is in the step.
        i = running_.size() < before ? 0 : i + 1;
      }
    }
    Admit(step, now);
  }
  embedded_last_ = step.embeds;
}

// What is known of a sequence's blocks after a step; then those behind its windows go.
void Scheduler::Publish(Sequence& s) {
  const int64_t size = pool_.block_size();
  const int64_t full = pool_.caching() ? std::min(s.retired, s.size()) / size : 0;
  for (; s.published < full; ++s.published) {
    s.node = pool_.Publish(s.node,
                           std::span(s.tokens).subspan(static_cast<size_t>(s.published * size),
                                                       static_cast<size_t>(size)),
                           s.blocks[static_cast<size_t>(s.published)]);
    windows_.Publish(s.window, s.published, s.node);
    if (!s.marks.empty()) KeepMark(s, (s.published + 1) * size);
  }
  // A step in flight begins here too.
  windows_.Slide(s.window, s.retired);
}

// Log-probabilities of the prompt tokens after each token of the row.
void Scheduler::TakeScores(const Scheduled& row, const StepResult& result,
                           int64_t first_row) const {
  Sequence& s = *row.sequence;
  for (int64_t i = 0; i < row.count; ++i) {
    const int64_t position = row.start + i + 1;
    if (position >= s.prompt_length) break;
    if (position != static_cast<int64_t>(s.prompt_logprobs.size()) + 1) continue;
    s.prompt_logprobs.push_back(
        LogprobsOf(result, first_row + i, s.input->sampling.prompt_logprobs));
  }
}

void Scheduler::TakeHidden(const Scheduled& row, const StepResult& result,
                           int64_t first_row) const {
  if (row.outputs == Outputs::kNone || result.outputs == 0) return;
  const size_t width = result.values.size() / static_cast<size_t>(result.outputs);
  Sequence& s = *row.sequence;
  s.embedding.resize(width);
  for (int64_t r = first_row; r < first_row + row.OutputRows(); ++r) {
    const float* values = result.values.data() + static_cast<size_t>(r) * width;
    for (size_t i = 0; i < width; ++i) s.embedding[i] += values[i];
  }
}

FinishReason Scheduler::StopOf(const Sequence& s, int32_t token) const {
  const SamplingParams& p = s.input->sampling;
  const int64_t length = s.output_length();
  if (length > p.min_tokens || length >= p.max_tokens) {
    if (!p.ignore_eos && Contains(options_.end_ids, token)) return FinishReason::kStop;
    if (Contains(p.stop_token_ids, token)) return FinishReason::kStop;
  }
  if (length >= p.max_tokens || s.size() >= options_.max_model_len) return FinishReason::kLength;
  return FinishReason::kNone;
}

void Scheduler::Retire(const ScheduledStep& step, const StepResult& result, double now,
                       std::vector<Output>& outputs) {
  int64_t output_row = 0;
  for (const Scheduled& row : step.rows) {
    Sequence& s = *row.sequence;
    const int64_t first_row = output_row;
    output_row += row.OutputRows();
    --s.in_flight;
    if (row.samples) --s.pending;
    snapshots_.Release(row.state_read);
    snapshots_.Release(row.state_write);
    if (s.state == Sequence::State::kFinished) {
      if (s.in_flight == 0) Free(s);
      continue;
    }
    // Pre-empted since its launch: the token counts, but not its keys and values.
    const bool kept = s.state == Sequence::State::kRunning;
    if (!kept && s.in_flight == 0 && s.slot >= 0) {
      free_slots_.push_back(s.slot);
      s.slot = -1;
    }
    if (kept) s.retired = row.start + row.count;
    if (s.embeds()) {
      if (!kept) {
        s.embedding.clear();
        continue;
      }
      TakeHidden(row, result, first_row);
      windows_.Slide(s.window, s.retired);
      if (s.retired < s.prompt_length) continue;
      Output out{.request = s.request, .finish = FinishReason::kStop};
      out.cached_tokens = s.cached_tokens;
      out.extra = std::make_unique<OutputExtra>();
      if (s.means()) {
        for (float& x : s.embedding) x /= static_cast<float>(s.prompt_length);
      }
      out.extra->embedding = std::move(s.embedding);
      outputs.push_back(std::move(out));
      End(s, FinishReason::kStop, now);
      continue;
    }
    if (row.outputs == Outputs::kAll) TakeScores(row, result, first_row);
    if (!row.samples) {
      if (kept) Publish(s);
      continue;
    }

    Output out{.request = s.request, .choice = s.choice};
    out.cached_tokens = s.cached_tokens;
    const bool first = s.output_length() == 0;
    if (s.input->sampling.max_tokens == 0) {
      out.finish = FinishReason::kLength;
    } else {
      out.token = result.tokens[static_cast<size_t>(output_row - 1)];
      s.tokens.push_back(out.token);
      out.finish = StopOf(s, out.token);
      observer_->OnToken(s, now);
      s.last_token = now;
      if (first) s.first_token = now;
      if (s.input->sampling.logprobs >= 0) {
        out.extra = std::make_unique<OutputExtra>();
        out.extra->logprobs = LogprobsOf(result, output_row - 1, s.input->sampling.logprobs);
      }
    }
    if (first && !s.prompt_logprobs.empty()) {
      if (out.extra == nullptr) out.extra = std::make_unique<OutputExtra>();
      out.extra->prompt_logprobs = std::move(s.prompt_logprobs);
      s.prompt_logprobs.resize(static_cast<size_t>(s.prompt_length) - 1);  // said: not again
    }
    if (kept) Publish(s);
    const FinishReason finish = out.finish;
    outputs.push_back(std::move(out));
    if (finish != FinishReason::kNone) End(s, finish, now);
  }
}

void Scheduler::Free(Sequence& s) {
  ReleaseBlocks(s);
  if (s.slot >= 0) free_slots_.push_back(s.slot);
  s.slot = -1;
  const auto found = requests_.find(s.request);
  const bool over = std::all_of(found->second.begin(), found->second.end(), [](const auto& c) {
    return c->state == Sequence::State::kFinished && c->in_flight == 0;
  });
  if (over) requests_.erase(found);  // and s with it
}

// REQUIRES: not finished. `s` may be gone afterwards.
void Scheduler::End(Sequence& s, FinishReason reason, double now) {
  observer_->OnFinish(s, reason, now);
  if (refused_ == &s) refused_ = nullptr;
  if (s.state == Sequence::State::kWaiting) {
    waiting_.erase(&s);
  } else {
    std::erase(running_, &s);
  }
  s.state = Sequence::State::kFinished;
  DropState(s);
  --(s.embeds() ? embeds_ : generates_);
  if (s.input->timeout_seconds > 0) --deadlines_;
  if (s.in_flight == 0) Free(s);
}

void Scheduler::Finish(RequestId id, int32_t choice, FinishReason reason, double now,
                       std::vector<Output>* outputs, const std::string& error) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  std::vector<Sequence*> ending;
  for (const auto& c : found->second) {
    if (c->state != Sequence::State::kFinished && (choice < 0 || c->choice == choice)) {
      ending.push_back(c.get());
    }
  }
  for (Sequence* s : ending) {
    if (outputs != nullptr) {
      Output out{.request = s->request, .choice = s->choice, .finish = reason};
      out.cached_tokens = std::max<int64_t>(s->cached_tokens, 0);
      if (!error.empty()) {
        out.extra = std::make_unique<OutputExtra>();
        out.extra->error = error;
      }
      outputs->push_back(std::move(out));
    }
    End(*s, reason, now);
  }
}

void Scheduler::FinishAll(FinishReason reason, double now, std::vector<Output>& outputs,
                          const std::string& error) {
  std::vector<RequestId> ids;
  for (const auto& [id, choices] : requests_) ids.push_back(id);
  for (const RequestId id : ids) Finish(id, -1, reason, now, &outputs, error);
}

void Scheduler::Expire(double now, std::vector<Output>& outputs) {
  if (deadlines_ == 0) return;
  std::vector<RequestId> late;
  for (const auto& [id, choices] : requests_) {
    const Sequence& s = *choices.front();
    if (s.input->timeout_seconds > 0 && now - s.arrival > s.input->timeout_seconds) {
      late.push_back(id);
    }
  }
  for (const RequestId id : late) Finish(id, -1, FinishReason::kTimeout, now, &outputs);
}

}  // namespace vllm::engine
