// What kernels of builds with VLLM_CUDA_TIMELINE are made of: each block writes down when it began,
// when it had waited for the launch before, and when its first thread ended. gpu_cuda.h includes
// this and nothing else does; timeline.h is the host's side, which the layout below is shared with.
#pragma once

#include "vt/gpu/timeline_args.h"

extern "C" {
__device__ char* vt_timeline;  // room for it; each module has a pointer of its own
__global__ void vt_timeline_set(const __grid_constant__ vt::gpu::TimelineArgs args) {
  vt_timeline = args.room;
}
}

namespace gpu {

__device__ __forceinline__ void timeline_mark(uint32_t kind, uint32_t kernel) {
  if (threadIdx.x != 0 || vt_timeline == nullptr) return;
  vt::gpu::TimelineEvent e = {};
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(e.time));
  asm volatile("mov.u64 %0, %gridid;" : "=l"(e.grid));
  asm volatile("mov.u32 %0, %smid;" : "=r"(e.unit));
  if (e.unit >= vt::gpu::kTimelineUnits) return;
  e.block = blockIdx.x + blockIdx.y * gridDim.x;
  e.kind = kind;
  e.kernel = kernel;
  const uint32_t at =
      atomicAdd(reinterpret_cast<uint32_t*>(vt_timeline + e.unit * vt::gpu::kTimelineLine), 1u);
  if (at >= vt::gpu::kTimelineEvents) return;
  auto* to = reinterpret_cast<vt::gpu::TimelineEvent*>(vt_timeline + vt::gpu::kTimelineHead);
  to[static_cast<size_t>(e.unit) * vt::gpu::kTimelineEvents + at] = e;
}

struct TimelineScope {
  __device__ __forceinline__ explicit TimelineScope(uint32_t kernel) {
    timeline_mark(vt::gpu::kTimelineBegan, kernel);
  }
  __device__ __forceinline__ ~TimelineScope() { timeline_mark(vt::gpu::kTimelineEnded, 0); }
};

}  // namespace gpu

#define GPU_TIMELINE_KERNEL(name, Args, bounds)                               \
  constexpr uint32_t name##_hash = ::vt::gpu::TimelineHash(#name);            \
  __device__ __forceinline__ void name##_body(const Args& args);              \
  extern "C" __global__ void bounds name(const __grid_constant__ Args args) { \
    const ::gpu::TimelineScope scope(name##_hash);                            \
    name##_body(args);                                                        \
  }                                                                           \
  __device__ __forceinline__ void name##_body(const Args& args)
#define GPU_KERNEL(name, Args, threads) GPU_TIMELINE_KERNEL(name, Args, __launch_bounds__(threads))
#define GPU_KERNEL_BLOCKS(name, Args, threads, blocks) \
  GPU_TIMELINE_KERNEL(name, Args, __launch_bounds__(threads GPU_TIMELINE_COMMA blocks))
#define GPU_TIMELINE_COMMA ,
#define GPU_KERNEL_REGISTERS(name, Args, threads, registers) \
  GPU_TIMELINE_KERNEL(name, Args, __maxnreg__(registers))
