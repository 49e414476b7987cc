#include "vt/gpu/tiles/entries.h"
#include "vt/gpu/tiles/hyper.h"

namespace vt::gpu {

GPU_KERNEL(compress, CompressArgs, kCompressThreads) { Compress(args); }
GPU_KERNEL(index_entries_f32, IndexArgs, kIndexThreads) { IndexTile<float>(args).Run(); }
GPU_KERNEL(index_entries_bf16, IndexArgs, kIndexThreads) { IndexTile<::gpu::bf16>(args).Run(); }
GPU_KERNEL(index_entries_f16, IndexArgs, kIndexThreads) { IndexTile<::gpu::f16>(args).Run(); }
GPU_KERNEL(entry_attention_f32, EntryAttentionArgs, kEntryWaves* ::gpu::kWave) {
  EntryAttentionTile<float>(args).Run();
}
GPU_KERNEL(entry_attention_bf16, EntryAttentionArgs, kEntryWaves* ::gpu::kWave) {
  EntryAttentionTile<::gpu::bf16>(args).Run();
}
GPU_KERNEL(entry_attention_f16, EntryAttentionArgs, kEntryWaves* ::gpu::kWave) {
  EntryAttentionTile<::gpu::f16>(args).Run();
}
GPU_KERNEL(hyper_collapse_f32, HyperCollapseArgs, kHyperThreads) { HyperCollapse<float>(args); }
GPU_KERNEL(hyper_collapse_bf16, HyperCollapseArgs, kHyperThreads) {
  HyperCollapse<::gpu::bf16>(args);
}
GPU_KERNEL(hyper_collapse_f16, HyperCollapseArgs, kHyperThreads) {
  HyperCollapse<::gpu::f16>(args);
}
GPU_KERNEL(hyper_expand_f32, HyperExpandArgs, kHyperThreads) { HyperExpand<float>(args); }
GPU_KERNEL(hyper_expand_bf16, HyperExpandArgs, kHyperThreads) { HyperExpand<::gpu::bf16>(args); }
GPU_KERNEL(hyper_expand_f16, HyperExpandArgs, kHyperThreads) { HyperExpand<::gpu::f16>(args); }

}  // namespace vt::gpu
