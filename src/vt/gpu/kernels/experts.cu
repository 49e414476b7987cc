#include "vt/gpu/tiles/experts.h"

namespace vt::gpu {

GPU_KERNEL(router, RouterArgs, ::gpu::kWave) { Router(args); }
GPU_KERNEL(expert_sort, ExpertSortArgs, kExpertSortThreads) { SortExperts(args); }
GPU_KERNEL(expert_sum_f32, ExpertSumArgs, kExpertSumThreads) { SumExperts<float>(args); }
GPU_KERNEL(expert_sum_bf16, ExpertSumArgs, kExpertSumThreads) { SumExperts<::gpu::bf16>(args); }
GPU_KERNEL(expert_sum_f16, ExpertSumArgs, kExpertSumThreads) { SumExperts<::gpu::f16>(args); }

}  // namespace vt::gpu
