// Fused ops as data: each is a small graph of primitives, which is at once its pattern, its meaning
// and its fallback.
#pragma once

#include <span>
#include <vector>

#include "vt/ir/graph.h"

namespace vt::ir {

struct FusedPart {
  Op op = Op::kAdd;
  std::vector<int> inputs;  // >= 0: output of that earlier part; < 0: input ~i of the fused op
};

struct FusedDefinition {
  Op op = Op::kAdd;
  int inputs = 0;
  std::vector<FusedPart> parts;
  std::vector<int> outputs;  // parts whose results are the fused op's outputs, in order; the last
                             // part is the root
  // Further condition on the attributes of the parts (nullptr: none), e.g. that a linear has one
  // segment.
  bool (*predicate)(std::span<const Attrs> parts) = nullptr;
};

// All definitions, those with more parts first.
std::span<const FusedDefinition> FusedDefinitions();
const FusedDefinition& DefinitionOf(Op fused);

}  // namespace vt::ir
