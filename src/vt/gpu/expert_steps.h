// Launches of the nodes of experts: router, grouped linears, their sum.
#pragma once

#include "vt/gpu/context.h"

namespace vt::gpu {

// A norm and the router behind it in one launch.
bool IsNormRouter(ir::Op op);

void CompileExperts(const Context& c, ir::NodeId id);
bool SupportsExperts(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                     const DeviceFacts& d);
int64_t ExpertWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);

}  // namespace vt::gpu
