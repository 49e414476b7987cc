// Random weights of op cases, as stored and as the values that they mean.
#pragma once

#include <cstddef>
#include <vector>

#include "vt/ir/graph.h"

namespace tests {

// A weight as stored, and the values that it means.
struct StoredWeight {
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

// The values after a round trip through the type.
std::vector<float> RoundedTo(vt::ir::DType t, std::vector<float> values);

// Of about `size`; vectors are about 1, or -1 where their name begins with "negative.". The same
// for the same name.
StoredWeight RandomWeight(const vt::ir::Value& v, float size);

}  // namespace tests
