// What the passes share when they edit a graph.
#pragma once

#include <vector>

#include "vt/ir/graph.h"

namespace vt::ir {

// Sets every value's producer after nodes were moved, added or dropped. Values of dropped nodes
// keep their id, without a producer: nobody reads them.
void Renumber(Graph& graph);

// Appends a node-produced value; its producer is set by Renumber.
ValueId AddValue(Graph& graph, std::string name, DType dtype, Shape shape);

// Whether the op only gives another view of its input's bytes (if memory allows: see PlanMemory).
inline bool IsView(Op op) { return op == Op::kReshape || op == Op::kSlice; }

}  // namespace vt::ir
