#include "vt/gpu/tiles/rows_rope.h"

GPU_KERNEL(rows_rope_f32, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<float, false>(args);
}
GPU_KERNEL(rows_rope_bf16, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<gpu::bf16, false>(args);
}
GPU_KERNEL(rows_rope_f16, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<gpu::f16, false>(args);
}
GPU_KERNEL(rows_rope_plain_f32, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<float, true>(args);
}
GPU_KERNEL(rows_rope_plain_bf16, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<gpu::bf16, true>(args);
}
GPU_KERNEL(rows_rope_plain_f16, vt::gpu::RowsRopeArgs, vt::gpu::kRowsLaneThreads) {
  vt::gpu::RopeRows<gpu::f16, true>(args);
}
