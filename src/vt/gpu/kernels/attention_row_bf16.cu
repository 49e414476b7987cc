#include "vt/gpu/kernels/attention_row_set.h"

namespace vt::gpu {

VT_ATTENTION_ROW_SET(bf16, ::gpu::bf16)

}  // namespace vt::gpu
