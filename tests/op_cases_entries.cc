// Cases of caches with entries, of residuals of several streams, and of experts by token.
#include <cmath>

#include "tests/op_case_builder.h"

namespace tests {
namespace {

struct Sizes {
  int64_t heads, dim, ratio, window;
  int64_t top_k = 0;  // 0: all entries are seen, and windows don't overlap
  int64_t index_heads = 0, index_dim = 0;
};

OpCase EntryCase(const Sizes& s, KvOptions kv, std::vector<OpStep> steps, double tolerance) {
  CaseBuilder c(fmt::format("entries.h{}.d{}.r{}.w{}.k{}.{}", s.heads, s.dim, s.ratio, s.window,
                            s.top_k, Name(kv.dtype)),
                kv);
  const auto cached = [&](Builder::Cache& cache, int64_t width, const std::string& name) {
    c.b.Write(cache, c.b.Heads(c.X(width, name + ".weight"), 1, width), name);
  };
  const ValueId q = c.b.Heads(c.X(s.heads * s.dim, "q.weight"), s.heads, s.dim);
  Builder::Cache window = c.b.MakeCache(s.dim, s.window);
  cached(window, s.dim, "window");
  EntryAttrs attend = {.heads = s.heads,
                       .dim = s.dim,
                       .window = s.window,
                       .scale = 1 / std::sqrt(static_cast<float>(s.dim))};
  Builder::Cache entries = window;
  ValueId ids = kNone;
  if (s.ratio > 0) {
    const bool indexed = s.top_k > 0;
    const int64_t rows = c.b.EntryRows(s.ratio), times = indexed ? 2 : 1;
    entries = c.b.MakeCache((s.dim + s.index_dim) / rows);
    Builder::Cache raw = c.b.MakeCache(2 * times * (s.dim + s.index_dim), times * s.ratio);
    cached(raw, 2 * times * (s.dim + s.index_dim), "raw");
    CompressAttrs a = {.ratio = s.ratio,
                       .rows = rows,
                       .dim = s.dim,
                       .overlap = indexed,
                       .gates = times * s.dim,
                       .rope = Rotation(8, true)};
    c.b.Compress(raw, entries, a, c.Matrix("bias", s.ratio, a.width()), c.Vector("norm", s.dim),
                 "compress");
    attend.ratio = s.ratio;
    attend.rows = rows;
    if (indexed) {
      a.dim = s.index_dim;
      a.values = 2 * times * s.dim;
      a.gates = a.values + times * s.index_dim;
      a.begin = s.dim / rows;
      c.b.Compress(raw, entries, a, c.Matrix("index_bias", s.ratio, a.width()),
                   c.Vector("index_norm", s.index_dim), "compress_index");
      EntryAttrs index = attend;
      index.heads = s.index_heads;
      index.dim = s.index_dim;
      index.begin = a.begin;
      attend.top_k = index.top_k = s.top_k;
      const ValueId index_q =
          c.b.Heads(c.X(s.index_heads * s.index_dim, "index_q.weight"), s.index_heads, s.index_dim);
      const ValueId weights = c.Linear(c.X(16), "weights", s.index_heads, 16, DType::kF32);
      ids = c.b.IndexEntries(index_q, weights, entries, index, "choose");
    }
  }
  const ValueId y =
      c.b.EntryAttention(q, window, entries, ids, attend, c.Vector("sinks", s.heads), "attention");
  return c.Finish({c.b.Add(y, y)}, std::move(steps), tolerance);
}

OpCase HyperCase(int64_t streams, int64_t dim, int64_t rounds) {
  CaseBuilder c(fmt::format("hyper.h{}.d{}.r{}", streams, dim, rounds));
  const int64_t mixes = rounds > 0 ? (2 + streams) * streams : streams;
  const ValueId x = c.b.Heads(c.X(streams * dim), streams, dim);
  c.Matrix("hc.fn", mixes, streams * dim);
  c.Vector("hc.base", mixes);
  c.Vector("hc.scale", rounds > 0 ? 3 : 1);
  const Builder::Collapsed one = c.b.HyperCollapse(x, {.rounds = rounds}, "hc.");
  ValueId out = one.x;
  if (rounds > 0) out = c.b.HyperExpand(x, one.x, one.gates);
  return c.Finish({c.b.Add(out, out)}, RowSteps(), 1e-4);
}

}  // namespace

void AddEntries(std::vector<OpCase>& cases) {
  const KvOptions exact{.dtype = DType::kF32, .block_size = 16, .max_model_len = 160};
  const Sizes indexed{5, 32, 4, 7, 3, 3, 16};
  cases.push_back(EntryCase({3, 24, 0, 5}, exact, ServingSteps(), 5e-5));
  cases.push_back(EntryCase({4, 32, 8, 7}, exact, ServingSteps(), 5e-5));
  cases.push_back(EntryCase({2, 32, 32, 20}, exact, ServingSteps(), 5e-5));
  cases.push_back(EntryCase(indexed, exact, ServingSteps(), 5e-5));
  cases.push_back(EntryCase({4, 16, 6, 7, 2, 9, 8}, exact, ServingSteps(), 5e-5));
  KvOptions half = exact;
  half.dtype = DType::kF16;
  cases.push_back(EntryCase(indexed, half, {{{5, 33}}, {{1, 20}}, {{1, 1}, 1, 1}}, 4e-3));
  const KvOptions whole{.dtype = DType::kF32, .block_size = 128, .max_model_len = 512};
  cases.push_back(EntryCase({3, 512, 128, 16}, whole, {{{300, 5}}, {{1, 1}}}, 5e-5));
  for (const auto& [streams, dim, rounds] :
       {std::array<int64_t, 3>{4, 40, 20}, {3, 32, 1}, {2, 300, 3}, {4, 64, 0}}) {
    cases.push_back(HyperCase(streams, dim, rounds));
  }
  for (const bool hashed : {false, true}) {
    CaseBuilder c(hashed ? "hash_router" : "router.softplus");
    const RouterAttrs a = {.top_k = 3, .root = true, .normalise = true, .scale = 1.5f};
    const ValueId logits = c.b.Scale(c.X(12, "logits.weight"), 4);
    const auto r =
        hashed ? c.b.HashRouter(logits, a, "router", c.Table("table", kVocabulary, 3), kVocabulary)
               : c.b.Router(logits, a, "router");
    const ValueId x = c.X(32);
    const ValueId y = c.Grouped(x, r.ids, "experts", 12, 8, 32, DType::kF32);
    cases.push_back(c.Finish({c.b.ExpertSum(y, r.weights)}, RowSteps()));
  }
}

}  // namespace tests
