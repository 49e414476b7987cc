#include "vllm/engine/window_pool.h"

#include <gtest/gtest.h>

namespace vllm::engine {
namespace {

// Blocks of 4 tokens; windows of 6.
TEST(WindowPool, GivesBackWhatNoTokenToComeSees) {
  WindowPool pool(6, 8, 4, false);
  WindowTable table;
  ASSERT_TRUE(pool.Grow(table, 4));
  EXPECT_EQ(pool.free_blocks(), 4);
  pool.Slide(table, 8);  // position 8 sees 3: block 0
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_TRUE(pool.Holds(table, 8));
  pool.Slide(table, 9);  // 4: block 1
  EXPECT_EQ(pool.free_blocks(), 5);
  EXPECT_FALSE(pool.Holds(table, 8));
  EXPECT_EQ(table.blocks.size(), 4u);
  pool.Slide(table, 1000);
  EXPECT_EQ(pool.free_blocks(), 8);
  ASSERT_TRUE(pool.Grow(table, 12));  // a table may be longer than the pool
  EXPECT_FALSE(pool.Grow(table, 13));
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
    EXPECT_TRUE(pool_.Grow(table_, 6));
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
    EXPECT_TRUE(pool_.Grow(other, 2 + count));
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

}  // namespace
}  // namespace vllm::engine
