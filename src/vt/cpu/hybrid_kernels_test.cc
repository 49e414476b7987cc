// Kernels of experts and of recurrent layers, of every instruction set that this machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "vt/cpu/isa.h"
#include "vt/cpu/kernels.h"
#include "vt/ir/evaluate_hybrid.h"

namespace vt::cpu {
namespace {

std::vector<float> Normal(int64_t n, uint32_t seed, float scale = 1, float middle = 0) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> d(middle, scale);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = d(rng);
  return v;
}

double LargestError(const std::vector<float>& got, const std::vector<float>& want) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    const double e = std::fabs(static_cast<double>(got[i]) - want[i]);
    error = e <= error ? error : e;  // NaN too
  }
  return error / largest;
}

class HybridKernels : public testing::TestWithParam<std::string> {
 protected:
  KernelSet kernels_ = *KernelsFor(GetParam());
};

// Two heads of one key head; a long memory, so that errors would have time to grow.
struct DeltaRun {
  static constexpr int64_t kTokens = 4096, kHeads = 2, kDim = 64;
  ir::DeltaAttrs attrs = {.k_heads = 1, .v_heads = kHeads, .k_dim = kDim, .v_dim = kDim};
  std::vector<float> qkv = Normal(kTokens * attrs.channels(), 1),
                     a = Normal(kTokens * kHeads, 2, 1, -6), b = Normal(kTokens * kHeads, 3),
                     rate = {-1.5f, 0.5f}, dt = {0.2f, -0.3f};

  // Cut into pieces of the given sizes in turn, from one slot to another and back.
  std::pair<std::vector<float>, std::vector<float>> Run(const KernelSet& k,
                                                        const std::vector<int64_t>& sizes) const {
    std::vector<float> y(static_cast<size_t>(kTokens * kHeads * kDim)),
        scratch(static_cast<size_t>(DeltaScratchFloats(kDim, kDim)));
    const auto floats = static_cast<size_t>(attrs.state_floats());
    std::vector<float> slots[2] = {std::vector<float>(floats), std::vector<float>(floats)};
    const DeltaArgs args = {.qkv = qkv.data(),
                            .qkv_stride = attrs.channels(),
                            .a = a.data(),
                            .b = b.data(),
                            .a_stride = kHeads,
                            .b_stride = kHeads,
                            .rate = rate.data(),
                            .dt = dt.data(),
                            .y = y.data(),
                            .y_stride = kHeads * kDim,
                            .k_heads = 1,
                            .v_heads = kHeads,
                            .k_dim = kDim,
                            .v_dim = kDim};
    size_t piece = 0, to = 0;
    for (int64_t first = 0; first < kTokens; ++piece) {
      const int64_t count = std::min(sizes[piece % sizes.size()], kTokens - first);
      to = piece % 3 == 0 ? to : 1 - to;  // in place now and then
      const size_t from = piece == 0 || piece % 3 == 0 ? to : 1 - to;
      for (int64_t head = 0; head < kHeads; ++head) {
        const DeltaTile t = {.first = first,
                             .count = count,
                             .head = head,
                             .read = piece == 0 ? nullptr : slots[from].data() + head * kDim * kDim,
                             .write = slots[to].data() + head * kDim * kDim};
        k.gated_delta(args, t, scratch.data());
      }
      first += count;
    }
    return {y, slots[to]};
  }
};

TEST_P(HybridKernels, DeltaRuleAgreesWithTheFormulaOverThousandsOfTokensHoweverTheyAreCut) {
  const DeltaRun run;
  const auto tensor = [](std::vector<int64_t> shape, std::vector<float> f, std::vector<int32_t> i) {
    ir::Tensor t{.shape = {}, .f = std::move(f), .i = std::move(i)};
    for (const int64_t d : shape) t.shape.emplace_back(d);
    return t;
  };
  const int64_t n = DeltaRun::kTokens, h = DeltaRun::kHeads;
  const ir::Tensor qkv = tensor({n, run.attrs.channels()}, run.qkv, {}),
                   a = tensor({n, h}, run.a, {}), b = tensor({n, h}, run.b, {}),
                   rate = tensor({h}, run.rate, {}), dt = tensor({h}, run.dt, {}),
                   starts = tensor({2}, {}, {0, static_cast<int32_t>(n)}),
                   read = tensor({1}, {}, {-1}), write = tensor({1}, {}, {0});
  ir::KvState state;
  const auto want =
      ir::GatedDelta(run.attrs, {&qkv, &a, &b, &rate, &dt, nullptr, &starts, &read, &write}, state);
  ASSERT_TRUE(want);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{4096}, {1}, {64}, {1, 31, 32, 33, 100}}) {
    const auto [y, kept] = run.Run(kernels_, sizes);
    EXPECT_LE(LargestError(y, (*want)[0].f), 1e-5) << "pieces of " << sizes[0];
    EXPECT_LE(LargestError(kept, state.recurrent.at(0)), 1e-5) << "pieces of " << sizes[0];
  }
}

TEST_P(HybridKernels, AFilterGivesTheSameHoweverItsTokensAreCut) {
  constexpr int64_t kTokens = 40, kChannels = 37;
  for (const int64_t width : {2, 3, 4, 5}) {
    const std::vector<float> x = Normal(kTokens * kChannels, 1), w = Normal(kChannels * width, 2);
    const auto run = [&](const std::vector<int64_t>& sizes) {
      std::vector<float> y(x.size()), slot(static_cast<size_t>((width - 1) * kChannels)),
          scratch(static_cast<size_t>(ConvScratchFloats(width)));
      const ConvArgs args = {.x = x.data(),
                             .x_stride = kChannels,
                             .y = y.data(),
                             .y_stride = kChannels,
                             .w = w.data(),
                             .channels = kChannels,
                             .width = width};
      size_t piece = 0;
      for (int64_t first = 0; first < kTokens; ++piece) {
        const int64_t count = std::min(sizes[piece % sizes.size()], kTokens - first);
        const ConvTile t = {.first = first,
                            .count = count,
                            .begin = 0,
                            .end = kChannels,
                            .read = piece == 0 ? nullptr : slot.data(),
                            .write = slot.data()};
        kernels_.causal_conv(args, t, scratch.data());
        first += count;
      }
      return std::pair(y, slot);
    };
    const auto whole = run({kTokens});
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t c = 0; c < kChannels; ++c) {
        double want = 0;
        for (int64_t j = 0; j < width; ++j) {
          const int64_t from = t - (width - 1) + j;
          if (from >= 0)
            want += static_cast<double>(w[static_cast<size_t>(c * width + j)]) *
                    x[static_cast<size_t>(from * kChannels + c)];
        }
        ASSERT_NEAR(whole.first[static_cast<size_t>(t * kChannels + c)], want, 1e-5);
      }
    }
    EXPECT_EQ(run({1}), whole);
    EXPECT_EQ(run({2, 1, 5}), whole);
  }
}

struct Routed {
  std::vector<float> weights;
  std::vector<int32_t> ids;
};
Routed Route(const KernelSet& k, RouterArgs a, const std::vector<float>& logits) {
  a.experts = static_cast<int64_t>(logits.size());
  Routed r{std::vector<float>(static_cast<size_t>(a.top_k)),
           std::vector<int32_t>(static_cast<size_t>(a.top_k))};
  std::vector<float> scratch(static_cast<size_t>(RouterScratchFloats(a.experts)));
  k.router(a, logits.data(), nullptr, r.weights.data(), r.ids.data(), scratch.data());
  return r;
}

constexpr float kNan = __builtin_nanf(""), kInf = __builtin_inff();

TEST_P(HybridKernels, RouterTakesTiesInOrderAndNoNumbersLast) {
  const Routed r = Route(kernels_, {.top_k = 5, .normalise = true}, {0, kNan, 2, 0, -kInf, 2});
  EXPECT_EQ(r.ids, (std::vector<int32_t>{2, 5, 0, 3, 4}));
  EXPECT_NEAR(r.weights[0], 1 / (2 + 2 * std::exp(-2.0)), 1e-6);
  EXPECT_EQ(r.weights[0], r.weights[1]);
  EXPECT_EQ(r.weights[4], 0);
}

TEST_P(HybridKernels, RouterTellsLogitsApartWhoseScoresAreEqual) {
  // Both scores are 0 in single precision.
  const Routed r = Route(kernels_, {.top_k = 3}, {-200, 300, -199});
  EXPECT_EQ(r.ids, (std::vector<int32_t>{1, 2, 0}));
}

TEST_P(HybridKernels, RouterWithNothingFiniteToGoByTakesTheFirst) {
  for (const std::vector<float>& logits :
       {std::vector<float>{kNan, kNan, kNan}, {1, kInf, 2}, {-kInf, -kInf, -kInf}}) {
    const Routed r = Route(kernels_, {.top_k = 2, .normalise = true}, logits);
    EXPECT_EQ(r.ids, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(r.weights, (std::vector<float>{0, 0}));
  }
}

TEST_P(HybridKernels, RouterChoosesByBiasAndWeighsWithout) {
  const float bias[] = {0, 0, 1, -1};
  const Routed r =
      Route(kernels_, {.top_k = 2, .sigmoid = true, .scale = 2, .bias = bias}, {0, -1, -1, 5});
  EXPECT_EQ(r.ids, (std::vector<int32_t>{2, 0}));
  EXPECT_NEAR(r.weights[0], 2 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(r.weights[1], 1, 1e-6);
}

TEST_P(HybridKernels, RouterKeepsTheBestGroups) {
  // By their two best; of two equal groups the first. The best expert of all is in another.
  const Routed r = Route(kernels_, {.top_k = 3, .sigmoid = true, .groups = 3, .top_groups = 1},
                         {4, -9, -9, 2, 2, 1, 2, 2, 1});
  EXPECT_EQ(r.ids, (std::vector<int32_t>{3, 4, 5}));
}

INSTANTIATE_TEST_SUITE_P(Isas, HybridKernels, testing::ValuesIn(AvailableIsas()));

}  // namespace
}  // namespace vt::cpu
