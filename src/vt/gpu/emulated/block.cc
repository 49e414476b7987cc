#include "vt/gpu/emulated/block.h"

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/emulated/sanitizer.h"

namespace vt::gpu::emulated {

constinit thread_local Running running;

namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr int kWave = GPU_EMULATED_WAVE;
constexpr int kMostThreads = 1024;
// Kernels keep small arrays only; the sanitizers' frames are several times as large.
constexpr size_t kStackBytes = kAsan ? 256 << 10 : 64 << 10;
// Not a multiple of 4096, or the tops of all stacks would share few lines of the cache.
constexpr size_t kStackStride = kStackBytes + 9 * 64;
constexpr size_t kCanaryBytes = 64;
constexpr size_t kGuardBytes = 256;
constexpr uint8_t kCanary = 0xc9;
// A kernel that polls this often waits for a block that has not started.
constexpr int64_t kMostVolatile = 20'000'000;

// splitmix64 (public domain, Vigna): the next of a sequence that any seed may start.
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

bool AllAre(const char* p, size_t n, uint8_t value) {
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<uint8_t>(p[i]) != value) return false;
  }
  return true;
}

// Where a thread stands while another runs.
enum class State : uint8_t { kNotBegun, kRunning, kMeeting, kBarrier, kDone };

struct Copy {
  char* to;
  const char* from;
  int valid;
};

struct Fiber {
  fcontext_t context = nullptr;
  char* stack = nullptr;  // its lowest byte
  void* asan_stack = nullptr;
  State state = State::kNotBegun;
  Site site = {};
  std::vector<Copy> copies;    // not yet landed
  std::vector<size_t> groups;  // one past the last copy of each committed group
};

struct Wave {
  int first = 0;  // its lane 0, as a thread of the block
  // Lanes run in the order (multiplier * i + offset) mod wave, where next is the next i.
  int multiplier = 1, offset = 0, next = 0;
  int met = 0, at_barrier = 0, done = 0;
  Work work = nullptr;
  Site site = {};
  void* mine[kWave] = {};

  int Next() { return first + ((multiplier * next++ + offset) & (kWave - 1)); }
};

}  // namespace

int WaveSize() { return kWave; }

class Block {
 public:
  base::Status Run(const Kernel& kernel, const void* args, const Shape& shape, uint64_t seed);

  // --- called by fibers
  void SyncBlock(const Site& site);
  void Together(void* mine, Work work, const Site& site);
  void CopyAsync(void* to, const void* from, int valid);
  void CopyCommit();
  void CopyWait(int groups_left);
  void CountVolatile() {
    if (++volatile_reads_ > kMostVolatile)
      FaultOf(running.thread, "it waits for another block: blocks may run one after the other");
  }
  [[noreturn]] void FaultOf(int thread, const char* what) {
    fault_ = what;
    Abandon(thread);
  }

 private:
  static void FiberMain(transfer_t from);
  void Prepare(const Shape& shape);
  void RunBlock();
  void MakeFiber(Fiber& fiber);
  void ForgetFibers();
  void Begin(Wave& wave, int first_lane);
  void Switch(int thread);  // -1: to the host
  int Pick();
  void Release();
  int Enter(size_t at);
  Fiber& Me() { return fibers_[static_cast<size_t>(running.thread)]; }
  // Ends the launch; fault_ says why. Whoever calls it holds nothing that must be freed.
  [[noreturn]] void Abandon(int thread);
  [[noreturn]] void FaultDivergent(const Wave& wave);
  std::string Describe(int thread) const;
  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(NextRandom(random_) % below); }

  const Kernel* kernel_ = nullptr;
  const void* args_ = nullptr;
  uint64_t random_ = 0;
  std::unique_ptr<char[]> stacks_;
  std::vector<Fiber> fibers_;
  int threads_ = 0;
  std::vector<Wave> waves_;
  std::vector<size_t> ready_;  // waves that can go on
  size_t wave_ = 0;            // the one that runs
  int waves_at_barrier_ = 0;
  int came_to_barrier_ = 0;  // threads
  Site barrier_ = {};
  std::vector<char> shared_;
  size_t shared_bytes_ = 0;
  int64_t volatile_reads_ = 0;
  std::string fault_;  // "" while all is well
  int fault_thread_ = 0;
  // The host's own stack, while fibers run.
  fcontext_t host_ = nullptr;
  HostStack host_stack_;
};

BlockRunner::BlockRunner() : block_(std::make_unique<Block>()) {}
BlockRunner::~BlockRunner() = default;
base::Status BlockRunner::Run(const Kernel& kernel, const void* args, const Shape& shape,
                              uint64_t seed) {
  return block_->Run(kernel, args, shape, seed);
}

// --- fibers

void Block::MakeFiber(Fiber& fiber) {
  Unpoison(fiber.stack, kStackBytes);
  std::memset(fiber.stack, kCanary, kCanaryBytes);
  const auto top = reinterpret_cast<uintptr_t>(fiber.stack + kStackBytes) & ~uintptr_t{63};
  fiber.context = make_fcontext(reinterpret_cast<void*>(top), kStackBytes - 64, &FiberMain);
  fiber.asan_stack = nullptr;
}

// After a fault fibers stand in the middle of a kernel. Kernels have no destructors.
void Block::ForgetFibers() {
  for (Fiber& f : fibers_) MakeFiber(f);
}

// A fiber lives on from block to block.
void Block::FiberMain(transfer_t from) {
  Block& block = *running.block;
  block.host_stack_.EnterFiber(nullptr);
  *static_cast<fcontext_t*>(from.data) = from.fctx;
  for (;;) {
    block.kernel_->body(block.args_);
    block.Me().state = State::kDone;
    ++block.waves_[block.wave_].done;
    block.Switch(block.Pick());
  }
}

void Block::Switch(int thread) {
  const int mine = running.thread;
  if (thread == mine && thread >= 0) return;
  fcontext_t* context = mine < 0 ? &host_ : &fibers_[static_cast<size_t>(mine)].context;
  void** asan = mine < 0 ? host_stack_.save() : &fibers_[static_cast<size_t>(mine)].asan_stack;
  running.thread = thread;
  fcontext_t to = host_;
  if (thread < 0) {
    host_stack_.LeaveForHost(asan);
  } else {
    Fiber& f = fibers_[static_cast<size_t>(thread)];
    to = f.context;
    host_stack_.LeaveForFiber(asan, f.stack, kStackBytes);
  }
  const transfer_t back = jump_fcontext(to, context);
  if (mine < 0) {
    host_stack_.EnterHost();
  } else {
    host_stack_.EnterFiber(*asan);
  }
  *static_cast<fcontext_t*>(back.data) = back.fctx;
}

// --- the order of threads

void Block::Begin(Wave& wave, int first_lane) {
  const uint64_t r = NextRandom(random_);
  wave.multiplier = static_cast<int>(r & (kWave - 1)) | 1;
  wave.offset = first_lane >= 0 ? first_lane : static_cast<int>(r >> 32 & (kWave - 1));
  wave.next = 0;
}

int Block::Enter(size_t at) {
  wave_ = ready_[at];
  return waves_[wave_].Next();
}

// The thread that runs when the running one cannot: a lane of its wave that has not come this far,
// else a lane of another wave. -1: all have ended.
int Block::Pick() {
  Wave& wave = waves_[wave_];
  if (wave.next < kWave) return wave.Next();
  // All lanes of the wave stand still now.
  if (wave.at_barrier != kWave && wave.done != kWave) FaultDivergent(wave);
  if (wave.at_barrier == kWave) ++waves_at_barrier_;
  ready_.erase(std::find(ready_.begin(), ready_.end(), wave_));
  if (ready_.empty()) {
    if (waves_at_barrier_ == 0) return -1;
    if (waves_at_barrier_ < static_cast<int>(waves_.size())) {
      for (const Wave& w : waves_) {
        if (w.done != kWave) continue;
        fault_ = fmt::format("divergent barrier: it has returned while others wait in {} ({}:{})",
                             barrier_.what, barrier_.file, barrier_.line);
        Abandon(w.first);
      }
    }
    Release();
  }
  return Enter(Random(static_cast<uint32_t>(ready_.size())));
}

void Block::Release() {
  waves_at_barrier_ = 0;
  came_to_barrier_ = 0;
  for (size_t w = 0; w < waves_.size(); ++w) {
    waves_[w].at_barrier = 0;
    Begin(waves_[w], -1);
    ready_.push_back(w);
  }
}

void Block::SyncBlock(const Site& site) {
  if (came_to_barrier_++ == 0) {
    barrier_ = site;
  } else if (barrier_.line != site.line ||
             (barrier_.file != site.file && std::strcmp(barrier_.file, site.file) != 0)) {
    fault_ = fmt::format("divergent barrier: it is in {} at {}:{}, others are at {}:{}", site.what,
                         site.file, site.line, barrier_.file, barrier_.line);
    Abandon(running.thread);
  }
  Fiber& me = Me();
  me.state = State::kBarrier;
  me.site = site;
  ++waves_[wave_].at_barrier;
  Switch(Pick());
}

void Block::Together(void* mine, Work work, const Site& site) {
  Wave& wave = waves_[wave_];
  const int lane = running.thread - wave.first;
  if (wave.met == 0) {
    wave.work = work;
    wave.site = site;
  } else if (wave.work != work || wave.site.line != site.line) {
    fault_ = fmt::format("divergent wave: it is in {} at {}:{}, other lanes are in {} at {}:{}",
                         site.what, site.file, site.line, wave.site.what, wave.site.file,
                         wave.site.line);
    Abandon(running.thread);
  }
  wave.mine[lane] = mine;
  if (++wave.met < kWave) {
    Fiber& me = Me();
    me.state = State::kMeeting;
    me.site = site;
    Switch(Pick());
    return;
  }
  if (work != nullptr) work(wave.mine);
  wave.met = 0;
  Begin(wave, lane);
  // Now and then another wave gets ahead of this one; mostly the last lane to come just goes on.
  if (ready_.size() > 1 && Random(16) == 0) {
    Switch(Enter(Random(static_cast<uint32_t>(ready_.size()))));
  } else {
    ++wave.next;
  }
}

// --- asynchronous copies

void Block::CopyAsync(void* to, const void* from, int valid) {
  char* const target = static_cast<char*>(to);
  const int me = running.thread;
  const std::less<const char*> before;
  if (before(target, running.shared) || before(running.shared + shared_bytes_, target + 16))
    FaultOf(me, "copy_async writes outside the block's shared memory");
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0)
    FaultOf(me, "copy_async: the target must be a multiple of 16 bytes");
  if (valid < 0 || valid > 16) FaultOf(me, "copy_async: 0 to 16 bytes can be valid");
  if (valid > 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0)
    FaultOf(me, "copy_async: the source must be a multiple of 16 bytes");
  std::memset(target, 0xff, 16);
  Me().copies.push_back({target, static_cast<const char*>(from), valid});
}

void Block::CopyCommit() {
  Fiber& me = Me();
  me.groups.push_back(me.copies.size());
}

void Block::CopyWait(int groups_left) {
  Fiber& me = Me();
  const auto left = static_cast<size_t>(groups_left);
  if (me.groups.size() <= left) return;
  const size_t ended = me.groups.size() - left;
  const size_t landed = me.groups[ended - 1];
  for (size_t i = 0; i < landed; ++i) {
    const Copy& c = me.copies[i];
    std::memcpy(c.to, c.from, static_cast<size_t>(c.valid));
    std::memset(c.to + c.valid, 0, static_cast<size_t>(16 - c.valid));
  }
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<ptrdiff_t>(landed));
  me.groups.erase(me.groups.begin(), me.groups.begin() + static_cast<ptrdiff_t>(ended));
  for (size_t& g : me.groups) g -= landed;
}

// --- faults

std::string Block::Describe(int thread) const {
  const Fiber& f = fibers_[static_cast<size_t>(thread)];
  switch (f.state) {
    case State::kDone:
      return fmt::format("thread {} has returned", thread);
    case State::kMeeting:
    case State::kBarrier:
      return fmt::format("thread {} waits in {} ({}:{})", thread, f.site.what, f.site.file,
                         f.site.line);
    default:
      return fmt::format("thread {} runs", thread);
  }
}

// The lanes of the wave stand in different states: names two.
void Block::FaultDivergent(const Wave& wave) {
  const State first = fibers_[static_cast<size_t>(wave.first)].state;
  int other = wave.first;
  for (int t = wave.first; t < wave.first + kWave; ++t) {
    if (fibers_[static_cast<size_t>(t)].state != first) other = t;
  }
  fault_ = fmt::format("divergent: {}, {}", Describe(other), Describe(wave.first));
  Abandon(other);
}

void Block::Abandon(int thread) {
  fault_thread_ = thread;
  Switch(-1);
  std::abort();  // nobody comes back to a fault
}

// --- blocks

base::Status CheckShape(const Kernel& kernel, const Shape& shape) {
  const auto error = [&](const std::string& what) {
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("kernel {}: {}", kernel.name, what)};
  };
  if (shape.grid_x < 1 || shape.grid_y < 1 || shape.grid_y > 65535)
    return error(
        fmt::format("a grid of {} x {} blocks cannot be launched", shape.grid_x, shape.grid_y));
  if (shape.threads < 1 || shape.threads > std::min(kernel.most_threads, kMostThreads))
    return error(fmt::format("a block of {} threads, but it is compiled for at most {}",
                             shape.threads, kernel.most_threads));
  if (shape.threads % kWave != 0)
    return error(fmt::format("a block of {} threads is no whole number of waves of {}",
                             shape.threads, kWave));
  return {};
}

void Block::Prepare(const Shape& shape) {
  threads_ = shape.threads;
  const auto count = static_cast<size_t>(shape.threads);
  if (fibers_.size() < count) {
    // Contexts point into their stacks, so all are made anew.
    fibers_ = std::vector<Fiber>(count);
    stacks_.reset();
    stacks_ = std::make_unique_for_overwrite<char[]>(count * kStackStride);
    for (size_t i = 0; i < count; ++i) fibers_[i].stack = stacks_.get() + i * kStackStride;
    ForgetFibers();
  }
  waves_.resize(count / kWave);
  for (size_t w = 0; w < waves_.size(); ++w) waves_[w].first = static_cast<int>(w) * kWave;
  shared_bytes_ = static_cast<size_t>(shape.shared_bytes);
  Unpoison(shared_.data(), shared_.size());
  // An end that is no multiple of 16 is guarded from its very byte on.
  shared_.resize(std::max(shared_.size(), shared_bytes_ + 2 * kGuardBytes + 16));
}

void Block::RunBlock() {
  char* const shared = reinterpret_cast<char*>(
      (reinterpret_cast<uintptr_t>(shared_.data()) + kGuardBytes + 15) & ~uintptr_t{15});
  char* const below = shared - kGuardBytes;
  char* const above = shared + shared_bytes_;
  std::memset(below, kCanary, kGuardBytes);
  std::memset(shared, 0xff, shared_bytes_);
  std::memset(above, kCanary, kGuardBytes);
  Poison(below, kGuardBytes);
  Poison(above, kGuardBytes);
  running.shared = shared;

  ready_.clear();
  for (size_t w = 0; w < waves_.size(); ++w) waves_[w].done = waves_[w].met = 0;
  Release();
  for (int t = 0; t < threads_; ++t) {
    Fiber& f = fibers_[static_cast<size_t>(t)];
    f.state = State::kNotBegun;
    f.copies.clear();
    f.groups.clear();
  }
  volatile_reads_ = 0;
  running.thread = -1;
  Switch(Enter(Random(static_cast<uint32_t>(ready_.size()))));

  Unpoison(below, kGuardBytes);
  Unpoison(above, kGuardBytes);
  if (!fault_.empty()) return;
  const bool low = AllAre(below, kGuardBytes, kCanary);
  if (low && AllAre(above, kGuardBytes, kCanary)) return;
  fault_ = fmt::format("shared memory overrun: it wrote {} the {} bytes that the launch asked for",
                       low ? "past" : "before", shared_bytes_);
  fault_thread_ = -1;
}

base::Status Block::Run(const Kernel& kernel, const void* args, const Shape& shape, uint64_t seed) {
  kernel_ = &kernel;
  args_ = args;
  random_ = seed;
  Prepare(shape);
  running.block = this;
  running.threads = shape.threads;
  running.grid_x = shape.grid_x;

  std::vector<int> order(static_cast<size_t>(shape.grid_x) * static_cast<size_t>(shape.grid_y));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[Random(static_cast<uint32_t>(i))]);
  fault_.clear();
  for (const int b : order) {
    running.block_x = b % shape.grid_x;
    running.block_y = b / shape.grid_x;
    RunBlock();
    if (!fault_.empty()) break;
  }
  if (fault_.empty()) {
    for (int t = 0; t < threads_ && fault_.empty(); ++t) {
      if (AllAre(fibers_[static_cast<size_t>(t)].stack, kCanaryBytes, kCanary)) continue;
      fault_ = fmt::format("its local variables need more than {} bytes", kStackBytes);
      fault_thread_ = t;
    }
  }
  running.block = nullptr;
  if (fault_.empty()) return {};
  ForgetFibers();
  return base::Error{
      base::Code::kInternal,
      fmt::format("kernel {}, block ({}, {}){}: {} (seed {})", kernel.name, running.block_x,
                  running.block_y,
                  fault_thread_ >= 0 ? fmt::format(", thread {}", fault_thread_) : "", fault_,
                  seed)};
}

// --- what kernels call

void SyncBlock(Site site) { running.block->SyncBlock(site); }
void Together(void* mine, Work work, Site site) { running.block->Together(mine, work, site); }
void CopyAsync(void* to, const void* from, int valid) { running.block->CopyAsync(to, from, valid); }
void CopyCommit() { running.block->CopyCommit(); }
void CopyWait(int groups_left) { running.block->CopyWait(groups_left); }
void CountVolatile() { running.block->CountVolatile(); }
void Fault(const char* what) { running.block->FaultOf(running.thread, what); }

void MultiplyAdd(const float (*a)[32], const float (*b)[16], float (*sum)[16]) {
  for (int m = 0; m < 16; ++m) {
    float row[16] = {};
    for (int k = 0; k < 32; ++k) {
      const float x = a[m][k];
      for (int n = 0; n < 16; ++n) row[n] += x * b[k][n];
    }
    for (int n = 0; n < 16; ++n) sum[m][n] += row[n];
  }
}

// --- kernels by name

namespace {

struct NameLess {
  bool operator()(const char* a, const char* b) const { return std::strcmp(a, b) < 0; }
};
// Filled by the kernels' static registrations, before any of this is called.
std::map<const char*, Kernel, NameLess>& Kernels() {
  static std::map<const char*, Kernel, NameLess> kernels;
  return kernels;
}

}  // namespace

KernelRegistration::KernelRegistration(const char* name, size_t args_bytes, int most_threads,
                                       void (*body)(const void* args)) {
  Kernels()[name] = {name, args_bytes, most_threads, body};
}

const Kernel* FindKernel(const char* name) {
  const auto found = Kernels().find(name);
  return found == Kernels().end() ? nullptr : &found->second;
}

}  // namespace vt::gpu::emulated
