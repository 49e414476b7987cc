// A block's threads and their meetings, and that each planted fault is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/emulated/sanitizer.h"
#include "vt/gpu/emulated/test_kernels.h"

namespace vt::gpu::emulated {
namespace {

constexpr int kThreads = 256;
constexpr int kSeeds = 20;

template <class Args>
base::Status Execute(BlockRunner& runner, const char* name, const Args& args, const Shape& shape,
                     uint64_t seed = 1) {
  const Kernel* kernel = FindKernel(name);
  if (kernel == nullptr || kernel->args_bytes != sizeof(Args))
    return base::Error{base::Code::kNotFound, name};
  if (base::Status s = CheckShape(*kernel, shape); !s) return s;
  return runner.Run(*kernel, &args, shape, seed);
}

// The error's sentence, "" for none.
template <class Args>
std::string Error(const char* name, const Args& args, const Shape& shape) {
  BlockRunner runner;
  const base::Status s = Execute(runner, name, args, shape);
  return s ? "" : s.error().message;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<float> Numbers(size_t n) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), 1.0f);
  return v;
}

TEST(EmulatedBlock, ThreadsExchangeThroughSharedMemoryAcrossABarrier) {
  BlockRunner runner;
  std::vector<float> in = Numbers(kThreads), want(in.rbegin(), in.rend());
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<float> out(kThreads);
    const base::Status s = Execute(runner, "test_reverse", ReverseArgs{in.data(), out.data(), true},
                                   {.threads = kThreads, .shared_bytes = 4 * kThreads}, seed);
    ASSERT_TRUE(s) << s.error().message;
    EXPECT_EQ(out, want) << "seed " << seed;
  }
}

TEST(EmulatedBlock, AMissingBarrierGivesNaN) {
  BlockRunner runner;
  std::vector<float> in = Numbers(kThreads);
  int seen = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<float> out(kThreads);
    ASSERT_TRUE(Execute(runner, "test_reverse", ReverseArgs{in.data(), out.data(), false},
                        {.threads = kThreads, .shared_bytes = 4 * kThreads}, seed));
    seen += std::any_of(out.begin(), out.end(), [](float v) { return std::isnan(v); });
  }
  // Someone always runs first.
  EXPECT_EQ(seen, kSeeds);
}

TEST(EmulatedBlock, AMissingBarrierBeforeTheNextWriteIsSeenUnderSomeSeed) {
  BlockRunner runner;
  const int rounds = 3;
  std::vector<int> want(kThreads);
  for (int t = 0; t < kThreads; ++t) want[static_cast<size_t>(t)] = (t + rounds) % kThreads;
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const bool both : {true, false}) {
      std::vector<int> out(kThreads);
      const base::Status s = Execute(runner, "test_shift", ShiftArgs{out.data(), rounds, both},
                                     {.threads = kThreads, .shared_bytes = 4 * kThreads}, seed);
      ASSERT_TRUE(s) << s.error().message;
      if (both) {
        EXPECT_EQ(out, want) << "seed " << seed;
      } else {
        wrong += out != want;
      }
    }
  }
  EXPECT_GT(wrong, kSeeds / 2);
}

TEST(EmulatedBlock, TheSeedPicksTheOrderOfThreads) {
  const auto order = [](uint64_t seed) {
    BlockRunner runner;
    std::vector<int> order(kThreads, -1);
    int counter = 0;
    EXPECT_TRUE(Execute(runner, "test_order", OrderArgs{order.data(), &counter},
                        {.threads = kThreads}, seed));
    EXPECT_EQ(counter, kThreads);
    return order;
  };
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> o = order(seed);
    EXPECT_EQ(o, order(seed)) << "the same seed, another order";
    orders.insert(o);
    std::sort(o.begin(), o.end());
    for (int t = 0; t < kThreads; ++t) EXPECT_EQ(o[static_cast<size_t>(t)], t);
  }
  EXPECT_EQ(orders.size(), static_cast<size_t>(kSeeds));
}

TEST(EmulatedBlock, BlocksRunInAnOrderOfTheSeedAndEachOnce) {
  BlockRunner runner;
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> out(15, -1);
    int counter = 0;
    ASSERT_TRUE(Execute(runner, "test_blocks", BlocksArgs{out.data(), &counter},
                        {.grid_x = 5, .grid_y = 3, .threads = WaveSize()}, seed));
    orders.insert(out);
    std::sort(out.begin(), out.end());
    for (int b = 0; b < 15; ++b) EXPECT_EQ(out[static_cast<size_t>(b)], b);
  }
  EXPECT_GT(orders.size(), 10u);
}

TEST(EmulatedBlock, ShufflesAndVotesAreOfTheWave) {
  const int wave = WaveSize();
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    BlockRunner runner;
    std::vector<int> from(kThreads), by_xor(kThreads), odd(kThreads), wave1(kThreads);
    const base::Status s = Execute(
        runner, "test_shuffle", ShuffleArgs{from.data(), by_xor.data(), odd.data(), wave1.data()},
        {.threads = kThreads}, seed);
    ASSERT_TRUE(s) << s.error().message;
    for (int t = 0; t < kThreads; ++t) {
      const auto i = static_cast<size_t>(t);
      EXPECT_EQ(from[i], t / wave * wave + (t % wave + 3) % wave);
      EXPECT_EQ(by_xor[i], t ^ 5);
      EXPECT_EQ(odd[i], t < wave);
      EXPECT_EQ(wave1[i], t / wave == 1);
    }
  }
}

TEST(EmulatedBlock, DivergenceIsAFaultThatNamesTheThread) {
  std::vector<int> out(kThreads);
  const auto error = [&](Divergence kind) {
    return Error("test_diverge", DivergeArgs{out.data(), kind}, {.threads = kThreads});
  };
  EXPECT_EQ(error(Divergence::kNone), "");
  for (const Divergence kind :
       {Divergence::kHalfSkipsBarrier, Divergence::kWaveSkipsBarrier, Divergence::kTwoBarriers,
        Divergence::kHalfSkipsShuffle, Divergence::kTwoMeetings, Divergence::kTwoLines,
        Divergence::kBarrierOrShuffle}) {
    const std::string e = error(kind);
    SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << ": " << e);
    EXPECT_TRUE(Has(e, "kernel test_diverge, block (0, 0), thread ")) << e;
    EXPECT_TRUE(Has(e, "divergent")) << e;
    EXPECT_TRUE(Has(e, "test_kernels.cu:")) << e;
  }
  EXPECT_TRUE(Has(error(Divergence::kHalfSkipsBarrier), "has returned"));
  EXPECT_TRUE(Has(error(Divergence::kTwoMeetings), "any"));
}

TEST(EmulatedBlock, ARunnerGoesOnAfterAFault) {
  BlockRunner runner;
  std::vector<int> out(kThreads);
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(Execute(runner, "test_diverge", DivergeArgs{out.data(), Divergence::kTwoMeetings},
                         {.threads = kThreads}));
    EXPECT_TRUE(Execute(runner, "test_diverge", DivergeArgs{out.data(), Divergence::kNone},
                        {.threads = kThreads}));
  }
}

TEST(EmulatedBlock, AsynchronousCopiesLandAtTheirWait) {
  const auto run = [](int valid, int wait) {
    alignas(16) static float in[8 * kThreads];
    for (int i = 0; i < 8 * kThreads; ++i) in[i] = static_cast<float>(i);
    std::vector<float> out(8 * kThreads);
    BlockRunner runner;
    const base::Status s = Execute(
        runner, "test_copy", CopyArgs{reinterpret_cast<const char*>(in), out.data(), valid, wait},
        {.threads = kThreads, .shared_bytes = 32 * kThreads});
    EXPECT_TRUE(s) << s.error().message;
    return out;
  };
  for (const int valid : {0, 4, 8, 12, 16}) {
    for (const int wait : {0, 1, -1}) {
      const std::vector<float> out = run(valid, wait);
      for (int t = 0; t < kThreads; ++t) {
        for (int i = 0; i < 8; ++i) {
          const float got = out[static_cast<size_t>(8 * t + i)];
          const bool landed = wait == 0 || (wait == 1 && i < 4);
          if (!landed) {
            EXPECT_TRUE(std::isnan(got)) << "valid " << valid << " wait " << wait;
            continue;
          }
          const int source = (i < 4 ? 0 : 4 * kThreads) + 4 * t + i % 4;
          EXPECT_EQ(got, i % 4 < valid / 4 ? static_cast<float>(source) : 0.0f);
        }
      }
    }
  }
}

TEST(EmulatedBlock, ACopyBesideSharedMemoryOrHalfAlignedIsAFault) {
  alignas(16) static char in[64 * kThreads] = {};
  std::vector<float> out(8 * kThreads);
  EXPECT_TRUE(Has(Error("test_copy", CopyArgs{in, out.data(), 16, 0},
                        {.threads = kThreads, .shared_bytes = 32 * kThreads - 16}),
                  "outside the block's shared memory"));
  EXPECT_TRUE(Has(Error("test_copy", CopyArgs{in + 4, out.data(), 16, 0},
                        {.threads = kThreads, .shared_bytes = 32 * kThreads}),
                  "multiple of 16"));
  EXPECT_TRUE(Has(Error("test_copy", CopyArgs{in, out.data(), 17, 0},
                        {.threads = kThreads, .shared_bytes = 32 * kThreads}),
                  "0 to 16"));
}

TEST(EmulatedBlock, SharedMemoryStartsAsNaNInEveryBlock) {
  BlockRunner runner;
  for (int round = 0; round < 2; ++round) {
    std::vector<float> out(kThreads);
    ASSERT_TRUE(Execute(runner, "test_shared", SharedArgs{out.data(), 0},
                        {.threads = kThreads, .shared_bytes = 4 * kThreads}));
    EXPECT_TRUE(std::all_of(out.begin() + 1, out.end(), [](float v) { return std::isnan(v); }));
  }
}

TEST(EmulatedBlock, ASharedMemoryOverrunIsAFault) {
  if (kAsan) GTEST_SKIP() << "AddressSanitizer ends the program at the very write";
  std::vector<float> out(kThreads);
  const auto error = [&](int64_t at) {
    return Error("test_shared", SharedArgs{out.data(), at},
                 {.threads = kThreads, .shared_bytes = 4 * kThreads + 2});
  };
  EXPECT_EQ(error(0), "");
  EXPECT_EQ(error(4 * kThreads + 1), "");
  EXPECT_TRUE(Has(error(4 * kThreads + 2), "shared memory overrun: it wrote past the 1026 bytes"));
  EXPECT_TRUE(Has(error(4 * kThreads + 200), "past"));
  EXPECT_TRUE(Has(error(-1), "before"));
}

TEST(EmulatedBlock, TheWrongWaveSizeIsSeen) {
  const std::vector<float> in(kThreads, 1.0f);
  std::vector<float> out(kThreads);
  const auto error = [&](int mask) {
    return Error("test_reduce", ReduceArgs{in.data(), out.data(), mask}, {.threads = kThreads});
  };
  ASSERT_EQ(error(WaveSize() / 2), "");
  EXPECT_EQ(out[0], static_cast<float>(WaveSize()));
  if (WaveSize() == 64) {
    ASSERT_EQ(error(16), "");
    EXPECT_EQ(out[0], 32.0f) << "half of a wave of 64 is missing";
  } else {
    EXPECT_TRUE(Has(error(32), "a lane that the wave does not have"));
  }
}

TEST(EmulatedBlock, AKernelThatWaitsForAnotherBlockIsAFault) {
  const int flag = 0;
  EXPECT_TRUE(
      Has(Error("test_spin", SpinArgs{&flag}, {.threads = WaveSize()}), "waits for another block"));
}

TEST(EmulatedBlock, ShapesThatAKernelDoesNotTakeAreRefused) {
  std::vector<int> out(kThreads);
  const DivergeArgs args = {out.data(), Divergence::kNone};
  EXPECT_TRUE(
      Has(Error("test_diverge", args, {.threads = 48 + WaveSize() / 64}), "whole number of waves"));
  EXPECT_TRUE(Has(Error("test_diverge", args, {.threads = 2048}), "at most 1024"));
  EXPECT_TRUE(Has(Error("test_diverge", args, {.grid_x = 0, .threads = 64}), "grid"));
}

}  // namespace
}  // namespace vt::gpu::emulated
