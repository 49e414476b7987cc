#include "vllm/engine/block_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace vllm::engine {
namespace {

std::vector<int32_t> Ids(int32_t first, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Publishes all full blocks of `tokens` held by `table`.
PrefixNode PublishAll(BlockPool& pool, PrefixNode node, const std::vector<int32_t>& tokens,
                      const std::vector<int32_t>& table) {
  const auto size = static_cast<size_t>(pool.block_size());
  for (size_t b = 0; (b + 1) * size <= tokens.size(); ++b) {
    node = pool.Publish(node, std::span(tokens).subspan(b * size, size), table[b]);
  }
  return node;
}

TEST(BlockPool, GivesEachBlockOnceAndAllOrNothing) {
  BlockPool pool(3, 4, true);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.Allocate(2, a));
  EXPECT_FALSE(pool.Allocate(2, b));
  EXPECT_TRUE(b.empty());
  ASSERT_TRUE(pool.Allocate(1, b));
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_NE(a[0], a[1]);
  EXPECT_NE(a[0], b[0]);
  EXPECT_NE(a[1], b[0]);
  pool.Release(a);
  EXPECT_EQ(pool.free_blocks(), 2);
  EXPECT_TRUE(a.empty());
}

TEST(BlockPool, FindsTheLongestPublishedPrefixOfWholeBlocks) {
  BlockPool pool(8, 4, true);
  const PrefixNode root = pool.Root("");
  const std::vector<int32_t> tokens = Ids(0, 10);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.Allocate(3, table));
  PublishAll(pool, root, tokens, table);  // 8 tokens

  std::vector<int32_t> found;
  EXPECT_EQ(pool.Find(root, tokens, found).blocks, 2);
  EXPECT_EQ(found, (std::vector<int32_t>{table[0], table[1]}));
  std::vector<int32_t> other = tokens;
  other[5] = 99;
  std::vector<int32_t> first;
  EXPECT_EQ(pool.Find(root, other, first).blocks, 1);
  other[0] = 99;
  std::vector<int32_t> none;
  EXPECT_EQ(pool.Find(root, other, none).blocks, 0);
  // The same second block after another first one is another prefix.
  EXPECT_EQ(pool.Find(root, std::span(tokens).subspan(4), none).blocks, 0);
}

TEST(BlockPool, SharedBlocksAreFreeOnlyWhenNobodyHoldsThem) {
  BlockPool pool(2, 4, true);
  const PrefixNode root = pool.Root("");
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.Allocate(1, a));
  PublishAll(pool, root, Ids(0, 4), a);
  ASSERT_EQ(pool.Find(root, Ids(0, 4), b).blocks, 1);
  pool.Release(a);
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.Release(b);
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(BlockPool, ForgetsTheLeastRecentlyUsedAndItsTailFirst) {
  BlockPool pool(4, 2, true);
  const PrefixNode root = pool.Root("");
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.Allocate(2, a));
  PublishAll(pool, root, {1, 2, 3, 4}, a);
  ASSERT_TRUE(pool.Allocate(2, b));
  PublishAll(pool, root, {5, 6, 7, 8}, b);
  pool.Release(a);
  pool.Release(b);
  ASSERT_EQ(pool.cached_blocks(), 4);
  std::vector<int32_t> c;
  ASSERT_TRUE(pool.Allocate(1, c));  // takes the tail of a
  std::vector<int32_t> found;
  EXPECT_EQ(pool.Find(root, std::vector<int32_t>{1, 2, 3, 4}, found).blocks, 1);
  pool.Release(found);  // a's head was just used: next goes b's tail
  ASSERT_TRUE(pool.Allocate(1, c));
  EXPECT_EQ(pool.Find(root, std::vector<int32_t>{5, 6, 7, 8}, found).blocks, 1);
  pool.Release(found);
  EXPECT_EQ(pool.Find(root, std::vector<int32_t>{1, 2}, found).blocks, 1);
}

TEST(BlockPool, BlocksWithoutContentAreUsedBeforeCachedOnes) {
  BlockPool pool(3, 2, true);
  const PrefixNode root = pool.Root("");
  std::vector<int32_t> cached, plain, again;
  ASSERT_TRUE(pool.Allocate(1, cached));
  PublishAll(pool, root, {1, 2}, cached);
  ASSERT_TRUE(pool.Allocate(1, plain));
  pool.Release(cached);
  pool.Release(plain);
  ASSERT_TRUE(pool.Allocate(2, again));
  EXPECT_EQ(pool.Find(root, std::vector<int32_t>{1, 2}, cached).blocks, 1);
}

TEST(BlockPool, RootsKeepSaltsApart) {
  BlockPool pool(4, 2, true);
  std::vector<int32_t> table, found;
  ASSERT_TRUE(pool.Allocate(1, table));
  PublishAll(pool, pool.Root("mine"), {1, 2}, table);
  EXPECT_EQ(pool.Find(pool.Root("yours"), std::vector<int32_t>{1, 2}, found).blocks, 0);
  EXPECT_EQ(pool.Find(pool.Root(""), std::vector<int32_t>{1, 2}, found).blocks, 0);
  EXPECT_EQ(pool.Find(pool.Root("mine"), std::vector<int32_t>{1, 2}, found).blocks, 1);
}

TEST(BlockPool, AnEvictedParentHidesItsChildrenForGood) {
  BlockPool pool(3, 2, true);
  const PrefixNode root = pool.Root("");
  std::vector<int32_t> table, found;
  ASSERT_TRUE(pool.Allocate(2, table));
  PublishAll(pool, root, {1, 2, 3, 4}, table);
  // Hold the child alone: the parent is evicted under it.
  std::vector<int32_t> parent = {table[0]}, child = {table[1]};
  pool.Release(parent);
  std::vector<int32_t> fresh;
  ASSERT_TRUE(pool.Allocate(2, fresh));
  EXPECT_EQ(pool.Find(root, std::vector<int32_t>{1, 2, 3, 4}, found).blocks, 0);
  // The same first block computed again is a new node: the old child does not follow it, because
  // its keys were computed with the evicted one.
  PublishAll(pool, root, {1, 2}, fresh);
  EXPECT_EQ(pool.Find(root, std::vector<int32_t>{1, 2, 3, 4}, found).blocks, 1);
}

TEST(BlockPool, EqualContentIsPublishedOnce) {
  BlockPool pool(4, 2, true);
  const PrefixNode root = pool.Root("");
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.Allocate(1, a));
  ASSERT_TRUE(pool.Allocate(1, b));
  const PrefixNode first = PublishAll(pool, root, {1, 2}, a);
  EXPECT_EQ(PublishAll(pool, root, {1, 2}, b), first);
  EXPECT_EQ(pool.cached_blocks(), 1);
}

TEST(BlockPool, WithoutCachingNothingIsFound) {
  BlockPool pool(4, 2, false);
  std::vector<int32_t> a, found;
  ASSERT_TRUE(pool.Allocate(1, a));
  PublishAll(pool, pool.Root(""), {1, 2}, a);
  EXPECT_EQ(pool.Find(pool.Root(""), std::vector<int32_t>{1, 2}, found).blocks, 0);
  EXPECT_EQ(pool.cached_blocks(), 0);
}

}  // namespace
}  // namespace vllm::engine
