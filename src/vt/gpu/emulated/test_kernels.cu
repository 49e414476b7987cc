// Kernels with planted faults, and some without.
#include "vt/gpu/emulated/test_kernels.h"
#include "vt/gpu/gpu.h"
#include "vt/gpu/timeline_args.h"

namespace vt::gpu::emulated {
namespace {

GPU_KERNEL(test_reverse, ReverseArgs, 1024) {
  auto* shared = reinterpret_cast<float*>(::gpu::shared());
  shared[::gpu::thread()] = args.in[::gpu::thread()];
  if (args.synchronised) ::gpu::sync();
  args.out[::gpu::thread()] = shared[::gpu::threads() - 1 - ::gpu::thread()];
}

// Every round, each thread takes its right neighbour's number. Two barriers a round are needed.
GPU_KERNEL(test_shift, ShiftArgs, 1024) {
  auto* shared = reinterpret_cast<int*>(::gpu::shared());
  int mine = ::gpu::thread();
  for (int round = 0; round < args.rounds; ++round) {
    shared[::gpu::thread()] = mine;
    ::gpu::sync();
    mine = shared[(::gpu::thread() + 1) % ::gpu::threads()];
    if (args.both_barriers) ::gpu::sync();
  }
  args.out[::gpu::thread()] = mine;
}

GPU_KERNEL(test_diverge, DivergeArgs, 1024) {
  const int half = ::gpu::threads() / 2 + ::gpu::kWave / 2;
  const bool upper_lane = ::gpu::lane() >= ::gpu::kWave / 2;
  int v = ::gpu::lane();
  switch (args.kind) {
    case Divergence::kNone:
      ::gpu::sync();
      break;
    case Divergence::kHalfSkipsBarrier:
      if (::gpu::thread() >= half) return;
      ::gpu::sync();
      break;
    case Divergence::kWaveSkipsBarrier:
      if (::gpu::wave() == 1) return;
      ::gpu::sync();
      break;
    case Divergence::kTwoBarriers:
      if (::gpu::wave() == 1) {
        ::gpu::sync();
      } else {
        ::gpu::sync();
      }
      break;
    case Divergence::kHalfSkipsShuffle:
      if (upper_lane) return;
      v = ::gpu::shuffle(v, 0);
      break;
    case Divergence::kTwoMeetings:
      if (upper_lane) {
        v = ::gpu::any(true);
      } else {
        v = ::gpu::shuffle(v, 0);
      }
      break;
    case Divergence::kTwoLines:
      if (upper_lane) {
        v = ::gpu::shuffle(v, 1);
      } else {
        v = ::gpu::shuffle(v, 0);
      }
      break;
    case Divergence::kBarrierOrShuffle:
      if (upper_lane) {
        ::gpu::sync();
      } else {
        v = ::gpu::shuffle(v, 0);
      }
      break;
  }
  args.out[::gpu::thread()] = v;
}

// Two groups: floats of the first and of the second half of `in`. Each thread looks at its own.
GPU_KERNEL(test_copy, CopyArgs, 1024) {
  char* const mine = ::gpu::shared() + 32 * ::gpu::thread();
  const char* const in = args.in + 16 * ::gpu::thread();
  ::gpu::copy_async(mine, in, args.valid);
  ::gpu::copy_commit();
  ::gpu::copy_async(mine + 16, in + 16 * ::gpu::threads(), args.valid);
  ::gpu::copy_commit();
  if (args.wait == 0) ::gpu::copy_wait<0>();
  if (args.wait == 1) ::gpu::copy_wait<1>();
  for (int i = 0; i < 8; ++i) {
    args.out[8 * ::gpu::thread() + i] = reinterpret_cast<const float*>(mine)[i];
  }
}

GPU_KERNEL(test_shared, SharedArgs, 1024) {
  args.out[::gpu::thread()] = reinterpret_cast<float*>(::gpu::shared())[::gpu::thread()];
  if (args.write_at != -1000 && ::gpu::thread() == 0) ::gpu::shared()[args.write_at] = 1;
}

// The sum of a wave by a butterfly that begins at a mask someone wrote down.
GPU_KERNEL(test_reduce, ReduceArgs, 1024) {
  float v = args.in[::gpu::thread()];
  for (int m = args.first_mask; m > 0; m /= 2) v += ::gpu::shuffle_xor(v, m);
  if (::gpu::lane() == 0) args.out[::gpu::wave()] = v;
}

GPU_KERNEL(test_shuffle, ShuffleArgs, 1024) {
  const int t = ::gpu::thread();
  args.from[t] = ::gpu::shuffle(t, (::gpu::lane() + 3) % ::gpu::kWave);
  args.by_xor[t] = ::gpu::shuffle_xor(t, 5);
  args.any_odd[t] = ::gpu::any(t == 1);
  args.any_wave1[t] = ::gpu::any(::gpu::wave() == 1);
}

GPU_KERNEL(test_blocks, BlocksArgs, 1024) {
  if (::gpu::thread() != 0) return;
  args.out[::gpu::block_y() * ::gpu::blocks() + ::gpu::block()] =
      ::gpu::atomic_add(args.counter, 1);
}

GPU_KERNEL(test_spin, SpinArgs, 1024) {
  while (::gpu::load_volatile(args.flag) == 0) {
  }
}

GPU_KERNEL(test_order, OrderArgs, 1024) {
  args.order[::gpu::atomic_add(args.counter, 1)] = ::gpu::thread();
}

GPU_KERNEL(test_add, AddArgs, 256) {
  const int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
  if (i < args.count) args.to[i] += args.from[i];
}

// As kernels of builds with VLLM_CUDA_TIMELINE.
GPU_KERNEL(vt_timeline_set, TimelineArgs, 64) { timeline_room = args.room; }

}  // namespace
}  // namespace vt::gpu::emulated
