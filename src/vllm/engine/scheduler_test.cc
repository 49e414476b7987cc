#include "vllm/engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace vllm::engine {
namespace {

constexpr int32_t kEnd = 7;

struct Quiet : SchedulerObserver {
  void OnToken(const Sequence&, double) override {}
  void OnFinish(const Sequence&, FinishReason reason, double) override { ++finished[reason]; }
  std::map<FinishReason, int> finished;
};

// A scheduler with a device that always draws token 100 + position.
class SchedulerTest : public ::testing::Test {
 protected:
  void Make(int64_t blocks, SchedulerOptions o, bool caching = true) {
    o.output_rows = std::max(o.output_rows, o.max_num_seqs);
    if (o.max_model_len == 0) o.max_model_len = 64;
    o.end_ids = {kEnd};
    pool_ = std::make_unique<BlockPool>(blocks, 4, caching);
    windows_ = std::make_unique<WindowPool>(window_, window_blocks_, 4, caching);
    scheduler_ = std::make_unique<Scheduler>(*pool_, *windows_, o, &quiet_);
  }
  void Add(RequestId id, int32_t first, int32_t length, int64_t max_tokens, int32_t priority = 0,
           int32_t n = 1) {
    auto r = std::make_shared<Request>();
    r->prompt.resize(static_cast<size_t>(length));
    std::iota(r->prompt.begin(), r->prompt.end(), first);
    r->sampling.max_tokens = max_tokens;
    r->sampling.n = n;
    r->priority = priority;
    scheduler_->Add(id, r, {}, 0);
  }
  ScheduledStep Schedule() {
    ScheduledStep step;
    scheduler_->Schedule(step, 0);
    return step;
  }
  std::vector<Output> Retire(const ScheduledStep& step, int32_t token = -1) {
    StepResult result;
    result.outputs = step.outputs;
    for (const Scheduled& row : step.rows) {
      if (row.outputs == StepRow::Outputs::kNone) continue;
      result.tokens.push_back(token >= 0 ? token
                                         : static_cast<int32_t>(100 + row.start + row.count));
    }
    std::vector<Output> outputs;
    scheduler_->Retire(step, result, 0, outputs);
    return outputs;
  }
  // "1:4" is request 1 with four tokens.
  static std::string Show(const ScheduledStep& step) {
    std::string out;
    for (const Scheduled& r : step.rows) {
      out += std::to_string(r.sequence->request) + ":" + std::to_string(r.count) + " ";
    }
    return out;
  }
  // Steps until nothing is left; what each request got.
  std::map<RequestId, std::vector<int32_t>> RunAll(int limit = 1000) {
    std::map<RequestId, std::vector<int32_t>> got;
    while (!scheduler_->idle() && --limit > 0) {
      const ScheduledStep step = Schedule();
      EXPECT_FALSE(step.rows.empty());
      if (step.rows.empty()) break;
      for (const Output& o : Retire(step)) {
        if (o.token >= 0) got[o.request].push_back(o.token);
      }
    }
    EXPECT_GT(limit, 0);
    return got;
  }

  Quiet quiet_;
  int64_t window_ = 0, window_blocks_ = 0;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<WindowPool> windows_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, MixesDecodeWithChunksOfPromptsInsideTheBudget) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 8});
  Add(1, 0, 3, 10);
  Add(2, 50, 12, 10);
  ScheduledStep step = Schedule();
  EXPECT_EQ(Show(step), "1:3 2:5 ");
  Retire(step);
  step = Schedule();
  EXPECT_EQ(Show(step), "1:1 2:7 ");
  EXPECT_EQ(Retire(step).size(), 2u);  // the second's prompt is done
  EXPECT_EQ(Show(Schedule()), "1:1 2:1 ");
}

TEST_F(SchedulerTest, RunsOneStepAheadOfItsTokens) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 8});
  Add(1, 0, 3, 4);
  const ScheduledStep first = Schedule();
  const ScheduledStep second = Schedule();
  ASSERT_EQ(Show(second), "1:1 ");
  EXPECT_EQ(second.rows[0].start, 3);  // the token that is still on the device
  EXPECT_EQ(Retire(first)[0].token, 103);
  const ScheduledStep third = Schedule();
  EXPECT_EQ(Retire(second)[0].token, 104);
  const ScheduledStep fourth = Schedule();
  EXPECT_EQ(Retire(third)[0].token, 105);
  // Four tokens are on their way or here: no overshoot.
  EXPECT_TRUE(Schedule().rows.empty());
  const std::vector<Output> last = Retire(fourth);
  EXPECT_EQ(last[0].token, 106);
  EXPECT_EQ(last[0].finish, FinishReason::kLength);
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(pool_->free_blocks(), 64);
}

TEST_F(SchedulerTest, AnOvershootStepIsDroppedAndItsBlocksComeBackWhenItRetires) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 8});
  Add(1, 0, 4, 10);
  const ScheduledStep first = Schedule();
  const ScheduledStep second = Schedule();
  const std::vector<Output> end = Retire(first, kEnd);
  EXPECT_EQ(end[0].finish, FinishReason::kStop);
  EXPECT_LT(pool_->free_blocks(), 64);
  EXPECT_TRUE(Retire(second).empty());
  EXPECT_EQ(pool_->free_blocks(), 64);
}

TEST_F(SchedulerTest, PreemptsTheLatestWhenBlocksRunOutAndLosesNoToken) {
  // 6 blocks of 4: two requests of 4 + 12 tokens want 8.
  Make(6, {.max_num_seqs = 4, .max_num_batched_tokens = 16});
  Add(1, 0, 4, 12);
  Add(2, 50, 4, 12);
  const auto got = RunAll();
  EXPECT_GT(scheduler_->counters().preemptions, 0);
  std::vector<int32_t> want(12);
  std::iota(want.begin(), want.end(), 104);
  EXPECT_EQ(got.at(1), want);
  EXPECT_EQ(got.at(2), want);
  EXPECT_EQ(pool_->free_blocks(), 6);
}

// Its beginning would fit; but begun, it would only be pre-empted and computed again.
TEST_F(SchedulerTest, APromptIsNotBegunBeforeAllOfItFits) {
  Make(6, {.max_num_seqs = 4, .max_num_batched_tokens = 4});
  Add(1, 0, 8, 4);    // three blocks in the end
  Add(2, 50, 20, 1);  // five
  for (const char* want : {"1:4 ", "1:4 ", "1:1 ", "1:1 "}) {
    const ScheduledStep step = Schedule();
    EXPECT_EQ(Show(step), want);
    Retire(step);
  }
  const auto got = RunAll();
  EXPECT_EQ(got.at(1).size(), 1u);  // the other three came above
  EXPECT_EQ(got.at(2).size(), 1u);
  EXPECT_EQ(scheduler_->counters().preemptions, 0);
}

TEST_F(SchedulerTest, ManyRequestsInLittleMemoryAllFinishWithAllTheirTokens) {
  for (const bool caching : {false, true}) {
    Make(20, {.max_num_seqs = 8, .max_num_batched_tokens = 16}, caching);
    for (RequestId id = 1; id <= 40; ++id) {
      Add(id, static_cast<int32_t>(id % 3) * 5, static_cast<int32_t>(1 + id * 7 % 30),
          static_cast<int64_t>(1 + id * 5 % 20), static_cast<int32_t>(id % 2));
    }
    const auto got = RunAll(10000);
    for (RequestId id = 1; id <= 40; ++id) {
      EXPECT_EQ(got.at(id).size(), 1 + id * 5 % 20) << id;
      const auto length = static_cast<int32_t>(1 + id * 7 % 30);
      for (size_t i = 0; i < got.at(id).size(); ++i) {
        EXPECT_EQ(got.at(id)[i], 100 + length + static_cast<int32_t>(i));
      }
    }
    EXPECT_EQ(pool_->free_blocks(), 20);
  }
}

TEST_F(SchedulerTest, ARepeatedPromptIsFoundAndItsLastTokenStillComputed) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 32});
  Add(1, 0, 12, 1);
  RunAll();
  Add(2, 0, 12, 1);
  const ScheduledStep step = Schedule();
  EXPECT_EQ(step.rows[0].start, 8);  // 11 of 12 tokens may be found: two blocks
  EXPECT_EQ(step.rows[0].count, 4);
  EXPECT_EQ(Retire(step)[0].cached_tokens, 8);
  EXPECT_EQ(scheduler_->counters().prefix_hits, 8);
  EXPECT_EQ(scheduler_->counters().prefix_queries, 24);
}

TEST_F(SchedulerTest, AnAnswerIsAPrefixOfTheNextTurn) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 32});
  Add(1, 0, 4, 9);  // computes 4 + 8 tokens: three blocks
  RunAll();
  auto r = std::make_shared<Request>();
  for (int32_t i = 0; i < 4; ++i) r->prompt.push_back(i);
  for (int32_t i = 4; i < 13; ++i) r->prompt.push_back(100 + i);
  r->prompt.push_back(1);
  r->sampling.max_tokens = 1;
  scheduler_->Add(2, r, {}, 0);
  EXPECT_EQ(Schedule().rows[0].start, 12);
}

TEST_F(SchedulerTest, ChoicesWaitForTheFirstOnesPromptAndShareIt) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 32});
  Add(1, 0, 9, 2, 0, 3);
  ScheduledStep step = Schedule();
  EXPECT_EQ(Show(step), "1:9 ");
  Retire(step);
  step = Schedule();
  EXPECT_EQ(Show(step), "1:1 1:1 1:1 ");
  EXPECT_EQ(step.rows[1].start, 8);
  EXPECT_EQ(step.rows[1].sequence->choice, 1);
}

TEST_F(SchedulerTest, PriorityGoesBeforeArrival) {
  Make(64, {.max_num_seqs = 1, .max_num_batched_tokens = 8, .priority = true});
  Add(1, 0, 4, 1, 5);
  Add(2, 0, 4, 1, 1);
  EXPECT_EQ(Show(Schedule()), "2:4 ");
}

TEST_F(SchedulerTest, FirstComeFirstServedIgnoresPriority) {
  Make(64, {.max_num_seqs = 1, .max_num_batched_tokens = 8});
  Add(1, 0, 4, 1, 5);
  Add(2, 0, 4, 1, 1);
  EXPECT_EQ(Show(Schedule()), "1:4 ");
}

TEST_F(SchedulerTest, ACancelledChoiceGivesItsBlocksBackAndSaysSoOnlyWhenAsked) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 32});
  Add(1, 0, 9, 20, 0, 2);
  Retire(Schedule());
  Retire(Schedule());
  std::vector<Output> outputs;
  scheduler_->Finish(1, 0, FinishReason::kAbort, 0, nullptr);
  scheduler_->Finish(1, 1, FinishReason::kAbort, 0, &outputs);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].choice, 1);
  EXPECT_EQ(outputs[0].finish, FinishReason::kAbort);
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(pool_->free_blocks(), 64);
  scheduler_->Finish(1, -1, FinishReason::kAbort, 0, &outputs);  // gone: nothing
  EXPECT_EQ(outputs.size(), 1u);
}

TEST_F(SchedulerTest, ALateRequestTimesOut) {
  Make(64, {.max_num_seqs = 4, .max_num_batched_tokens = 32});
  auto r = std::make_shared<Request>();
  r->prompt = {1, 2};
  r->timeout_seconds = 5;
  scheduler_->Add(1, r, {}, 10);
  std::vector<Output> outputs;
  scheduler_->Expire(14, outputs);
  EXPECT_TRUE(outputs.empty());
  scheduler_->Expire(16, outputs);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kTimeout);
}

TEST_F(SchedulerTest, TheContextEndsTheAnswer) {
  Make(64, {.max_num_seqs = 1, .max_num_batched_tokens = 32, .max_model_len = 10});
  Add(1, 0, 8, 100);
  const auto got = RunAll();
  EXPECT_EQ(got.at(1).size(), 2u);
  EXPECT_EQ(quiet_.finished[FinishReason::kLength], 1);
}

TEST_F(SchedulerTest, PromptsThatAreScoredAskForARowATokenInPieces) {
  Make(64, {.max_num_seqs = 2, .max_num_batched_tokens = 32, .output_rows = 4});
  auto r = std::make_shared<Request>();
  r->prompt = {1, 2, 3, 4, 5, 6, 7};
  r->sampling.max_tokens = 0;
  r->sampling.prompt_logprobs = 0;
  scheduler_->Add(1, r, {}, 0);
  ScheduledStep step = Schedule();
  EXPECT_EQ(step.rows[0].count, 4);
  EXPECT_EQ(step.outputs, 4);
  StepResult result;
  result.outputs = 4;
  result.tokens = {2, 3, 4, 5};
  result.logprobs.assign(4 * vt::ir::kLogprobValues, -1.5f);
  result.best_ids.assign(4 * vt::ir::kBestTokens, -1);
  std::vector<Output> outputs;
  scheduler_->Retire(step, result, 0, outputs);
  EXPECT_TRUE(outputs.empty());
  step = Schedule();
  ASSERT_EQ(step.rows[0].count, 3);
  result.tokens = {6, 7, 9};
  scheduler_->Retire(step, result, 0, outputs);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].token, -1);
  EXPECT_EQ(outputs[0].finish, FinishReason::kLength);
  ASSERT_EQ(outputs[0].extra->prompt_logprobs.size(), 6u);
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(outputs[0].extra->prompt_logprobs[static_cast<size_t>(i)].token, i + 2);
  }
}

TEST_F(SchedulerTest, EmbeddingsTakeTurnsWithTokensAndEndInTheMeanOfTheirRows) {
  Make(64, {.max_num_seqs = 2, .max_num_batched_tokens = 8, .output_rows = 8});
  Add(1, 0, 2, 50);
  auto r = std::make_shared<Request>();
  r->kind = Request::Kind::kEmbed;
  r->pooling = Pooling::kMean;
  r->prompt = {1, 2};
  scheduler_->Add(2, r, {}, 0);
  ScheduledStep step = Schedule();
  ASSERT_TRUE(step.embeds);
  EXPECT_EQ(Show(step), "2:2 ");
  StepResult result;
  result.outputs = 2;
  result.values = {1, 2, 3, 10};  // [2, 2]
  std::vector<Output> outputs;
  scheduler_->Retire(step, result, 0, outputs);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].extra->embedding, (std::vector<float>{2, 6}));
  EXPECT_EQ(Show(Schedule()), "1:2 ");
}

TEST_F(SchedulerTest, AMeanThatWasInterruptedIsSummedAnew) {
  // Four blocks: an answer that grows takes one back from the embedding after its first piece.
  Make(4, {.max_num_seqs = 2, .max_num_batched_tokens = 8, .output_rows = 8}, false);
  Add(1, 0, 4, 12);
  ScheduledStep step = Schedule();
  Retire(step);  // the answer holds a block
  auto r = std::make_shared<Request>();
  r->kind = Request::Kind::kEmbed;
  r->pooling = Pooling::kMean;
  r->prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  scheduler_->Add(2, r, {}, 0);
  std::vector<Output> outputs;
  std::vector<float> embedding;
  for (int i = 0; i < 60 && !scheduler_->idle(); ++i) {
    step = Schedule();
    if (!step.embeds) {
      Retire(step);
      continue;
    }
    StepResult result;
    result.outputs = step.outputs;
    // Each token's hidden state is its position + 1: the mean of 1 .. 10 is 5.5.
    for (int64_t t = 0; t < step.rows[0].count; ++t) {
      result.values.push_back(static_cast<float>(step.rows[0].start + t + 1));
    }
    scheduler_->Retire(step, result, 0, outputs);
  }
  EXPECT_GT(scheduler_->counters().preemptions, 0);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].extra->embedding, std::vector<float>{5.5f});
}

TEST_F(SchedulerTest, NobodyOfTheOtherKindOvertakesOneThatWaitsForBlocks) {
  Make(6, {.max_num_seqs = 4, .max_num_batched_tokens = 64, .output_rows = 64}, false);
  Add(1, 0, 12, 8);  // three blocks, and two more as it grows
  Retire(Schedule());
  auto r = std::make_shared<Request>();
  r->kind = Request::Kind::kEmbed;
  r->prompt.assign(20, 1);  // five blocks: has to wait
  scheduler_->Add(2, r, {}, 0);
  (void)Schedule();  // looks at it
  Add(3, 0, 4, 40);  // would fit
  for (int i = 0; i < 3; ++i) {
    const ScheduledStep step = Schedule();
    for (const Scheduled& row : step.rows) EXPECT_NE(row.sequence->request, 3u);
  }
}

// Blocks of 4 tokens. With a window of 6 and steps of 8 tokens a request holds the blocks of 5 + 8
// tokens at most, across one edge: 5.
TEST_F(SchedulerTest, ALongRequestHoldsAsManyBlocksAsItsWindowHas) {
  for (const bool caching : {true, false}) {
    window_ = 6;
    window_blocks_ = 5;
    Make(32, {.max_num_seqs = 2, .max_num_batched_tokens = 8, .max_model_len = 128}, caching);
    Add(1, 1000, 60, 60);
    const auto got = RunAll();
    std::vector<int32_t> want(60);
    std::iota(want.begin(), want.end(), 160);
    EXPECT_EQ(got.at(1), want);
    EXPECT_EQ(windows_->free_blocks(), 5);
    EXPECT_EQ(pool_->free_blocks(), 32);
    EXPECT_EQ(scheduler_->counters().preemptions, 0);
  }
}

TEST_F(SchedulerTest, WhatAStepInFlightSeesIsHeldUntilItHasEnded) {
  window_ = 6;
  window_blocks_ = 16;
  Make(64, {.max_num_seqs = 2, .max_num_batched_tokens = 8, .max_model_len = 128});
  Add(1, 1000, 30, 30);
  Add(2, 2000, 10, 30);
  const auto held = [&](const ScheduledStep& step) {
    for (const Scheduled& row : step.rows) {
      EXPECT_LE(row.sequence->window.first * 4, std::max<int64_t>(row.start - 5, 0));
      EXPECT_GE(row.sequence->window.blocks.size() * 4, static_cast<size_t>(row.start + row.count));
    }
    return !step.rows.empty();
  };
  ScheduledStep flying = Schedule();
  int steps = 0;
  for (; held(flying); ++steps) {
    ScheduledStep next = Schedule();
    held(flying);
    held(next);
    Retire(flying);
    flying = next.rows.empty() ? Schedule() : next;
  }
  EXPECT_GT(steps, 30);
  EXPECT_EQ(windows_->free_blocks(), 16);
}

TEST_F(SchedulerTest, APrefixIsFoundWhereItsWindowStillIs) {
  window_ = 6;
  window_blocks_ = 16;
  Make(64, {.max_num_seqs = 1, .max_num_batched_tokens = 64, .max_model_len = 128});
  Add(1, 1000, 41, 1);
  RunAll();
  Add(2, 1000, 41, 1);  // all ten blocks but the last token
  RunAll();
  EXPECT_EQ(scheduler_->counters().prefix_hits, 40);
  Add(3, 5000, 61, 1);  // takes most windows' blocks
  RunAll();
  Add(4, 1000, 41, 1);
  RunAll();
  EXPECT_EQ(scheduler_->counters().prefix_hits, 40);
  EXPECT_EQ(windows_->free_blocks(), 16);
}

TEST_F(SchedulerTest, WhoFindsNoBlocksForWindowsIsPreempted) {
  window_ = 40;
  window_blocks_ = 16;  // 64 tokens for two requests that want 80
  Make(64, {.max_num_seqs = 2, .max_num_batched_tokens = 8, .max_model_len = 64});
  Add(1, 1000, 8, 32);
  Add(2, 2000, 8, 32);
  const auto got = RunAll();
  std::vector<int32_t> want(32);
  std::iota(want.begin(), want.end(), 108);
  EXPECT_EQ(got.at(1), want);
  EXPECT_EQ(got.at(2), want);
  EXPECT_GT(scheduler_->counters().preemptions, 0);
  EXPECT_EQ(windows_->free_blocks(), 16);
}

}  // namespace
}  // namespace vllm::engine
