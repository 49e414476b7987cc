// Fused ops as data: each is a small graph of primitives, which is at once its pattern, its meaning
// and its fallback.
#pragma once

#include <span>
#include <vector>

#include "vt/ir/graph.h"

namespace vt::ir {

// Of a part's inputs, as the last: all that follow, however many (a linear's weights and biases).
// They follow the fused op's other inputs.
inline constexpr int kRest = -1000;
// Of a context's inputs: whatever it is.
inline constexpr int kAny = -1001;
// The second output of a part: the state that an op which yields a value leaves.
inline constexpr int kSecond = 500;
constexpr int Second(int part) { return part + kSecond; }

struct FusedPart {
  Op op = Op::kAdd;
  std::vector<int> inputs;  // >= 0: output of that earlier part (or Second of it); < 0: input ~i of
                            // the fused op
  // Must be there, after the others, but is not part of the fused op: it ties together what reaches
  // it on several ways.
  bool context = false;
};

struct FusedDefinition {
  Op op = Op::kAdd;
  int inputs = 0;  // without the rest
  std::vector<FusedPart> parts;
  std::vector<int> outputs;  // parts whose results (or Second of them) are the fused op's outputs,
                             // in order; the last part that is no context is one of them
  // Further condition on the attributes of the parts (nullptr: none), e.g. that a linear has one
  // segment.
  bool (*predicate)(std::span<const Attrs> parts) = nullptr;
};

// Parts that are computed: all but the context, which stands at the end.
size_t ComputedParts(const FusedDefinition& d);

// Where a part's output stands in a list of the first outputs of all parts, then the second ones.
inline size_t ResultIndex(const FusedDefinition& d, int i) {
  return static_cast<size_t>(i % kSecond) + (i >= kSecond ? d.parts.size() : 0);
}

// The values of a part's inputs among results of earlier parts (by ResultIndex) and the fused op's
// inputs.
template <typename T>
std::vector<T> ArgumentsOf(const FusedDefinition& d, size_t part, const std::vector<T>& results,
                           std::span<const T> inputs) {
  std::vector<T> args;
  for (const int i : d.parts[part].inputs) {
    if (i == kRest) {
      args.insert(args.end(), inputs.begin() + d.inputs, inputs.end());
    } else {
      args.push_back(i >= 0 ? results[ResultIndex(d, i)] : inputs[static_cast<size_t>(~i)]);
    }
  }
  return args;
}
// Whether the op takes more inputs than FusedDefinition::inputs.
bool IsVariadic(const FusedDefinition& d);

// All definitions, those with more parts first.
std::span<const FusedDefinition> FusedDefinitions();
const FusedDefinition& DefinitionOf(Op fused);

}  // namespace vt::ir
