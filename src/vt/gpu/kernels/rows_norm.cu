#include "vt/gpu/tiles/rows_norm.h"

GPU_KERNEL(rows_norm_f32, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) { vt::gpu::NormRows<float>(args); }
GPU_KERNEL(rows_norm_bf16, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) { vt::gpu::NormRows<gpu::bf16>(args); }
GPU_KERNEL(rows_norm_f16, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) { vt::gpu::NormRows<gpu::f16>(args); }
