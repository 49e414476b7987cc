// What kernels write down comes to the file, of the replays that were asked for.
#include "vt/gpu/timeline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "vt/gpu/emulated/emulated_driver.h"
#include "vt/gpu/emulated/test_kernels.h"
#include "vt/gpu/timeline_args.h"

namespace vt::gpu::emulated {
namespace {

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() /
            ("vllm-timeline-" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    setenv("VLLM_GPU_TIMELINE", file_.c_str(), 1);
    setenv("VLLM_GPU_TIMELINE_FROM", "3", 1);
    ASSERT_TRUE(driver_.Open(0));
    stream_ = *driver_.CreateStream();
  }
  void TearDown() override {
    unsetenv("VLLM_GPU_TIMELINE");
    unsetenv("VLLM_GPU_TIMELINE_FROM");
    driver_.DestroyStream(stream_);
    std::filesystem::remove(file_);
  }
  // As a block of a kernel does.
  static void Mark(const TimelineEvent& e) {
    auto* count = reinterpret_cast<uint32_t*>(timeline_room + e.unit * kTimelineLine);
    std::memcpy(
        timeline_room + kTimelineHead + (size_t{e.unit} * kTimelineEvents + (*count)++) * sizeof e,
        &e, sizeof e);
  }

  EmulatedDriver driver_;
  Stream stream_ = nullptr;
  std::filesystem::path file_;
};

TEST_F(TimelineTest, WritesFourReplays) {
  std::ofstream(file_) << "of another run";
  const auto timeline = *Timeline::FromEnvironment(driver_);
  ASSERT_NE(timeline, nullptr);
  timeline_room = nullptr;
  const base::Status attached = timeline->Attach(*driver_.LoadModule({}));
  ASSERT_TRUE(attached) << attached.error().message;
  ASSERT_NE(timeline_room, nullptr);
  timeline->Name("linear");
  for (uint64_t replay = 1; replay <= 8; ++replay) {
    ASSERT_TRUE(timeline->BeforeReplay(stream_));
    ASSERT_TRUE(driver_.Synchronize(stream_));  // as the graph's kernels come behind it
    Mark({.grid = 7, .time = 100 * replay, .block = 1, .unit = 2, .kind = 0, .kernel = 5});
    if (replay == 4)
      Mark({.grid = 9, .time = 450, .block = 0, .unit = 131, .kind = 2, .kernel = 0});
  }
  std::ifstream in(file_);
  std::stringstream text;
  text << in.rdbuf();
  // FNV-1a of the name, then of each multiprocessor its events, of replays 3 to 6.
  EXPECT_EQ(text.str(),
            "kernel 3490026688 linear\n"
            "7 300 1 2 0 5\n7 400 1 2 0 5\n7 500 1 2 0 5\n7 600 1 2 0 5\n9 450 0 131 2 0\n");
}

TEST_F(TimelineTest, NothingIsDoneUnlessAsked) {
  unsetenv("VLLM_GPU_TIMELINE");
  const auto timeline = Timeline::FromEnvironment(driver_);
  ASSERT_TRUE(timeline);
  EXPECT_EQ(*timeline, nullptr);
}

TEST_F(TimelineTest, AFileThatCannotBeWrittenIsRefusedAtStart) {
  setenv("VLLM_GPU_TIMELINE", "/nowhere/at/all", 1);
  const auto timeline = Timeline::FromEnvironment(driver_);
  ASSERT_FALSE(timeline);
  EXPECT_EQ(timeline.error().code, base::Code::kUnavailable);
  EXPECT_EQ(timeline.error().message,
            "VLLM_GPU_TIMELINE names /nowhere/at/all, which cannot be written");
}

TEST_F(TimelineTest, AFolderThatGoesAwayIsAnError) {
  const std::filesystem::path folder = file_.string() + "-folder", file = folder / "step.txt";
  std::filesystem::create_directory(folder);
  setenv("VLLM_GPU_TIMELINE", file.c_str(), 1);
  const auto timeline = *Timeline::FromEnvironment(driver_);
  ASSERT_TRUE(timeline->Attach(*driver_.LoadModule({})));
  std::filesystem::remove_all(folder);
  base::Status last;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(last) << i;
    last = timeline->BeforeReplay(stream_);
  }
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().message,
            "VLLM_GPU_TIMELINE names " + file.string() + ", which cannot be written");
}

}  // namespace
}  // namespace vt::gpu::emulated
