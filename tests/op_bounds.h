// What a result may be off by, beside the rounding of sums that a case's tolerance covers.
#pragma once

#include "vt/ir/graph.h"

namespace tests {

// Beside activations of 16 bits a linear's weights count as of their type (op.h): the reference
// follows, so that the bound stays that of the sums.
bool CountsAsX(const vt::ir::Graph& g, const vt::ir::Node& node, vt::ir::ValueId input);

// What a result may be off by its own rounding, and that of what a fused op keeps inside, relative
// to the row's largest.
double RoundingOf(vt::ir::DType t);

// What a product may be off by whose weights are unpacked from codes in x's own arithmetic, a few
// roundings each; 0 where they are not.
double UnpackingOf(vt::ir::DType weight, vt::ir::DType x);

// Whether keys and values reach the cache from inside a fused op: their rounding there may fall the
// other way than the reference's.
bool WritesCacheFused(const vt::ir::Graph& g);

// Whether the op is attention, or ends in it.
bool ReadsCache(vt::ir::Op op);

// Whether the op quantises what it reads then itself.
bool QuantisesWithin(vt::ir::Op op);

}  // namespace tests
