// Experts' matrices of plain values where rows of x are few.
#pragma once

#include "vt/gpu/context.h"

namespace vt::gpu {

// Grouped linears, with an act_mul or a weighted sum behind them or without.
bool SupportsPlainExperts(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                          const DeviceFacts& d);
void CompilePlainExperts(const Context& c, ir::NodeId id);

}  // namespace vt::gpu
