// Writing to the paged cache, and attention over it: how the work is cut.
#include <algorithm>

#include "base/strings.h"
#include "vt/cpu/step.h"

namespace vt::cpu {
namespace {

class KvWriteStep : public Step {
 public:
  KvWriteStep(ir::NodeId node, const KernelSet& k, const KvLayer& kv, const RowsView& key,
              const RowsView& value, const int32_t* slots)
      : Step(node), kernels_(k), kv_(kv), key_(key), value_(value), slots_(slots) {}

  int64_t Chunks(const ir::Bucket& now) const override {
    return (key_.outer.At(now) + kTokens - 1) / kTokens;
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte*) const override {
    for (int64_t t = chunk * kTokens; t < std::min((chunk + 1) * kTokens, key_.outer.At(now));
         ++t) {
      if (slots_[t] < 0) continue;
      kernels_.kv_write(kv_, key_.base + t * key_.stride, value_.base + t * value_.stride,
                        slots_[t]);
    }
  }

 private:
  static constexpr int64_t kTokens = 16;  // a chunk
  const KernelSet& kernels_;
  KvLayer kv_;
  RowsView key_, value_;
  const int32_t* slots_;
};

// Cut of a step: tiles of queries a (request, KV head), each over all its keys or, when there are
// fewer tiles than would keep the team busy, over `parts` ranges of them.
struct AttentionWork {
  const KernelSet& kernels;
  AttentionArgs args;
  const int32_t *positions, *query_start, *seq_lens, *block_table;
  int64_t table_width;
  int64_t tile_tokens;
  int threads;
  std::shared_ptr<std::vector<float>>
      partial;  // [item][part][row][value_dim + 2]; shared by all layers

  int64_t Group() const { return args.heads / args.kv.kv_heads; }
  int64_t PartFloats() const { return tile_tokens * Group() * (args.value_dim + 2); }
  int64_t Tokens(int64_t r) const { return std::max(query_start[r + 1] - query_start[r], 0); }
  int64_t Tiles(int64_t r) const { return (Tokens(r) + tile_tokens - 1) / tile_tokens; }

  // How this very step is cut; the same for every chunk of it.
  int64_t items = 0;
  int64_t parts = 1;
  std::vector<int64_t> first_items;  // [request]: its first item

  void Prepare(const ir::Bucket& now) {
    items = 0;
    parts = 1;
    first_items.clear();
    int64_t longest = 0;
    for (int64_t r = 0; r < now.requests; ++r) {
      first_items.push_back(items);
      items += Tiles(r) * args.kv.kv_heads;
      int64_t keys = seq_lens[r];
      if (args.window > 0) keys = std::min(keys, args.window + tile_tokens);
      if (Tokens(r) > 0) longest = std::max(longest, keys);
    }
    // At least 128 keys a part: below that, starting a thread costs more than it saves.
    if (items > 0 && items < 2 * threads) {
      parts = std::clamp<int64_t>(std::min(2 * threads / items, longest / 128), 1, MaxParts());
    }
  }
  int64_t MaxParts() const { return 2 * threads; }

  struct Item {
    int64_t request, head, begin, end;  // tokens
  };
  Item Find(int64_t i) const {
    // The last request that begins at or before i: those before it without items begin there too.
    const auto after = std::upper_bound(first_items.begin(), first_items.end(), i);
    const int64_t r = after - first_items.begin() - 1;
    i -= first_items[static_cast<size_t>(r)];
    // The last tiles see the most keys: they go first.
    const int64_t tile = Tiles(r) - 1 - i / args.kv.kv_heads;
    const int64_t begin = query_start[r] + tile * tile_tokens;
    return {r, i % args.kv.kv_heads, begin,
            std::min<int64_t>(begin + tile_tokens, query_start[r + 1])};
  }
};

class AttentionStep : public Step {
 public:
  AttentionStep(ir::NodeId node, std::shared_ptr<AttentionWork> work)
      : Step(node), work_(std::move(work)) {}

  void Prepare(const ir::Bucket& now) override { work_->Prepare(now); }
  int64_t Chunks(const ir::Bucket& now) const override {
    // One token over a short context is less work than waking anybody.
    if (work_->parts == 1 && now.tokens == 1 &&
        work_->seq_lens[0] * work_->args.heads * work_->args.kv.head_dim < 32768) {
      return 1;
    }
    return work_->items * work_->parts;
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    if (Chunks(now) == 1) {
      for (int64_t i = 0; i < work_->items; ++i) RunPart(i, 0, scratch);
    } else {
      RunPart(chunk / work_->parts, chunk % work_->parts, scratch);
    }
  }
  int64_t ScratchBytes() const override {
    return AttentionScratchBytes(work_->Group(), work_->args.kv.head_dim);
  }

 private:
  void RunPart(int64_t index, int64_t part, std::byte* scratch) const {
    const int64_t parts = work_->parts;
    const AttentionWork::Item item = work_->Find(index);
    AttentionTile t;
    t.token_begin = item.begin;
    t.token_end = item.end;
    t.positions = work_->positions;
    t.block_table = work_->block_table + item.request * work_->table_width;
    t.kv_head = item.head;
    t.key_end = work_->seq_lens[item.request];
    if (parts > 1) {
      const int64_t block = work_->args.kv.block_size;
      const int64_t first = work_->args.First(work_->positions[item.begin]) / block * block;
      const int64_t size = ((t.key_end - first + parts - 1) / parts + block - 1) / block * block;
      t.key_begin = std::min(first + part * size, t.key_end);
      t.key_end = std::min(t.key_begin + size, t.key_end);
      t.first = part == 0;
      t.partial = work_->partial->data() + (index * parts + part) * work_->PartFloats();
    }
    work_->kernels.attention(work_->args, t, scratch);
  }

  std::shared_ptr<AttentionWork> work_;
};

class AttentionJoinStep : public Step {
 public:
  AttentionJoinStep(ir::NodeId node, std::shared_ptr<AttentionWork> work)
      : Step(node), work_(std::move(work)) {}

  int64_t Chunks(const ir::Bucket&) const override { return work_->parts > 1 ? 1 : 0; }
  void Run(const ir::Bucket&, int64_t, std::byte*) const override {
    const int64_t value_dim = work_->args.value_dim, group = work_->Group();
    for (int64_t i = 0; i < work_->items; ++i) {
      const AttentionWork::Item item = work_->Find(i);
      const float* p = work_->partial->data() + i * work_->parts * work_->PartFloats();
      for (int64_t row = 0; row < (item.end - item.begin) * group; ++row) {
        work_->kernels.attention_join(
            p + row * (value_dim + 2), work_->parts, work_->PartFloats(), value_dim,
            work_->args.out + (item.begin + row / group) * work_->args.out_stride +
                (item.head * group + row % group) * value_dim);
      }
    }
  }

 private:
  std::shared_ptr<AttentionWork> work_;
};

}  // namespace

base::Status CompileAttention(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  if (n.op == ir::Op::kKvWrite) {
    const auto kv = c.Kv(n.inputs[0]);
    if (!kv) return kv.error();
    // A latent cache has no values beside the keys.
    const auto k = c.Rows(n.inputs[1]), v = kv->latent ? k : c.Rows(n.inputs[2]);
    if (!k) return k.error();
    if (!v) return v.error();
    const auto slots = c.Input(n.inputs.back());
    if (!slots) return slots.error();
    steps.push_back(std::make_unique<KvWriteStep>(id, c.kernels, *kv, *k, *v, *slots));
    return {};
  }
  const auto& attrs = n.attrs.as<ir::AttentionAttrs>();
  const auto kv = c.Kv(n.inputs[1]);
  if (!kv) return kv.error();
  const auto q = c.Rows(n.inputs[0]), out = c.Rows(n.outputs[0]);
  if (!q) return q.error();
  if (!out) return out.error();
  const int32_t* inputs[4];
  for (size_t i = 0; i < 4; ++i) {
    const auto p = c.Input(n.inputs[2 + i]);
    if (!p) return p.error();
    inputs[i] = *p;
  }
  AttentionArgs a;
  a.q = q->base;
  a.q_stride = q->stride;
  a.out = out->base;
  a.out_stride = out->stride;
  a.kv = *kv;
  a.heads = attrs.heads;
  a.value_dim = attrs.value_dim();
  a.scale = attrs.scale;
  a.softcap = attrs.softcap;
  a.window = attrs.window;
  a.chunked = attrs.chunked;
  a.causal = attrs.causal;
  if (attrs.sinks) {
    const auto sinks = c.Vector(n.inputs[6]);
    if (!sinks) return sinks.error();
    a.sinks = *sinks;
  }
  const int64_t group = attrs.heads / attrs.kv_heads;
  const int64_t tile = std::max<int64_t>(1, kAttentionQueries / group);
  auto work =
      std::make_shared<AttentionWork>(AttentionWork{c.kernels,
                                                    a,
                                                    inputs[0],
                                                    inputs[1],
                                                    inputs[2],
                                                    inputs[3],
                                                    c.value(n.inputs[5]).shape[1].At(c.plan.bucket),
                                                    tile,
                                                    c.threads,
                                                    c.partial,
                                                    0,
                                                    1,
                                                    {}});
  work->first_items.reserve(static_cast<size_t>(c.plan.bucket.requests));
  // Parts are at most 2 * threads / items.
  const auto floats = static_cast<size_t>(2 * c.threads * work->PartFloats());
  if (c.threads > 1 && c.partial->size() < floats) c.partial->resize(floats);
  steps.push_back(std::make_unique<AttentionStep>(id, work));
  if (c.threads > 1) steps.push_back(std::make_unique<AttentionJoinStep>(id, work));
  return {};
}

}  // namespace vt::cpu
