// How a timeline stands on the device: a line a multiprocessor that counts its events, then its
// events.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vt::gpu {

struct TimelineArgs {
  char* room = nullptr;
};
enum TimelineKind : uint32_t { kTimelineBegan, kTimelineWaited, kTimelineEnded };
struct TimelineEvent {
  uint64_t grid, time;  // a launch of a graph has the same number in each of its replays; ns
  uint32_t block, unit, kind, kernel;  // kernel: the hash of its name, where a block begins
};
// FNV-1a.
constexpr uint32_t TimelineHash(const char* name) {
  uint32_t h = 2166136261u;
  for (; *name != 0; ++name) h = (h ^ static_cast<unsigned char>(*name)) * 16777619u;
  return h;
}
inline constexpr uint32_t kTimelineUnits = 256, kTimelineEvents = 16384;
inline constexpr uint32_t kTimelineLine = 128, kTimelineHead = kTimelineUnits * kTimelineLine;
inline constexpr int64_t kTimelineBytes =
    kTimelineHead + int64_t{kTimelineUnits} * kTimelineEvents * int64_t{sizeof(TimelineEvent)};

}  // namespace vt::gpu
