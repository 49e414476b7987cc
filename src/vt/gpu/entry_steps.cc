// Nodes of caches with entries, and of residuals of several streams.
#include "vt/gpu/args_entries.h"
#include "vt/gpu/context.h"

namespace vt::gpu {
namespace {

using ir::Op;

int32_t Int(int64_t n) { return static_cast<int32_t>(n); }

struct Entry {
  const Context& c;
  ir::NodeId id;
  const ir::Node& n;

  Pages PagesOf(size_t state, size_t table) const {
    return {c.Kv(n.inputs[state]), c.Ints(n.inputs[table])};
  }
  template <class Attrs>
  EntryPlaces PlacesOf(const Attrs& a, size_t state, size_t table) const {
    return {PagesOf(state, table), Int(a.ratio), Int(a.rows), Int(a.dim / a.rows), Int(a.begin)};
  }
  StepTokens TokensFrom(size_t positions) const {
    return {c.Ints(n.inputs[positions]), c.Ints(n.inputs[positions + 1])};
  }
  LaunchConfig Config(int64_t blocks, int64_t threads, int64_t floats) const {
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>(blocks);
    config.threads = static_cast<unsigned>(threads);
    config.shared_bytes = static_cast<unsigned>(4 * floats);
    return config;
  }
  int64_t Waves(int64_t threads) const { return threads / c.device.properties.wave; }
};

void Compress(const Entry& e) {
  const auto& attrs = e.n.attrs.as<ir::CompressAttrs>();
  CompressArgs a;
  a.header = e.c.header();
  a.tokens = e.TokensFrom(2);
  a.raw = e.PagesOf(0, 4);
  a.entries = e.PlacesOf(attrs, 1, 5);
  a.bias = e.c.Vector(e.n.inputs[6]);
  a.norm = e.c.Vector(e.n.inputs[7]);
  a.table = RopeTableOf(e.c, attrs.rope);
  a.dim = Int(attrs.dim);
  a.rotary = Int(attrs.rope.rotary_dim);
  a.interleaved = attrs.rope.interleaved ? 1 : 0;
  a.overlap = attrs.overlap ? 1 : 0;
  a.values = Int(attrs.values);
  a.gates = Int(attrs.gates);
  a.eps = attrs.eps;
  e.c.Emit(e.id, "compress",
           e.Config(e.c.bucket().tokens, kCompressThreads, attrs.dim + e.Waves(kCompressThreads)),
           a);
}

void Index(const Entry& e) {
  const auto& attrs = e.n.attrs.as<ir::EntryAttrs>();
  IndexArgs a;
  a.header = e.c.header();
  a.tokens = e.TokensFrom(3);
  a.entries = e.PlacesOf(attrs, 2, 5);
  a.q = e.c.RowsOf(e.n.inputs[0]);
  a.weights = e.c.RowsOf(e.n.inputs[1]);
  a.ids = const_cast<int32_t*>(e.c.Ints(e.n.outputs[0]));
  a.heads = Int(attrs.heads);
  a.dim = Int(attrs.dim);
  a.top_k = Int(attrs.top_k);
  e.c.Emit(e.id, "index_entries", e.c.value(e.n.inputs[0]).dtype,
           e.Config(e.c.bucket().tokens, kIndexThreads, IndexBytes(a.heads, a.dim) / 4), a);
}

void Attention(const Entry& e) {
  const auto& attrs = e.n.attrs.as<ir::EntryAttrs>();
  EntryAttentionArgs a;
  a.header = e.c.header();
  a.tokens = e.TokensFrom(3);
  a.window = e.PagesOf(1, 5);
  a.entries = e.PlacesOf(attrs, 2, 6);
  a.q = e.c.RowsOf(e.n.inputs[0]);
  a.y = e.c.RowsOf(e.n.outputs[0]);
  a.sinks = e.c.Vector(e.n.inputs[7]);
  if (attrs.top_k > 0) a.ids = e.c.Ints(e.n.inputs[8]);
  a.heads = Int(attrs.heads);
  a.dim = Int(attrs.dim);
  a.top_k = Int(attrs.top_k);
  a.window_tokens = Int(attrs.window);
  a.scale = attrs.scale;
  const int64_t groups = (attrs.heads + kEntryWaves - 1) / kEntryWaves;
  e.c.Emit(e.id, "entry_attention", e.c.value(e.n.outputs[0]).dtype,
           e.Config(e.c.bucket().tokens * groups, kEntryWaves * e.c.device.properties.wave, 0), a);
}

void Collapse(const Entry& e) {
  const auto& attrs = e.n.attrs.as<ir::HyperAttrs>();
  HyperCollapseArgs a;
  a.header = e.c.header();
  a.x = e.c.RowsOf(e.n.inputs[0]);
  a.mix = e.c.RowsOf(e.n.inputs[1]);
  a.y = e.c.RowsOf(e.n.outputs[0]);
  a.count = e.c.CountOf(e.n.outputs[0]);
  if (attrs.rounds > 0) a.gates = static_cast<float*>(e.c.Address(e.n.outputs[1]));
  a.base = e.c.Vector(e.n.inputs[2]);
  a.scale = e.c.Vector(e.n.inputs[3]);
  a.streams = a.x.inner;
  a.dim = a.x.width;
  a.rounds = Int(attrs.rounds);
  a.eps = attrs.eps;
  a.norm_eps = attrs.norm_eps;
  e.c.Emit(
      e.id, "hyper_collapse", e.c.value(e.n.outputs[0]).dtype,
      e.Config(e.c.MostRows(e.n.outputs[0]), kHyperThreads, a.mix.width + e.Waves(kHyperThreads)),
      a);
}

void Expand(const Entry& e) {
  HyperExpandArgs a;
  a.header = e.c.header();
  a.x = e.c.RowsOf(e.n.inputs[0]);
  a.y = e.c.RowsOf(e.n.inputs[1]);
  a.out = e.c.RowsOf(e.n.outputs[0]);
  a.count = e.c.CountOf(e.n.inputs[1]);
  a.gates = static_cast<const float*>(e.c.Address(e.n.inputs[2]));
  a.streams = a.x.inner;
  a.dim = a.x.width;
  e.c.Emit(e.id, "hyper_expand", e.c.value(e.n.outputs[0]).dtype,
           e.Config(e.c.MostRows(e.n.inputs[1]), kHyperThreads, 0), a);
}

}  // namespace

bool SupportsEntries(const ir::Graph& g, const ir::Node& n, const DeviceFacts& d) {
  const auto type = [&](ir::ValueId v) { return g.value(v).dtype; };
  const auto plain = [&](ir::ValueId v) {
    return type(v) == ir::DType::kF32 || type(v) == ir::DType::kF16 || type(v) == ir::DType::kBF16;
  };
  switch (n.op) {
    case Op::kCompress:
      return plain(n.inputs[0]) && plain(n.inputs[1]);
    case Op::kIndexEntries: {
      const auto& a = n.attrs.as<ir::EntryAttrs>();
      return plain(n.inputs[2]) && type(n.inputs[1]) == ir::DType::kF32 &&
             IndexBytes(Int(a.heads), Int(a.dim)) <= d.properties.shared_bytes;
    }
    case Op::kEntryAttention:
      return plain(n.inputs[1]) && plain(n.inputs[2]) && type(n.inputs[0]) == type(n.outputs[0]) &&
             n.attrs.as<ir::EntryAttrs>().dim <= kEntryLaneValues * d.properties.wave;
    case Op::kHyperCollapse:
      return type(n.inputs[0]) == type(n.outputs[0]) && type(n.inputs[1]) == ir::DType::kF32;
    default:
      return type(n.inputs[0]) == type(n.outputs[0]) && type(n.inputs[1]) == type(n.outputs[0]);
  }
}

void CompileEntries(const Context& c, ir::NodeId id) {
  const Entry e{c, id, c.node(id)};
  switch (e.n.op) {
    case Op::kCompress:
      return Compress(e);
    case Op::kIndexEntries:
      return Index(e);
    case Op::kEntryAttention:
      return Attention(e);
    case Op::kHyperCollapse:
      return Collapse(e);
    default:
      return Expand(e);
  }
}

}  // namespace vt::gpu
