#include "vt/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace vt::cpu {
namespace {

// Far more members than cores: waiting members must sleep, or this takes minutes.
TEST(ThreadTeam, BarriersOrderWritesOfATeamLargerThanTheMachine) {
  ThreadTeam team(13);
  std::vector<int> cells(13, 0);
  std::atomic<int> wrong{0};
  team.Run([&](int m) {
    for (int round = 1; round <= 200; ++round) {
      cells[static_cast<size_t>(m)] = round;
      team.Barrier();
      for (const int c : cells) wrong += c != round;
      team.Barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadTeam, ForEachVisitsEveryIndexOnceRunAfterRun) {
  ThreadTeam team(3);
  for (int run = 0; run < 300; ++run) {
    std::vector<std::atomic<int>> visits(101);
    team.ForEach(101, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; });
    for (const auto& v : visits) ASSERT_EQ(v.load(), 1);
  }
}

TEST(ThreadTeam, OneMemberIsTheCaller) {
  ThreadTeam team(1);
  int calls = 0;
  team.Run([&](int m) {
    team.Barrier();
    calls += m == 0;
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace vt::cpu
