// The one table of op cases: small graphs with the steps to run them in. It runs on any backend as
// a test (op_conformance_test), and prints as a speed table and a support matrix (op_table).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vt/device/backend.h"
#include "vt/ir/graph.h"

namespace tests {

// One step: how many tokens each request adds to what it has cached, and the padding of the bucket.
struct OpStep {
  std::vector<int64_t> added;
  int64_t padding_tokens = 0;
  int64_t padding_requests = 0;
};

struct OpCase {
  std::string name;  // "linear.Q4_K.n33.k256": letters, digits, '.' and '_'
  vt::ir::Graph graph;
  std::vector<OpStep> steps;  // in order, on one cache
  int64_t block_size = 16;
  // Bound on max|a - b| / max|b| a row, node by node: f32 sums in another order than the
  // reference's.
  bool optional = false;  // a device may lack it
  double tolerance =
      4e-5;  // f32 sums in another order; VNNI also cancels an offset of 128 in each code
  // Of the outputs of a recurrent case in 16 bits, to which all its tokens' roundings have added.
  double recurrent_bound = 0.1;
};

std::vector<OpCase> OpCases();
// Larger shapes, to be timed: one step each.
std::vector<OpCase> SpeedCases();

struct CaseResult {
  bool supported = true;
  std::string why;       // the first node that the backend lacks
  std::string error;     // of a call, or a broken invariant; empty when all went well
  double max_error = 0;  // largest error divided by its bound, times `tolerance`
  double tolerance = 0;
  std::string worst;         // node of the largest error
  double seconds = 0;        // of the last step, best of a few runs
  double predicted = 0;      // by the roofline
  double bytes = 0;          // that the last step must move, by the roofline
  int nodes = 0, fused = 0;  // in the last step's plan
};

// Lowers the case for the backend (all passes, or only what it cannot do without), runs it node by
// node, and compares every node's outputs with the reference function on the node's actual inputs;
// then the graph's outputs with the interpreter's own run from start to end.
// With kLaunchOnly it gives each step to the backend and looks at no result.
inline constexpr int kLaunchOnly = -1;
CaseResult RunCase(const OpCase& c, vt::Backend& backend, bool optimise, int timed_runs = 0);

}  // namespace tests
