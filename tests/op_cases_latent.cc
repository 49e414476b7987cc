// Cases of latent attention: a matrix a head, a cache of one vector a token, and both as models
// have them.
#include <cmath>

#include "tests/op_case_builder.h"

namespace tests {
namespace {

struct Sizes {
  int64_t heads, rank, rope, nope, value;
  int64_t width() const { return rank + rope; }  // of what the cache holds
};

AttentionAttrs AttrsOf(const Sizes& s) {
  return {.heads = s.heads,
          .kv_heads = 1,
          .head_dim = s.width(),
          .scale = 1 / std::sqrt(static_cast<float>(s.nope + s.rope)),
          .v_dim = s.rank};
}

// q and the latent vector as they come.
OpCase PlainCase(const Sizes& s, KvOptions kv, std::vector<OpStep> steps,
                 const std::string& suffix) {
  CaseBuilder c(fmt::format("latent.h{}.d{}.v{}{}", s.heads, s.width(), s.rank, suffix), kv);
  const ValueId q = c.b.Heads(c.X(s.heads * s.width(), "q.weight"), s.heads, s.width());
  const ValueId latent = c.b.Heads(c.X(s.width(), "latent.weight"), 1, s.width());
  const ValueId y = c.b.LatentAttention(q, latent, AttrsOf(s), "attention");
  return c.Finish({c.b.Add(y, y)}, std::move(steps), 5e-5);
}

// As DeepSeek's layers: what a query is without position goes through its head's matrix into the
// latent space, and what attention gives through another out of it.
OpCase LayerCase(const std::string& name, const Sizes& s, DType t, KvOptions kv,
                 std::vector<OpStep> steps, int64_t hidden = 64) {
  CaseBuilder c(name, kv);
  const ValueId x = c.b.Scale(c.X(hidden), 0.125f);
  const RopeAttrs rope = Rotation(s.rope, true);
  const int64_t dim = s.nope + s.rope;
  const ValueId q = c.b.Heads(c.Linear(x, "q", s.heads * dim, hidden, t), s.heads, dim);
  const ValueId kv_a = c.b.Heads(c.Linear(x, "kv_a", s.width(), hidden, t), 1, s.width());
  const ValueId normed =
      c.b.RmsNorm(c.b.Slice(kv_a, 0, s.rank), c.Vector("kv_a_norm", s.rank), 1e-6f);
  const ValueId latent = c.b.Concat(normed, c.b.Rope(c.b.Slice(kv_a, s.rank, s.rope), rope));
  const ValueId inner = c.HeadLinear(c.b.Slice(q, 0, s.nope), "k_b", s.heads, s.rank, s.nope, t);
  const ValueId query = c.b.Concat(inner, c.b.Rope(c.b.Slice(q, s.nope, s.rope), rope));
  const ValueId y = c.b.LatentAttention(query, latent, AttrsOf(s), "attention");
  const ValueId out =
      c.HeadLinear(c.b.Heads(y, s.heads, s.rank), "v_b", s.heads, s.value, s.rank, t);
  return c.Finish({c.b.Add(out, out)}, std::move(steps), 5e-5);
}

}  // namespace

void AddLatent(std::vector<OpCase>& cases) {
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{7, 40}, {72, 128}}) {
      CaseBuilder c(fmt::format("head_linear.{}.n{}.k{}", Name(t), n, k));
      const ValueId y = c.HeadLinear(c.b.Heads(c.X(3 * k), 3, k), "l", 3, n, k, t);
      cases.push_back(c.Finish({c.b.Add(y, y)}, RowSteps()));
    }
  }
  const KvOptions kv{.dtype = DType::kF16, .block_size = 16, .max_model_len = 160};
  for (const Sizes& s : {Sizes{1, 32, 8, 16, 16},
                         {4, 64, 16, 32, 32},
                         {5, 24, 8, 16, 16},
                         {16, 64, 32, 32, 32},
                         {40, 32, 16, 16, 16}}) {
    cases.push_back(PlainCase(s, kv, ServingSteps(), ""));
  }
  const Sizes published{16, 512, 64, 128, 128};
  cases.push_back(PlainCase(published, kv, {{{5, 40}}, {{1, 1}}, {{2, 0}, 1}}, ""));
  cases.back().optional = true;  // in f32 a tile of such vectors is 74 KB
  cases.push_back(PlainCase(published,
                            {.dtype = DType::kBF16, .block_size = 16, .max_model_len = 160},
                            {{{3, 20}}, {{1, 1}}}, ".kv_bf16"));
  cases.back().optional = true;
  for (const DType t : {DType::kF32, DType::kBF16}) {
    cases.push_back(PlainCase({4, 64, 16, 32, 32},
                              {.dtype = t, .block_size = 32, .max_model_len = 160}, ServingSteps(),
                              fmt::format(".kv_{}", Name(t))));
  }
  std::vector<OpStep> lengths = {{{1}}};  // every cache length from 1 to 130
  for (int i = 1; i < 130; ++i) lengths.push_back({{1}});
  cases.push_back(PlainCase({2, 32, 8, 16, 16}, kv, lengths, ".lengths"));
  cases.push_back(PlainCase({4, 64, 16, 32, 32}, kv, {{{130}}, {{1}}}, ".prefill130"));
  for (const DType t : {DType::kF32, DType::kBF16}) {
    cases.push_back(LayerCase(fmt::format("latent.layer.{}", Name(t)), {4, 32, 16, 24, 20}, t, kv,
                              ServingSteps()));
  }
  // Groups of experts by their best expert alone.
  CaseBuilder c("router.group_max");
  const auto routed = c.b.Router(
      c.X(24, "logits.weight"),
      {.top_k = 5, .scale = 16, .groups = 6, .top_groups = 3, .group_max = true}, "router");
  cases.push_back(c.Finish({routed.weights, routed.ids}, RowSteps()));
}

void AddLatentSpeed(std::vector<OpCase>& cases) {
  const KvOptions kv{.dtype = DType::kBF16, .block_size = 16, .max_model_len = 4096};
  const Sizes lite{16, 512, 64, 128, 128};  // DeepSeek-V2-Lite's layer
  cases.push_back(
      LayerCase("latent.lite.decode.ctx2k", lite, DType::kBF16, kv, {{{2000}}, {{1}}}, 2048));
  cases.push_back(LayerCase("latent.lite.prefill512", lite, DType::kBF16, kv, {{{512}}}, 2048));
}

}  // namespace tests
