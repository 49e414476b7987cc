#include "vt/gpu/tiles/rows_map.h"

GPU_KERNEL(rows_map_f32, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) { vt::gpu::MapRows<float>(args); }
GPU_KERNEL(rows_map_bf16, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) { vt::gpu::MapRows<gpu::bf16>(args); }
GPU_KERNEL(rows_map_f16, vt::gpu::RowsMapArgs, vt::gpu::kRowsMapThreads) { vt::gpu::MapRows<gpu::f16>(args); }
