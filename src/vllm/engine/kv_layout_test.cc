#include "vllm/engine/kv_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "vllm/engine/memory_budget.h"
#include "vllm/engine/window_pool.h"

namespace vllm::engine {
namespace {

using vt::ir::StateGroup;
using Kind = StateGroup::Kind;

constexpr int64_t kBlock = 16;

struct Layers {
  int count = 0;
  int64_t window = 0, block_bytes = 1;
};

struct Model {
  std::vector<StateGroup> groups;
  std::vector<int64_t> block_bytes;
};

Model Of(const std::vector<Layers>& all) {
  Model m;
  m.groups.push_back({.name = "sampler", .kind = Kind::kSlot, .layers = 1});
  m.block_bytes.push_back(100);
  for (const Layers& l : all) {
    m.groups.push_back({.name = "paged",
                        .kind = l.window > 0 ? Kind::kPagedWindow : Kind::kPagedGlobal,
                        .layers = l.count,
                        .window = l.window});
    m.block_bytes.push_back(l.block_bytes);
  }
  return m;
}

KvLayout LayOut(const std::vector<Layers>& all) {
  const Model m = Of(all);
  return LayOutKv(m.groups, m.block_bytes);
}

// Lanes, blocks of a page, and the part of it that a block with windows leaves empty.
struct Shape {
  int64_t lanes, page_blocks;
  int64_t empty;  // bytes
};

void ExpectPages(const std::vector<Layers>& all, const Shape& want) {
  const Model m = Of(all);
  const KvLayout layout = LayOutKv(m.groups, m.block_bytes);
  ASSERT_TRUE(layout.paged());
  EXPECT_EQ(layout.lanes, want.lanes);
  EXPECT_EQ(layout.page_blocks, want.page_blocks);
  int64_t empty = layout.page_bytes();
  std::set<std::pair<int64_t, int64_t>> bytes;  // of layers with windows: each is one layer's alone
  for (size_t g = 0; g < m.groups.size(); ++g) {
    if (m.groups[g].kind == Kind::kSlot) {
      EXPECT_TRUE(layout.places[g].empty());
      continue;
    }
    ASSERT_EQ(layout.places[g].size(), static_cast<size_t>(m.groups[g].layers));
    EXPECT_EQ(layout.spread[g] * m.block_bytes[g], layout.lane_bytes);
    for (const KvLayout::Place& at : layout.places[g]) {
      EXPECT_GE(at.offset, 0);
      EXPECT_LE(at.offset + m.block_bytes[g], layout.lane_bytes);
      EXPECT_LT(at.lane, layout.lanes);
      if (m.groups[g].window == 0) {
        EXPECT_EQ(at.offset, 0);
        continue;
      }
      empty -= m.block_bytes[g];
      for (int64_t b = 0; b < m.block_bytes[g]; ++b)
        EXPECT_TRUE(bytes.emplace(at.lane, at.offset + b).second);
    }
  }
  EXPECT_EQ(empty, want.empty);
}

TEST(KvLayout, PagesHoldBlocksOfEitherKind) {
  ExpectPages({{22, 512}, {4}}, {4, 6, 2});           // Gemma 3 1B
  ExpectPages({{29, 1024}, {5}}, {5, 6, 1});          // 4B
  ExpectPages({{40, 1024}, {8}}, {8, 5, 0});          // 12B
  ExpectPages({{52, 1024}, {10}}, {10, 6, 8});        // 27B
  ExpectPages({{12, 128}, {12}}, {12, 1, 0});         // gpt-oss
  ExpectPages({{36, 8192}, {12}}, {12, 3, 0});        // Llama 4
  ExpectPages({{12, 512, 2}, {3, 0, 4}}, {3, 2, 0});  // layers of two sizes, as Gemma 4's
  ExpectPages({{50, 1024, 8}, {10, 0, 4}}, {10, 10, 0});
  ExpectPages({{1, 9, 2}, {1, 0, 4}}, {1, 1, 2});
  ExpectPages({{3, 9, 2}, {2, 5, 3}, {2, 0, 6}}, {2, 1, 0});
}

TEST(KvLayout, WhatDoesNotFitTogetherIsDivided) {
  EXPECT_FALSE(LayOut({{8, 512}}).paged());
  EXPECT_FALSE(LayOut({{8}}).paged());
  EXPECT_FALSE(LayOut({{8, 128, 4}, {4, 0, 1}, {4, 0, 2}}).paged());  // DeepSeek-V4
  EXPECT_FALSE(LayOut({{1, 512}, {8}}).paged());  // most of a page would be empty
  EXPECT_FALSE(LayOut({{8, 512, 17}, {4, 0, 16}}).paged());
  EXPECT_FALSE(LayOut({{40, 512}, {2}}).paged());  // a page of 20 blocks
}

// How many requests of so many tokens, in the midst of their answers, find blocks at a time.
int64_t Fitting(const KvFit& fit, const MemoryBudget& b, int64_t tokens) {
  const bool paged = b.page > 0;
  BlockPool pool(fit.blocks, kBlock * b.page_blocks, false);
  WindowPool windows = paged ? WindowPool(b.window, kBlock, pool, b.max_model_len)
                             : WindowPool(b.window, fit.window_blocks, kBlock, false);
  const int64_t size = pool.block_size(), blocks = (tokens + size - 1) / size;
  for (int64_t n = 0;; ++n) {
    WindowTable table;
    table.first = std::max<int64_t>(tokens - b.window, 0) / kBlock;
    table.blocks.resize(static_cast<size_t>(table.first));
    if (!windows.Fit(pool, blocks, windows.Missing(table, tokens))) return n;
    std::vector<int32_t> held;
    EXPECT_TRUE(pool.Allocate(blocks, held));
    EXPECT_TRUE(windows.Grow(table, tokens));
  }
}

// Of 1 GiB, and 256 requests of up to 32,768 tokens.
TEST(KvLayout, NeitherShortNorLongRequestsOfGemma3LoseMuch) {
  constexpr int64_t kLayer = kBlock * 256 * 2 * 2;
  MemoryBudget b;
  b.block = 4 * kLayer;
  b.window_block = 22 * kLayer;
  b.window = 512;
  b.step_tokens = 512;
  b.free = int64_t{1} << 30;
  b.utilization = 1;
  b.max_model_len = 32768;
  b.max_num_seqs = 256;
  const std::vector<int64_t> lengths = {64, 512, 2048, 8192, 32768};
  std::vector<int64_t> room, divided, paged;
  for (const int64_t n : lengths) {
    const int64_t blocks = n / kBlock;
    room.push_back(b.free / (blocks * b.block + std::min<int64_t>(blocks, 32) * b.window_block));
  }
  const auto fill = [&](std::vector<int64_t>& counts) {
    const auto fit = FitKvCache(b);
    ASSERT_TRUE(fit.ok());
    EXPECT_EQ(fit->max_model_len, b.max_model_len);
    for (const int64_t n : lengths) counts.push_back(Fitting(*fit, b, n));
  };
  fill(divided);
  const KvLayout layout = LayOut({{22, 512, kLayer}, {4, 0, kLayer}});
  b.page = layout.page_bytes();
  b.page_blocks = layout.page_blocks;
  fill(paged);
  EXPECT_EQ(room, (std::vector<int64_t>{630, 78, 53, 23, 7}));
  EXPECT_EQ(divided, (std::vector<int64_t>{372, 46, 46, 16, 4}));
  EXPECT_EQ(paged, (std::vector<int64_t>{546, 71, 50, 23, 7}));
}

}  // namespace
}  // namespace vllm::engine
