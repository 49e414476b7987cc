#include "tests/seam.h"

#include <cstring>

namespace tests {
namespace {

constexpr int64_t kBytes = 64;

// Copies to the host and waits.
std::string Read(vt::Backend& b, vt::Queue& q, const void* p) {
  std::string out(kBytes, '?');
  if (!b.CopyToHost(q, out.data(), p, kBytes) || !b.Synchronize(q)) return "";
  return out;
}

void Write(vt::Backend& b, vt::Queue& q, void* p, char c) {
  const std::string bytes(kBytes, c);
  (void)b.CopyToDevice(q, p, bytes.data(), kBytes);
  (void)b.Synchronize(q);
}

struct Memory {
  vt::Backend& backend;
  void* p;
  ~Memory() { backend.Free(p); }
};

}  // namespace

std::vector<std::string> CaptureBreaches(vt::Backend& b) {
  std::vector<std::string> breaches;
  const auto expect = [&](bool good, const char* sentence) {
    if (!good) breaches.push_back(sentence);
  };
  base::Result<std::unique_ptr<vt::Queue>> made = b.CreateQueue();
  base::Result<void*> first = b.Allocate(kBytes);
  base::Result<void*> second = b.Allocate(kBytes);
  if (!made || !first || !second) return {"a queue and two buffers cannot be had"};
  vt::Queue& q = **made;
  const Memory source{b, *first}, target{b, *second};

  // What is captured is not run, and each replay reads the source anew at the same address.
  Write(b, q, source.p, 'a');
  Write(b, q, target.p, '-');
  expect(b.BeginCapture(q).ok(), "BeginCapture fails");
  expect(b.CopyOnDevice(q, target.p, source.p, kBytes).ok(), "a copy inside a capture fails");
  expect(b.EndCapture(q).ok(), "EndCapture fails");
  expect(Read(b, q, target.p) == std::string(kBytes, '-'), "a captured copy ran at capture");
  expect(b.Replay(q).ok() && Read(b, q, target.p) == std::string(kBytes, 'a'),
         "a replay does not copy");
  Write(b, q, source.p, 'b');
  expect(b.Replay(q).ok() && Read(b, q, target.p) == std::string(kBytes, 'b'),
         "a replay does not see the source's new value at the same address");

  // Nothing in a capture allocates, synchronises or frees. The refusal names the call, and the
  // capture is void: a step that needs the call would be wrong at replay.
  expect(b.BeginCapture(q).ok(), "a second BeginCapture fails");
  const base::Result<void*> inside = b.Allocate(kBytes);
  expect(!inside && inside.error().message.find("Allocate") != std::string::npos,
         "an allocation inside a capture is not refused by name");
  if (inside) b.Free(*inside);
  const base::Result<vt::GraphHandle> broken = b.EndCaptureGraph(q);
  expect(!broken && broken.error().message.find("Allocate") != std::string::npos,
         "a capture with an allocation in it does not end with an error that names it");
  expect(b.BeginCapture(q).ok(), "BeginCapture fails after a void capture");
  const base::Status waited = b.Synchronize(q);
  expect(!waited && waited.error().message.find("Synchronize") != std::string::npos,
         "a synchronisation inside a capture is not refused by name");
  expect(!b.EndCaptureGraph(q),
         "a capture with a synchronisation in it does not end with an error");
  expect(b.BeginCapture(q).ok(), "BeginCapture fails after two void captures");
  expect(b.Fill(q, target.p, 'f', kBytes).ok(), "a fill inside a capture fails");
  base::Result<vt::GraphHandle> fill = b.EndCaptureGraph(q);
  expect(fill.ok(), "EndCaptureGraph fails");
  expect(!b.EndCaptureGraph(q), "EndCaptureGraph without BeginCapture is not refused");

  // Graphs are independent: in any order, also after another was destroyed.
  if (fill) {
    expect(b.ReplayGraph(q, *fill).ok() && Read(b, q, target.p) == std::string(kBytes, 'f'),
           "a fill is not replayed");
    expect(b.Replay(q).ok() && Read(b, q, target.p) == std::string(kBytes, 'b'),
           "an older graph no longer replays");
    b.DestroyGraph(*fill);
    expect(b.Replay(q).ok(), "a graph does not survive another one's end");
    expect(!b.ReplayGraph(q, *fill), "a destroyed graph replays");
  }
  const base::Result<void*> after = b.Allocate(kBytes);
  expect(after.ok(), "an allocation after a capture fails");
  if (after) b.Free(*after);
  return breaches;
}

}  // namespace tests
