// Launches of routers: alone, or behind a norm.
#pragma once

#include "vt/gpu/args_router.h"
#include "vt/gpu/context.h"

namespace vt::gpu {

// A norm and the router behind it in one launch.
bool IsNormRouter(ir::Op op);
bool SupportsNormRouter(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                        const DeviceFacts& d);

void CompileRouter(const Context& c, ir::NodeId id);
void CompileNormRouter(const Context& c, ir::NodeId id);

// For the launch that is about to be emitted: the choice of these ids, if a norm's router makes
// them just before. Then that launch leaves it to this one, whose blocks each find theirs sooner
// than one block would find all.
RouterHere TakeChoice(const Context& c, ir::ValueId ids);

}  // namespace vt::gpu
