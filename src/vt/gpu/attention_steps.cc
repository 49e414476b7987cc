// Attention and what it needs: the work list of a step, the writing of keys and values, and the
// reading of them (args_attention.h).
#include <algorithm>
#include <bit>
#include <numbers>

#include "base/strings.h"
#include "vt/gpu/args_latent.h"
#include "vt/gpu/args_wide.h"
#include "vt/gpu/attention_plan.h"
#include "vt/gpu/context.h"

namespace vt::gpu {
namespace {

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

int32_t KvTypeOf(ir::DType t) {
  switch (t) {
    case ir::DType::kF32:
      return kKvF32;
    case ir::DType::kF16:
      return kKvF16;
    case ir::DType::kBF16:
      return kKvBF16;
    case ir::DType::kF8_E4M3:
      return kKvF8;
    default:
      return -1;
  }
}

ir::DType CacheTypeOf(const ir::Graph& g, ir::ValueId state) {
  return g.state_groups[static_cast<size_t>(g.value(state).group)].dtype;
}

// That a row of a block table has.
int64_t BlocksOf(const ir::Graph& g, ir::ValueId table, const ir::Bucket& b) {
  return g.value(table).shape.back().At(b);
}

const ir::AttentionAttrs& AttrsOf(const ir::Node& n) { return *AttentionAttrsOf(n); }

bool WritesToo(const ir::Node& n) {
  return n.op == ir::Op::kRopeAttention || n.op == ir::Op::kNormRopeAttention;
}

bool IsLatent(const ir::Node& n) {
  const ir::AttentionAttrs* a = AttentionAttrsOf(n);
  return a != nullptr && a->latent();
}

// What a node that reads the cache takes.
struct Reads {
  ir::ValueId q, state, positions, query_start, seq_lens, table;
  ir::ValueId sinks = ir::kNone;
};
Reads ReadsOf(const ir::Node& n) {
  const auto& in = n.inputs;
  const size_t rest = n.op == ir::Op::kRopeAttention ? 6 : n.op == ir::Op::kAttention ? 3 : 8;
  Reads r = {in[0], in[1], in[2], in[rest], in[rest + 1], in[rest + 2]};
  if (WritesToo(n)) {
    r.positions = in[3];
    r.state = in[4];
  }
  if (in.size() > rest + 3) r.sinks = in[rest + 3];
  return r;
}

bool FitsDevice(const ir::AttentionAttrs& a, ir::DType t, const DeviceFacts& d) {
  if (a.latent()) return LatentShapeOf(a, t, d).dim > 0;
  return IsWide(a) ? WideShapeOf(a, t, 1, d).row_tiles > 0
                   : DecodeShapeOf(a.head_dim, t, true, d).waves > 0;
}

// FirstKey's.
int32_t WindowOf(const ir::AttentionAttrs& a) {
  const auto window = static_cast<int32_t>(std::min<int64_t>(a.window, INT32_MAX));
  return a.chunked ? -window : window;
}

// Rows of a group that a block of the kernels of few tokens takes, and how many such tiles a group
// has.
int64_t TileRows(const RowShape& s) { return s.lanes > 0 ? s.rows : 16; }
int64_t RowTiles(const ir::AttentionAttrs& a, const RowShape& s) {
  return (a.heads / a.kv_heads + TileRows(s) - 1) / TileRows(s);
}

// A list that layers share, and where it is in the workspace.
struct ListPlace {
  ir::ValueId positions, query_start, seq_lens;
  int32_t window;
  bool causal;
  int64_t lanes, tile_tokens;
  int32_t lane_step, least_tiles, whole_tiles, long_keys;  // AttentionListSpec's
  int64_t counters;        // of lanes' heads of keys and tiles of rows
  int64_t groups, values;  // of long tokens' items, over all of them: counters, sums
  int64_t items = 0, lane_begin = 0, lane_first = 0, joins = 0, join_count = 0, tiles = 0,
          unsorted = 0,
          tile_count = 0;  // offsets

  bool Serves(const ListPlace& o) const {
    return positions == o.positions && query_start == o.query_start && seq_lens == o.seq_lens &&
           window == o.window && causal == o.causal && lanes == o.lanes &&
           tile_tokens == o.tile_tokens && lane_step == o.lane_step &&
           least_tiles == o.least_tiles && whole_tiles == o.whole_tiles && long_keys == o.long_keys;
  }
};

// The part of the workspace that is attention's.
struct Places {
  std::vector<ListPlace> lists;
  int64_t partial_sums = 0, partial_stats = 0, group_sums = 0, group_stats = 0,
          counters = 0;  // offsets
  int64_t counter_count = 0;
  int64_t group_counters = 0;  // which of them is the first of groups
  int64_t block_counters = 0;  // which of them is BlockCounters' first
  int64_t bytes = 0;
};

// Each request's last tile may be short.
int64_t MostTiles(const ir::Bucket& b, int64_t tile_tokens) {
  return b.tokens / tile_tokens + std::min(b.requests, b.tokens / 2);
}

unsigned PrefillGrid(const ir::Bucket& b, const ir::AttentionAttrs& a, const PrefillShape& s) {
  return static_cast<unsigned>(MostTiles(b, s.tile_tokens) * a.heads / s.tile_heads);
}

ListPlace ListOf(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b, const DeviceFacts& d) {
  const ir::AttentionAttrs& a = AttrsOf(n);
  const Reads reads = ReadsOf(n);
  const ir::DType type = g.value(reads.q).dtype;
  const RowShape few =
      RowShapeOf(a, type, CacheTypeOf(g, reads.state), BlocksOf(g, reads.table, b), b, d);
  const bool wide = IsWide(a);
  const int blocks_per_unit = few.lanes > 0 ? 1
                              : a.latent()  ? LatentShapeOf(a, type, d).blocks_per_unit
                              : wide        ? WideShapeOf(a, type, 1, d).blocks_per_unit
                                     : DecodeShapeOf(a.head_dim, type, true, d).blocks_per_unit;
  // Where there are as many requests as tokens, each has one.
  const PrefillShape prefill =
      b.tokens > b.requests && !a.latent() ? PrefillShapeOf(a, type, d) : PrefillShape{};
  const int64_t resident = int64_t{d.properties.units} * blocks_per_unit,
                columns = a.kv_heads * RowTiles(a, few),
                lanes = std::max<int64_t>(1, resident / columns),
                groups = (b.tokens + lanes) * a.kv_heads * few.long_tiles;
  return {.positions = reads.positions,
          .query_start = reads.query_start,
          .seq_lens = reads.seq_lens,
          .window = WindowOf(a),
          .causal = a.causal,
          .lanes = lanes,
          .tile_tokens = prefill.tile_tokens,
          .lane_step = few.lanes > 0        ? few.tiles
                       : wide || a.latent() ? 1
                                            : 4,
          .least_tiles = few.lanes > 0 ? few.tiles
                         : a.latent()  ? 1
                         : wide        ? 2
                                       : 4,
          // To wait for other lanes takes as long as three rounds of keys.
          .whole_tiles = few.lanes > 0 ? 3 * few.tiles : 0,
          .long_keys = few.long_keys,
          .counters = lanes * columns,
          .groups = groups,
          .values = groups * LongParts(static_cast<int>(few.long_shares)) *
                    LongHeads(static_cast<int>(d.properties.wave)) * a.head_dim};
}

Places PlacesOf(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  Places p;
  const auto take = [&](int64_t bytes) {
    const int64_t at = p.bytes;
    p.bytes += RoundUp(bytes, 256);
    return at;
  };
  int64_t rows = 0, values = 0, groups = 0, group_values = 0;
  for (const ir::Node& n : g.nodes) {
    if (AttentionAttrsOf(n) == nullptr) continue;
    const ir::AttentionAttrs& a = AttrsOf(n);
    ListPlace list = ListOf(g, n, b, d);
    rows = std::max(rows, 2 * list.lanes * a.heads);
    values = std::max(
        values, 2 * list.lanes * a.heads * LatentPartPitch(static_cast<int32_t>(a.value_dim())));
    p.counter_count = std::max(p.counter_count, list.counters);
    groups = std::max(groups, list.groups);
    group_values = std::max(group_values, list.values);
    if (std::ranges::any_of(p.lists, [&](const ListPlace& o) { return o.Serves(list); })) continue;
    list.items = take((b.tokens + list.lanes) * static_cast<int64_t>(sizeof(DecodeItem)));
    list.lane_begin = take((list.lanes + 1) * 4);
    list.lane_first = take(list.lanes * static_cast<int64_t>(sizeof(DecodeItem)));
    list.joins = take(list.lanes * static_cast<int64_t>(sizeof(DecodeJoin)));
    list.join_count = take(4);
    if (list.tile_tokens > 0) {
      const int64_t tiles = MostTiles(b, list.tile_tokens);
      list.tiles = take(tiles * static_cast<int64_t>(sizeof(QueryTile)));
      list.unsorted = take(tiles * static_cast<int64_t>(sizeof(QueryTile)));
      list.tile_count = take(4);
    }
    p.lists.push_back(list);
  }
  p.group_counters = p.counter_count;
  p.counter_count += groups;
  p.block_counters = p.counter_count;
  p.counter_count += BlockCounterCount(g, b);
  p.partial_sums = take(values * 4);
  p.partial_stats = take(2 * rows * 4);
  p.group_sums = take(group_values * 4);
  // No row has fewer values.
  p.group_stats = take(2 * group_values / kLeastLongDim * 4);
  p.counters = take(p.counter_count * 4);
  return p;
}

std::byte* Base(const Context& c) { return c.workspace() + c.parts().attention; }

AttentionList ListAt(std::byte* base, const ListPlace& p) {
  return {.items = reinterpret_cast<DecodeItem*>(base + p.items),
          .lane_begin = reinterpret_cast<int32_t*>(base + p.lane_begin),
          .lane_first = reinterpret_cast<DecodeItem*>(base + p.lane_first),
          .joins = reinterpret_cast<DecodeJoin*>(base + p.joins),
          .join_count = reinterpret_cast<int32_t*>(base + p.join_count),
          .tiles = reinterpret_cast<QueryTile*>(base + p.tiles),
          .unsorted = reinterpret_cast<QueryTile*>(base + p.unsorted),
          .tile_count = reinterpret_cast<int32_t*>(base + p.tile_count),
          .lanes = static_cast<int32_t>(p.lanes)};
}

const ir::NormAttrs* NormAt(const ir::FusedAttrs& f, size_t which) {
  for (const ir::Attrs& a : f.parts) {
    const auto* norm = std::get_if<ir::NormAttrs>(&a.v);
    if (norm != nullptr && which-- == 0) return norm;
  }
  return nullptr;
}
const ir::RopeAttrs* RopeAt(const ir::FusedAttrs& f, size_t which) {
  for (const ir::Attrs& a : f.parts) {
    const auto* rope = std::get_if<ir::RopeAttrs>(&a.v);
    if (rope != nullptr && which-- == 0) return rope;
  }
  return nullptr;
}

// The rotation of q and k, which the kernel takes to be of the same values.
const ir::RopeAttrs* SharedRope(const ir::FusedAttrs& f) {
  const ir::RopeAttrs *q = RopeAt(f, 0), *k = RopeAt(f, 1);
  if (q == nullptr || k == nullptr || q->rotary_dim != k->rotary_dim ||
      q->interleaved != k->interleaved)
    return nullptr;
  return q;
}

// Of a write alone, or of what writes among other things; k.base: nullptr where q and k are rotated
// in different ways.
KvWriteArgs WriteArgsOf(const Context& c, const ir::Node& n) {
  KvWriteArgs a;
  a.header = c.header();
  ir::ValueId k = n.inputs[1], v = n.inputs[2], state = n.inputs[0], slots = n.inputs[3];
  bool aligned = true;
  if (n.op != ir::Op::kKvWrite) {
    const auto& attrs = n.attrs.as<ir::FusedAttrs>();
    const ir::RopeAttrs* rope = SharedRope(attrs);
    if (rope == nullptr) return a;
    const ir::ValueId q = n.inputs[0];
    state = n.inputs[4];
    slots = n.inputs[5];
    a.q = c.RowsOf(q);
    aligned = c.Aligned(q);
    if (!WritesToo(n)) {
      a.q_out = c.RowsOf(n.outputs[0]);
      aligned &= c.Aligned(n.outputs[0]);
    }
    a.q_heads = a.q.inner;
    a.positions = c.Ints(n.inputs[3]);
    a.rotary_dim = static_cast<int32_t>(rope->rotary_dim);
    a.interleaved = rope->interleaved ? 1 : 0;
    a.q_table = RopeTableOf(c, *rope);
    a.k_table = RopeTableOf(c, *RopeAt(attrs, 1));
    if (const ir::NormAttrs* qn = NormAt(attrs, 0), *kn = NormAt(attrs, 1); qn != nullptr) {
      a.q_norm = {c.Vector(n.inputs[6]), qn->eps, qn->weight_offset};
      a.k_norm = {c.Vector(n.inputs[7]), kn->eps, kn->weight_offset};
    }
  }
  a.k = c.RowsOf(k);
  a.v = c.RowsOf(v);
  a.kv = c.Kv(state);
  a.slots = c.Ints(slots);
  a.aligned = aligned && c.Aligned(k) && c.Aligned(v) ? 1 : 0;
  return a;
}

void CompileRead(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const ir::AttentionAttrs& attrs = AttrsOf(n);
  const Reads reads = ReadsOf(n);
  const ir::DType type = c.value(reads.q).dtype;
  const bool aligned = c.Aligned(reads.q);
  const bool is_wide = IsWide(attrs);
  const DecodeShape shape = attrs.latent() || is_wide
                                ? DecodeShape{}
                                : DecodeShapeOf(attrs.head_dim, type, aligned, c.device);
  const LatentShape latent = attrs.latent() ? LatentShapeOf(attrs, type, c.device) : LatentShape{};
  const WideShape wide = is_wide ? WideShapeOf(attrs, type, 1, c.device) : WideShape{};
  if (shape.waves == 0 && latent.dim == 0 && wide.row_tiles == 0)
    return c.Fail(id, "needs more shared memory than the device has");
  const auto group = static_cast<size_t>(c.value(reads.state).group);
  const int64_t blocks =
      group < c.bindings.state_blocks.size() ? c.bindings.state_blocks[group] : 0;
  if (blocks * 2 * attrs.kv_heads * c.bindings.block_size > INT32_MAX)
    return c.Fail(id,
                  "has a cache of more rows than the kernels count; give the KV cache less memory");
  const Places places = PlacesOf(c.plan.graph, c.bucket(), c.device);
  const ListPlace wanted = ListOf(c.plan.graph, n, c.bucket(), c.device);
  const auto list =
      std::ranges::find_if(places.lists, [&](const ListPlace& p) { return p.Serves(wanted); });
  std::byte* base = Base(c);
  AttentionArgs a;
  a.header = c.header();
  a.list = ListAt(base, *list);
  a.q = c.RowsOf(reads.q);
  a.out = c.RowsOf(n.outputs[0]);
  a.kv = c.Kv(reads.state);
  a.positions = c.Ints(reads.positions);
  a.block_table = c.Ints(reads.table);
  a.group = static_cast<int32_t>(attrs.heads / attrs.kv_heads);
  const RowShape few =
      RowShapeOf(attrs, type, CacheTypeOf(c.plan.graph, reads.state),
                 BlocksOf(c.plan.graph, reads.table, c.bucket()), c.bucket(), c.device);
  a.tile_rows = static_cast<int32_t>(TileRows(few));
  a.row_tiles = static_cast<int32_t>(RowTiles(attrs, few));
  a.window = WindowOf(attrs);
  a.causal = attrs.causal ? 1 : 0;
  // With a cap the kernel takes tanh(score * scale_log2) times the cap and log2(e).
  a.scale_log2 =
      attrs.softcap != 0 ? attrs.scale / attrs.softcap : attrs.scale * std::numbers::log2e_v<float>;
  a.softcap = attrs.softcap;
  if (attrs.sinks) a.sinks = c.Vector(reads.sinks);
  const auto block = static_cast<uint32_t>(a.kv.block_size);
  a.block_shift = std::has_single_bit(block) ? std::countr_zero(block) : -1;
  a.new_tokens = list->tile_tokens > 0 ? 1 : static_cast<int32_t>(c.bucket().tokens);
  a.q_direct = shape.stages_query ? 0 : 1;
  a.one_buffer = shape.one_buffer ? 1 : 0;
  a.partial_sums = reinterpret_cast<float*>(base + places.partial_sums);
  a.partial_stats = reinterpret_cast<float*>(base + places.partial_stats);
  a.counters = reinterpret_cast<int32_t*>(base + places.counters);
  a.long_tiles = static_cast<int32_t>(few.long_tiles);
  a.long_shares = static_cast<int32_t>(few.long_shares);
  a.group_sums = reinterpret_cast<float*>(base + places.group_sums);
  a.group_stats = reinterpret_cast<float*>(base + places.group_stats);
  a.group_counters = a.counters + places.group_counters;
  LaunchConfig config;
  config.early = true;
  config.grid_x = static_cast<unsigned>(list->lanes * attrs.kv_heads * a.row_tiles);
  const bool same = type != ir::DType::kF32 && a.kv.dtype == KvTypeOf(type);
  const char* convert = same ? "" : "_convert";
  if (attrs.latent()) {
    const auto begin = c.plan.graph.nodes.begin();
    a.list_is_there = std::any_of(begin, begin + id, IsLatent) ? 1 : 0;
    a.v_dim = static_cast<int32_t>(attrs.v_dim);
    a.part_pitch = LatentPartPitch(a.v_dim);
    a.join_blocks = JoinBlocks(a.v_dim);
    a.aligned = aligned && c.Aligned(n.outputs[0]) ? 1 : 0;
    a.one_stage = latent.one_stage ? 1 : 0;
    config.threads = static_cast<unsigned>(kLatentWaves * c.device.properties.wave);
    config.shared_bytes = static_cast<unsigned>(latent.shared_bytes);
    c.Emit(id, fmt::format("attention_latent{}_d{}", convert, latent.dim), type, config, a);
    // Tokens that may have several parts, as many at once as all multiprocessors have room for.
    const int64_t blocks_of_token = attrs.heads * a.join_blocks,
                  joins = std::min(c.bucket().tokens, list->lanes),
                  resident = 8 * c.device.properties.units / blocks_of_token;
    config.grid_x =
        static_cast<unsigned>(std::clamp<int64_t>(resident, 1, joins) * blocks_of_token);
    config.threads = kJoinThreads;
    config.shared_bytes = kJoinThreads * 16;
    c.Emit(id, "attention_join", type, config, a);
    return;
  }
  if (is_wide) {
    a.aligned = aligned && c.Aligned(n.outputs[0]) ? 1 : 0;
    const auto emit = [&](bool by_tiles, int row_tiles, bool one_buffer, int64_t shared_bytes) {
      a.one_buffer = one_buffer ? 1 : 0;
      config.threads = static_cast<unsigned>(row_tiles * kWideParts * c.device.properties.wave);
      config.shared_bytes = static_cast<unsigned>(shared_bytes);
      const AttentionWideArgs w = {a, by_tiles ? 1 : 0,
                                   WideHeldBytes(ir::Info(type).bytes, row_tiles, one_buffer)};
      c.Emit(id, fmt::format("attention_wide{}", convert), type, config, w);
    };
    emit(false, wide.row_tiles, wide.one_buffer, wide.shared_bytes);
    if (list->tile_tokens == 0) return;
    const PrefillShape prefill = PrefillShapeOf(attrs, type, c.device);
    a.tile_heads = static_cast<int32_t>(prefill.tile_heads);
    config.grid_x = PrefillGrid(c.bucket(), attrs, prefill);
    return emit(true, prefill.row_tiles, prefill.one_stage, prefill.shared_bytes);
  }
  if (few.lanes > 0) {
    a.aligned = aligned ? 1 : 0;
    config.threads = kRowThreads;
    config.shared_bytes = static_cast<unsigned>(few.shared_bytes);
    AttentionRowArgs row;
    row.read = a;
    if (WritesToo(n)) {
      row.write = WriteArgsOf(c, n);
      const auto begin = c.plan.graph.nodes.begin();
      row.read.list_is_there = std::any_of(begin, begin + id, WritesToo) ? 1 : 0;
    }
    c.Emit(id,
           fmt::format("attention_row{}{}_l{}_r{}", few.long_tiles > 0 ? "_long" : "", convert,
                       few.lanes, few.rows),
           type, config, row);
  } else {
    config.threads = static_cast<unsigned>(shape.waves * c.device.properties.wave);
    config.shared_bytes = static_cast<unsigned>(shape.shared_bytes);
    c.Emit(id, fmt::format("attention_decode{}_d{}", convert, shape.dim), type, config, a);
  }
  if (list->tile_tokens == 0) return;
  const PrefillShape prefill = PrefillShapeOf(attrs, type, c.device);
  a.aligned = aligned && c.Aligned(n.outputs[0]) ? 1 : 0;
  a.tile_heads = static_cast<int32_t>(prefill.tile_heads);
  a.one_stage = prefill.one_stage ? 1 : 0;
  config.grid_x = PrefillGrid(c.bucket(), attrs, prefill);
  config.threads = static_cast<unsigned>(prefill.waves * c.device.properties.wave);
  config.shared_bytes = static_cast<unsigned>(prefill.shared_bytes);
  c.Emit(id, fmt::format("attention_prefill{}_d{}", convert, prefill.dim), type, config, a);
}

void CompileWrite(const Context& c, ir::NodeId id) {
  const KvWriteArgs a = WriteArgsOf(c, c.node(id));
  if (a.k.base == nullptr) return c.Fail(id, "rotates q and k in different ways");
  constexpr int kWaves = 4;
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(c.bucket().tokens);
  config.grid_y = static_cast<unsigned>((a.q_heads + 2 * a.kv.kv_heads + kWaves - 1) / kWaves);
  config.threads = static_cast<unsigned>(kWaves * c.device.properties.wave);
  config.shared_bytes = static_cast<unsigned>(kWaves * a.kv.head_dim * 4);
  config.early = true;
  const ir::Node& n = c.node(id);
  c.Emit(id, "kv_write", c.value(n.inputs[n.op == ir::Op::kKvWrite ? 1 : 0]).dtype, config, a);
}

}  // namespace

const ir::AttentionAttrs* AttentionAttrsOf(const ir::Node& n) {
  if (n.op == ir::Op::kAttention) return &n.attrs.as<ir::AttentionAttrs>();
  return WritesToo(n) ? &n.attrs.as<ir::FusedAttrs>().parts.back().as<ir::AttentionAttrs>()
                      : nullptr;
}

KvLayer KvLayerOf(const ir::StateGroup& group, int64_t block_size) {
  KvLayer kv;
  kv.block_size = static_cast<int32_t>(block_size);
  kv.kv_heads = static_cast<int32_t>(group.kv_heads);
  kv.head_dim = static_cast<int32_t>(group.head_dim);
  kv.dtype = KvTypeOf(group.dtype);
  kv.block_bytes = block_size * group.bytes_per_token_and_layer();
  return kv;
}

void CompileAttention(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  if (AttentionAttrsOf(n) != nullptr) return CompileRead(c, id);
  if (n.op == ir::Op::kKvWrite && n.inputs.size() == 3) return CompileLatent(c, id);
  CompileWrite(c, id);
}

void CompileStepBegin(const Context& c) {
  const Places places = PlacesOf(c.plan.graph, c.bucket(), c.device);
  std::byte* base = Base(c);
  // Without a list there still are counters.
  for (size_t begin = 0; begin == 0 || begin < places.lists.size();
       begin += AttentionBeginArgs::kMostLists) {
    AttentionBeginArgs a;
    a.header = c.header();
    const size_t count =
        std::min<size_t>(places.lists.size() - begin, AttentionBeginArgs::kMostLists);
    for (size_t i = 0; i < count; ++i) {
      const ListPlace& p = places.lists[begin + i];
      AttentionListSpec& s = a.lists[i];
      s.list = ListAt(base, p);
      s.positions = c.Ints(p.positions);
      s.query_start = c.Ints(p.query_start);
      s.seq_lens = c.Ints(p.seq_lens);
      s.window = p.window;
      s.causal = p.causal ? 1 : 0;
      s.tile_tokens = static_cast<int32_t>(p.tile_tokens);
      s.lane_step = p.lane_step;
      s.least_tiles = p.least_tiles;
      s.whole_tiles = p.whole_tiles;
      s.long_keys = p.long_keys;
      s.decode_tokens = p.tile_tokens > 0 ? 1 : INT32_MAX;
    }
    a.counters = reinterpret_cast<int32_t*>(base + places.counters);
    a.counter_count = static_cast<int32_t>(places.counter_count);
    Launch launch;
    launch.kernel = "attention_begin";
    launch.config.grid_x = static_cast<unsigned>(std::max<size_t>(count, 1));
    launch.config.threads = kBeginThreads;
    // An int a wave (16 lanes at least), the classes and their maximum.
    launch.config.shared_bytes = (kBeginThreads / 16 + kCostClasses + 1) * 4;
    launch.config.early = true;
    launch.args.resize(sizeof a);
    std::memcpy(launch.args.data(), &a, sizeof a);
    c.launches.push_back(std::move(launch));
  }
}

int32_t* BlockCounters(const Context& c) {
  const Places places = PlacesOf(c.plan.graph, c.bucket(), c.device);
  return reinterpret_cast<int32_t*>(Base(c) + places.counters) + places.block_counters;
}

int64_t AttentionWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  return PlacesOf(g, b, d).bytes;
}

bool SupportsAttention(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                       const DeviceFacts& d) {
  const auto group_of = [&](ir::ValueId state) -> const ir::StateGroup& {
    return g.state_groups[static_cast<size_t>(g.value(state).group)];
  };
  const auto cache_fits = [&](ir::ValueId state) {
    const ir::StateGroup& s = group_of(state);
    return KvTypeOf(s.dtype) >= 0 && s.head_dim % 8 == 0 && (s.latent || s.head_dim <= kWideDim);
  };
  switch (n.op) {
    case ir::Op::kKvWrite:
      return cache_fits(n.inputs[0]);
    case ir::Op::kAttention: {
      const ir::AttentionAttrs& a = AttrsOf(n);
      return cache_fits(n.inputs[1]) && a.heads % a.kv_heads == 0 &&
             g.value(n.outputs[0]).dtype == g.value(n.inputs[0]).dtype &&
             FitsDevice(a, g.value(n.inputs[0]).dtype, d);
    }
    case ir::Op::kRopeAttention:
    case ir::Op::kNormRopeAttention: {
      // Where a request brings one token, or few: each makes the keys of those before it again.
      const ir::RopeAttrs* rope = SharedRope(n.attrs.as<ir::FusedAttrs>());
      const bool same_type = std::all_of(n.inputs.begin(), n.inputs.begin() + 3, [&](auto v) {
        return g.value(v).dtype == g.value(n.outputs[0]).dtype;
      });
      return b.tokens == b.requests && same_type && cache_fits(n.inputs[4]) && rope != nullptr &&
             rope->rotary_dim % (rope->interleaved ? 8 : 16) == 0 &&
             RowShapeOf(AttrsOf(n), g.value(n.inputs[0]).dtype, CacheTypeOf(g, n.inputs[4]),
                        BlocksOf(g, ReadsOf(n).table, b), b, d)
                     .lanes > 0;
    }
    default:
      return cache_fits(n.inputs[4]) && SharedRope(n.attrs.as<ir::FusedAttrs>()) != nullptr;
  }
}

}  // namespace vt::gpu
