#include "vt/gpu/kernels/attention_row_set.h"

namespace vt::gpu {

VT_ATTENTION_ROW_SET(f16, ::gpu::f16)

}  // namespace vt::gpu
