// Reference functions of experts, of matrices a head and of recurrent layers (see evaluate.cc for
// the others).
#pragma once

#include <vector>

#include "base/result.h"
#include "vt/ir/interpreter.h"

namespace vt::ir {

// `hashed`: by a table's row of each token (HashRouter), else by score (Router).
base::Result<std::vector<Tensor>> RouteExperts(const RouterAttrs& a,
                                               const std::vector<const Tensor*>& in, bool hashed);
base::Result<std::vector<Tensor>> GroupedLinear(const GroupedLinearAttrs& a,
                                                const std::vector<const Tensor*>& in);
Tensor ExpertSum(const Tensor& y, const Tensor& weights);
Tensor HeadLinear(const Tensor& x, const Tensor& w);
// The state's slots are read and written as the step's state_read and state_write say.
base::Result<std::vector<Tensor>> CausalConv(const ConvAttrs& a,
                                             const std::vector<const Tensor*>& in, KvState& state);
base::Result<std::vector<Tensor>> GatedDelta(const DeltaAttrs& a,
                                             const std::vector<const Tensor*>& in, KvState& state);

}  // namespace vt::ir
