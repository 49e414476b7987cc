#include "vt/ir/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace vt::ir {
namespace {

TEST(Philox, MatchesThePublishedTestVectors) {
  // Known answers of the authors' Random123 library for philox4x32-10.
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, StaysInsideTheOpenInterval) {
  EXPECT_GT(Uniform(0), 0);
  EXPECT_LT(Uniform(0xffffffff), 1);
  EXPECT_FLOAT_EQ(Uniform(0x80000000), 0.5f);
}

TEST(SamplingRow, SurvivesPackingBitForBit) {
  const SamplingRow row{0.7f,       40, 0.9f, 0.05f, 0xff800001ffc00001ull,
                        0x7f800001, 3};  // NaN patterns on purpose
  float params[kSampleParamCount];
  PackSamplingRow(row, params);
  const SamplingRow back = UnpackSamplingRow(params);
  EXPECT_EQ(back.seed, row.seed);
  EXPECT_EQ(back.position, row.position);
  EXPECT_EQ(back.choice, 3u);
  EXPECT_EQ(back.top_k, 40);
}

TEST(ArgMax, BreaksTiesToTheLowerIdAndIgnoresNan) {
  const float a[] = {1, 3, NAN, 3};
  EXPECT_EQ(ArgMax(a, 4), 1);
  const float b[] = {NAN, -INFINITY, NAN};
  EXPECT_EQ(ArgMax(b, 3), 0);
  const float c[] = {NAN, -5};
  EXPECT_EQ(ArgMax(c, 2), 1);
}

// Ids drawn at 2000 positions.
std::vector<int> Draw(const std::vector<float>& logits, SamplingRow row) {
  std::vector<int> counts(logits.size());
  for (uint32_t p = 0; p < 2000; ++p) {
    row.position = p;
    ++counts[static_cast<size_t>(
        SampleToken(logits.data(), static_cast<int64_t>(logits.size()), row))];
  }
  return counts;
}

TEST(SampleToken, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const auto counts = Draw(logits, {.temperature = 1, .seed = 11});
  // Four standard deviations of a binomial of 2000: at most 4 * sqrt(500) = 90.
  EXPECT_NEAR(counts[0], 1000, 90);
  EXPECT_NEAR(counts[1], 600, 90);
  EXPECT_NEAR(counts[2], 400, 90);
}

TEST(SampleToken, TemperatureSharpens) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.4f)};
  const auto counts = Draw(logits, {.temperature = 0.5f, .seed = 1});
  EXPECT_NEAR(counts[0], 2000 * 0.36 / (0.36 + 0.16), 90);
  EXPECT_EQ(Draw(logits, {.temperature = 0})[0], 2000);
}

TEST(SampleToken, TopKKeepsExactlyKWithTiesToLowerIds) {
  const auto counts = Draw({1, 2, 2, 2, 0}, {.temperature = 1, .top_k = 2, .seed = 2});
  EXPECT_EQ(counts[0] + counts[3] + counts[4], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_GT(counts[2], 0);
}

TEST(SampleToken, TopPKeepsTheTokenThatCrosses) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const auto counts = Draw(logits, {.temperature = 1, .top_p = 0.6f, .seed = 3});
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2], 0);
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_p = 0.01f, .seed = 3})[0], 2000);
}

TEST(SampleToken, TopPRenormalisesOverTopK) {
  // After top-2 the best has 0.5 / 0.8 = 0.625 > 0.6 of the mass: alone. Without top-k it would not
  // be.
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6f, .seed = 3})[0], 2000);
}

TEST(SampleToken, TopPOverALargeFlatVocabulary) {
  std::vector<float> logits(5000, 0.0f);  // half the mass is the first 2500 ids
  const auto counts = Draw(logits, {.temperature = 1, .top_p = 0.5f, .seed = 4});
  int low = 0;
  for (size_t i = 0; i < 2500; ++i) low += counts[i];
  EXPECT_EQ(low, 2000);
  EXPECT_GT(counts[2400] + counts[2300] + counts[2200] + counts[2100] + counts[2000] + counts[1900],
            0);
}

TEST(SampleToken, MinPIsRelativeToTheBest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const auto counts = Draw(logits, {.temperature = 1, .min_p = 0.5f, .seed = 5});
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2], 0);
}

TEST(SampleToken, NeverDrawsWhatIsMaskedOrNan) {
  const auto counts = Draw({-INFINITY, 0, NAN, 0}, {.temperature = 2, .seed = 6});
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_EQ(Draw({NAN, NAN}, {.temperature = 1})[0], 2000);
  EXPECT_EQ(Draw({0, INFINITY}, {.temperature = 1, .top_p = 0.5f})[1], 2000);
}

TEST(SampleToken, DependsOnSeedChoiceAndPosition) {
  std::vector<float> logits(1000, 0.0f);
  std::set<int32_t> drawn;
  for (const SamplingRow& row :
       {SamplingRow{.temperature = 1}, SamplingRow{.temperature = 1, .seed = 1},
        SamplingRow{.temperature = 1, .position = 1}, SamplingRow{.temperature = 1, .choice = 1},
        SamplingRow{.temperature = 1, .seed = 1ull << 32}}) {
    const int32_t id = SampleToken(logits.data(), 1000, row);
    EXPECT_EQ(SampleToken(logits.data(), 1000, row), id);
    drawn.insert(id);
  }
  EXPECT_EQ(drawn.size(), 5u);  // equal by chance with probability 1%, but the draws are fixed
}

}  // namespace
}  // namespace vt::ir
