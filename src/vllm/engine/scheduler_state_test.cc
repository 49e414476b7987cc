// Recurrent state under the scheduler: a device that keeps, for each slot, the tokens that its
// state stands for, says at each row whether the right state was read and nobody else's was
// touched.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <random>
#include <set>

#include "vllm/engine/scheduler.h"

namespace vllm::engine {
namespace {

struct Quiet : SchedulerObserver {
  void OnToken(const Sequence&, double) override {}
  void OnFinish(const Sequence&, FinishReason, double) override {}
};

constexpr int32_t kEnd = 7;
constexpr int64_t kBlock = 4, kEvery = 16;

// What is drawn after the tokens of a state: it depends on all of them.
int32_t Draw(const std::vector<int32_t>& seen) {
  uint32_t h = 17;
  for (const int32_t t : seen) h = (h ^ static_cast<uint32_t>(t)) * 2654435761u + 12345u;
  return static_cast<int32_t>(20 + (h >> 8) % 50);
}

std::vector<int32_t> Answer(std::vector<int32_t> prompt, int64_t count) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(Draw(prompt));
    prompt.push_back(out.back());
  }
  return out;
}

std::vector<int32_t> Ids(int32_t first, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

class SchedulerStateTest : public ::testing::Test {
 protected:
  void Make(int64_t blocks, int64_t snapshots, SchedulerOptions o = {}) {
    o.recurrent = true;
    o.snapshots = snapshots;
    o.snapshot_every = kEvery;
    o.output_rows = o.max_num_seqs;
    if (o.max_model_len == 0) o.max_model_len = 200;
    o.end_ids = {kEnd};
    options_ = o;
    slots_.clear();
    got_.clear();
    pool_ = std::make_unique<BlockPool>(blocks, kBlock, snapshots > 0);
    scheduler_ = std::make_unique<Scheduler>(*pool_, windows_, o, &quiet_);
  }
  void Add(RequestId id, std::vector<int32_t> prompt, int64_t max_tokens, int32_t n = 1) {
    auto r = std::make_shared<Request>();
    r->prompt = std::move(prompt);
    r->sampling.max_tokens = max_tokens;
    r->sampling.n = n;
    scheduler_->Add(id, r, {}, 0);
  }

  struct Flight {
    ScheduledStep step;
    std::vector<const void*> owners;
    StepResult result;
  };
  // Schedules and runs a step; false when there was none.
  bool Launch() {
    Flight f;
    scheduler_->Schedule(f.step, 0);
    if (f.step.rows.empty()) return false;
    std::vector<std::vector<int32_t>> after;
    for (const Scheduled& row : f.step.rows) {
      const Sequence& s = *row.sequence;
      f.owners.push_back(&s);
      std::vector<int32_t> seen;
      if (row.state_read >= 0) seen = slots_[row.state_read];
      // The very state of the tokens before: none too many, none of another request.
      EXPECT_EQ(static_cast<int64_t>(seen.size()), row.start);
      for (size_t i = 0; i < seen.size() && i < s.tokens.size(); ++i) {
        EXPECT_EQ(seen[i], s.tokens[i]);
      }
      for (int64_t i = row.start; i < row.start + row.count; ++i) {
        seen.push_back(i < s.size() ? s.tokens[static_cast<size_t>(i)] : Draw(seen));
      }
      f.result.outputs += row.outputs == StepRow::Outputs::kNone ? 0 : 1;
      if (row.outputs != StepRow::Outputs::kNone) f.result.tokens.push_back(Draw(seen));
      after.push_back(std::move(seen));
    }
    CheckSlots(f);
    for (size_t i = 0; i < after.size(); ++i) slots_[f.step.rows[i].state_write] = after[i];
    flights_.push_back(std::move(f));
    return true;
  }
  // No row writes what another row of this step or of a step in flight reads or writes.
  void CheckSlots(const Flight& f) {
    for (size_t i = 0; i < f.step.rows.size(); ++i) {
      const int32_t write = f.step.rows[i].state_write;
      ASSERT_GE(write, 0);
      ASSERT_LT(write, options_.max_num_seqs + options_.snapshots);
      const auto check = [&](const Flight& other) {
        for (size_t j = 0; j < other.step.rows.size(); ++j) {
          if (other.owners[j] == f.owners[i]) continue;
          EXPECT_NE(other.step.rows[j].state_write, write);
          EXPECT_NE(other.step.rows[j].state_read, write);
        }
      };
      check(f);
      for (const Flight& other : flights_) check(other);
    }
  }
  void Retire() {
    std::vector<Output> outputs;
    scheduler_->Retire(flights_.front().step, flights_.front().result, 0, outputs);
    flights_.pop_front();
    for (const Output& o : outputs) {
      if (o.token >= 0) got_[{o.request, o.choice}].push_back(o.token);
      cached_[o.request] = o.cached_tokens;
    }
  }
  // Runs `ahead` steps in flight until nothing is left.
  void RunAll(size_t ahead = 2, int limit = 20000) {
    while (--limit > 0) {
      if (flights_.size() < ahead && Launch()) continue;
      if (flights_.empty()) break;
      Retire();
    }
    EXPECT_GT(limit, 0);
    EXPECT_TRUE(scheduler_->idle());
  }
  void ExpectAllGivenBack() {
    EXPECT_EQ(pool_->free_blocks(), pool_->blocks());
    EXPECT_EQ(scheduler_->snapshots().held(), 0);
    EXPECT_EQ(scheduler_->snapshots().used(), scheduler_->snapshots().kept());
    for (int64_t i = 0; i < options_.max_num_seqs; ++i) EXPECT_GE(scheduler_->TakeSlot(), 0);
    EXPECT_EQ(scheduler_->TakeSlot(), -1);
  }
  const SnapshotPool::Counters& counters() { return scheduler_->snapshots().counters(); }

  Quiet quiet_;
  SchedulerOptions options_;
  std::unique_ptr<BlockPool> pool_;
  WindowPool windows_{0, 0, 4, true};
  std::unique_ptr<Scheduler> scheduler_;
  std::map<int32_t, std::vector<int32_t>> slots_;
  std::deque<Flight> flights_;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> got_;
  std::map<RequestId, int64_t> cached_;
};

TEST_F(SchedulerStateTest, TheFirstPieceBeginsAtZeroAndLaterOnesGoOnInPlace) {
  Make(64, 0, {.max_num_seqs = 2, .max_num_batched_tokens = 8});
  Add(1, Ids(100, 18), 3);
  RunAll(1);
  EXPECT_EQ((got_[{1, 0}]), Answer(Ids(100, 18), 3));
  Make(64, 0, {.max_num_seqs = 2, .max_num_batched_tokens = 8});
  Add(1, Ids(100, 18), 3);
  std::vector<std::pair<int32_t, int32_t>> moves;
  while (Launch()) {
    const Scheduled& row = flights_.front().step.rows[0];
    moves.emplace_back(row.state_read, row.state_write);
    Retire();
  }
  using Moves = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(moves, (Moves{{-1, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}));
  ExpectAllGivenBack();
}

TEST_F(SchedulerStateTest, PiecesEndOnTheGridAndAtThePromptsLastBlock) {
  Make(64, 3, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 39), 1);  // snapshots after 16, 32 and 36
  std::vector<int64_t> counts;
  std::vector<std::pair<int32_t, int32_t>> moves;
  while (Launch()) {
    const Scheduled& row = flights_.front().step.rows[0];
    counts.push_back(row.count);
    moves.emplace_back(row.state_read, row.state_write);
    Retire();
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{16, 16, 4, 3}));
  using Moves = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(moves, (Moves{{-1, 1}, {1, 2}, {2, 3}, {3, 0}}));
  EXPECT_EQ(scheduler_->snapshots().kept(), 3);
  ExpectAllGivenBack();
}

TEST_F(SchedulerStateTest, WithoutSnapshotsPromptsAreNotCutAndNothingIsFound) {
  Make(64, 0, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  for (RequestId id : {1, 2}) {
    Add(id, Ids(100, 39), 1);
    ASSERT_TRUE(Launch());
    EXPECT_EQ(flights_.front().step.rows[0].count, 39);
    EXPECT_EQ(flights_.front().step.rows[0].state_read, -1);
    Retire();
  }
}

TEST_F(SchedulerStateTest, ARegeneratedPromptGoesOnFromItsLastBlock) {
  Make(64, 8, {.max_num_seqs = 2, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 39), 2);
  RunAll();
  Add(2, Ids(100, 39), 2);
  RunAll();
  EXPECT_EQ(cached_[2], 36);
  EXPECT_EQ((got_[{2, 0}]), (got_[{1, 0}]));
  EXPECT_EQ(counters().hits, 1);
}

// R36: regenerate, edit a turn, go back to the first.
TEST_F(SchedulerStateTest, TurnsThatAreEditedGoOnFromWhatTheyShare) {
  Make(64, 12, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  const std::vector<int32_t> first = Ids(100, 14);
  std::vector<int32_t> second = first;
  for (const int32_t t : Answer(first, 9)) second.push_back(t);
  std::vector<int32_t> edited = second;
  for (const int32_t t : Ids(60, 10)) second.push_back(t);
  for (const int32_t t : Ids(80, 10)) edited.push_back(t);
  RequestId id = 0;
  const auto ask = [&](const std::vector<int32_t>& prompt, int64_t cached) {
    Add(++id, prompt, 9);
    RunAll();
    EXPECT_EQ((got_[{id, 0}]), Answer(prompt, 9));
    EXPECT_EQ(cached_[id], cached) << id;
  };
  ask(first, 0);    // 14 + 8 tokens computed: snapshots after 12, 16 and 20
  ask(second, 20);  // 33 tokens: after 32, where the grid is too
  ask(second, 32);
  ask(edited, 20);
  ask(first, 12);
  ExpectAllGivenBack();
}

TEST_F(SchedulerStateTest, AnAnswersSnapshotFollowsItsEnd) {
  Make(64, 8, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 5), 100);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(Launch());
    Retire();
    // Behind the prompt, on the grid (16, 32, 48), and the newest one.
    EXPECT_LE(scheduler_->snapshots().kept(), 5);
  }
  scheduler_->Finish(1, -1, FinishReason::kAbort, 0, nullptr);
  std::vector<int32_t> next = Ids(100, 5);
  for (const int32_t t : got_[{1, 0}]) next.push_back(t);
  Add(2, next, 1);
  RunAll();
  EXPECT_EQ(cached_[2], 60);  // 5 + 59 tokens had been computed
}

TEST_F(SchedulerStateTest, AnswersLeaveSnapshotsAloneWhereTheyAreScarce) {
  Make(64, 3, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 5), 9);
  RunAll();
  EXPECT_EQ(counters().written, 1);
}

TEST_F(SchedulerStateTest, TheLeastRecentlyUsedSnapshotGivesWay) {
  Make(64, 2, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  RequestId id = 0;
  const auto ask = [&](int32_t first) {
    Add(++id, Ids(first, 7), 1);  // one snapshot, after 4
    RunAll();
    return cached_[id];
  };
  EXPECT_EQ(ask(100), 0);
  EXPECT_EQ(ask(200), 0);
  EXPECT_EQ(ask(100), 4);
  EXPECT_EQ(ask(300), 0);  // in place of 200
  EXPECT_EQ(ask(100), 4);
  EXPECT_EQ(ask(200), 0);
  EXPECT_EQ(counters().evictions, 2);
}

// A snapshot that a step in flight reads stays, even when others are wanted.
TEST_F(SchedulerStateTest, ASnapshotInUseIsNotTaken) {
  Make(64, 1, {.max_num_seqs = 2, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 7), 1);
  RunAll();
  Add(2, Ids(100, 7), 1);
  ASSERT_TRUE(Launch());
  ASSERT_EQ(flights_.front().step.rows[0].state_read, 2);
  Add(3, Ids(200, 7), 1);
  ASSERT_TRUE(Launch());
  EXPECT_EQ(flights_.back().step.rows[0].state_write, 1);  // its own: no snapshot
  RunAll();
  EXPECT_EQ(counters().evictions, 0);
  ExpectAllGivenBack();
}

TEST_F(SchedulerStateTest, ASnapshotGoesWithItsBlock) {
  Make(4, 8, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 7), 1);
  RunAll();
  EXPECT_EQ(scheduler_->snapshots().kept(), 1);
  Add(2, Ids(200, 14), 1);  // all four blocks
  RunAll();
  EXPECT_EQ(scheduler_->snapshots().kept(), 1);
  EXPECT_EQ(counters().evictions, 0);
  Add(3, Ids(100, 7), 1);
  RunAll();
  EXPECT_EQ(cached_[3], 0);
}

TEST_F(SchedulerStateTest, ChoicesGoOnFromThePromptsLastBlock) {
  Make(64, 8, {.max_num_seqs = 3, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 10), 6, 3);
  RunAll();
  for (int32_t c = 0; c < 3; ++c) EXPECT_EQ((got_[{1, c}]), Answer(Ids(100, 10), 6));
  EXPECT_EQ(counters().hits, 2);
  ExpectAllGivenBack();
}

TEST_F(SchedulerStateTest, AnOvershootsSlotComesBackWhenItRetires) {
  Make(64, 8, {.max_num_seqs = 1, .max_num_batched_tokens = 64});
  Add(1, Ids(100, 3), 50);
  ASSERT_TRUE(Launch());
  ASSERT_TRUE(Launch());
  flights_.front().result.tokens = {kEnd};
  Retire();
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(scheduler_->TakeSlot(), -1);
  Add(2, Ids(200, 3), 1);
  EXPECT_FALSE(Launch());  // waits for the slot
  Retire();
  RunAll();
  EXPECT_EQ((got_[{2, 0}]), Answer(Ids(200, 3), 1));
  ExpectAllGivenBack();
}

TEST_F(SchedulerStateTest, ManyRequestsInLittleMemoryAllReadTheirOwnStates) {
  for (const int64_t snapshots : {0, 1, 3, 40}) {
    for (const size_t ahead : {1, 2}) {
      Make(34, snapshots, {.max_num_seqs = 5, .max_num_batched_tokens = 24, .max_model_len = 100});
      std::mt19937 random(static_cast<uint32_t>(snapshots * 2) + static_cast<uint32_t>(ahead));
      std::map<RequestId, std::pair<std::vector<int32_t>, int64_t>> asked;
      std::set<RequestId> cancelled;
      for (RequestId id = 1; id <= 150; ++id) {
        std::vector<int32_t> prompt = Ids(100 + static_cast<int32_t>(random() % 2) * 100,
                                          static_cast<int32_t>(random() % 40));
        for (const int32_t t : Ids(static_cast<int32_t>(random() % 9 + 30),
                                   static_cast<int32_t>(1 + random() % 20))) {
          prompt.push_back(t);
        }
        const auto tokens = static_cast<int64_t>(1 + random() % 30);
        asked[id] = {prompt, tokens};
        Add(id, prompt, tokens, id % 10 == 0 ? 2 : 1);
        for (size_t i = random() % 8; i > 0; --i) {
          if (flights_.size() >= ahead || !Launch()) {
            if (!flights_.empty()) Retire();
          }
        }
        if (random() % 6 == 0) {
          const RequestId gone = 1 + random() % id;
          cancelled.insert(gone);
          scheduler_->Finish(gone, -1, FinishReason::kAbort, 0, nullptr);
        }
      }
      RunAll(ahead);
      for (const auto& [id, request] : asked) {
        std::vector<int32_t> want = Answer(request.first, request.second);
        const std::vector<int32_t>& got = got_[{id, 0}];
        if (cancelled.contains(id)) want.resize(std::min(want.size(), got.size()));
        EXPECT_EQ(got, want) << id;
      }
      EXPECT_GT(scheduler_->counters().preemptions, 0);
      EXPECT_EQ(counters().hits > 0, snapshots > 0);
      EXPECT_EQ(scheduler_->counters().prefix_hits > 0, snapshots > 0);
      ExpectAllGivenBack();
    }
  }
}

}  // namespace
}  // namespace vllm::engine
