// The graph of one step: a flat SSA array of nodes over values. No loops, no branches; three
// symbolic sizes.
//
// Values are inputs of the step, weights, states, or node outputs. A state (KV cache, recurrent
// state) is a versioned value: an op that writes it takes one version and yields the next, so no
// pass can reorder a write and a read. Plain data, copyable; not thread-safe for writing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "vt/ir/dtype.h"
#include "vt/ir/op.h"
#include "vt/ir/sampler_layout.h"

namespace vt::ir {

// Sizes of a step: T tokens, R requests, O output rows (rows whose logits are wanted).
struct Bucket {
  int64_t tokens = 1;
  int64_t requests = 1;
  int64_t outputs = 1;
  bool operator==(const Bucket&) const = default;
};

enum class Sym : uint8_t { kOne, kTokens, kRequests, kOutputs };

// count * symbol (+ plus): 64, T, R + 1.
struct Dim {
  int64_t count = 1;
  Sym sym = Sym::kOne;
  int64_t plus = 0;

  Dim() = default;
  Dim(int64_t n) : count(n) {}  // NOLINT: implicit
  Dim(int64_t n, Sym s, int64_t p = 0) : count(n), sym(s), plus(p) {}
  int64_t At(const Bucket& b) const;
  bool operator==(const Dim&) const = default;
};
inline Dim T() { return {1, Sym::kTokens}; }
inline Dim R() { return {1, Sym::kRequests}; }
inline Dim O() { return {1, Sym::kOutputs}; }

using Shape = std::vector<Dim>;  // outermost first; the last dimension is contiguous
int64_t Elements(const Shape& shape, const Bucket& b);
// Elements of all dimensions but the last.
int64_t Rows(const Shape& shape, const Bucket& b);
std::string ToString(const Shape& shape);

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNone = -1;

enum class ValueKind : uint8_t { kInput, kWeight, kState, kNode };

struct Value {
  std::string
      name;  // of weights: the checkpoint's name; of node outputs: "<node>" or "<node>:<output>"
  DType dtype = DType::kF32;
  Shape shape;
  ValueKind kind = ValueKind::kNode;
  NodeId producer = -1;  // of kNode and of later state versions
  int group = -1;        // kState: index into Graph::state_groups; `layer` within it
  int layer = -1;
};

// Attributes of ops; an op uses one of these (see op.h's table). Compared by common
// sub-expressions.
enum class Activation : uint8_t {
  kSilu,
  kGeluTanh,
  kGelu,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kSoftplus,
  kSquaredRelu,
  kQuickGelu  // x * sigmoid(1.702 x)
};

struct NormAttrs {
  float eps = 1e-6f;
  float weight_offset = 0;  // y = x / rms * (w + offset): 1 for Gemma's safetensors
  bool operator==(const NormAttrs&) const = default;
};
struct ScaleAttrs {
  float multiply = 1;
  float add = 0;
  bool operator==(const ScaleAttrs&) const = default;
};
struct ClampAttrs {
  float low = 0, high = 0;  // may be infinite
  bool operator==(const ClampAttrs&) const = default;
};
struct UnaryAttrs {
  Activation fn = Activation::kSilu;
  bool operator==(const UnaryAttrs&) const = default;
};
struct LinearAttrs {
  int segments = 1;  // weights in the inputs, whose rows are stacked in the output's last dimension
  bool bias = false;  // then as many biases follow the weights
  bool operator==(const LinearAttrs&) const = default;
};
struct SliceAttrs {  // of the last dimension
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const SliceAttrs&) const = default;
};
struct GatherAttrs {
  int64_t count = 1;  // rows that one index takes
  bool operator==(const GatherAttrs&) const = default;
};
struct ReshapeAttrs {
  Shape shape;  // of the result
  bool operator==(const ReshapeAttrs&) const = default;
};
struct ConvertAttrs {
  DType dtype = DType::kF32;
  bool operator==(const ConvertAttrs&) const = default;
};
// Rotation of pairs (i, i + rotary_dim / 2) (neox) or (2 i, 2 i + 1) (interleaved) by position *
// frequency[i]. Values past rotary_dim pass through. cos and sin are multiplied by `magnitude`
// (yarn's attention factor).
struct RopeAttrs {
  int64_t rotary_dim = 0;
  bool interleaved = false;
  float magnitude = 1;
  // > 0: cos and sin grow with the position: by 1 + growth * log(1 + floor((position + 1) /
  // floor)). With frequencies of 0 that scales queries by position (Llama 4).
  float growth = 0, floor = 1;
  std::vector<float> frequencies;  // rotary_dim / 2 of them, radians a position
  double MagnitudeAt(int64_t position) const;
  bool operator==(const RopeAttrs&) const = default;
};
struct AttentionAttrs {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // head_dim of q, k and v
  float scale = 1;
  float softcap = 0;     // 0: none; else scores become cap * tanh(score / cap) before the mask
  int64_t window = 0;    // 0: all; else a query sees itself and the window - 1 positions before it
  bool chunked = false;  // of those, only the ones since the last multiple of the window
  bool causal = true;
  bool sinks = false;  // each head has one more score in its softmax's sum, of no key
  // > 0: the cache is latent: one vector of head_dim numbers a token (kv_heads is 1), whose first
  // v_dim are its value too.
  int64_t v_dim = 0;
  bool latent() const { return v_dim > 0; }
  int64_t value_dim() const { return latent() ? v_dim : head_dim; }
  // The first position that a query at `position` sees.
  int64_t First(int64_t position) const {
    if (window <= 0) return 0;
    const int64_t first = chunked ? position - position % window : position - window + 1;
    return first > 0 ? first : 0;
  }
  bool operator==(const AttentionAttrs&) const = default;
};
// Which experts a token goes to. A score is softmax over all experts or sigmoid; chosen by score
// (+ bias), in falling order, ties to the lower id (NaN never wins); weighted by the score without
// the bias.
struct RouterAttrs {
  int64_t top_k = 1;
  bool sigmoid = false;
  bool root = false;       // instead: the square root of softplus (DeepSeek-V4)
  bool normalise = false;  // weights are divided by their sum
  float scale = 1;         // of the weights, at the end
  // Experts in groups of the same size: only those of the best `top_groups` stay, by the sum of a
  // group's two best, or by its best alone.
  int64_t groups = 1, top_groups = 1;
  bool group_max = false;
  bool bias = false;
  bool expert_scales = false;  // at the very end a weight is multiplied by its expert's
  bool operator==(const RouterAttrs&) const = default;
};
struct GroupedLinearAttrs {
  int segments = 1;
  bool operator==(const GroupedLinearAttrs&) const = default;
};
// Depthwise filter of `width` taps, the last for the token itself. Of the slot's state it keeps the
// first (width - 1) * channels floats: the last rows, oldest first.
struct ConvAttrs {
  int64_t channels = 0, width = 0;
  int64_t state_floats() const { return (width - 1) * channels; }
  bool operator==(const ConvAttrs&) const = default;
};
// The gated delta rule. qkv holds k_heads queries and keys of k_dim and v_heads values of v_dim. Of
// head h, whose key head is h / (v_heads / k_heads), or h % k_heads when `tiled`:
//   q = l2norm(q) / sqrt(k_dim), k = l2norm(k), with l2norm(x) = x / sqrt(sum x^2 + eps)
//   S *= exp(A' softplus(a + dt)), A' = log_a ? -exp(A) : A
//   S += k (sigmoid(b) (v - k^T S))^T;  y = q^T S
// S [k_dim, v_dim], f32, a head after another, stands in the slot after `state_begin` floats.
struct DeltaAttrs {
  int64_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  int64_t state_begin = 0;
  bool log_a = true;
  bool tiled = false;
  float eps = 1e-6f;
  int64_t channels() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  int64_t state_floats() const { return v_heads * k_dim * v_dim; }
  bool operator==(const DeltaAttrs&) const = default;
};
// Entries of a cache (DeepSeek-V4): one of `dim` values for each window of `ratio` tokens. It
// stands in the rows of the window's last `rows` tokens in the entries' state, dim / rows values in
// each, behind `begin`. These tokens are of one block, so that who shares a block shares its
// entries. An entry is rope(rms_norm(sum of values, each weighted by the softmax of its gates +
// bias over the window), w), the last rotary_dim of it rotated by the window's first position.
// Overlapping, values and gates are twice as wide: the last half counts in a token's own window,
// the first in the next.
struct CompressAttrs {
  int64_t ratio = 1, rows = 1, dim = 0;
  bool overlap = false;
  int64_t values = 0, gates = 0;  // where they begin in a token's row of the raw state
  int64_t begin = 0;
  float eps = 1e-6f;
  RopeAttrs rope;
  int64_t width() const { return overlap ? 2 * dim : dim; }
  bool operator==(const CompressAttrs&) const = default;
};
// What reads entries. An index scores each by sum over heads of weight * relu(q . entry), and keeps
// top_k of those that are complete (ties to the lower id). Attention is over the `window` last
// tokens, whose vectors are keys and values, entries (top_k > 0: the chosen ones; ratio 0: none)
// and a sink.
struct EntryAttrs {
  int64_t heads = 0, dim = 0;
  int64_t ratio = 0, rows = 1, begin = 0;
  int64_t top_k = 0;
  int64_t window = 0;
  float scale = 1;
  bool operator==(const EntryAttrs&) const = default;
};
// Several streams in place of one residual (DeepSeek-V4). With m the mixes, which belong to
// x / sqrt(mean(x^2) + norm_eps) of all streams: y = sum of (sigmoid(m scale + base) + eps) x; then
// H gates 2 sigmoid(..) of the next block's result, and an H x H matrix: softmax of rows + eps,
// whose columns and rows are divided by their sum + eps `rounds` times in all, columns first and
// last.
struct HyperAttrs {
  int64_t rounds = 0;
  float eps = 1e-6f, norm_eps = 1e-6f;
  bool operator==(const HyperAttrs&) const = default;
};
struct SamplerAttrs {
  SamplerLayout layout;  // of a slot of the state
  bool operator==(const SamplerAttrs&) const = default;
};
// Fused ops keep the attributes of the primitives that define them, in the order of the definition.
struct Attrs;
struct FusedAttrs {
  std::vector<Attrs> parts;
  bool operator==(const FusedAttrs&) const;
};
struct Attrs {
  std::variant<std::monostate, NormAttrs, ScaleAttrs, ClampAttrs, UnaryAttrs, LinearAttrs,
               SliceAttrs, GatherAttrs, ReshapeAttrs, ConvertAttrs, RopeAttrs, AttentionAttrs,
               RouterAttrs, GroupedLinearAttrs, ConvAttrs, DeltaAttrs, CompressAttrs, EntryAttrs,
               HyperAttrs, SamplerAttrs, FusedAttrs>
      v;
  bool operator==(const Attrs&) const = default;

  template <typename A>
  const A& as() const {
    return std::get<A>(v);
  }
};
inline bool FusedAttrs::operator==(const FusedAttrs& o) const { return parts == o.parts; }

struct Node {
  Op op = Op::kAdd;
  std::string name;  // e.g. "model.layers.0.self_attn.q_proj"
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
};

// One kind of state. Of the paged kinds each attention layer of the group has its own buffer, and
// all share a block table. A kSlot group is an array of slots of slot_bytes (a layer), which an
// index chooses; the one named "sampler" holds what sampler_layout.h says, the one named
// "recurrent" what ConvAttrs and DeltaAttrs say, and each slot of "media" a row of f32 that stands
// for a token of the step.
struct StateGroup {
  enum class Kind : uint8_t { kPagedGlobal, kPagedWindow, kSlot };
  std::string name;  // "global", "window", "sampler"
  Kind kind = Kind::kPagedGlobal;
  DType dtype = DType::kF16;
  int layers = 0;
  int64_t kv_heads = 0, head_dim = 0;
  int64_t window = 0;      // of kPagedWindow, in tokens
  int64_t slot_bytes = 0;  // of kSlot, a layer
  bool latent = false;     // one vector a token is key and value
  int64_t bytes_per_token_and_layer() const {
    return (latent ? 1 : 2) * kv_heads * head_dim * Info(dtype).bytes;
  }
};

inline constexpr const char* kSamplerGroup = "sampler";  // names of the slot groups
inline constexpr const char* kRecurrentGroup = "recurrent";
inline constexpr const char* kMediaGroup = "media";

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;  // in an order of execution
  std::vector<StateGroup> state_groups;
  std::vector<ValueId> outputs;
  ValueId hidden = kNone;  // [O, D]: what the head reads, for embeddings

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  // Consumers of every value: result[value] = nodes, ascending.
  std::vector<std::vector<NodeId>> Users() const;
};

// How many nodes are this op: golden runs assert that each fused op of a model was used.
int CountNodes(const Graph& graph, Op op);

std::string ToString(const Attrs& attrs);

// Every rule that a graph obeys: ids in range, SSA order, arity and shapes as the op table says.
base::Status Verify(const Graph& graph);

// One line a node: name, op, inputs, shapes, attributes.
std::string Dump(const Graph& graph);

// Names of the step's inputs, all i32. In the packed buffer they stand in this order (see step.h).
// [T]; the id embedded at each row; with a sampler, -1 - s is the last token of slot s.
inline constexpr const char* kTokenIds = "token_ids";
inline constexpr const char* kPositions = "positions";  // [T]; position of the token in its request
inline constexpr const char* kQueryStart = "query_start";  // [R + 1]; first row of each request
inline constexpr const char* kSeqLens = "seq_lens";  // [R]; tokens in the cache after this step
inline constexpr const char* kOutputRows = "output_rows";  // [O]; rows whose logits are wanted
inline constexpr const char* kTokenTypes = "token_types";  // [T]; of encoders: segment of the token
inline constexpr const char* kMediaRows = "media_rows";  // [T]; the token's slot of "media", or -1
// Per paged state group g: "slots.<g>" [T], block * block_size + offset, or -1 (padding: nothing is
// written); "block_table.<g>" [R, max_blocks].
// [R]; the recurrent slot that a request's state is read from (-1: it is new, and its state zero)
// and the one it is written to (-1: nowhere). They may be the same.
inline constexpr const char* kStateRead = "state_read";
inline constexpr const char* kStateWrite = "state_write";
inline constexpr const char* kSampleParams = "sample_params";  // f32 [O, 32]; see sampling.h
std::string SlotsName(int group);
std::string BlockTableName(int group);

}  // namespace vt::ir
