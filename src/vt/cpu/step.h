// A compiled node: work that is cut into chunks, which the team's members take one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "vt/cpu/kernels.h"
#include "vt/device/backend.h"
#include "vt/device/step_layout.h"

namespace vt::cpu {

// cos and sin of one rotation by position, grown on demand between steps. Shared by all executables
// of a backend.
class RopeTable {
 public:
  explicit RopeTable(const ir::RopeAttrs& attrs) : attrs_(attrs) {}
  // Not thread-safe: only between steps.
  void Ensure(int64_t positions);
  const ir::RopeAttrs& attrs() const { return attrs_; }
  const float* cos(int64_t position) const { return cos_.data() + position * half(); }
  const float* sin(int64_t position) const { return sin_.data() + position * half(); }

 private:
  int64_t half() const { return attrs_.rotary_dim / 2; }
  ir::RopeAttrs attrs_;
  std::vector<float> cos_, sin_;
};

// Rows of f32: row i stands at base + (i / inner) * stride + (i % inner) * width.
struct RowsView {
  float* base = nullptr;
  ir::Dim outer;  // number of groups of `inner` rows
  int64_t inner = 1;
  int64_t stride = 0;
  int64_t width = 0;

  float* row(int64_t i) const {
    return inner == 1 ? base + i * stride : base + (i / inner) * stride + (i % inner) * width;
  }
  int64_t count(const ir::Bucket& now) const { return outer.At(now) * inner; }
  bool dense() const { return inner == 1 || stride == inner * width; }
};

class Step {
 public:
  explicit Step(ir::NodeId node) : node(node) {}
  virtual ~Step() = default;
  // Called by one member before the others look: what all chunks of this very step share.
  virtual void Prepare(const ir::Bucket&) {}
  // Chunks of this very step, whose sizes are `now`; every member calls it and gets the same. 0:
  // nothing to do.
  virtual int64_t Chunks(const ir::Bucket& now) const = 0;
  virtual void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const = 0;
  // Scratch that Run needs, in bytes.
  virtual int64_t ScratchBytes() const { return 0; }

  const ir::NodeId node;
};
using Steps = std::vector<std::unique_ptr<Step>>;

// What compiling a node needs: where values, weights, states and inputs are.
struct Context {
  const ir::Plan& plan;
  const Bindings& bindings;
  const StepLayout& layout;
  const KernelSet& kernels;
  int threads = 1;
  std::function<std::shared_ptr<RopeTable>(const ir::RopeAttrs&)> rope_table;
  std::shared_ptr<std::vector<float>>
      partial;  // of attention over ranges of keys; every layer's in turn

  const ir::Value& value(ir::ValueId id) const { return plan.graph.value(id); }
  // A node's output, an f32 input or a plain weight, as rows.
  base::Result<RowsView> Rows(ir::ValueId id) const;
  // A vector of f32: a plain weight (or any value of one row).
  base::Result<const float*> Vector(ir::ValueId id) const;
  // Start of a node's output in the arena, of any type.
  base::Result<std::byte*> Arena(ir::ValueId id) const;
  // An i32 input of the step.
  base::Result<const int32_t*> Input(ir::ValueId id) const;
  base::Result<const DeviceWeight*> Weight(ir::ValueId id) const;
  base::Result<KvLayer> Kv(ir::ValueId state) const;
};

// Layout of a layer of a state group in this backend; data is left empty.
KvLayer KvLayerOf(const ir::StateGroup& group, int64_t block_size);

// Steps of a node, appended to `steps`; nothing for views. Errors: kUnsupported.
base::Status CompileNode(const Context& c, ir::NodeId id, Steps& steps);
// The parts of CompileNode, by kind of op.
base::Status CompileRows(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileLinear(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileGroupedLinear(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileHeadLinear(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileRecurrent(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileAttention(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileEntries(const Context& c, ir::NodeId id, Steps& steps);
base::Status CompileChoice(const Context& c, ir::NodeId id, Steps& steps);

// What the nodes of a plan share beside values (Target::WorkspaceBytes).
int64_t GroupedWorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket);
int64_t RecurrentWorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket);

Activate ActivateOf(ir::Activation fn);

// Names of layouts: plain vectors are held as f32, tables by rows as stored, linears in panels.
inline constexpr const char* kVectorLayout = "f32";
inline constexpr const char* kRowLayout = "row";
std::string PanelLayoutName(const KernelSet& k, ir::DType format);

}  // namespace vt::cpu
