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
//
// `begins_late`: what is left of the router may run in norm_router_rows, whose blocks leave room
// beside them. That is no gain where this launch would take the room to fetch weights by the
// megabyte, unevenly, while the launches before need the memory.
RouterHere TakeChoice(const Context& c, ir::ValueId ids, bool begins_late);

}  // namespace vt::gpu
