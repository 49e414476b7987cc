// Launches of the nodes of experts: routers, grouped linears, their sum.
#pragma once

#include "vt/gpu/context.h"

namespace vt::gpu {

void CompileExperts(const Context& c, ir::NodeId id);
bool SupportsExperts(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                     const DeviceFacts& d);
int64_t ExpertWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);

}  // namespace vt::gpu
