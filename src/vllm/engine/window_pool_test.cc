#include "vllm/engine/window_pool.h"

#include <gtest/gtest.h>

namespace vllm::engine {
namespace {

// Blocks of 4 tokens; windows of 6.
TEST(WindowPool, GivesBackWhatNoTokenToComeSees) {
  WindowPool pool(6, 8, 4, false);
  WindowTable table;
  ASSERT_TRUE(pool.Grow(table, 16));
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_EQ(pool.Behind(table, 9), 1);
  EXPECT_EQ(pool.Behind(table, 8), 0);
  pool.Slide(table, 8);  // position 8 sees 3: block 0
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_TRUE(pool.Holds(table, 8));
  pool.Slide(table, 9);  // 4: block 1
  EXPECT_EQ(pool.free_blocks(), 5);
  EXPECT_FALSE(pool.Holds(table, 8));
  EXPECT_EQ(table.blocks.size(), 4u);
  pool.Slide(table, 1000);
  EXPECT_EQ(pool.free_blocks(), 8);
  EXPECT_EQ(pool.Missing(table, 48), 8);
  ASSERT_TRUE(pool.Grow(table, 48));  // a table may be longer than the pool
  EXPECT_FALSE(pool.Grow(table, 49));
  EXPECT_EQ(table.blocks.size(), 12u);
  pool.Release(table);
  EXPECT_EQ(pool.free_blocks(), 8);
}

TEST(WindowPool, WithoutWindowsItDoesNothing) {
  WindowPool pool(0, 0, 4, true);
  WindowTable table;
  EXPECT_TRUE(pool.Grow(table, 100));
  EXPECT_EQ(pool.Wanted(table, 100, 100), 0);
  pool.Slide(table, 50);
  pool.Publish(table, 3, 1);
  pool.Release(table);
  const auto node = [](int64_t) -> PrefixNode { return 1; };
  EXPECT_EQ(pool.Find(
                7, node, [](int64_t n) { return n < 6; }, table),
            5);
  EXPECT_TRUE(table.blocks.empty());
}

TEST(WindowPool, SaysWhatASequenceNeeds) {
  WindowPool pool(6, 8, 4, false);
  WindowTable table;
  EXPECT_EQ(pool.Wanted(table, 9, 100), 3);   // all of it
  EXPECT_EQ(pool.Wanted(table, 100, 3), 3);   // 5 + 3 tokens, across a block's edge
  EXPECT_EQ(pool.Wanted(table, 100, 90), 8);  // no more than there is
  table = {{0, 0, 0, 4, 5}, 3};
  EXPECT_EQ(pool.Wanted(table, 100, 3), 1);
  EXPECT_EQ(pool.Wanted(table, 21, 90), 1);
  table = {};
  EXPECT_EQ(pool.MostTokens(33), (8 - 1) * 4 - 5);
  EXPECT_GT(pool.MostTokens(32), 32);
}

class FindTest : public ::testing::Test {
 protected:
  // Six blocks with nodes 10 .. 15, all given back.
  FindTest() {
    EXPECT_TRUE(pool_.Grow(table_, 24));
    for (int64_t i = 0; i < 6; ++i) pool_.Publish(table_, i, static_cast<PrefixNode>(10 + i));
    blocks_ = table_.blocks;
    pool_.Release(table_);
  }
  int64_t Find(
      int64_t count, const std::function<bool(int64_t)>& also = [](int64_t) { return true; }) {
    return pool_.Find(
        count, [](int64_t i) { return static_cast<PrefixNode>(10 + i); }, also, table_);
  }
  // Takes the memory of the oldest cached blocks.
  void Forget(int64_t count) {
    WindowTable other;
    EXPECT_TRUE(pool_.Grow(other, 4 * (2 + count)));
    pool_.Release(other);
  }

  WindowPool pool_{6, 8, 4, true};
  WindowTable table_;
  std::vector<int32_t> blocks_;
};

TEST_F(FindTest, HoldsTheLastWindowAlone) {
  EXPECT_EQ(Find(6), 6);
  // Position 24 sees 19: blocks 4 and 5.
  EXPECT_EQ(table_.first, 4);
  ASSERT_EQ(table_.blocks.size(), 6u);
  EXPECT_EQ(table_.blocks[4], blocks_[4]);
  EXPECT_EQ(table_.blocks[5], blocks_[5]);
  EXPECT_EQ(pool_.free_blocks(), 6);
  pool_.Release(table_);
  EXPECT_EQ(pool_.free_blocks(), 8);
}

TEST_F(FindTest, WhatIsMissingShortensThePrefix) {
  Forget(1);  // the last block went first
  EXPECT_EQ(Find(6), 5);
  EXPECT_EQ(table_.first, 3);
  EXPECT_EQ(table_.blocks.size(), 5u);
  pool_.Release(table_);
  Forget(6);
  EXPECT_EQ(Find(6), 0);
  EXPECT_TRUE(table_.blocks.empty());
  EXPECT_EQ(pool_.free_blocks(), 8);
}

TEST_F(FindTest, WhatElseIsAskedForShortensIt) {
  EXPECT_EQ(Find(6, [](int64_t n) { return n <= 3; }), 3);
  EXPECT_EQ(table_.first, 1);
  EXPECT_EQ(table_.blocks.size(), 3u);
  EXPECT_EQ(table_.blocks[2], blocks_[2]);
  EXPECT_EQ(pool_.free_blocks(), 6);
  pool_.Release(table_);
  EXPECT_EQ(Find(6, [](int64_t) { return false; }), 0);
  EXPECT_EQ(pool_.free_blocks(), 8);
}

// Pages of three blocks of 4 tokens, or of one with a window of 6.
class PagesTest : public ::testing::Test {
 protected:
  // A request of 36 tokens: its three pages have nodes, and so have the blocks of its last window.
  void RunOne() {
    std::vector<int32_t> tokens(36, 5), held;
    WindowTable table;
    ASSERT_TRUE(windows_.Grow(table, 36));
    ASSERT_TRUE(pool_.Allocate(3, held));
    EXPECT_EQ(pool_.free_blocks(), 1);
    PrefixNode node = root_;
    for (int64_t i = 0; i < 3; ++i) {
      node = pool_.Publish(node, std::span(tokens).subspan(static_cast<size_t>(12 * i), 12),
                           held[static_cast<size_t>(i)]);
      windows_.Publish(table, i, node);
      windows_.Slide(table, 12 * (i + 1));
    }
    windows_.Release(table);
    pool_.Release(held);
    EXPECT_EQ(pool_.free_blocks(), 13);
  }
  // How many pages of such a request are found.
  int64_t Find() {
    const std::vector<int32_t> tokens(36, 5);
    std::vector<int32_t> held;
    const BlockPool::Match match = pool_.Find(root_, tokens, held);
    const int64_t found = windows_.Find(
        match.blocks, [&](int64_t i) { return pool_.NodeOf(held[static_cast<size_t>(i)]); },
        [](int64_t) { return true; }, table_);
    pool_.Release(held);
    return found;
  }

  BlockPool pool_{13, 12, true};
  WindowPool windows_{6, 4, pool_, 48};
  WindowTable table_;
  PrefixNode root_ = pool_.Root("");
};

TEST_F(PagesTest, EitherKindTakesWhatIsFree) {
  EXPECT_EQ(windows_.blocks(), 0);  // of its own
  EXPECT_TRUE(windows_.Fit(pool_, 5, 8));
  EXPECT_FALSE(windows_.Fit(pool_, 6, 8));
  EXPECT_TRUE(windows_.Fit(pool_, 14, -1));
  // The whole context's four pages stay for the others.
  EXPECT_EQ(windows_.MostTokens(48), (9 - 1) * 4 - 5);
  EXPECT_EQ(windows_.Wanted({}, 48, 40), 9);
  WindowTable table;
  ASSERT_TRUE(windows_.Grow(table, 48));
  EXPECT_EQ(pool_.free_blocks(), 1);
  windows_.Slide(table, 40);  // 35 is seen: block 8
  EXPECT_EQ(pool_.free_blocks(), 9);
  windows_.Release(table);
  EXPECT_EQ(pool_.free_blocks(), 13);
}

TEST_F(PagesTest, APrefixEndsWithAPageWhoseWindowIsThere) {
  RunOne();
  EXPECT_EQ(Find(), 3);
  // Position 36 sees 31: blocks 7 and 8.
  EXPECT_EQ(table_.first, 7);
  EXPECT_EQ(table_.blocks.size(), 9u);
  EXPECT_EQ(pool_.free_blocks(), 11);
  windows_.Release(table_);
  // What was never used, and blocks behind the window, until no more than a quarter is kept.
  std::vector<int32_t> others;
  ASSERT_TRUE(pool_.Allocate(5, others));
  pool_.Release(others);
  EXPECT_EQ(Find(), 3);
  windows_.Release(table_);
  ASSERT_TRUE(pool_.Allocate(13, others));
  pool_.Release(others);
  EXPECT_EQ(Find(), 0);
  EXPECT_EQ(pool_.free_blocks(), 13);
}

TEST_F(PagesTest, AMissingBlockOfAWindowShortensThePrefixByWholePages) {
  std::vector<int32_t> tokens(36, 5), held;
  WindowTable table;
  ASSERT_TRUE(windows_.Grow(table, 36));
  ASSERT_TRUE(pool_.Allocate(3, held));
  PrefixNode node = root_;
  for (int64_t i = 0; i < 3; ++i) {
    node = pool_.Publish(node, std::span(tokens).first(12), held[static_cast<size_t>(i)]);
    if (i == 2) table.first = 9;  // no block of the last page has a name
    windows_.Publish(table, i, node);
  }
  EXPECT_EQ(Find(), 2);
  EXPECT_EQ(table_.first, 4);
  EXPECT_EQ(table_.blocks.size(), 6u);
  EXPECT_EQ(table_.blocks[5], table.blocks[5]);
}

// Nobody else will begin at most places of a long prompt, so what lies behind its window does not
// drive out the prefixes of others.
TEST(WindowPool, ALongPromptLeavesWhatOthersHaveCached) {
  BlockPool pages(40, 12, true);
  WindowPool windows(6, 4, pages, 400);
  const PrefixNode root = pages.Root("");
  const auto run = [&](int32_t token, int64_t count) {
    std::vector<int32_t> tokens(12, token), held;
    WindowTable table;
    PrefixNode node = root;
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(pages.Allocate(1, held));
      ASSERT_TRUE(windows.Grow(table, 12 * (i + 1)));
      node = pages.Publish(node, tokens, held.back());
      windows.Publish(table, i, node);
      windows.Slide(table, 12 * (i + 1));
    }
    windows.Release(table);
    pages.Release(held);
  };
  const auto found = [&](int32_t token, int64_t count) {
    const std::vector<int32_t> tokens(static_cast<size_t>(12 * count), token);
    std::vector<int32_t> held;
    const BlockPool::Match match = pages.Find(root, tokens, held);
    WindowTable table;
    const int64_t all = windows.Find(
        match.blocks, [&](int64_t i) { return pages.NodeOf(held[static_cast<size_t>(i)]); },
        [](int64_t) { return true; }, table);
    windows.Release(table);
    pages.Release(held);
    return all;
  };
  run(1, 3);   // 3 pages and 9 with windows, of which 7 are behind
  run(2, 10);  // 10 and 30
  EXPECT_EQ(found(2, 10), 10);
  EXPECT_EQ(found(1, 3), 3);
  EXPECT_EQ(found(2, 8), 8);  // what was left behind last is there
  EXPECT_EQ(found(2, 1), 0);
  run(3, 4);
  EXPECT_EQ(found(3, 4), 4);
  EXPECT_EQ(found(1, 3), 3);
  run(4, 26);
  EXPECT_EQ(found(1, 3), 0);
  EXPECT_EQ(found(4, 26), 26);
  EXPECT_EQ(pages.free_blocks(), 40);
}

}  // namespace
}  // namespace vllm::engine
