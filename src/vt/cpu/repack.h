// Checkpoint tensors to the panels of formats.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vt/device/backend.h"

namespace vt::cpu {

// Bytes of one panel of `nr` rows; 0 when the format has no panels or k is not a whole number of
// its blocks. With `pairs` bf16 lies as [k / 2][nr][2], else as [k][nr].
int64_t PanelBytesOf(ir::DType format, int nr, bool pairs, int64_t k);

// Writes panels [begin, end) of `src` to where they belong in `dst`. Rows past the tensor's end
// become zeros.
void RepackPanels(const WeightView& src, int nr, bool pairs, int64_t begin, int64_t end,
                  std::byte* dst);

}  // namespace vt::cpu
