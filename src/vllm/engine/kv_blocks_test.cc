#include "vllm/engine/kv_blocks.h"

#include <gtest/gtest.h>

#include <set>

namespace vllm::engine {
namespace {

TEST(KvBlocks, GivesEachSequenceBlocksOfItsOwn) {
  KvBlocks kv(6, 4, 2);
  ASSERT_TRUE(kv.Reserve(0, 9));  // 3 blocks
  ASSERT_TRUE(kv.Reserve(1, 4));  // 1 block
  std::set<int32_t> slots;
  for (int64_t p = 0; p < 9; ++p) slots.insert(kv.Slot(0, p));
  for (int64_t p = 0; p < 4; ++p) slots.insert(kv.Slot(1, p));
  EXPECT_EQ(slots.size(), 13u);
  EXPECT_EQ(kv.free_blocks(), 2);
}

TEST(KvBlocks, ReservingMoreKeepsEarlierSlots) {
  KvBlocks kv(6, 4, 1);
  ASSERT_TRUE(kv.Reserve(0, 3));
  const int32_t first = kv.Slot(0, 2);
  ASSERT_TRUE(kv.Reserve(0, 20));
  EXPECT_EQ(kv.Slot(0, 2), first);
  EXPECT_EQ(kv.table(0).size(), 5u);
}

TEST(KvBlocks, RefusesWhatIsNotThereAndChangesNothing) {
  KvBlocks kv(2, 4, 2);
  ASSERT_TRUE(kv.Reserve(0, 4));
  const base::Status refused = kv.Reserve(1, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::Code::kResourceExhausted);
  EXPECT_EQ(kv.free_blocks(), 1);
  EXPECT_TRUE(kv.table(1).empty());
}

TEST(KvBlocks, ReleasedBlocksAreUsedAgain) {
  KvBlocks kv(2, 4, 2);
  ASSERT_TRUE(kv.Reserve(0, 8));
  kv.Release(0);
  EXPECT_EQ(kv.free_blocks(), 2);
  EXPECT_TRUE(kv.Reserve(1, 8));
}

}  // namespace
}  // namespace vllm::engine
