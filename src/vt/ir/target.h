// What the passes must know of a device, and nothing else. device::Backend implements it.
#pragma once

#include <cstdint>
#include <string>

#include "vt/ir/graph.h"

namespace vt::ir {

// How a weight is used, which decides its layout: a table is read row by row, a linear by panels. A
// tensor used as both (tied embeddings) is stored once in the linear layout, from which rows can be
// read too.
enum class WeightUse : uint8_t { kPlain, kEmbedding, kLinear };

struct WeightLayout {
  std::string name;   // "row", or a backend's own, e.g. "panel8.Q4_K"
  int64_t bytes = 0;  // of the whole tensor, padding included
  bool operator==(const WeightLayout&) const = default;
};

struct Rates {  // of the machine, for the roofline
  double bytes_per_second = 1e10;
  double flops_per_second = 1e11;     // of plain dtypes
  double int8_ops_per_second = 2e11;  // of quantised dot products
  double seconds_per_node = 1e-6;
};

struct Plan;  // passes.h

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string TargetName() const = 0;  // "cpu-avx2"

  // Whether a kernel exists for this node with its inputs' types and this bucket's sizes. Every
  // primitive that models use must be supported.
  virtual bool Supports(const Graph& graph, const Node& node, const Bucket& bucket) const = 0;

  // Memory that the plan's nodes share beside the arena's values: partial sums, work lists, the
  // workspaces of libraries. Bytes.
  virtual int64_t WorkspaceBytes(const Graph& graph, const Bucket& bucket) const {
    (void)graph, (void)bucket;
    return 0;
  }
  // How many launches run a step of this plan, as a captured graph has nodes.
  virtual int64_t Launches(const Plan& plan) const = 0;

  // Type of values between nodes: f32 on CPUs, bf16 on GPUs.
  virtual DType ValueType() const = 0;

  // Which form a linear wants its input in for a weight of this format: ValueType() or an
  // activation format.
  virtual DType ActivationFormat(DType weight, const Bucket& bucket) const = 0;

  // The type that a matrix stored as `stored` has on this device: that of its values where it is
  // converted when it is loaded.
  virtual DType HeldFormat(DType stored) const { return stored; }

  // Layout in which the backend holds a weight. Rows and columns are those of the checkpoint:
  // [rows, columns].
  virtual WeightLayout LayoutFor(DType format, int64_t rows, int64_t columns,
                                 WeightUse use) const = 0;

  // Name of the kernel that runs this node in this bucket, for dumps: "gemv.Q4_K.avx2".
  virtual std::string PickKernel(const Graph& graph, const Node& node,
                                 const Bucket& bucket) const = 0;

  virtual Rates MachineRates() const = 0;
};

}  // namespace vt::ir
