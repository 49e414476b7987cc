#include "vt/ir/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "vt/ir/builder.h"
#include "vt/ir/passes.h"

namespace vt::ir {
namespace {

Tensor F(Shape shape, std::vector<float> values) {
  return {std::move(shape), std::move(values), {}};
}
Tensor I(Shape shape, std::vector<int32_t> values) {
  return {std::move(shape), {}, std::move(values)};
}

std::vector<float> Eval(Op op, Attrs attrs, std::vector<Tensor> inputs) {
  std::vector<const Tensor*> args;
  for (const Tensor& t : inputs) args.push_back(&t);
  auto r = Evaluate(op, attrs, args, nullptr, 16);
  EXPECT_TRUE(r) << r.error().message;
  if (!r) return {};
  std::vector<float> out = (*r)[0].f;
  for (const int32_t i : (*r)[0].i) out.push_back(static_cast<float>(i));
  return out;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-6f * (1 + std::fabs(want[i]))) << i;
}

TEST(Evaluate, LinearStacksSegmentsAndAddsBiases) {
  // x = (1, 2); w0 = ((1, 0), (0, 1)), w1 = ((3, 4)); b = (10, 20), (30)
  ExpectNear(Eval(Op::kLinear, {LinearAttrs{2, true}},
                  {F({1, 2}, {1, 2}), F({2, 2}, {1, 0, 0, 1}), F({1, 2}, {3, 4}), F({2}, {10, 20}),
                   F({1}, {30})}),
             {11, 22, 41});
}

TEST(Evaluate, RmsNormScalesByTheRootMeanSquare) {
  // mean(9, 16) = 12.5
  const float r = std::sqrt(12.5f);
  ExpectNear(Eval(Op::kRmsNorm, {NormAttrs{0, 1}}, {F({1, 2}, {3, 4}), F({2}, {0, 1})}),
             {3 / r, 8 / r});
}

TEST(Evaluate, LayerNormRemovesTheMean) {
  ExpectNear(
      Eval(Op::kLayerNorm, {NormAttrs{0, 0}}, {F({1, 2}, {1, 3}), F({2}, {2, 2}), F({2}, {5, 5})}),
      {3, 7});
}

TEST(Evaluate, BinaryOpsBroadcastARow) {
  ExpectNear(Eval(Op::kSub, {}, {F({2, 2}, {1, 2, 3, 4}), F({2}, {1, 10})}), {0, -8, 2, -6});
  ExpectNear(Eval(Op::kDiv, {}, {F({1, 2}, {1, 2}), F({1, 2}, {4, 4})}), {0.25f, 0.5f});
}

TEST(Evaluate, SoftmaxOfNothingPossibleIsZero) {
  ExpectNear(Eval(Op::kSoftmax, {}, {F({2, 2}, {-INFINITY, -INFINITY, 0, std::log(3.0f)})}),
             {0, 0, 0.25f, 0.75f});
}

TEST(Evaluate, ActivationsHaveTheirKnownValues) {
  const auto at_one = [](Activation fn) {
    return Eval(Op::kUnary, {UnaryAttrs{fn}}, {F({1}, {1})})[0];
  };
  EXPECT_NEAR(at_one(Activation::kSilu), 0.7310586f, 1e-6f);
  EXPECT_NEAR(at_one(Activation::kGelu), 0.8413447f, 1e-6f);
  EXPECT_NEAR(at_one(Activation::kGeluTanh), 0.8411920f, 1e-6f);
  EXPECT_NEAR(at_one(Activation::kSoftplus), 1.3132617f, 1e-6f);
  EXPECT_EQ(Eval(Op::kUnary, {UnaryAttrs{Activation::kSquaredRelu}}, {F({2}, {-2, 3})}),
            (std::vector<float>{0, 9}));
}

TEST(Evaluate, RopeRotatesHalvesOrNeighboursAndPassesTheRest) {
  const float c = std::cos(0.5f), s = std::sin(0.5f);
  RopeAttrs a{.rotary_dim = 2, .frequencies = {0.25f}};
  ExpectNear(Eval(Op::kRope, {a}, {F({1, 1, 3}, {1, 10, 7}), I({1}, {2})}),
             {c - 10 * s, 10 * c + s, 7});
  a = {.rotary_dim = 4, .interleaved = true, .frequencies = {0.25f, 0}};
  ExpectNear(Eval(Op::kRope, {a}, {F({1, 1, 4}, {1, 10, 3, 4}), I({1}, {2})}),
             {c - 10 * s, 10 * c + s, 3, 4});
  a.interleaved = false;  // pairs (0, 2) and (1, 3)
  ExpectNear(Eval(Op::kRope, {a}, {F({1, 1, 4}, {1, 10, 3, 4}), I({1}, {2})}),
             {c - 3 * s, 10, 3 * c + s, 4});
}

TEST(Evaluate, ViewsAndJoins) {
  ExpectNear(Eval(Op::kSlice, {SliceAttrs{1, 2}}, {F({2, 3}, {1, 2, 3, 4, 5, 6})}), {2, 3, 5, 6});
  ExpectNear(Eval(Op::kConcat, {}, {F({2, 1}, {1, 2}), F({2, 2}, {3, 4, 5, 6})}),
             {1, 3, 4, 2, 5, 6});
  ExpectNear(Eval(Op::kGather, {}, {F({2, 2}, {1, 2, 3, 4}), I({3}, {1, 1, 0})}),
             {3, 4, 3, 4, 1, 2});
}

TEST(Evaluate, RefusesIdsOutOfRange) {
  const Tensor table = F({2, 2}, {1, 2, 3, 4}), ids = I({1}, {2});
  auto r = Evaluate(Op::kEmbed, {}, {&table, &ids}, nullptr, 16);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message, "token id 2 is not below 2");
}

TEST(Evaluate, QuantizeGivesTheValuesThatTheBlocksHold) {
  std::vector<float> x(32, 0);
  x[0] = 127;
  x[1] = 1.4f;
  x[2] = -0.6f;
  std::vector<float> want(32, 0);
  want[0] = 127;
  want[1] = 1;
  want[2] = -1;
  ExpectNear(Eval(Op::kQuantize, {ConvertAttrs{DType::kQ8_A32}}, {F({1, 32}, x)}), want);
}

// One head of size 1: q = 0 gives equal weights, so the output is the mean of the values that are
// seen.
struct Cache {
  explicit Cache(DType t) {
    state.dtype = t;
    const Tensor k = F({5, 1, 1}, {0, 0, 0, 0, 0}), v = F({5, 1, 1}, {1, 2, 4, 8, 16});
    const Tensor slots =
        I({5}, {6, 7, 2, 3, -1});  // blocks 3 and 1 of two tokens; the last row is padding
    EXPECT_TRUE(Evaluate(Op::kKvWrite, {}, {nullptr, &k, &v, &slots}, &state, 2));
  }
  std::vector<float> Attend(AttentionAttrs a, std::vector<int32_t> positions,
                            std::vector<int32_t> starts, int32_t len, float q_value = 0,
                            float sink = 0) {
    a.heads = a.kv_heads = a.head_dim = 1;
    const auto t = static_cast<int64_t>(positions.size());
    const Tensor q = F({t, 1, 1}, std::vector<float>(positions.size(), q_value)),
                 p = I({t}, positions);
    const Tensor s = I({2}, std::move(starts)), l = I({1}, {len}), table = I({1, 2}, {3, 1});
    const Tensor sinks = F({1}, {sink});
    std::vector<const Tensor*> in = {&q, nullptr, &p, &s, &l, &table};
    if (a.sinks) in.push_back(&sinks);
    auto r = Evaluate(Op::kAttention, {a}, in, &state, 2);
    EXPECT_TRUE(r) << r.error().message;
    return (*r)[0].f;
  }
  KvState state;
};

TEST(Evaluate, AttentionFollowsTheBlockTableCausally) {
  Cache c(DType::kF16);
  EXPECT_EQ(c.state.k.size(), 4u);  // padding wrote nothing
  ExpectNear(c.Attend({}, {0, 1, 2, 3}, {0, 4}, 4), {1, 1.5f, 7.0f / 3, 15.0f / 4});
}

TEST(Evaluate, AWindowSeesItselfAndTheTokensBeforeIt) {
  Cache c(DType::kF32);
  ExpectNear(c.Attend({.window = 2}, {0, 1, 2, 3}, {0, 4}, 4), {1, 1.5f, 3, 6});
  ExpectNear(c.Attend({.window = 1}, {2, 3}, {0, 2}, 4), {4, 8});
}

TEST(Evaluate, ASinkHasAShareAndNoValue) {
  Cache c(DType::kF32);  // the score of every key is 0
  ExpectNear(c.Attend({.sinks = true}, {0, 3}, {0, 2}, 4), {1.0f / 2, 15.0f / 5});
  ExpectNear(c.Attend({.sinks = true}, {0, 3}, {0, 2}, 4, 0, std::log(3.0f)),
             {1.0f / 4, 15.0f / 7});
  ExpectNear(c.Attend({.window = 2, .sinks = true}, {3}, {0, 1}, 4), {12.0f / 3});
  ExpectNear(c.Attend({.sinks = true}, {3}, {0, 1}, 4, 0, -INFINITY), {15.0f / 4});
  ExpectNear(c.Attend({.sinks = true}, {0}, {0, 1}, 0), {0});
}

TEST(Evaluate, BidirectionallyEveryTokenSeesAll) {
  Cache c(DType::kF32);
  ExpectNear(c.Attend({.causal = false}, {0, 1, 2, 3}, {0, 4}, 4),
             {15.0f / 4, 15.0f / 4, 15.0f / 4, 15.0f / 4});
}

TEST(Evaluate, ClampBoundsBothSides) {
  ExpectNear(Eval(Op::kClamp, {ClampAttrs{-1, 2}}, {F({4}, {-3, -1, 0.5f, 7})}), {-1, -1, 0.5f, 2});
  ExpectNear(Eval(Op::kClamp, {ClampAttrs{-INFINITY, 2}}, {F({2}, {-3, 7})}), {-3, 2});
}

TEST(Evaluate, PaddingRowsAndEmptyRequestsGiveZeros) {
  Cache c(DType::kF32);
  ExpectNear(c.Attend({}, {3, 0, 0}, {0, 1}, 4), {15.0f / 4, 0, 0});
  ExpectNear(c.Attend({}, {0}, {0, 1}, 0), {0});  // all masked: zero, not NaN
}

TEST(Interpreter, RunsAStepAndKeepsTheCacheForTheNext) {
  const WeightSource source = [](const std::string&) { return WeightInfo{DType::kF32, {4, 2}}; };
  Builder b("m", source, {.dtype = DType::kF32, .block_size = 4, .max_model_len = 8});
  const ValueId x = b.Embed("e", 4, 2);
  const ValueId h = b.Heads(x, 1, 2);
  auto g =
      b.Finish({b.Attention(h, h, h, {.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0}, "a")});
  ASSERT_TRUE(g) << g.error().message;
  Interpreter run(
      *g, [](const Value&) { return std::vector<float>{0, 0, 2, 20, 4, 40, 6, 60}; }, 4);
  const auto step = [&](std::vector<int32_t> ids, std::vector<int32_t> positions) {
    const auto t = static_cast<int64_t>(ids.size());
    const Bucket bucket{.tokens = t, .requests = 1, .outputs = 1};
    std::map<std::string, Tensor> in;
    in[kTokenIds] = I({t}, ids);
    in[kPositions] = I({t}, positions);
    in[SlotsName(0)] = I({t}, positions);
    in[kQueryStart] = I({2}, {0, static_cast<int32_t>(t)});
    in[kSeqLens] = I({1}, {positions.back() + 1});
    in[BlockTableName(0)] = I({1, 2}, {0, 1});
    auto r = run.Run(bucket, in);
    EXPECT_TRUE(r) << r.error().message;
    return (*r)[static_cast<size_t>(g->outputs[0])].f;
  };
  ExpectNear(step({1, 2}, {0, 1}), {2, 20, 3, 30});
  ExpectNear(step({3}, {2}), {4, 40});  // mean of 2, 4, 6
  auto missing = run.Run({.tokens = 1}, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no input"), std::string::npos);
}

TEST(Interpreter, FusedOpsMeanTheirDefinitions) {
  const Tensor a = F({1, 2}, {1, 2}), b = F({1, 2}, {2, 2}), w = F({2}, {1, 1});
  auto r = Evaluate(Op::kAddRmsNorm, {FusedAttrs{{Attrs{}, Attrs{NormAttrs{0, 0}}}}}, {&a, &b, &w},
                    nullptr, 16);
  ASSERT_TRUE(r);
  ASSERT_EQ(r->size(), 2u);
  ExpectNear((*r)[0].f, {3, 4});
  ExpectNear((*r)[1].f, {3 / std::sqrt(12.5f), 4 / std::sqrt(12.5f)});
}

}  // namespace
}  // namespace vt::ir
