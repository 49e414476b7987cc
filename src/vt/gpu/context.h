// Compiling a node: where values, weights, states and inputs are, and the launches that run it.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "vt/device/backend.h"
#include "vt/device/step_layout.h"
#include "vt/gpu/args.h"
#include "vt/gpu/driver.h"

namespace vt::gpu {

// Names of weight layouts: vectors are held as f32, matrices row by row in the device's value type
// with a pitch of a multiple of kPitch values, zeros at each row's end.
inline constexpr const char* kVectorLayout = "f32";
inline constexpr int64_t kPitch = 32;
inline constexpr int64_t PitchOf(int64_t columns) {
  return (columns + kPitch - 1) / kPitch * kPitch;
}
std::string MatrixLayout(ir::DType value_type);  // "rows.bf16"

// A kernel's launch, or a call of a library that only enqueues.
struct Launch {
  ir::NodeId node = -1;
  std::string kernel;  // with its type's suffix
  LaunchConfig config;
  std::vector<std::byte> args;
  std::function<base::Status(Stream)> library;  // instead of a kernel
  // Instead of this for a node that is run by itself, where this leaves a part of it to the next
  // node's launch; or none.
  std::vector<Launch> alone;
};

class BlasLt;

// What every family of kernels is told of the device.
struct DeviceFacts {
  DeviceProperties properties;
  ir::DType value_type = ir::DType::kBF16;
  bool cuda = false;
  BlasLt* blas = nullptr;  // matrix products of the vendor's library, or none
  // From so many on, weights go through linear_stream: the fewer there are, the more it counts that
  // a block's waves wait for one another.
  int64_t stream_bytes = int64_t{32} << 20;
  // Attention that can go about long tokens in another way costs others a little: from so many
  // blocks of a request's cache on, and so many heads that share a head of keys.
  int64_t long_blocks = 512, long_heads = 4;
};

// Memory of the backend's own that launches may read, uploaded when an executable is compiled.
using Constants = std::function<base::Result<void*>(const void* data, int64_t bytes)>;

// Tables of rotations on the device, made once a backend: a table of a long context takes a second.
struct RopeTables {
  struct Made {
    ir::RopeAttrs attrs;
    int64_t positions = 0;
    const float* data = nullptr;
  };
  std::vector<Made> made;
};

// Workspace of a plan, one after the other: a family's own part begins at its offset. That of
// linear nodes is recurrent ones' too.
struct Workspace {
  int64_t attention = 0, linear = 0, experts = 0, choice = 0, bytes = 0;  // multiples of 256
};

// A rectangular weight on the device.
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0, columns = 0, pitch = 0;  // values
};

struct Context {
  const ir::Plan& plan;
  const Bindings& bindings;
  const StepLayout& layout;
  const DeviceFacts& device;
  Constants constants;
  std::vector<Launch>& launches;
  base::Status& status;  // the first failure of the functions below; they go on with empty values
  RopeTables* rope_tables = nullptr;  // the backend's; without, each node makes its own

  const ir::Value& value(ir::ValueId id) const { return plan.graph.value(id); }
  const ir::Node& node(ir::NodeId id) const { return plan.graph.nodes[static_cast<size_t>(id)]; }
  const ir::Bucket& bucket() const { return plan.bucket; }

  const Header* header() const { return static_cast<const Header*>(bindings.inputs); }
  // A node's output, or a plain weight, as rows; the values are of `value(id).dtype` (weights f32).
  Rows RowsOf(ir::ValueId id) const;
  // How many such rows a step has, and how many the bucket has at most.
  Count CountOf(ir::ValueId id) const;
  int64_t MostRows(ir::ValueId id) const;
  // Whether each row starts on a multiple of 16 bytes.
  bool Aligned(ir::ValueId id) const;
  // A plain weight: f32.
  const float* Vector(ir::ValueId id) const;
  Matrix MatrixOf(ir::ValueId id) const;
  // An input of the step or a node's i32 output.
  const int32_t* Ints(ir::ValueId id) const;
  void* Address(ir::ValueId id) const;
  KvLayer Kv(ir::ValueId state) const;
  // Slots of a sampler's state.
  struct Slots {
    int32_t* words = nullptr;
    int64_t count = 0;
  };
  Slots SlotsOf(ir::ValueId state) const;
  // This plan's workspace, of at least what Target::WorkspaceBytes said.
  std::byte* workspace() const;

  // Where the families' parts of it begin.
  const Workspace& parts() const;

  // Fails with a sentence about a node.
  void Fail(ir::NodeId id, const std::string& what) const;

  // Appends a launch of `kernel` + the suffix of `type`.
  template <class Args>
  void Emit(ir::NodeId id, const std::string& kernel, ir::DType type, LaunchConfig config,
            const Args& args) const {
    Emit(id, kernel + Suffix(type), config, args);
  }
  // Of a kernel that is the same for all types.
  template <class Args>
  void Emit(ir::NodeId id, const std::string& kernel, LaunchConfig config, const Args& args) const {
    static_assert(std::is_trivially_copyable_v<Args>);
    Launch launch;
    launch.node = id;
    launch.kernel = kernel;
    launch.config = config;
    launch.args.resize(sizeof(Args));
    std::memcpy(launch.args.data(), &args, sizeof(Args));
    launches.push_back(std::move(launch));
  }
  static std::string Suffix(ir::DType type);  // "_bf16"

  mutable std::optional<Workspace> known_parts = {};
};

// KvLayer of a group, without data.
KvLayer KvLayerOf(const ir::StateGroup& group, int64_t block_size);

// cos and sin of a rotation, [positions][rotary_dim / 2][2] floats (cos, sin), times its magnitude.
std::vector<float> RopeTable(const ir::RopeAttrs& attrs, int64_t positions);
// Positions that a plan's requests can have.
int64_t MostPositions(const Context& c);
// The table of a rotation for MostPositions(c) on the device, made at its first use. nullptr after
// a failure, which c.status then has.
const float* RopeTableOf(const Context& c, const ir::RopeAttrs& attrs);

// One node, whatever it is; nothing for views.
void CompileNode(const Context& c, ir::NodeId id);

// --- families. Each appends the launches of the nodes that are its own (after views have been
// dealt with) and says which nodes it can run, what they need of the workspace and how many
// launches they take.
void CompileRows(const Context& c, ir::NodeId id);       // rows_steps.cc
void CompileLinear(const Context& c, ir::NodeId id);     // linear_steps.cc
void CompileAttention(const Context& c, ir::NodeId id);  // attention_steps.cc
void CompileLatent(const Context& c, ir::NodeId id);     // latent_steps.cc
void CompileChoice(const Context& c, ir::NodeId id);     // choice_steps.cc
void CompileRecurrent(const Context& c, ir::NodeId id);  // recurrent_steps.cc
void CompileEntries(const Context& c, ir::NodeId id);    // entry_steps.cc

bool SupportsLinear(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                    const DeviceFacts& d);
// Of a node that reads the cache; else nullptr.
const ir::AttentionAttrs* AttentionAttrsOf(const ir::Node& n);
bool SupportsAttention(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                       const DeviceFacts& d);
bool SupportsLatent(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b);
bool SupportsEntries(const ir::Graph& g, const ir::Node& n, const DeviceFacts& d);
bool SupportsRecurrent(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                       const DeviceFacts& d);

// Once a step, before its first node: what attention and the sampler share (work lists, counters).
void CompileStepBegin(const Context& c);  // attention_steps.cc
// Counters that are zero between launches, by which the last block of some tells that it is.
int64_t BlockCounterCount(const ir::Graph& g, const ir::Bucket& b);
int32_t* BlockCounters(const Context& c);  // attention_steps.cc

Workspace WorkspaceOf(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);
int64_t AttentionWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);
int64_t LinearWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);
int64_t RecurrentWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);
int64_t ChoiceWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d);

}  // namespace vt::gpu
