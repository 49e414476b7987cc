// The integers inside stored blocks, for backends that keep the bits and lay them out anew.
#pragma once

#include <cstdint>

#include "vt/ir/dtype.h"

namespace vt::ir {

// Codes of the 32 values from 32 i on of the block (of 32 or 256 values) at `block`: word j holds
// those of values 4 j to 4 j + 3, a byte each, as stored: offsets are not taken off, and those of
// IQ4 and MXFP4 are places in their tables. REQUIRES: a quantised format of weights.
void BlockCodes(DType t, const uint8_t* block, int i, uint32_t codes[8]);

}  // namespace vt::ir
