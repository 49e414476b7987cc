// Passes, one short file each, in the order of Lower().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "vt/ir/graph.h"
#include "vt/ir/target.h"

namespace vt::ir {

// Linears that read the same value become one node with row segments; users get slices (views) of
// its output. Only linears whose weights want the same activation format, that agree on having a
// bias.
void MergeLinears(Graph& graph, const Target& target, const Bucket& bucket);

// Inserts a quantize node before each linear whose weights want an activation format.
void InsertQuantize(Graph& graph, const Target& target, const Bucket& bucket);

// Equal ops on equal inputs with equal attributes become one.
void CommonSubexpressions(Graph& graph);

// Replaces sub-graphs by fused ops where the target supports them. Longest definitions first.
// Intermediate values that are used elsewhere, or are outputs, block a fusion unless the fused op
// yields them too.
void Fuse(Graph& graph, const Target& target, const Bucket& bucket);

// Takes merged linears apart that nothing was fused with, where their output's shape costs more
// than it saves: experts' rows would be copied, and rows of many tokens would start at odd
// addresses.
void SplitLinears(Graph& graph, const Bucket& bucket);

// Drops nodes whose outputs nobody uses; state writes stay.
void DropDeadNodes(Graph& graph);

// Where every value lives in the arena for one bucket. Views share their source's buffer.
//
// row_stride is the stride, in elements, between consecutive entries of the FIRST dimension; the
// inner dimensions are dense. So [T, H, D] cut out of a merged linear's [T, N] has row_stride N,
// its heads are D apart, and a dense value has row_stride = the product of its dimensions but the
// first.
//   A slice is a view when only its first dimension is not 1 besides the last; a reshape is a view
//   when its source is dense, or when both keep the same first dimension. Other slices and reshapes
//   own their buffer, and the backend copies: `buffer == the value itself` says so. The same holds
//   for views of inputs and weights, which are not in the arena. A view's producer need not run:
//   its bytes are written by the source's producer.
struct Placement {
  ValueId buffer =
      kNone;  // the value that owns the memory (itself unless a view); kNone: not in the arena
  int64_t offset =
      0;  // bytes from the arena's start of the first element; of owners, aligned to 64
  int64_t row_stride = 0;  // see above
  int64_t bytes = 0;       // of the owning buffer
};
struct MemoryPlan {
  int64_t arena_bytes = 0;
  std::vector<Placement> places;  // by value id
};
// Buffers are placed largest first at the lowest offset that is free during their life, from the
// producer to the last user of any view; graph outputs live to the end. A node's output never
// shares bytes with its inputs. Deterministic.
MemoryPlan PlanMemory(const Graph& graph, const Bucket& bucket);

// Predicted cost of a node: bytes read and written, operations, seconds by the roofline.
struct Cost {
  double bytes = 0;
  double flops = 0;
  double seconds = 0;
};
// `context` is the mean number of cached tokens a request attends to.
Cost Predict(const Graph& graph, const Node& node, const Bucket& bucket, int64_t context,
             const Rates& rates);

struct Plan {
  Bucket bucket;
  Graph graph;
  std::vector<std::string> kernels;  // by node
  MemoryPlan memory;
  // What the target asked for beside values, in the arena behind them.
  int64_t workspace_offset = 0, workspace_bytes = 0;
};

// Nodes that run: all but views.
int64_t CountComputed(const Plan& plan);

// Seconds of a step with `launches` of them, by the roofline.
double PredictStep(const Plan& plan, int64_t launches, int64_t context, const Rates& rates);

// All passes in order. `trace`, when given, receives (pass name, dump) after each.
Plan Lower(const Graph& graph, const Target& target, const Bucket& bucket,
           std::vector<std::pair<std::string, std::string>>* trace = nullptr);

// Only what the target cannot do without: quantise nodes, kernels and memory. Tests compare it with
// Lower.
Plan LowerUnoptimised(const Graph& graph, const Target& target, const Bucket& bucket);

// A table: node, op, kernel, shapes, arena offset, predicted bytes and microseconds; `measured`
// (seconds by node, may be empty) stands beside the prediction. `launches` of the whole step.
std::string DumpPlan(const Plan& plan, int64_t launches, const Rates& rates, int64_t context,
                     const std::vector<double>& measured);

}  // namespace vt::ir
