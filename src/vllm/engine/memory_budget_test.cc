#include "vllm/engine/memory_budget.h"

#include <gtest/gtest.h>

#include <random>

namespace vllm::engine {
namespace {

// 1,000 bytes free of which 900 may be used; 300 are spoken for; a block of 4 tokens takes 10.
MemoryBudget Small() {
  MemoryBudget b;
  b.weights = 200;
  b.activations = 60;
  b.slots = 40;
  b.block = 10;
  b.block_size = 4;
  b.free = 1000;
  b.max_model_len = 100;  // 25 blocks
  b.max_num_seqs = 8;
  return b;
}

TEST(FitKvCache, TakesWhatIsLeft) {
  const auto fit = FitKvCache(Small());
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->blocks, 60);  // (900 - 300) / 10
  EXPECT_EQ(fit->max_model_len, 100);
}

TEST(FitKvCache, TakesNoMoreThanAllSequencesCanHold) {
  MemoryBudget b = Small();
  b.max_num_seqs = 2;
  EXPECT_EQ(FitKvCache(b)->blocks, 50);
}

TEST(FitKvCache, ADefaultLimitYieldsToARequestThatNeedsMore) {
  MemoryBudget b = Small();
  b.kv_default = 300;
  EXPECT_EQ(FitKvCache(b)->blocks, 30);
  b.kv_default = 100;
  EXPECT_EQ(FitKvCache(b)->blocks, 25);
}

TEST(FitKvCache, WhatWasAskedForIsTaken) {
  MemoryBudget b = Small();
  b.kv_asked = 405;
  EXPECT_EQ(FitKvCache(b)->blocks, 40);
}

TEST(FitKvCache, AnOpenLengthIsLoweredToWhatFits) {
  MemoryBudget b = Small();
  b.max_model_len = 1000;  // 250 blocks
  const auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->max_model_len, 240);
}

TEST(FitKvCache, ALengthThatWasAskedForIsRefusedWithTheSumAndTheLargestThatFits) {
  MemoryBudget b = Small();
  b.max_model_len = 1000;
  b.length_asked = true;
  const auto fit = FitKvCache(b);
  ASSERT_FALSE(fit.ok());
  EXPECT_EQ(fit.error().code, base::Code::kResourceExhausted);
  for (const char* part :
       {"2.44 KiB of KV cache", "2.73 KiB in all", "900 B may be used", "is 240 tokens"}) {
    EXPECT_NE(fit.error().message.find(part), std::string::npos) << part << fit.error().message;
  }
}

TEST(FitKvCache, AModelThatAloneIsTooLargeIsRefused) {
  MemoryBudget b = Small();
  b.weights = 2000;
  const auto fit = FitKvCache(b);
  ASSERT_FALSE(fit.ok());
  EXPECT_NE(fit.error().message.find("not even one block"), std::string::npos);
}

TEST(FitKvCache, SnapshotsTakeAQuarterOfWhatIsLeftBesideTheStatesOfThoseThatRun) {
  MemoryBudget b = Small();
  b.state = 20;  // of eight: 440 are left
  b.snapshots = -1;
  auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->snapshots, 5);  // 440 / 4 / 20
  EXPECT_EQ(fit->blocks, 34);    // (440 - 5 * 20) / 10
  b.snapshots = 0;
  EXPECT_EQ(FitKvCache(b)->blocks, 44);
  b.snapshots = 7;
  fit = FitKvCache(b);
  EXPECT_EQ(fit->snapshots, 7);
  EXPECT_EQ(fit->blocks, 30);
}

TEST(FitKvCache, AFewSnapshotsGoBeforeBlocksButNotBeforeOneRequests) {
  MemoryBudget b = Small();
  b.state = 35;  // 320 are left, of which one request needs 250
  b.snapshots = -1;
  const auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->snapshots, 2);
  EXPECT_EQ(fit->blocks, 25);
}

TEST(FitKvCache, SnapshotsStandBesideACacheThatWasAskedFor) {
  MemoryBudget b = Small();
  b.state = 20;
  b.snapshots = -1;
  b.kv_asked = 300;
  auto fit = FitKvCache(b);
  EXPECT_EQ(fit->blocks, 30);
  EXPECT_EQ(fit->snapshots, 5);  // 300 / 3 / 20
  b.kv_asked = 400;
  fit = FitKvCache(b);
  EXPECT_EQ(fit->blocks, 40);
  EXPECT_EQ(fit->snapshots, 2);  // 440 - 400
}

TEST(FitKvCache, StatesThatDoNotFitAreRefusedWithHowManyWould) {
  MemoryBudget b = Small();
  b.state = 60;
  b.length_asked = true;
  const auto fit = FitKvCache(b);
  ASSERT_FALSE(fit.ok());
  // With six: 200 + 60 + 6 * (60 + 5) + 250 = 900.
  for (const char* part :
       {"480 B of recurrent state (8 slots of 60 B)", "at most 6 requests", "1.01 KiB in all"}) {
    EXPECT_NE(fit.error().message.find(part), std::string::npos) << part << fit.error().message;
  }
  b.max_num_seqs = 6;
  b.slots = 30;
  EXPECT_TRUE(FitKvCache(b).ok());
}

TEST(FitSequences, LeavesThreeQuartersToTheCache) {
  MemoryBudget b = Small();
  EXPECT_EQ(FitSequences(b, 64), 64);
  b.state = 20;
  EXPECT_EQ(FitSequences(b, 64), 8);  // (900 - 200) / 4 / 20
  b.state = 1000;
  EXPECT_EQ(FitSequences(b, 64), 1);
}

TEST(FitKvCache, WhatWasAskedForMustBeFree) {
  MemoryBudget b = Small();
  b.kv_asked = 701;
  EXPECT_FALSE(FitKvCache(b).ok());
  b.kv_asked = 700;
  EXPECT_TRUE(FitKvCache(b).ok());
}

// Layers with windows of 9 tokens, in steps of 8: a request holds 8 + 8 tokens, across an edge, so
// 5 blocks, at 20 bytes each.
MemoryBudget Windows() {
  MemoryBudget b = Small();
  b.window_block = 20;
  b.window = 9;
  b.step_tokens = 8;
  return b;
}

TEST(FitKvCache, WindowsTakeWhatAllSequencesCanHold) {
  MemoryBudget b = Windows();
  b.max_num_seqs = 2;
  // 2 + 2 blocks a sequence, and two steps' 4: 240 of the 600 bytes. The others hold 36 of 50.
  auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  EXPECT_EQ(fit->window_blocks, 12);
  EXPECT_EQ(fit->blocks, 36);
  EXPECT_EQ(fit->max_model_len, 100);
  // More sequences: half of the room.
  b.max_num_seqs = 8;
  fit = FitKvCache(b);
  EXPECT_EQ(fit->window_blocks, 15);
  EXPECT_EQ(fit->blocks, 30);
}

TEST(FitKvCache, ALengthIsLoweredToWhatFitsBesideTheWindow) {
  MemoryBudget b = Windows();
  b.max_model_len = 1000;
  auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->window_blocks, 5);
  EXPECT_EQ(fit->blocks, 50);  // (600 - 100) / 10
  EXPECT_EQ(fit->max_model_len, 200);
  b.kv_asked = 95;  // less than a window: three blocks of 30 bytes
  fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->max_model_len, 12);
  EXPECT_EQ(fit->window_blocks, 3);
  EXPECT_EQ(fit->blocks, 3);
  b.kv_asked = 0;
  b.length_asked = true;
  fit = FitKvCache(b);
  ASSERT_FALSE(fit.ok());
  EXPECT_NE(fit.error().message.find("200 tokens (--max-model-len)"), std::string::npos)
      << fit.error().message;
}

TEST(FitKvCache, WindowsAlone) {
  MemoryBudget b = Windows();
  b.block = 0;
  const auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->window_blocks, 30);  // 600 / 20
  EXPECT_EQ(fit->blocks, 8 * 25);     // they take no memory
  EXPECT_EQ(fit->max_model_len, 100);
}

TEST(FitKvCache, PagesAreNotDivided) {
  MemoryBudget b = Windows();
  b.page = 21;  // two blocks, or one with windows
  b.page_blocks = 2;
  b.max_num_seqs = 2;
  // A request has 13 pages of blocks, and 5 with windows.
  auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->blocks, 28);  // 600 / 21
  EXPECT_EQ(fit->window_blocks, 0);
  EXPECT_EQ(fit->max_model_len, 100);
  b.free = 100000;
  // All that two can hold: 2 * 13, and 2 + 2 a window, and two steps' 4.
  EXPECT_EQ(FitKvCache(b)->blocks, 26 + 12);
  b.free = 1000;
  b.max_model_len = 1000;
  EXPECT_EQ(FitKvCache(b)->max_model_len, (28 - 5) * 2 * 4);
  b.length_asked = true;
  fit = FitKvCache(b);
  ASSERT_FALSE(fit.ok());
  EXPECT_NE(fit.error().message.find("184 tokens (--max-model-len)"), std::string::npos)
      << fit.error().message;
  b.kv_asked = 41;  // less than one page of either
  fit = FitKvCache(b);
  ASSERT_FALSE(fit.ok());
  EXPECT_NE(fit.error().message.find("not even one block"), std::string::npos);
}

// Where windows are small beside the rest, they get no more blocks than the others.
TEST(FitKvCache, SmallWindowsTakeNoMoreThanShortRequestsWant) {
  MemoryBudget b = Windows();
  b.window_block = 2;
  b.max_num_seqs = 40;
  const auto fit = FitKvCache(b);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->window_blocks, 50);  // 600 / 12
  EXPECT_EQ(fit->blocks, 50);
}

TEST(FitKvCache, WhatIsGivenFitsAndHoldsOneRequest) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int fitted = 0;
  for (int i = 0; i < 20000; ++i) {
    MemoryBudget b = Windows();
    b.block = pick(0, 3) * pick(1, 20);
    b.window_block = pick(0, 3) * pick(1, 40);
    b.window = pick(1, 200);
    b.step_tokens = pick(1, 300);
    b.block_size = pick(1, 16);
    b.max_model_len = pick(1, 2000);
    b.max_num_seqs = pick(1, 40);
    b.free = pick(500, 20000);
    b.utilization = 1;
    b.length_asked = random() % 2;
    b.kv_asked = pick(0, 1) * pick(1, 20000);
    b.kv_default = pick(0, 1) * pick(1, 20000);
    if (random() % 4 == 0) {
      b.state = pick(1, 30);
      b.snapshots = pick(-1, 3);
    }
    if (random() % 3 == 0) {
      b.page_blocks = pick(1, 6);
      b.page = std::max(b.page_blocks * b.block, b.window_block) + pick(0, 3);
    }
    const auto fit = FitKvCache(b);
    if (!fit || b.block + b.window_block + b.page == 0) continue;
    ++fitted;
    SCOPED_TRACE(i);
    const int64_t room = b.free - b.weights - b.activations - b.slots - b.state * b.max_num_seqs;
    const int64_t blocks = b.page > 0 ? fit->blocks * b.page
                                      : fit->blocks * b.block + fit->window_blocks * b.window_block;
    EXPECT_LE(blocks + fit->snapshots * b.state, room);
    EXPECT_GT(fit->max_model_len, 0);
    EXPECT_LE(fit->max_model_len, b.max_model_len);
    if (b.length_asked) {
      EXPECT_EQ(fit->max_model_len, b.max_model_len);
    }
    const int64_t request = (fit->max_model_len + b.block_size - 1) / b.block_size;
    // Its window and a step lie across one edge more than they fill.
    const int64_t span = b.window - 1 + b.step_tokens;
    const int64_t windows = std::min(request, (span + b.block_size - 1) / b.block_size + 1);
    if (b.page > 0) {
      EXPECT_GE(fit->blocks, (request + b.page_blocks - 1) / b.page_blocks + windows);
      if (testing::Test::HasFailure()) return;
      continue;
    }
    EXPECT_GE(fit->blocks, request);
    if (b.window_block == 0) continue;
    EXPECT_GE(fit->window_blocks, windows);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(fitted, 5000);
}

}  // namespace
}  // namespace vllm::engine
