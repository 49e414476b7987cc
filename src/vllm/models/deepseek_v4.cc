// DeepSeek-V4: one vector a token is key and value, seen through a window, beside entries that each
// stand for a window of older tokens; several residual streams, mixed by each block; experts by
// score, or by the token.
#include <cmath>
#include <limits>

#include "base/strings.h"
#include "vllm/models/deepseek_v4_files.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::Dim;
using vt::ir::RopeAttrs;
using vt::ir::Shape;
using vt::ir::ValueId;
using weights::Config;

struct Layer {
  Builder& b;
  const Config& c;
  DeepSeekV4Layer kind;
  RopeAttrs rope;

  ValueId Norm(ValueId x, const std::string& name) const {
    return b.RmsNorm(x, name + ".weight", c.rms_norm_eps);
  }
  // The last values of each head are rotated.
  ValueId Rotate(ValueId x, int64_t head_dim, const RopeAttrs& by) const {
    const int64_t kept = head_dim - by.rotary_dim;
    if (kept == 0) return b.Rope(x, by);
    return b.Concat(b.Slice(x, 0, kept), b.Rope(b.Slice(x, kept, by.rotary_dim), by));
  }
  ValueId View(ValueId x, Shape shape, const std::string& name) const {
    return b.Emit(vt::ir::Op::kReshape, name, {x}, {vt::ir::ReshapeAttrs{std::move(shape)}});
  }

  // Entries of the layer, and which of them each token sees: all, or those that an index chooses.
  struct Entries {
    Builder::Cache cache;
    ValueId ids = vt::ir::kNone;
    vt::ir::EntryAttrs attrs;
  };
  Entries Compress(const std::string& p, ValueId h, ValueId q_rank) const {
    const int64_t index = kind.indexed ? c.IntOption("index_head_dim") : 0;
    const int64_t times = kind.indexed ? 2 : 1, rows = b.EntryRows(kind.ratio);
    ValueId x = vt::ir::kNone;
    const auto project = [&](const std::string& name, int64_t width) {
      const ValueId y = b.Linear(h, name, width);
      x = x < 0 ? y : b.Concat(x, y);
    };
    const std::string at = p + "compressor.", inner = at + "indexer.";
    project(at + "kv_proj", times * c.head_dim);
    project(at + "gate_proj", times * c.head_dim);
    if (kind.indexed) {
      project(inner + "kv_proj", times * index);
      project(inner + "gate_proj", times * index);
    }
    const int64_t width = 2 * times * (c.head_dim + index);
    Entries out{b.MakeCache((c.head_dim + index) / rows),
                vt::ir::kNone,
                {.ratio = kind.ratio, .rows = rows}};
    Builder::Cache raw = b.MakeCache(width, times * kind.ratio);
    b.Write(raw, b.Heads(x, 1, width), at + "raw");
    vt::ir::CompressAttrs compress = {.ratio = kind.ratio,
                                      .rows = rows,
                                      .dim = c.head_dim,
                                      .overlap = kind.indexed,
                                      .gates = times * c.head_dim,
                                      .eps = c.rms_norm_eps,
                                      .rope = rope};
    b.Compress(raw, out.cache, compress, at + "position_bias", at + "kv_norm.weight", at + "pool");
    if (!kind.indexed) return out;
    compress.dim = index;
    compress.values = 2 * times * c.head_dim;
    compress.gates = compress.values + times * index;
    compress.begin = c.head_dim / rows;
    b.Compress(raw, out.cache, compress, inner + "position_bias", inner + "kv_norm.weight",
               inner + "pool");
    const int64_t heads = c.IntOption("index_n_heads");
    const ValueId q = b.Heads(b.Linear(q_rank, inner + "q_b_proj", heads * index), heads, index);
    // Scores are scaled in the paper, which chooses the same.
    const ValueId weights = b.Linear(h, inner + "scorer.weights_proj", heads);
    vt::ir::EntryAttrs attrs = out.attrs;
    out.attrs.top_k = attrs.top_k = c.IntOption("index_topk");
    attrs.heads = heads;
    attrs.dim = index;
    attrs.begin = compress.begin;
    out.ids = b.IndexEntries(Rotate(q, index, rope), weights, out.cache, attrs, inner + "choose");
    return out;
  }

  ValueId Attention(const std::string& p, ValueId h) const {
    const int64_t heads = c.num_heads, dim = c.head_dim, groups = c.IntOption("o_groups");
    const ValueId q_rank =
        Norm(b.Linear(h, p + "q_a_proj", c.IntOption("q_lora_rank")), p + "q_a_norm");
    const ValueId q = b.RmsNorm(b.Heads(b.Linear(q_rank, p + "q_b_proj", heads * dim), heads, dim),
                                "", c.rms_norm_eps);
    const ValueId kv = b.Heads(Norm(b.Linear(h, p + "kv_proj", dim), p + "kv_norm"), 1, dim);
    Builder::Cache window = b.MakeCache(dim, c.sliding_window);
    b.Write(window, Rotate(kv, dim, rope), p + "window");
    Entries entries{window, vt::ir::kNone, {}};
    if (kind.ratio > 0) entries = Compress(p, h, q_rank);
    entries.attrs.heads = heads;
    entries.attrs.dim = dim;
    entries.attrs.window = c.sliding_window;
    entries.attrs.scale = 1 / std::sqrt(static_cast<float>(dim));
    const ValueId a = b.EntryAttention(Rotate(q, dim, rope), window, entries.cache, entries.ids,
                                       entries.attrs, p + "sinks", p.substr(0, p.size() - 1));
    // Values were rotated as keys: what attention gives is turned back.
    RopeAttrs back = rope;
    for (float& f : back.frequencies) f = -f;
    const ValueId turned = Rotate(b.Heads(a, heads, dim), dim, back);
    const ValueId grouped =
        View(turned, {vt::ir::T(), Dim(groups), Dim(heads * dim / groups)}, p + "group_heads");
    const int64_t rank = c.IntOption("o_lora_rank");
    const ValueId low = b.HeadLinear(grouped, p + "o_a_proj", rank);
    return b.Linear(View(low, {vt::ir::T(), Dim(groups * rank)}, p + "join_groups"), p + "o_b_proj",
                    c.hidden_size);
  }

  // silu(gate) * up, both clamped.
  ValueId Gated(ValueId gate, ValueId up) const {
    const auto limit = static_cast<float>(c.Option("swiglu_limit"));
    gate = b.Clamp(gate, -std::numeric_limits<float>::infinity(), limit);
    return b.Mul(b.Act(gate, ActivationOf(b, c)), b.Clamp(up, -limit, limit));
  }
  ValueId Experts(const std::string& p, ValueId x) const {
    const weights::Experts& e = c.experts;
    const vt::ir::RouterAttrs attrs = {.top_k = e.per_token,
                                       .root = true,
                                       .normalise = true,
                                       .scale = static_cast<float>(e.scale),
                                       .bias = !kind.hashed};
    const ValueId logits = b.Linear(x, p + "gate", e.count);
    const Builder::Routed to =
        kind.hashed ? b.HashRouter(logits, attrs, p + "router", p + "gate.tid2eid", c.vocab_size)
                    : b.Router(logits, attrs, p + "router", p + "gate.e_score_correction_bias");
    const auto grouped = [&](ValueId v, const char* name, int64_t width) {
      return b.GroupedLinear(v, to.ids, p + "experts." + name, e.count, width);
    };
    const ValueId h = Gated(grouped(x, "gate_proj", e.intermediate_size),
                            grouped(x, "up_proj", e.intermediate_size));
    const ValueId sum = b.ExpertSum(grouped(h, "down_proj", c.hidden_size), to.weights);
    const std::string s = p + "shared_expert.";
    const ValueId shared = Gated(b.Linear(x, s + "gate_proj", e.shared_intermediate_size),
                                 b.Linear(x, s + "up_proj", e.shared_intermediate_size));
    return b.Add(sum, b.Linear(shared, s + "down_proj", c.hidden_size));
  }
};

ValueId BuildDeepSeekV4(Builder& b, const BuildContext& context) {
  const Config& c = context.config;
  const int64_t streams = c.IntOption("hc_mult"), width = c.hidden_size;
  const vt::ir::HyperAttrs mixing = {.rounds = c.IntOption("hc_sinkhorn_iters"),
                                     .eps = static_cast<float>(c.Option("hc_eps")),
                                     .norm_eps = c.rms_norm_eps};
  const RopeAttrs with_entries = RopeOf(b, context, c.rope),
                  sliding = RopeOf(b, context, c.rope_local);
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, width);
  ValueId all = x;
  for (int64_t i = 1; i < streams; ++i) all = b.Concat(all, x);
  all = b.Heads(all, streams, width);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    const DeepSeekV4Layer kind = LayerOf(c, i);
    const Layer layer{b, c, kind, kind.ratio > 0 ? with_entries : sliding};
    Builder::Collapsed one = b.HyperCollapse(all, mixing, p + "attn_hc.");
    const ValueId a = layer.Attention(p + "self_attn.", layer.Norm(one.x, p + "input_layernorm"));
    all = b.HyperExpand(all, a, one.gates);
    one = b.HyperCollapse(all, mixing, p + "ffn_hc.");
    const ValueId m = layer.Experts(p + "mlp.", layer.Norm(one.x, p + "post_attention_layernorm"));
    all = b.HyperExpand(all, m, one.gates);
  }
  const Layer last{b, c, {}, sliding};
  const ValueId rows =
      b.OutputOnly(last.View(all, {vt::ir::T(), Dim(streams * width)}, "join_streams"));
  const ValueId out = last.View(rows, {vt::ir::O(), Dim(streams), Dim(width)}, "split_streams");
  x = b.HyperCollapse(out, {.eps = mixing.eps, .norm_eps = mixing.norm_eps}, "model.hc_head.hc_").x;
  return LmHead(b, c, last.Norm(x, "model.norm"));
}

}  // namespace

VLLM_MODEL_FAMILY(deepseek_v4, BuildDeepSeekV4, DeepSeekV4())

}  // namespace vllm::models
