#include "vt/gpu/tiles/choice_logprobs.h"

GPU_KERNEL(top_logprobs_scan_f32, vt::gpu::ChoiceArgs, vt::gpu::kChoiceScanThreads) {
  vt::gpu::ScanLogprobs(args);
}
GPU_KERNEL(top_logprobs_list_f32, vt::gpu::ChoiceArgs, vt::gpu::kChoicePickThreads) {
  vt::gpu::ListLogprobs(args);
}
