#include "vt/gpu/tiles/rows_norm.h"

GPU_KERNEL(rows_norm_f32, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) {
  vt::gpu::NormRows<float, false>(args);
}
GPU_KERNEL(rows_norm_bf16, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) {
  vt::gpu::NormRows<gpu::bf16, false>(args);
}
GPU_KERNEL(rows_norm_f16, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) {
  vt::gpu::NormRows<gpu::f16, false>(args);
}
GPU_KERNEL(rows_norm_plain_f32, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) {
  vt::gpu::NormRows<float, true>(args);
}
GPU_KERNEL(rows_norm_plain_bf16, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) {
  vt::gpu::NormRows<gpu::bf16, true>(args);
}
GPU_KERNEL(rows_norm_plain_f16, vt::gpu::RowsNormArgs, vt::gpu::kRowsNormThreads) {
  vt::gpu::NormRows<gpu::f16, true>(args);
}
