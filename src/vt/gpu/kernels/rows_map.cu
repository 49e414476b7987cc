#include "vt/gpu/tiles/rows_map.h"

GPU_KERNEL(rows_map_f32, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) {
  vt::gpu::MapRows<float, false>(args);
}
GPU_KERNEL(rows_map_bf16, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) {
  vt::gpu::MapRows<gpu::bf16, false>(args);
}
GPU_KERNEL(rows_map_f16, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) {
  vt::gpu::MapRows<gpu::f16, false>(args);
}
GPU_KERNEL(rows_map_plain_f32, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) {
  vt::gpu::MapRows<float, true>(args);
}
GPU_KERNEL(rows_map_plain_bf16, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) {
  vt::gpu::MapRows<gpu::bf16, true>(args);
}
GPU_KERNEL(rows_map_plain_f16, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) {
  vt::gpu::MapRows<gpu::f16, true>(args);
}
