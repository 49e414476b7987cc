#include "vt/gpu/tiles/choice_pick.h"
#include "vt/gpu/tiles/choice_scan.h"

GPU_KERNEL(sample_scan_f32, vt::gpu::ChoiceArgs, vt::gpu::kChoiceScanThreads) {
  vt::gpu::ScanRow(args);
}
GPU_KERNEL(sample_pick_f32, vt::gpu::ChoiceArgs, vt::gpu::kChoicePickThreads) {
  vt::gpu::PickToken(args);
}
