// Experts and recurrent layers: values worked out by hand, and what must not depend on how a
// request's tokens are cut into steps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "vt/ir/interpreter.h"

namespace vt::ir {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor F(Shape shape, std::vector<float> values) {
  return {std::move(shape), std::move(values), {}};
}
Tensor I(Shape shape, std::vector<int32_t> values) {
  return {std::move(shape), {}, std::move(values)};
}

std::vector<Tensor> Eval(Op op, Attrs attrs, std::vector<Tensor> inputs, KvState* state = nullptr,
                         size_t state_at = 99) {
  std::vector<const Tensor*> args;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == state_at) args.push_back(nullptr);
    args.push_back(&inputs[i]);
  }
  auto r = Evaluate(op, attrs, args, state, 16);
  EXPECT_TRUE(r) << r.error().message;
  return r ? *r : std::vector<Tensor>(2);
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want,
                float bound = 1e-6f) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], bound * (1 + std::fabs(want[i]))) << i;
}

std::vector<Tensor> Route(RouterAttrs a, std::vector<float> logits, std::vector<float> bias = {}) {
  const auto experts = static_cast<int64_t>(logits.size());
  std::vector<Tensor> in = {F({1, experts}, std::move(logits))};
  a.bias = !bias.empty();
  if (a.bias) in.push_back(F({experts}, std::move(bias)));
  return Eval(Op::kRouter, {a}, std::move(in));
}

TEST(Router, ChoosesByScoreAndLeavesTiesToTheLowerId) {
  // softmax of ln 1, ln 3, ln 3, ln 1 = .125 .375 .375 .125
  const float l3 = std::log(3.0f);
  auto out = Route({.top_k = 3}, {0, l3, l3, 0});
  EXPECT_EQ(out[1].i, (std::vector<int32_t>{1, 2, 0}));
  ExpectNear(out[0].f, {0.375f, 0.375f, 0.125f});
  out = Route({.top_k = 3, .normalise = true, .scale = 2}, {0, l3, l3, 0});
  ExpectNear(out[0].f, {6 / 7.0f, 6 / 7.0f, 2 / 7.0f});
}

TEST(Router, ABiasChoosesButDoesNotWeigh) {
  auto out = Route({.top_k = 2, .sigmoid = true}, {0, 0, 0, 0}, {0, 0.1f, 0, 0.2f});
  EXPECT_EQ(out[1].i, (std::vector<int32_t>{3, 1}));
  ExpectNear(out[0].f, {0.5f, 0.5f});
}

TEST(Router, GroupsAreComparedByTheirTwoBest) {
  // Groups (5, 0), (3, 3), (4, 1) of scores + bias: 5, 6, 5, so the second and, of equals, the
  // first.
  const std::vector<float> bias = {5, 0, 3, 3, 4, 1};
  auto out =
      Route({.top_k = 3, .sigmoid = true, .groups = 3, .top_groups = 2}, {0, 0, 0, 0, 0, 0}, bias);
  EXPECT_EQ(out[1].i, (std::vector<int32_t>{0, 2, 3}));
}

TEST(Router, NaNNeverWins) {
  auto out = Route({.top_k = 2, .normalise = true}, {kNaN, 0, kNaN, 0});
  EXPECT_EQ(out[1].i, (std::vector<int32_t>{1, 3}));
  ExpectNear(out[0].f, {0.5f, 0.5f});
  out = Route({.top_k = 2, .normalise = true}, {kNaN, kNaN, kNaN, kNaN});
  EXPECT_EQ(out[1].i, (std::vector<int32_t>{0, 1}));
  ExpectNear(out[0].f, {0, 0});
}

TEST(Experts, EachChoiceHasItsMatrix) {
  // Experts (1, 2), (3, 4) of one row each, and a second segment (10, 0), (0, 10).
  const Tensor w = F({2, 1, 2}, {1, 2, 3, 4}), v = F({2, 1, 2}, {10, 0, 0, 10});
  auto y = Eval(Op::kGroupedLinear, {GroupedLinearAttrs{2}},
                {F({2, 2}, {1, 1, 1, 2}), I({2, 2}, {1, 0, -1, 1}), w, v});
  ExpectNear(y[0].f, {7, 10, 3, 10, 0, 0, 11, 20});
  // A row a choice.
  y = Eval(Op::kGroupedLinear, {GroupedLinearAttrs{1}},
           {F({1, 2, 2}, {1, 0, 0, 1}), I({1, 2}, {1, 1}), w});
  ExpectNear(y[0].f, {3, 4});
  // Each choice's own bias; none where nobody was chosen.
  y = Eval(Op::kExpertBias, {},
           {F({1, 3, 2}, {1, 2, 3, 4, 5, 6}), I({1, 3}, {1, -1, 0}), F({2, 2}, {10, 20, 30, 40})});
  ExpectNear(y[0].f, {31, 42, 3, 4, 15, 26});
  y = Eval(Op::kExpertSum, {}, {F({1, 2, 2}, {1, 2, 3, 4}), F({1, 2}, {0.5f, 2})});
  ExpectNear(y[0].f, {6.5f, 9});
  y = Eval(Op::kScaleRows, {}, {F({2, 2}, {1, 2, 3, 4}), F({2, 1}, {2, -1})});
  ExpectNear(y[0].f, {2, 4, -3, -4});
}

TEST(CausalConv, SeesARequestsOwnPastAlone) {
  // Two requests of one channel, taps (oldest first) 100, 10, 1.
  const Tensor w = F({1, 3}, {100, 10, 1});
  KvState state;
  auto y = Eval(Op::kCausalConv, {ConvAttrs{1, 3}},
                {F({4, 1}, {1, 2, 3, 7}), w, I({3}, {0, 3, 4}), I({2}, {-1, -1}), I({2}, {5, 6})},
                &state, 2);
  ExpectNear(y[0].f, {1, 12, 123, 7});
  ExpectNear(state.recurrent[5], {2, 3});
  ExpectNear(state.recurrent[6], {0, 7});
  // The second goes on; the first is read for another slot, and stays as it was; padding is kept
  // nowhere.
  y = Eval(Op::kCausalConv, {ConvAttrs{1, 3}},
           {F({3, 1}, {8, 4, 9}), w, I({4}, {0, 1, 2, 2}), I({3}, {6, 5, -1}), I({3}, {6, 7, -1})},
           &state, 2);
  ExpectNear(y[0].f, {78, 234, 0});
  ExpectNear(state.recurrent[6], {7, 8});
  ExpectNear(state.recurrent[5], {2, 3});
  ExpectNear(state.recurrent[7], {3, 4});
  EXPECT_EQ(state.recurrent.size(), 3u);
}

TEST(GatedDelta, FollowsTheRule) {
  // One head of 1 x 1: q and k have length 1 by their norm, but for eps = 0.
  DeltaAttrs a{.k_heads = 1, .v_heads = 1, .k_dim = 1, .v_dim = 1, .log_a = true, .eps = 0};
  KvState state;
  state.recurrent[0] = {4};
  // softplus(0) = ln 2 and -exp(0) = -1: S = 4 / 2 = 2; sigmoid(0) = 1/2: d = (10 - 2) / 2 = 4,
  // with k = 1: S = 6; q = -1: y = -6.
  auto y = Eval(Op::kGatedDelta, {a},
                {F({1, 3}, {-5, 3, 10}), F({1, 1}, {0}), F({1, 1}, {0}), F({1}, {0}), F({1}, {0}),
                 I({2}, {0, 1}), I({1}, {0}), I({1}, {0})},
                &state, 5);
  ExpectNear(y[0].f, {-6});
  ExpectNear(state.recurrent[0], {6});
  // A given as it is; k = -1: S = 3, d = (3 + 3) / 2 = 3: S = 0.
  a.log_a = false;
  Eval(Op::kGatedDelta, {a},
       {F({1, 3}, {1, -3, 3}), F({1, 1}, {0}), F({1, 1}, {0}), F({1}, {-1}), F({1}, {0}),
        I({2}, {0, 1}), I({1}, {0}), I({1}, {0})},
       &state, 5);
  ExpectNear(state.recurrent[0], {0});
}

TEST(GatedDelta, HeadsFindTheirKeys) {
  // Four value heads over two keys, k_dim 2: keys (1, 0) and (0, 1); a new state, so y = q k b v.
  for (const bool tiled : {false, true}) {
    const DeltaAttrs a{
        .k_heads = 2, .v_heads = 4, .k_dim = 2, .v_dim = 1, .tiled = tiled, .eps = 0};
    KvState state;
    auto y = Eval(Op::kGatedDelta, {a},
                  {F({1, 12}, {1, 0, 0, 1, 1, 0, 0, -1, 2, 4, 6, 8}), F({1, 4}, {0, 0, 0, 0}),
                   F({1, 4}, {0, 0, 0, 0}), F({4}, {0, 0, 0, 0}), F({4}, {0, 0, 0, 0}),
                   I({2}, {0, 1}), I({1}, {-1}), I({1}, {-1})},
                  &state, 5);
    const float r = 0.5f / std::sqrt(2.0f);
    const std::vector<float> grouped = {2 * r, 4 * r, -6 * r, -8 * r};
    const std::vector<float> alternate = {2 * r, -4 * r, 6 * r, -8 * r};
    ExpectNear(y[0].f, tiled ? alternate : grouped);
    EXPECT_TRUE(state.recurrent.empty());
  }
}

TEST(GatedDelta, DoesNotDependOnTheCuts) {
  const DeltaAttrs a{.k_heads = 1, .v_heads = 2, .k_dim = 3, .v_dim = 2, .state_begin = 4};
  constexpr int64_t kTokens = 9;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto noise = [&](Shape s) {
    Tensor t{.shape = s, .f = {}, .i = {}};
    for (int64_t i = 0; i < Elements(s, {}); ++i) t.f.push_back(normal(random));
    return t;
  };
  const Tensor qkv = noise({kTokens, a.channels()}), da = noise({kTokens, 2}),
               db = noise({kTokens, 2}), big = noise({2}), dt = noise({2});
  const auto rows = [](const Tensor& t, int64_t begin, int64_t end) {
    const int64_t width = t.shape[1].At({});
    return F({end - begin, width}, {t.f.begin() + begin * width, t.f.begin() + end * width});
  };
  const auto run = [&](std::vector<int64_t> cuts) {
    KvState state;
    state.recurrent[3] = {1, 2, 3, 4};  // the filter's part stays
    std::vector<float> all;
    int64_t at = 0;
    for (const int64_t end : cuts) {
      auto y = Eval(
          Op::kGatedDelta, {a},
          {rows(qkv, at, end), rows(da, at, end), rows(db, at, end), big, dt,
           I({2}, {0, static_cast<int32_t>(end - at)}), I({1}, {at == 0 ? -1 : 3}), I({1}, {3})},
          &state, 5);
      all.insert(all.end(), y[0].f.begin(), y[0].f.end());
      at = end;
    }
    all.insert(all.end(), state.recurrent[3].begin(), state.recurrent[3].end());
    return all;
  };
  const std::vector<float> whole = run({kTokens});
  EXPECT_EQ(run({1, 2, 3, 4, 5, 6, 7, 8, 9}), whole);
  EXPECT_EQ(run({4, 9}), whole);
}

}  // namespace
}  // namespace vt::ir
