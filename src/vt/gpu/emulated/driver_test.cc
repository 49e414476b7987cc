// The emulated driver: order of work, strict captures, planted faults, leaks.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "vt/gpu/emulated/emulated_driver.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/emulated/sanitizer.h"
#include "vt/gpu/emulated/test_kernels.h"

namespace vt::gpu::emulated {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
template <class R>
std::string Message(const R& r) {
  return r ? "" : r.error().message;
}

class EmulatedDriverTest : public testing::Test {
 protected:
  static constexpr int kCount = 256;
  static constexpr int64_t kBytes = 4 * kCount;

  void SetUp() override {
    ASSERT_TRUE(driver_.Open(0));
    stream_ = *driver_.CreateStream();
    module_ = *driver_.LoadModule({});
    add_ = *driver_.FindFunction(module_, "test_add");
  }
  void* Allocate(int64_t bytes = kBytes) {
    base::Result<void*> p = driver_.Allocate(bytes);
    EXPECT_TRUE(p) << p.error().message;
    return p ? *p : nullptr;
  }
  base::Status Add(Stream s, void* to, const void* from) {
    AddArgs args = {static_cast<int*>(to), static_cast<const int*>(from), kCount};
    return driver_.Launch(s, {.function = add_, .grid_x = kCount / 64, .threads = 64}, &args,
                          sizeof args);
  }
  void Put(void* to, int value) {
    const std::vector<int> v(kCount, value);
    ASSERT_TRUE(driver_.CopyToDevice(stream_, to, v.data(), kBytes));
    ASSERT_TRUE(driver_.Synchronize(stream_));
  }
  // All of them, if they are the same.
  int Get(const void* from) {
    std::vector<int> v(kCount);
    EXPECT_TRUE(driver_.CopyToHost(stream_, v.data(), from, kBytes));
    EXPECT_TRUE(driver_.Synchronize(stream_));
    for (const int x : v) {
      if (x != v[0]) return -1;
    }
    return v[0];
  }

  EmulatedDriver driver_;
  Stream stream_ = nullptr;
  Module module_ = nullptr;
  Function add_ = nullptr;
};

TEST_F(EmulatedDriverTest, TellsWhatItIs) {
  const base::Result<DeviceProperties> p = driver_.Properties(0);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->units, 2);
  EXPECT_EQ(p->wave, WaveSize());
  EXPECT_EQ(p->total_bytes, 256u << 20);
  EXPECT_TRUE(Has(Message(driver_.Properties(1)), "no emulated device 1"));
  EXPECT_TRUE(Has(Message(driver_.FindFunction(module_, "nothing")), "no kernel nothing"));
  EmulatedDriver closed;
  EXPECT_TRUE(Has(Message(closed.Allocate(1)), "before Open"));
  std::string other;
  std::thread([&] { other = Message(driver_.MemoryInfo()); }).join();
  EXPECT_TRUE(Has(other, "has not called MakeCurrent")) << other;
}

TEST_F(EmulatedDriverTest, WorkRunsWhenTheHostWaits) {
  void* const a = Allocate();
  std::vector<int> in(kCount, 1), out(kCount, 0);
  ASSERT_TRUE(driver_.CopyToDevice(stream_, a, in.data(), kBytes));
  in.assign(kCount, 2);  // too early: the copy has not read it
  ASSERT_TRUE(driver_.CopyToHost(stream_, out.data(), a, kBytes));
  EXPECT_EQ(out[0], 0);
  ASSERT_TRUE(driver_.Synchronize(stream_));
  EXPECT_EQ(out[0], 2);
}

TEST_F(EmulatedDriverTest, EventsRunTheirStreamUpToThem) {
  void* const a = Allocate();
  const EventHandle first = *driver_.CreateEvent(true), second = *driver_.CreateEvent(true);
  EXPECT_TRUE(*driver_.Ready(first)) << "never recorded";
  int out[2] = {};
  ASSERT_TRUE(driver_.Fill(stream_, a, 1, kBytes));
  ASSERT_TRUE(driver_.CopyToHost(stream_, &out[0], a, 4));
  ASSERT_TRUE(driver_.Record(stream_, first));
  ASSERT_TRUE(driver_.Fill(stream_, a, 2, kBytes));
  ASSERT_TRUE(driver_.CopyToHost(stream_, &out[1], a, 4));
  ASSERT_TRUE(driver_.Record(stream_, second));
  EXPECT_FALSE(driver_.Seconds(first, second));
  ASSERT_TRUE(driver_.Wait(first));
  EXPECT_EQ(out[0], 0x01010101);
  EXPECT_EQ(out[1], 0);
  EXPECT_TRUE(*driver_.Ready(first));
  EXPECT_FALSE(*driver_.Ready(second)) << "a host that asks once must not take it for granted";
  EXPECT_TRUE(*driver_.Ready(second));
  EXPECT_EQ(out[1], 0x02020202);
  EXPECT_GE(*driver_.Seconds(first, second), 0.0);
}

TEST_F(EmulatedDriverTest, KernelsRunInOrderWithCopies) {
  void* const a = Allocate();
  void* const b = Allocate();
  Put(a, 3);
  Put(b, 4);
  ASSERT_TRUE(Add(stream_, a, b));
  ASSERT_TRUE(driver_.CopyOnDevice(stream_, b, a, kBytes));
  ASSERT_TRUE(Add(stream_, a, b));
  EXPECT_EQ(Get(a), 14);
  EXPECT_EQ(driver_.counters().kernels_run, 2);
}

TEST_F(EmulatedDriverTest, WrongLaunchesAreRefused) {
  AddArgs args = {};
  const auto launch = [&](const LaunchConfig& c, size_t bytes) {
    return Message(driver_.Launch(stream_, c, &args, bytes));
  };
  EXPECT_TRUE(Has(launch({.function = add_, .threads = 64}, 8), "bytes of arguments"));
  EXPECT_TRUE(Has(launch({.function = add_, .threads = 512}, sizeof args), "at most 256"));
  EXPECT_TRUE(Has(launch({.function = nullptr, .threads = 64}, sizeof args), "is no function"));
  EXPECT_TRUE(Has(launch({.function = add_, .threads = 64, .shared_bytes = 60 << 10}, sizeof args),
                  "AllowShared"));
  EXPECT_TRUE(Has(Message(driver_.AllowShared(add_, 65 << 10)), "can have 65536"));
  ASSERT_TRUE(driver_.AllowShared(add_, 64 << 10));
  EXPECT_EQ(launch({.function = add_, .threads = 64, .shared_bytes = 60 << 10}, sizeof args), "");
}

TEST_F(EmulatedDriverTest, MemoryIsNaNWhenNewAndCopiesStayInside) {
  auto* const a = static_cast<char*>(Allocate());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(Get(a), -1);  // 0xffffffff
  std::vector<char> host(2 * kBytes);
  EXPECT_TRUE(Has(Message(driver_.CopyToDevice(stream_, a + 8, host.data(), kBytes)),
                  "8 bytes past the end of 1024 bytes of device memory"));
  EXPECT_TRUE(Has(Message(driver_.Fill(stream_, a - 1, 0, 1)), "no live device memory"));
  EXPECT_TRUE(Has(Message(driver_.CopyToHost(stream_, a, a, 8)), "not the host's"));
  EXPECT_TRUE(Has(Message(driver_.CopyOnDevice(stream_, a, host.data(), 8)), "no live device"));
  ASSERT_TRUE(driver_.Free(a));
  EXPECT_TRUE(Has(Message(driver_.Fill(stream_, a, 0, 8)), "freed"));
  EXPECT_TRUE(Has(Message(driver_.Free(a)), "a second time"));
  EXPECT_TRUE(Has(Message(driver_.Free(host.data())), "no device memory begins there"));
  EXPECT_TRUE(driver_.Free(nullptr));
  EXPECT_TRUE(Has(driver_.complaint(), "a second time"));
}

TEST_F(EmulatedDriverTest, MemoryRunsOutWithNumbers) {
  Options options;
  options.memory_bytes = 1000;
  EmulatedDriver small(options);
  ASSERT_TRUE(small.Open(0));
  base::Result<void*> a = small.Allocate(600);
  ASSERT_TRUE(a);
  const base::Result<void*> b = small.Allocate(401);
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().code, base::Code::kResourceExhausted);
  EXPECT_EQ(b.error().message,
            "401 bytes of device memory were asked for and 400 of 1000 are free");
  EXPECT_EQ(small.MemoryInfo()->first, 400u);
  ASSERT_TRUE(small.Free(*a));
  EXPECT_TRUE(small.Allocate(1000));
}

TEST_F(EmulatedDriverTest, AKernelsOverrunIsFoundAndLosesTheDevice) {
  if (kAsan) GTEST_SKIP() << "AddressSanitizer ends the program at the very write";
  void* const from = Allocate();
  Put(from, 1);
  void* const to = Allocate(kBytes - 4);
  ASSERT_TRUE(Add(stream_, to, from));
  const std::string e = Message(driver_.Synchronize(stream_));
  EXPECT_TRUE(Has(e, "kernel test_add: a write just past 1020 bytes of device memory")) << e;
  EXPECT_EQ(Message(driver_.Allocate(1)), e);
}

TEST_F(EmulatedDriverTest, AKernelsFaultLosesTheDevice) {
  auto* const out = static_cast<int*>(Allocate());
  DivergeArgs args = {out, Divergence::kTwoMeetings};
  const Function f = *driver_.FindFunction(module_, "test_diverge");
  ASSERT_TRUE(driver_.Launch(stream_, {.function = f, .threads = 64}, &args, sizeof args));
  ASSERT_TRUE(driver_.Fill(stream_, out, 0, kBytes));
  const std::string e = Message(driver_.Synchronize(stream_));
  EXPECT_TRUE(Has(e, "kernel test_diverge, block (0, 0), thread")) << e;
  EXPECT_EQ(Message(driver_.Synchronize(stream_)), e);
  EXPECT_EQ(Message(driver_.Free(out)), e);
  EXPECT_EQ(driver_.counters().allocations, 0) << "freed nevertheless";
}

TEST_F(EmulatedDriverTest, AGraphReadsItsSourcesAgainAtEachReplay) {
  void* const a = Allocate();
  void* const b = Allocate();
  Put(a, 10);
  Put(b, 1);
  ASSERT_TRUE(driver_.BeginCapture(stream_));
  ASSERT_TRUE(Add(stream_, a, b));
  ASSERT_TRUE(driver_.CopyOnDevice(stream_, b, a, kBytes));
  int64_t nodes = 0;
  const base::Result<GraphExec> graph = driver_.EndCapture(stream_, &nodes);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(nodes, 2);
  EXPECT_EQ(Get(a), 10) << "a capture runs nothing";
  ASSERT_TRUE(driver_.LaunchGraph(stream_, *graph));
  ASSERT_TRUE(driver_.LaunchGraph(stream_, *graph));
  EXPECT_EQ(Get(a), 22);
  Put(b, 5);
  ASSERT_TRUE(driver_.LaunchGraph(stream_, *graph));
  EXPECT_EQ(Get(a), 27);
}

TEST_F(EmulatedDriverTest, AGraphOverFreedMemoryIsFound) {
  void* const a = Allocate();
  ASSERT_TRUE(driver_.BeginCapture(stream_));
  ASSERT_TRUE(driver_.Fill(stream_, a, 7, kBytes));
  const base::Result<GraphExec> graph = driver_.EndCapture(stream_, nullptr);
  ASSERT_TRUE(graph);
  ASSERT_TRUE(driver_.Free(a));
  ASSERT_TRUE(driver_.LaunchGraph(stream_, *graph));
  EXPECT_TRUE(Has(Message(driver_.Synchronize(stream_)), "freed"));
}

TEST_F(EmulatedDriverTest, GraphsAreDestroyedInAnyOrder) {
  void* const a = Allocate();
  void* const one = Allocate();
  Put(a, 0);
  Put(one, 1);
  std::vector<GraphExec> graphs;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(driver_.BeginCapture(stream_));
    for (int k = 0; k <= i; ++k) ASSERT_TRUE(Add(stream_, a, one));
    graphs.push_back(*driver_.EndCapture(stream_, nullptr));
  }
  ASSERT_TRUE(driver_.LaunchGraph(stream_, graphs[1]));
  driver_.DestroyGraph(graphs[1]);  // queued: it still runs
  driver_.DestroyGraph(graphs[0]);
  EXPECT_EQ(Get(a), 2);
  EXPECT_TRUE(Has(Message(driver_.LaunchGraph(stream_, graphs[0])), "no graph"));
  ASSERT_TRUE(driver_.LaunchGraph(stream_, graphs[2]));
  EXPECT_EQ(Get(a), 5);
  driver_.DestroyGraph(graphs[2]);
  EXPECT_EQ(driver_.counters().graphs, 0);
  EXPECT_EQ(driver_.complaint(), "");
}

TEST_F(EmulatedDriverTest, ACaptureRefusesByNameAndIsVoidThen) {
  void* const a = Allocate();
  void* const pinned = *driver_.AllocateHost(64);
  const Stream other = *driver_.CreateStream();
  const EventHandle event = *driver_.CreateEvent(false);
  const std::vector<std::pair<std::string, std::function<std::string()>>> calls = {
      {"Allocate", [&] { return Message(driver_.Allocate(64)); }},
      {"Free", [&] { return Message(driver_.Free(a)); }},
      {"AllocateHost", [&] { return Message(driver_.AllocateHost(64)); }},
      {"FreeHost", [&] { return Message(driver_.FreeHost(pinned)); }},
      {"MemoryInfo", [&] { return Message(driver_.MemoryInfo()); }},
      {"CreateStream", [&] { return Message(driver_.CreateStream()); }},
      {"Synchronize", [&] { return Message(driver_.Synchronize(other)); }},
      {"CreateEvent", [&] { return Message(driver_.CreateEvent(false)); }},
      {"Record", [&] { return Message(driver_.Record(stream_, event)); }},
      {"Wait", [&] { return Message(driver_.Wait(event)); }},
      {"Ready", [&] { return Message(driver_.Ready(event)); }},
      {"LoadModule", [&] { return Message(driver_.LoadModule({})); }},
      {"BeginCapture", [&] { return Message(driver_.BeginCapture(other)); }},
      {"Fill", [&] { return Message(driver_.Fill(other, a, 0, 8)); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(driver_.BeginCapture(stream_));
    ASSERT_TRUE(driver_.Fill(stream_, a, 1, 8));
    EXPECT_TRUE(Has(call(), name));
    ASSERT_TRUE(driver_.Fill(stream_, a, 1, 8));
    const base::Result<GraphExec> graph = driver_.EndCapture(stream_, nullptr);
    ASSERT_FALSE(graph);
    EXPECT_TRUE(Has(graph.error().message, name)) << graph.error().message;
  }
  // And a clean one works afterwards.
  ASSERT_TRUE(driver_.BeginCapture(stream_));
  ASSERT_TRUE(driver_.Fill(stream_, a, 1, 8));
  EXPECT_TRUE(driver_.EndCapture(stream_, nullptr));
  EXPECT_TRUE(driver_.Free(a)) << "the refused Free has freed nothing";
  EXPECT_FALSE(driver_.EndCapture(stream_, nullptr));
}

TEST_F(EmulatedDriverTest, PlannedCallsFailOnce) {
  driver_.FailCall(Call::kAllocate, 2);
  EXPECT_TRUE(driver_.Allocate(8));
  const base::Result<void*> p = driver_.Allocate(8);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code, base::Code::kResourceExhausted);
  EXPECT_TRUE(driver_.Allocate(8));
  driver_.FailAnyCall(2);
  EXPECT_TRUE(driver_.MemoryInfo());
  EXPECT_TRUE(Has(Message(driver_.Synchronize(stream_)), "Synchronize failed"));
  EXPECT_TRUE(driver_.Synchronize(stream_));
  // A call that fails in a capture voids it.
  void* const a = Allocate();
  ASSERT_TRUE(driver_.BeginCapture(stream_));
  driver_.FailCall(Call::kFill, 1);
  EXPECT_FALSE(driver_.Fill(stream_, a, 1, 8));
  EXPECT_TRUE(Has(Message(driver_.EndCapture(stream_, nullptr)), "Fill failed"));
}

TEST_F(EmulatedDriverTest, TheDeviceIsLostAtAPlannedKernel) {
  void* const a = Allocate();
  void* const b = Allocate();
  Put(a, 1);
  Put(b, 1);
  driver_.LoseDeviceAtKernel(3);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add(stream_, a, b));
  const std::string e = Message(driver_.Synchronize(stream_));
  EXPECT_TRUE(Has(e, "the device was lost in kernel test_add")) << e;
  EXPECT_EQ(Message(driver_.MemoryInfo()), e);
  EXPECT_EQ(Message(Add(stream_, a, b)), e);
  EXPECT_EQ(Message(driver_.Free(a)), e);
  EXPECT_EQ(Message(driver_.Free(b)), e);
  EXPECT_EQ(driver_.counters().allocations, 0);
}

TEST_F(EmulatedDriverTest, CountersTellOfWhatIsLeft) {
  void* const a = Allocate(100);
  void* const h = *driver_.AllocateHost(50);
  const EventHandle event = *driver_.CreateEvent(false);
  Counters c = driver_.counters();
  EXPECT_EQ(c.allocations, 1);
  EXPECT_EQ(c.allocated_bytes, 100);
  EXPECT_EQ(c.host_bytes, 50);
  EXPECT_EQ(c.of(Call::kAllocate), 1);
  EXPECT_FALSE(c.nothing_left());
  ASSERT_TRUE(driver_.Free(a));
  ASSERT_TRUE(driver_.FreeHost(h));
  driver_.DestroyEvent(event);
  driver_.DestroyStream(stream_);
  driver_.UnloadModule(module_);
  c = driver_.counters();
  EXPECT_TRUE(c.nothing_left());
  EXPECT_EQ(c.peak_bytes, 100);
  EXPECT_EQ(driver_.complaint(), "");
  driver_.DestroyStream(stream_);
  EXPECT_TRUE(Has(driver_.complaint(), "DestroyStream"));
}

}  // namespace
}  // namespace vt::gpu::emulated
