// What nodes of experts' matrices take and give, whatever runs them.
#pragma once

#include <vector>

#include "vt/gpu/rows_work.h"
#include "vt/ir/graph.h"

namespace vt::gpu {

// What the forms of a grouped linear have in common.
struct Grouped {
  ir::ValueId x = ir::kNone, ids = ir::kNone, weights = ir::kNone, out = ir::kNone;
  ir::ValueId residual = ir::kNone, second = ir::kNone;  // what is added
  // A shared expert: its row, its gate, its result where that is apart; its matrices.
  ir::ValueId shared_x = ir::kNone, gate = ir::kNone, shared_out = ir::kNone;
  std::vector<ir::ValueId> shared;
  std::vector<ir::ValueId> matrices;
  RowFn act = RowFn::kNone;
};

Grouped ReadGrouped(const ir::Node& n);

// Rows of x and experts, of the bucket.
struct GroupedShape {
  int64_t tokens = 1, chosen = 1, experts = 1, k = 0;
  int64_t pairs() const { return tokens * chosen; }
};
GroupedShape ShapeOf(const ir::Graph& g, const Grouped& l, const ir::Bucket& b);

}  // namespace vt::gpu
