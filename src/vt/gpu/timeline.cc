#include "vt/gpu/timeline.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/timeline_args.h"

namespace vt::gpu {
namespace {

constexpr int kReplays = 4;

base::Error CannotWrite(const std::string& file) {
  return {base::Code::kUnavailable,
          fmt::format("VLLM_GPU_TIMELINE names {}, which cannot be written", file)};
}

}  // namespace

base::Result<std::unique_ptr<Timeline>> Timeline::FromEnvironment(Driver& driver) {
  const char* file = std::getenv("VLLM_GPU_TIMELINE");
  if (file == nullptr || *file == 0) return std::unique_ptr<Timeline>();
  if (!std::ofstream(file)) return CannotWrite(file);
  const char* from = std::getenv("VLLM_GPU_TIMELINE_FROM");
  return std::unique_ptr<Timeline>(
      new Timeline(driver, file, from != nullptr ? std::max(1, std::atoi(from)) : 40));
}

Timeline::Timeline(Driver& driver, std::string file, int from)
    : driver_(driver), file_(std::move(file)), from_(from) {}

Timeline::~Timeline() { (void)driver_.Free(room_); }

base::Status Timeline::Attach(Module m) {
  const base::Result<Function> set = driver_.FindFunction(m, "vt_timeline_set");
  if (!set) {
    return base::Error{base::Code::kUnsupported,
                       "VLLM_GPU_TIMELINE is set, but these kernels were built without "
                       "VLLM_CUDA_TIMELINE"};
  }
  const base::Result<Stream> stream = driver_.CreateStream();
  if (!stream) return stream.error();
  base::Status done;
  if (room_ == nullptr) {
    const base::Result<void*> room = driver_.Allocate(kTimelineBytes);
    if (room) {
      room_ = *room;
      done = Clear(*stream);
    } else {
      done = room.error();
    }
  }
  TimelineArgs args{static_cast<char*>(room_)};
  LaunchConfig config;
  config.function = *set;
  config.threads = 64;  // whole waves of any device
  if (done) done = driver_.Launch(*stream, config, &args, sizeof args);
  if (done) done = driver_.Synchronize(*stream);
  driver_.DestroyStream(*stream);
  return done;
}

base::Status Timeline::Clear(Stream s) { return driver_.Fill(s, room_, 0, kTimelineHead); }

base::Status Timeline::BeforeReplay(Stream s) {
  ++count_;
  if (count_ != from_ && count_ != from_ + kReplays) return {};
  if (base::Status done = driver_.Synchronize(s); !done) return done;
  return count_ == from_ ? Clear(s) : Write(s);
}

base::Status Timeline::Write(Stream s) {
  std::vector<char> room(static_cast<size_t>(kTimelineBytes));
  base::Status done = driver_.CopyToHost(s, room.data(), room_, kTimelineBytes);
  if (done) done = driver_.Synchronize(s);
  if (!done) return done;
  std::ofstream out(file_);
  for (const std::string& name : names_)
    out << "kernel " << TimelineHash(name.c_str()) << ' ' << name << '\n';
  for (uint32_t unit = 0; unit < kTimelineUnits; ++unit) {
    uint32_t count = 0;
    std::memcpy(&count, room.data() + unit * kTimelineLine, sizeof count);
    const char* from =
        room.data() + kTimelineHead + size_t{unit} * kTimelineEvents * sizeof(TimelineEvent);
    for (uint32_t i = 0; i < std::min(count, kTimelineEvents); ++i) {
      TimelineEvent e;
      std::memcpy(&e, from + i * sizeof e, sizeof e);
      out << e.grid << ' ' << e.time << ' ' << e.block << ' ' << e.unit << ' ' << e.kind << ' '
          << e.kernel << '\n';
    }
  }
  out.close();
  if (out) return {};
  return CannotWrite(file_);
}

}  // namespace vt::gpu
