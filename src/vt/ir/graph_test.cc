#include "vt/ir/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "vt/ir/builder.h"
#include "vt/ir/fused.h"

namespace vt::ir {
namespace {

WeightSource Weights(std::map<std::string, WeightInfo> all) {
  return [all = std::move(all)](const std::string& name) -> std::optional<WeightInfo> {
    const auto found = all.find(name);
    if (found == all.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Dim, CountsSymbolsOfTheBucket) {
  const Bucket b{.tokens = 7, .requests = 3, .outputs = 2};
  EXPECT_EQ(T().At(b), 7);
  EXPECT_EQ(Dim(1, Sym::kRequests, 1).At(b), 4);
  EXPECT_EQ(Elements({O(), Dim(5)}, b), 10);
  EXPECT_EQ(Rows({T(), Dim(4), Dim(8)}, b), 28);
  EXPECT_EQ(ToString(Shape{T(), Dim(2, Sym::kTokens), Dim(1, Sym::kRequests, 1), Dim(64)}),
            "[T, 2T, R+1, 64]");
}

TEST(Builder, BuildsAnAttentionLayerWithItsStateAndInputs) {
  Builder b(
      "m", Weights({{"e.weight", {DType::kF32, {10, 32}}}, {"q.weight", {DType::kQ8_0, {64, 32}}}}),
      {.dtype = DType::kF16, .block_size = 16, .max_model_len = 100});
  const ValueId x = b.Embed("e.weight", 10, 32);
  const ValueId q = b.Heads(b.Linear(x, "q", 64), 4, 16);
  const ValueId k = b.Heads(b.Slice(x, 0, 32), 2, 16);
  AttentionAttrs a{.heads = 4, .kv_heads = 2, .head_dim = 16};
  const ValueId global = b.Attention(q, k, k, a, "attn0");
  a.window = 8;
  b.Attention(q, k, k, a, "attn1");
  a.window = 0;
  b.Attention(q, k, k, a, "attn2");
  auto g = b.Finish({global});
  ASSERT_TRUE(g) << g.error().message;
  ASSERT_EQ(g->state_groups.size(), 2u);
  EXPECT_EQ(g->state_groups[0].layers, 2);
  EXPECT_EQ(g->state_groups[1].window, 8);
  EXPECT_EQ(g->state_groups[0].bytes_per_token_and_layer(), 2 * 2 * 16 * 2);
  bool found = false;
  for (const Value& v : g->values) {
    if (v.name != "block_table.1") continue;
    found = true;
    EXPECT_EQ(ToString(v.shape), "[R, 7]");  // ceil(100 / 16)
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(ToString(g->value(global).shape), "[T, 64]");
}

TEST(Builder, NamesTheFirstMissingWeight) {
  Builder b("m", Weights({}), {});
  b.Linear(b.Embed("embed.weight", 4, 8), "gone", 3);
  auto g = b.Finish({});
  ASSERT_FALSE(g);
  EXPECT_EQ(g.error().message, "the checkpoint has no tensor embed.weight, which m needs");
}

TEST(Builder, NamesAWeightOfTheWrongShape) {
  Builder b("m", Weights({{"e.weight", {DType::kF32, {4, 9}}}}), {});
  b.Embed("e.weight", 4, 8);
  auto g = b.Finish({});
  ASSERT_FALSE(g);
  EXPECT_NE(g.error().message.find("e.weight has the shape [4, 9]"), std::string::npos)
      << g.error().message;
}

TEST(Builder, RefusesShapesThatDoNotFit) {
  Builder b("m", Weights({{"e.weight", {DType::kF32, {4, 8}}}}), {});
  const ValueId x = b.Embed("e.weight", 4, 8);
  b.Add(x, b.Slice(x, 0, 4));
  auto g = b.Finish({x});
  ASSERT_FALSE(g);
  EXPECT_NE(g.error().message.find("add"), std::string::npos);
}

TEST(Builder, RefusesQuantisedRowsThatAreNotWholeBlocks) {
  Builder b("m",
            Weights({{"e.weight", {DType::kF32, {4, 48}}}, {"l.weight", {DType::kQ8_0, {2, 48}}}}),
            {});
  b.Linear(b.Embed("e.weight", 4, 48), "l", 2);
  auto g = b.Finish({});
  ASSERT_FALSE(g);
  EXPECT_NE(g.error().message.find("whole blocks"), std::string::npos) << g.error().message;
}

TEST(Verify, FindsAReadBeforeTheWrite) {
  Builder b("m", Weights({{"e.weight", {DType::kF32, {4, 8}}}}), {});
  const ValueId x = b.Embed("e.weight", 4, 8);
  const ValueId y = b.Scale(x, 2);
  auto g = b.Finish({y});
  ASSERT_TRUE(g);
  std::swap(g->nodes[0], g->nodes[1]);
  EXPECT_FALSE(Verify(*g));
}

TEST(Verify, FindsAReadOfAnOverwrittenState) {
  Builder b("m", Weights({{"e.weight", {DType::kF32, {4, 32}}}}), {});
  const ValueId k = b.Heads(b.Embed("e.weight", 4, 32), 2, 16);
  const ValueId out = b.Attention(k, k, k, {.heads = 2, .kv_heads = 2, .head_dim = 16}, "a");
  auto g = b.Finish({out});
  ASSERT_TRUE(g) << g.error().message;
  for (Node& n : g->nodes) {
    if (n.op == Op::kAttention)
      n.inputs[1] = g->nodes[static_cast<size_t>(g->value(n.inputs[1]).producer)].inputs[0];
  }
  auto status = Verify(*g);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("overwritten"), std::string::npos);
}

TEST(Fused, EveryFusedOpHasADefinitionAndLongerOnesComeFirst) {
  for (int op = kPrimitiveCount; op < kOpCount; ++op) {
    EXPECT_EQ(DefinitionOf(static_cast<Op>(op)).op, static_cast<Op>(op))
        << Name(static_cast<Op>(op));
  }
  size_t parts = 99;
  for (const FusedDefinition& d : FusedDefinitions()) {
    EXPECT_LE(d.parts.size(), parts);
    parts = d.parts.size();
    EXPECT_TRUE(std::count(d.outputs.begin(), d.outputs.end(),
                           static_cast<int>(ComputedParts(d)) - 1) == 1);
  }
}

}  // namespace
}  // namespace vt::ir
