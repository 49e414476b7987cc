// The work list of a step of one token, which is made apart, against that of the same token beside
// a request that brings none.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "vt/gpu/args_attention.h"
#include "vt/gpu/kernel_testing.h"

namespace vt::gpu {
namespace {

struct Made {
  std::vector<DecodeItem> items, firsts;
  std::vector<int32_t> begins;
  DecodeJoin join = {};
  int32_t joins = -1;
};

Made ListOf(AttentionListSpec s, int keys, int32_t requests) {
  const int32_t lanes = s.list.lanes;
  const Header header = {1, requests, 1, 8};
  const std::vector<int32_t> positions = {keys - 1}, starts = {0, 1, 1}, lens = {keys, 5};
  std::vector<DecodeItem> items(static_cast<size_t>(lanes) + 1), firsts(items.size());
  std::vector<DecodeJoin> joins(items.size());
  Made m;
  m.begins.assign(static_cast<size_t>(lanes) + 1, -1);
  s.list.items = items.data();
  s.list.lane_begin = m.begins.data();
  s.list.lane_first = firsts.data();
  s.list.joins = joins.data();
  s.list.join_count = &m.joins;
  s.positions = positions.data();
  s.query_start = starts.data();
  s.seq_lens = lens.data();
  AttentionBeginArgs a;
  a.header = &header;
  a.lists[0] = s;
  kernel_testing::RunKernel("attention_begin", a,
                            {.grid_x = 1,
                             .grid_y = 1,
                             .threads = kBeginThreads,
                             .shared_bytes = (kBeginThreads / 16 + kCostClasses + 1) * 4});
  const auto parts = static_cast<size_t>(m.begins.back());
  m.items.assign(items.begin(), items.begin() + static_cast<int64_t>(parts));
  m.firsts.assign(firsts.begin(), firsts.begin() + static_cast<int64_t>(parts));
  if (m.joins > 0) m.join = joins[0];
  return m;
}
template <class T>
std::vector<int32_t> Words(const std::vector<T>& v) {
  std::vector<int32_t> words(v.size() * sizeof(T) / 4);
  std::memcpy(words.data(), v.data(), v.size() * sizeof(T));
  return words;
}

TEST(AttentionBegin, ATokenAloneHasTheListThatItHasBesideOthers) {
  struct Spec {
    int32_t lanes, window, step, least, whole, long_keys;
  };
  int cut = 0, long_ones = 0;
  for (const Spec& spec : {Spec{8, 0, 4, 4, 12, INT32_MAX}, Spec{33, 0, 1, 1, 0, INT32_MAX},
                           Spec{16, 100, 2, 2, 6, 64}, Spec{132, 0, 4, 4, 0, 96},
                           Spec{1, 0, 4, 4, 12, INT32_MAX}, Spec{5, 700, 3, 6, 9, 512}}) {
    for (const int keys : {1, 2, 31, 32, 33, 100, 128, 129, 383, 384, 385, 1000, 4097, 20000}) {
      AttentionListSpec s;
      s.list.lanes = spec.lanes;
      s.window = spec.window;
      s.lane_step = spec.step;
      s.least_tiles = spec.least;
      s.whole_tiles = spec.whole;
      s.long_keys = spec.long_keys;
      const Made alone = ListOf(s, keys, 1), beside = ListOf(s, keys, 2);
      SCOPED_TRACE(testing::Message() << keys << " keys, " << spec.lanes << " lanes");
      ASSERT_GT(alone.items.size(), 0u);
      EXPECT_EQ(Words(alone.items), Words(beside.items));
      EXPECT_EQ(Words(alone.firsts), Words(beside.firsts));
      EXPECT_EQ(alone.begins, beside.begins);
      EXPECT_EQ(alone.joins, beside.joins);
      EXPECT_EQ(Words(std::vector{alone.join}), Words(std::vector{beside.join}));
      cut += alone.items.size() > 1 ? 1 : 0;
      long_ones += alone.items[0].cached < 0 ? 1 : 0;
    }
  }
  EXPECT_GT(cut, 20);
  EXPECT_GT(long_ones, 5);
}

}  // namespace
}  // namespace vt::gpu
