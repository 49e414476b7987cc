// The type and shape rule of every op: what its outputs are, given its inputs and attributes.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "vt/ir/graph.h"

namespace vt::ir {

struct OutputType {
  DType dtype = DType::kF32;
  Shape shape;
};

// Outputs of `op`. Float results have the type of the first float node input, or f32. Of a state
// (kv_write) the entry stands for the next version. Errors: a sentence that names the op and the
// input that breaks the rule.
base::Result<std::vector<OutputType>> InferOutputs(Op op, const Attrs& attrs,
                                                   std::span<const Value> inputs);

}  // namespace vt::ir
