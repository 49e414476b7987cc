// Latent attention: what its cache costs, what its rules refuse, and that a query brought into the
// latent space gives what expanding the cache would.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "vt/ir/builder.h"
#include "vt/ir/interpreter.h"

namespace vt::ir {
namespace {

constexpr int64_t kHeads = 2, kRank = 4, kRope = 2, kNope = 3, kValue = 5, kTokens = 4;

std::optional<WeightInfo> WeightOf(const std::string& name) {
  const std::map<std::string, std::vector<int64_t>> shapes = {
      {"q.weight", {kTokens, kHeads * (kNope + kRope)}},
      {"latent.weight", {kTokens, kRank + kRope}},
      {"k_b.weight", {kHeads, kRank, kNope}},
      {"v_b.weight", {kHeads, kValue, kRank}}};
  const auto found = shapes.find(name);
  if (found == shapes.end()) return std::nullopt;
  return WeightInfo{DType::kF32, found->second};
}

std::vector<float> DataOf(const std::string& name, size_t count) {
  std::mt19937 random(static_cast<unsigned>(name[0]) * 31 + static_cast<unsigned>(name.size()));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

Tensor I(std::vector<int32_t> values) { return {{}, {}, std::move(values)}; }

TEST(HeadLinear, AQuantisedMatrixIsTakenAsHalves) {
  for (const auto& [stored, held] : {std::pair{DType::kF8_32, DType::kF16},
                                     {DType::kQ4_K, DType::kF16},
                                     {DType::kBF16, DType::kBF16},
                                     {DType::kF32, DType::kF32}}) {
    Builder b("m",
              [t = stored](const std::string& name) -> std::optional<WeightInfo> {
                if (name == "x.weight") return WeightInfo{DType::kF32, {10, 512}};
                return WeightInfo{t, {2, 7, 256}};
              },
              {});
    const ValueId y = b.HeadLinear(b.Heads(b.Embed("x.weight", 10, 512), 2, 256), "l", 7);
    auto g = b.Finish({y});
    ASSERT_TRUE(g) << g.error().message;
    EXPECT_EQ(g->value(g->nodes.back().inputs[1]).dtype, held) << Name(stored);
    EXPECT_EQ(g->value(y).shape, (Shape{T(), Dim(2), Dim(7)}));
  }
}

TEST(LatentAttention, TheCacheHoldsOneVectorAToken) {
  for (const auto& [rank, rope] : {std::pair<int64_t, int64_t>{512, 64}, {24, 8}}) {
    for (const DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E4M3}) {
      Builder b("m",
                [width = rank + rope](const std::string&) {
                  return WeightInfo{DType::kF32, {10, 2 * width}};
                },
                {.dtype = t, .block_size = 16, .max_model_len = 100});
      const ValueId x = b.Embed("x.weight", 10, 2 * (rank + rope));
      const ValueId q = b.Heads(x, 2, rank + rope);
      const ValueId latent = b.Heads(b.Slice(x, 0, rank + rope), 1, rank + rope);
      const ValueId y = b.LatentAttention(
          q, latent, {.heads = 2, .kv_heads = 1, .head_dim = rank + rope, .v_dim = rank}, "a");
      auto g = b.Finish({y});
      ASSERT_TRUE(g) << g.error().message;
      ASSERT_EQ(g->state_groups.size(), 1u);
      // (kv_lora_rank + qk_rope_head_dim) values a token and layer.
      EXPECT_EQ(g->state_groups[0].bytes_per_token_and_layer(), (rank + rope) * Info(t).bytes);
      EXPECT_EQ(g->value(y).shape, (Shape{T(), Dim(2 * rank)}));
    }
  }
}

TEST(LatentAttention, TwoHeadsOfKeysOrValuesThatAreNotThereAreRefused) {
  for (const AttentionAttrs& a :
       {AttentionAttrs{.heads = 2, .kv_heads = 2, .head_dim = 8, .v_dim = 4},
        AttentionAttrs{.heads = 2, .kv_heads = 1, .head_dim = 8, .v_dim = 9}}) {
    Builder b("m",
              [](const std::string&) {
                return WeightInfo{DType::kF32, {10, 16}};
              },
              {.dtype = DType::kF32, .block_size = 16, .max_model_len = 32});
    const ValueId x = b.Embed("x.weight", 10, 16);
    b.LatentAttention(b.Heads(x, 2, 8), b.Heads(b.Slice(x, 0, 8), 1, 8), a, "a");
    EXPECT_FALSE(b.Finish({x}));
  }
}

// A key of a head is (K_h c, r), its value V_h c, of each cached (c, r).
TEST(LatentAttention, ThroughTheHeadsMatricesGivesWhatAnExpandedCacheWould) {
  Builder b("m", WeightOf, {.dtype = DType::kF32, .block_size = 16, .max_model_len = 32});
  const ValueId q =
      b.Heads(b.Embed("q.weight", kTokens, kHeads * (kNope + kRope)), kHeads, kNope + kRope);
  const ValueId latent =
      b.Heads(b.Embed("latent.weight", kTokens, kRank + kRope), 1, kRank + kRope);
  const ValueId query =
      b.Concat(b.HeadLinear(b.Slice(q, 0, kNope), "k_b", kRank), b.Slice(q, kNope, kRope));
  const ValueId inner = b.LatentAttention(
      query, latent,
      {.heads = kHeads, .kv_heads = 1, .head_dim = kRank + kRope, .scale = 0.5f, .v_dim = kRank},
      "a");
  const ValueId y = b.HeadLinear(b.Heads(inner, kHeads, kRank), "v_b", kValue);
  auto g = b.Finish({y});
  ASSERT_TRUE(g) << g.error().message;
  const auto data = [](const Value& v) {
    return DataOf(v.name, static_cast<size_t>(Elements(v.shape, {})));
  };
  Interpreter interpreter(*g, data, 16);
  const std::vector<int32_t> ids = {0, 1, 2, 3};
  const auto out = interpreter.Run({.tokens = kTokens, .requests = 1, .outputs = 0},
                                   {{kTokenIds, I(ids)},
                                    {kPositions, I(ids)},
                                    {kQueryStart, I({0, 4})},
                                    {kSeqLens, I({4})},
                                    {SlotsName(0), I(ids)},
                                    {BlockTableName(0), I({0, 1})}});
  ASSERT_TRUE(out) << out.error().message;
  const std::vector<float>& got = (*out)[static_cast<size_t>(y)].f;

  const auto weight = [&](const char* name) {
    for (const Value& v : g->values) {
      if (v.name == name) return data(v);
    }
    return std::vector<float>();
  };
  const auto queries = weight("q.weight"), cache = weight("latent.weight"),
             k_b = weight("k_b.weight"), v_b = weight("v_b.weight");
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const float* own = &queries[static_cast<size_t>((t * kHeads + h) * (kNope + kRope))];
      std::vector<double> sums(kValue);
      double total = 0;
      for (int64_t s = 0; s <= t; ++s) {
        const float* c = &cache[static_cast<size_t>(s * (kRank + kRope))];
        double score = 0;
        for (int64_t n = 0; n < kNope; ++n) {
          double key = 0;  // K_h is stored transposed
          for (int64_t r = 0; r < kRank; ++r)
            key += k_b[static_cast<size_t>((h * kRank + r) * kNope + n)] * c[r];
          score += own[n] * key;
        }
        for (int64_t r = 0; r < kRope; ++r) score += own[kNope + r] * c[kRank + r];
        const double weight_of = std::exp(0.5 * score);
        total += weight_of;
        for (int64_t v = 0; v < kValue; ++v) {
          double value = 0;
          for (int64_t r = 0; r < kRank; ++r)
            value += v_b[static_cast<size_t>((h * kValue + v) * kRank + r)] * c[r];
          sums[static_cast<size_t>(v)] += weight_of * value;
        }
      }
      for (int64_t v = 0; v < kValue; ++v) {
        EXPECT_NEAR(got[static_cast<size_t>((t * kHeads + h) * kValue + v)],
                    sums[static_cast<size_t>(v)] / total, 1e-5)
            << t << " " << h << " " << v;
      }
    }
  }
}

}  // namespace
}  // namespace vt::ir
