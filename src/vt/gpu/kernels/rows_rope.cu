#include "vt/gpu/tiles/rows_rope.h"

GPU_KERNEL(rows_rope_f32, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<float>(args);
}
GPU_KERNEL(rows_rope_bf16, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<gpu::bf16>(args);
}
GPU_KERNEL(rows_rope_f16, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<gpu::f16>(args);
}
