#include "vt/gpu/tiles/rows_softmax.h"

GPU_KERNEL(rows_softmax_f32, vt::gpu::RowsSoftmaxArgs, vt::gpu::kRowsSoftmaxThreads) {
  vt::gpu::SoftmaxRows<float>(args);
}
GPU_KERNEL(rows_softmax_bf16, vt::gpu::RowsSoftmaxArgs, vt::gpu::kRowsSoftmaxThreads) {
  vt::gpu::SoftmaxRows<gpu::bf16>(args);
}
GPU_KERNEL(rows_softmax_f16, vt::gpu::RowsSoftmaxArgs, vt::gpu::kRowsSoftmaxThreads) {
  vt::gpu::SoftmaxRows<gpu::f16>(args);
}
