// How a model file says what is computed: one call an operation, names from the checkpoint.
//
// The Builder asks a WeightSource for the stored type and shape of each weight. A missing tensor or
// a wrong shape is recorded as the build's error, so that model code needs no checks of its own: it
// reads like the formula.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "vt/ir/graph.h"

namespace vt::ir {

struct WeightInfo {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first
};
using WeightSource = std::function<std::optional<WeightInfo>(const std::string& name)>;

struct KvOptions {
  DType dtype = DType::kF16;
  int64_t block_size = 16;                    // tokens
  int64_t max_model_len = 2048;               // gives max_blocks, the width of the block tables
  std::optional<SamplerLayout> sampler = {};  // of the graph's sampler; none: Sample is an error
};

class Builder {
 public:
  Builder(std::string model_name, WeightSource weights, KvOptions kv);

  // --- the step's inputs
  // With a sampler the ids have passed token_feed.
  ValueId TokenIds();
  ValueId Positions();
  ValueId TokenTypes();
  ValueId OutputRows();
  ValueId SampleParams();  // f32 [O, 32], of the sample op

  // --- weights
  bool Has(const std::string& name) const;
  // REQUIRES a shape of exactly `shape` in the checkpoint, otherwise the build fails.
  ValueId Weight(const std::string& name, std::vector<int64_t> shape);
  // From here on every weight is taken to be there, as f32 of the shape asked for, and noted in
  // `asked`: what does a model need? Has still asks the source.
  void RecordInto(std::map<std::string, std::vector<int64_t>>* asked) { asked_ = asked; }
  // Declares that a tensor of the checkpoint is known and not needed (e.g. rotary inv_freq
  // buffers).
  void Ignore(const std::string& name) { used_.insert(name); }

  // --- operations (shapes as in op.h); `name` becomes the node's name
  ValueId Embed(const std::string& weight, int64_t vocab, int64_t width);
  ValueId EmbedOf(const std::string& weight, int64_t rows, int64_t width, ValueId ids);
  // weight "<name>.weight" [out, in]; with bias "<name>.bias" [out] when `bias`.
  ValueId Linear(ValueId x, const std::string& name, int64_t out, bool bias = false);
  // Without a weight where `weight` is empty.
  ValueId RmsNorm(ValueId x, const std::string& weight, float eps, float weight_offset = 0);
  // Without a bias where `bias` is empty.
  ValueId LayerNorm(ValueId x, const std::string& weight, const std::string& bias, float eps);
  ValueId Add(ValueId a, ValueId b);
  ValueId Mul(ValueId a, ValueId b);
  ValueId Scale(ValueId x, float multiply, float add = 0);
  ValueId Act(ValueId x, Activation fn);
  ValueId Clamp(ValueId x, float low, float high);
  ValueId SoftCap(ValueId x, float cap);                      // cap * tanh(x / cap)
  ValueId Heads(ValueId x, int64_t heads, int64_t head_dim);  // [T, H * D] -> [T, H, D]
  ValueId Slice(ValueId x, int64_t begin, int64_t size);
  ValueId Rope(ValueId x, const RopeAttrs& rope);
  // Keeps the rows whose logits are wanted: [T, D] -> [O, D]; each with the count - 1 behind it.
  ValueId OutputOnly(ValueId x, int64_t count = 1);
  // [T, width]: the step's media rows, and for tokens without one those of `x`, or zeros.
  ValueId Media(int64_t width, ValueId x = kNone);

  // --- attention with the KV cache. q [T, H, D], k and v [T, Hk, D]. Layers with the same window
  // share a state group. With attrs.sinks the weight `sinks` [heads].
  ValueId Attention(ValueId q, ValueId k, ValueId v, const AttentionAttrs& attrs,
                    const std::string& name, const std::string& sinks = {});
  // The same over what the attention called `of`, of the same cache, has written.
  ValueId AttentionOf(const std::string& of, ValueId q, const AttentionAttrs& attrs,
                      const std::string& name);
  // The same with a latent cache (attrs.v_dim): latent [T, 1, D] -> [T, H * v_dim].
  ValueId LatentAttention(ValueId q, ValueId latent, const AttentionAttrs& attrs,
                          const std::string& name);
  // x [T, H, K] by weight "<name>.weight" [H, out, K] -> [T, H, out]. A quantised weight is to be
  // held as f16.
  ValueId HeadLinear(ValueId x, const std::string& name, int64_t out);
  ValueId Concat(ValueId a, ValueId b);  // of the last dimension

  // --- experts. `name`.weight is [experts, out, in], used by the ids that Router gave.
  struct Routed {
    ValueId weights = kNone, ids = kNone;  // f32 and i32 [T, k]
  };
  // With attrs.bias the weight `bias` [experts], with attrs.expert_scales the weight `scales`.
  Routed Router(ValueId logits, const RouterAttrs& attrs, const std::string& name,
                const std::string& bias = {}, const std::string& scales = {});
  ValueId GroupedLinear(ValueId x, ValueId ids, const std::string& name, int64_t experts,
                        int64_t out);
  // y [T, k, N] plus the row of `bias` [experts, N] that each id says.
  ValueId ExpertBias(ValueId y, ValueId ids, const std::string& bias, int64_t experts);
  ValueId ExpertSum(ValueId y, ValueId weights);
  ValueId ScaleRows(ValueId x, ValueId s);  // s [.., 1]

  // --- a recurrent layer: filter, SiLU and the gated delta rule over qkv [T, channels], with gates
  // a and b [T, v_heads]; -> [T, v_heads, v_dim]. Its state is a slot of the recurrent group.
  // Weights of the checkpoint, by name: the filter [channels, width], A and dt [v_heads].
  struct DeltaWeights {
    std::string conv, a, dt;
  };
  ValueId GatedDeltaNet(ValueId qkv, ValueId a, ValueId b, const DeltaAttrs& attrs,
                        int64_t conv_width, const DeltaWeights& weights, const std::string& name);

  // --- caches of which some tokens leave an entry (builder_entries.cc). Such a state has one
  // vector of `width` numbers a token; with a window, of the last tokens alone.
  struct Cache {
    ValueId state = kNone;  // newest version
    int group = -1;
  };
  Cache MakeCache(int64_t width, int64_t window = 0);
  // The most rows that entries of windows of `ratio` tokens may stand in.
  int64_t EntryRows(int64_t ratio) const;
  void Write(Cache& cache, ValueId x, const std::string& name);  // x [T, 1, width]
  // Weights `bias` [ratio, attrs.width()] and `norm` [dim].
  void Compress(const Cache& raw, Cache& entries, const CompressAttrs& attrs,
                const std::string& bias, const std::string& norm, const std::string& name);
  // q [T, H, D], weights [T, H] -> i32 [T, top_k].
  ValueId IndexEntries(ValueId q, ValueId weights, const Cache& entries, const EntryAttrs& attrs,
                       const std::string& name);
  // The weight `sinks` [heads]; ids where attrs.top_k is not 0. -> [T, H * D].
  ValueId EntryAttention(ValueId q, const Cache& window, const Cache& entries, ValueId ids,
                         const EntryAttrs& attrs, const std::string& sinks,
                         const std::string& name);

  // --- several streams x [T, H, D] in place of one residual: what a block reads of them, and they
  // with what it gave. Weights "<name>fn" [M, H * D], "<name>base" [M],
  // "<name>scale".
  struct Collapsed {
    ValueId x = kNone, gates = kNone;
  };
  Collapsed HyperCollapse(ValueId streams, const HyperAttrs& attrs, const std::string& name);
  ValueId HyperExpand(ValueId streams, ValueId y, ValueId gates);

  // As Router, by the row of `table` [vocabulary, top_k] of each token.
  Routed HashRouter(ValueId logits, const RouterAttrs& attrs, const std::string& name,
                    const std::string& table, int64_t vocabulary);

  // --- the end: chooses a token a row, and lists the best ones where a row asks for them.
  struct Sampled {
    ValueId tokens = kNone;  // i32 [O]
    ValueId values = kNone;  // f32 [O, kLogprobValues]
    ValueId ids = kNone;     // i32 [O, kBestTokens]
  };
  // REQUIRES: KvOptions::sampler of the logits' vocabulary.
  Sampled Sample(ValueId logits);

  // --- any op by hand
  ValueId Emit(Op op, std::string name, std::vector<ValueId> inputs, Attrs attrs = {});

  // Says which value the head reads: the final hidden states of the output rows.
  void MarkHidden(ValueId x) { graph_.hidden = x; }

  // Ends the graph. Errors: the first missing weight, wrong shape or misuse, by name.
  base::Result<Graph> Finish(std::vector<ValueId> outputs);

  // Weights asked for so far (every tensor of a file must be in here, or is an error of the
  // loader).
  const std::set<std::string>& used() const { return used_; }
  // Records the first error; later calls keep it.
  void Fail(std::string message);

 private:
  // Attention over the version `state` of a layer's cache.
  ValueId AttendOver(ValueId state, ValueId q, const AttentionAttrs& attrs, const std::string& name,
                     const std::string& sinks);
  // Attention over a state of its own to which `kv` (k and v, or a latent vector) is written.
  ValueId Attend(ValueId q, std::vector<ValueId> kv, const AttentionAttrs& attrs,
                 const std::string& name, const std::string& sinks);
  // The group of states of this kind, new or not.
  int PagedGroup(int64_t window, int64_t kv_heads, int64_t head_dim, bool latent);
  ValueId BlockTable(int group);
  ValueId Input(const std::string& name, Shape shape);
  ValueId State(const std::string& name, int group, DType dtype, Shape shape);
  // The newest version of the sampler's state; kNone after an error.
  ValueId SamplerState();

  Graph graph_;
  WeightSource weights_;
  KvOptions kv_;
  std::map<std::string, ValueId> by_name_;
  ValueId sampler_state_ = kNone;  // newest version
  ValueId fed_ids_ = kNone;
  std::set<std::string> used_;
  std::map<std::string, std::vector<int64_t>>* asked_ = nullptr;
  std::optional<base::Error> error_;
};

}  // namespace vt::ir
