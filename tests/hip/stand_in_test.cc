// The stand-in for the HIP runtime keeps HIP's rules, seen through the driver that the module uses.
#include "tests/hip/stand_in.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/hip/words.h"
#include "vt/gpu/embedded_code.h"
#include "vt/gpu/vendor_driver.h"

namespace vt::gpu {
std::span<const EmbeddedCode> WordsCode();

namespace {

class StandIn : public testing::Test {
 protected:
  void SetUp() override {
    driver_ = MakeVendorDriver(Vendor::kRocm, {HIP_STAND_IN});
    ASSERT_TRUE(driver_->Open(0));
    live_ = hip_stand_in_count("live");
    stream_ = *driver_->CreateStream();
  }
  void TearDown() override {
    driver_->DestroyStream(stream_);
    EXPECT_EQ(hip_stand_in_count("live"), live_) << "handles or memory were not given back";
  }
  int* Ints(int a, int b) {
    int* p = static_cast<int*>(*driver_->Allocate(8));
    const int v[] = {a, b};
    EXPECT_TRUE(driver_->CopyToDevice(stream_, p, v, sizeof v));
    return p;
  }
  int First(const int* p) {
    int v = 0;
    EXPECT_TRUE(driver_->CopyToHost(stream_, &v, p, sizeof v));
    EXPECT_TRUE(driver_->Synchronize(stream_));
    return v;
  }

  std::unique_ptr<Driver> driver_;
  Stream stream_ = nullptr;
  int64_t live_ = 0;
};

TEST_F(StandIn, IsACardThatTheDriverKnows) {
  const base::Result<DeviceProperties> p = driver_->Properties(0);
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->arch, "gfx1200");
  EXPECT_EQ(p->name, "AMD Radeon RX 9060 XT");
  EXPECT_EQ(p->wave, 32);
  EXPECT_EQ(p->units, 16);
  EXPECT_EQ(p->total_bytes, 512u << 20);
  EXPECT_EQ(p->shared_bytes, 64 << 10);
}

TEST_F(StandIn, AGraphReadsItsSourceAtEachReplay) {
  int *from = Ints(1, 2), *to = Ints(0, 0);
  ASSERT_TRUE(driver_->BeginCapture(stream_));
  ASSERT_TRUE(driver_->CopyOnDevice(stream_, to, from, 8));
  int64_t nodes = 0;
  const base::Result<GraphExec> graph = driver_->EndCapture(stream_, &nodes);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(nodes, 1);
  EXPECT_EQ(First(to), 0) << "a capture runs nothing";
  ASSERT_TRUE(driver_->LaunchGraph(stream_, *graph));
  EXPECT_EQ(First(to), 1);
  const int other[] = {7, 8};
  ASSERT_TRUE(driver_->CopyToDevice(stream_, from, other, 8));
  ASSERT_TRUE(driver_->LaunchGraph(stream_, *graph));
  EXPECT_EQ(First(to), 7);

  // Two graphs, the older one replaced and destroyed first.
  ASSERT_TRUE(driver_->BeginCapture(stream_));
  ASSERT_TRUE(driver_->Fill(stream_, to, 0, 8));
  const base::Result<GraphExec> second = driver_->EndCapture(stream_, nullptr);
  ASSERT_TRUE(second);
  driver_->DestroyGraph(*graph);
  ASSERT_TRUE(driver_->LaunchGraph(stream_, *second));
  EXPECT_EQ(First(to), 0);
  EXPECT_FALSE(driver_->LaunchGraph(stream_, *graph)) << "it was destroyed";
  driver_->DestroyGraph(*second);
  EXPECT_TRUE(driver_->Free(from));
  EXPECT_TRUE(driver_->Free(to));
}

TEST_F(StandIn, WhatMayNotHappenInACaptureVoidsIt) {
  int* p = Ints(1, 2);
  EventHandle event = *driver_->CreateEvent(false);
  Stream other = *driver_->CreateStream();
  const std::vector<std::pair<const char*, std::function<base::Status()>>> calls = {
      {"allocate",
       [&]() -> base::Status {
         auto r = driver_->Allocate(16);
         return r ? base::Status() : base::Status(r.error());
       }},
      {"pinned",
       [&]() -> base::Status {
         auto r = driver_->AllocateHost(16);
         return r ? base::Status() : base::Status(r.error());
       }},
      {"free", [&] { return driver_->Free(p); }},
      {"synchronise", [&] { return driver_->Synchronize(stream_); }},
      {"wait", [&] { return driver_->Wait(event); }},
      {"query",
       [&]() -> base::Status {
         auto r = driver_->Ready(event);
         return r ? base::Status() : base::Status(r.error());
       }},
      {"other stream", [&] { return driver_->Fill(other, p, 0, 8); }},
  };
  for (const auto& [name, call] : calls) {
    ASSERT_TRUE(driver_->BeginCapture(stream_)) << name;
    EXPECT_TRUE(driver_->Fill(stream_, p, 3, 4));
    const base::Status refused = call();
    EXPECT_FALSE(refused) << name;
    const base::Result<GraphExec> graph = driver_->EndCapture(stream_, nullptr);
    ASSERT_FALSE(graph) << name;
    EXPECT_NE(graph.error().message.find("(901)"), std::string::npos) << graph.error().message;
  }
  EXPECT_EQ(First(p), 1) << "voided captures ran nothing, and the memory is still there";

  // Another thread is free to do all that meanwhile.
  ASSERT_TRUE(driver_->BeginCapture(stream_));
  std::thread([&] {
    EXPECT_TRUE(driver_->Synchronize(other));
    const base::Result<void*> q = driver_->Allocate(16);
    ASSERT_TRUE(q);
    EXPECT_TRUE(driver_->Free(*q));
  }).join();
  const base::Result<GraphExec> graph = driver_->EndCapture(stream_, nullptr);
  ASSERT_TRUE(graph) << graph.error().message;
  driver_->DestroyGraph(*graph);
  driver_->DestroyEvent(event);
  driver_->DestroyStream(other);
  EXPECT_TRUE(driver_->Free(p));
}

TEST_F(StandIn, ACallFailsWhenATestSaysSo) {
  hip_stand_in_fail("hipMalloc", 2);
  const base::Result<void*> first = driver_->Allocate(16), second = driver_->Allocate(16);
  ASSERT_TRUE(first);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, base::Code::kResourceExhausted);
  hip_stand_in_fail("hipGraphInstantiate", 1);
  ASSERT_TRUE(driver_->BeginCapture(stream_));
  ASSERT_TRUE(driver_->Fill(stream_, *first, 0, 16));
  EXPECT_FALSE(driver_->EndCapture(stream_, nullptr));
  EXPECT_TRUE(driver_->Free(*first));
  EXPECT_FALSE(driver_->Allocate(1ll << 40)) << "more than the card has";
}

TEST_F(StandIn, RefusesCopiesThatLeaveTheirAllocation) {
  int* p = Ints(1, 2);
  EXPECT_FALSE(driver_->Fill(stream_, p, 0, 12));
  EXPECT_FALSE(driver_->CopyOnDevice(stream_, p + 1, p, 8));
  EXPECT_TRUE(driver_->Free(p));
  int v = 0;
  EXPECT_FALSE(driver_->CopyToHost(stream_, &v, p, 4)) << "it was freed";
}

TEST_F(StandIn, LoadsCodeOfItsArchitectureAloneAndCountsKernels) {
  int loaded = 0;
  for (const EmbeddedCode& code : WordsCode()) {
    const base::Result<Module> m = driver_->LoadModule(code.bytes);
    if (code.arch != "gfx1200") {
      ASSERT_FALSE(m) << code.arch;
      EXPECT_EQ(m.error().code, base::Code::kUnsupported) << m.error().message;
      continue;
    }
    ASSERT_TRUE(m) << m.error().message;
    ++loaded;
    EXPECT_FALSE(driver_->FindFunction(*m, "wordz"));
    const base::Result<Function> f = driver_->FindFunction(*m, "words");
    ASSERT_TRUE(f);
    std::vector<float> x(256, 1.0f);
    WordsArgs args = {static_cast<float*>(*driver_->Allocate(1024)), nullptr, nullptr, 1};
    args.y = static_cast<float*>(*driver_->Allocate(1024 * kWords));
    args.counters = Ints(0, 0);
    ASSERT_TRUE(driver_->CopyToDevice(stream_, const_cast<float*>(args.x), x.data(), 1024));
    LaunchConfig config = {.function = *f, .threads = 256, .shared_bytes = 2048};
    const int64_t before = hip_stand_in_count("kernels");
    EXPECT_TRUE(driver_->Launch(stream_, config, &args, sizeof args));
    EXPECT_EQ(hip_stand_in_count("kernels"), before + 1);
    config.threads = 512;
    EXPECT_FALSE(driver_->Launch(stream_, config, &args, sizeof args)) << "it is for 256 at most";
    config.threads = 256;
    config.shared_bytes = 65 << 10;
    EXPECT_FALSE(driver_->Launch(stream_, config, &args, sizeof args)) << "no block has as much";
    EXPECT_TRUE(driver_->Free(const_cast<float*>(args.x)));
    EXPECT_TRUE(driver_->Free(args.y));
    EXPECT_TRUE(driver_->Free(args.counters));
    driver_->UnloadModule(*m);
  }
  EXPECT_EQ(loaded, 1);
}

}  // namespace
}  // namespace vt::gpu
