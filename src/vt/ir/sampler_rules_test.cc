// Every rule of the sampler by values that were worked out by hand (probabilities of the rows: with
// numpy in doubles), on the reference that all backends are held to.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "vt/ir/builder.h"
#include "vt/ir/interpreter.h"
#include "vt/ir/sampling.h"

namespace vt::ir {
namespace {

constexpr float kGone = -INFINITY;
// Probabilities .1, .2, .3, .4.
const std::vector<float> kTenths = {std::log(.1f), std::log(.2f), std::log(.3f), std::log(.4f)};

// A slot in the making.
struct State {
  SamplerLayout layout{.vocabulary = 8, .history = 32, .lists = 64};
  std::vector<int32_t> words;
  SamplingRow row;

  explicit State(std::vector<int32_t> prompt = {}, std::vector<int32_t> output = {}) {
    words.assign(static_cast<size_t>(layout.words()), 0);
    row.slot = 0;
    row.prompt_length = static_cast<int32_t>(prompt.size());
    prompt.insert(prompt.end(), output.begin(), output.end());
    row.length = static_cast<int32_t>(prompt.size());
    row.position = static_cast<uint32_t>(output.size());
    std::copy(prompt.begin(), prompt.end(), words.begin() + SamplerLayout::history_offset());
  }
  State& Lists(std::vector<TokenBias> bias, std::vector<std::vector<int32_t>> bad = {}) {
    const auto packed = PackLists(layout, bias, bad);
    EXPECT_TRUE(packed.ok());
    std::copy(packed->words.begin(), packed->words.end(), words.begin() + layout.lists_offset());
    row.bias_words = packed->bias_words;
    row.bad_word_words = packed->bad_word_words;
    return *this;
  }
  State& Breakers(std::vector<int32_t> ids) {
    const std::vector<int32_t> mask = PackMask(layout, ids);
    std::copy(mask.begin(), mask.end(), words.begin() + layout.breakers_offset());
    row.use_breakers = true;
    return *this;
  }
  State& Mask(std::vector<int32_t> allowed) {
    const std::vector<int32_t> mask = PackMask(layout, allowed);
    std::copy(mask.begin(), mask.end(), words.begin() + layout.mask_offset());
    row.use_mask = true;
    return *this;
  }
  std::vector<float> Process(std::vector<float> x) const {
    return ProcessLogits(x.data(), static_cast<int64_t>(x.size()), row, words.data(), layout);
  }
  int32_t Token(std::vector<float> x) const {
    return SampleToken(x.data(), static_cast<int64_t>(x.size()), row, words.data(), layout);
  }
};

void ExpectScores(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == kGone) {
      EXPECT_EQ(got[i], kGone) << i;
    } else {
      EXPECT_NEAR(got[i], want[i], 2e-6f) << i;
    }
  }
}

// --- filters, with known survivors

TEST(Filters, TopKThenTopPKeepsOneOfTenths) {
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .top_k = 2, .top_p = .5f}),
               {kGone, kGone, kGone, -0.916291f});
}
TEST(Filters, TopPKeepsTheTokenThatCrosses) {
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .top_p = .5f}),
               {kGone, kGone, -1.203973f, -0.916291f});
}
TEST(Filters, TopPThatIsReachedExactlyKeepsNoMore) {
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .top_p = .4f}),
               {kGone, kGone, kGone, -0.916291f});
}
TEST(Filters, ATinyTopPKeepsOneAndAWholeOneAll) {
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .top_p = 1e-9f}),
               {kGone, kGone, kGone, -0.916291f});
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .top_p = 1}), kTenths);
}
TEST(Filters, TopKBreaksTiesToLowerIds) {
  ExpectScores(FilterScores({0, 0, 0, -1}, {.temperature = 1, .top_k = 2}), {0, 0, kGone, kGone});
}
TEST(Filters, MinPIsAShareOfTheBest) {
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .min_p = .5f}),
               {kGone, -1.609438f, -1.203973f, -0.916291f});
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .min_p = 1}),
               {kGone, kGone, kGone, -0.916291f});
}
TEST(Filters, TemperatureComesBeforeMinP) {
  // At temperature 2 the worst is sqrt(.1 / .4) = .5 of the best; before it would be .25.
  ExpectScores(FilterScores(kTenths, {.temperature = 2, .min_p = .5f}),
               {-1.151293f, -0.804719f, -0.601986f, -0.458145f});
}
TEST(Filters, TopNSigmaKeepsWhatIsNearTheBest) {
  // Mean 2.5, deviation sqrt(1.25) = 1.118: the floor is 4 - 1.118 = 2.882.
  ExpectScores(FilterScores({1, 2, 3, 4}, {.temperature = 1, .top_n_sigma = 1}),
               {kGone, kGone, 3, 4});
  // What is gone already does not count.
  ExpectScores(FilterScores({kGone, 2, 3, 4}, {.temperature = 1, .top_n_sigma = 1.3f}),
               {kGone, kGone, 3, 4});  // mean 3, deviation .816: floor 2.939
}
TEST(Filters, TypicalKeepsTheSurpriseNearestToTheEntropy) {
  // Entropy 1.2799; surprises 2.303, 1.609, 1.204, .916 are 1.023, .330, .076, .364 from it: ids
  // come as 2, 1, 3, 0, and .3 + .2 reaches .5.
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .typical_p = .5f}),
               {kGone, -1.609438f, -1.203973f, kGone});
}
TEST(Filters, TopPRenormalisesOverTypical) {
  // Of .2 and .3 the better has .6.
  ExpectScores(FilterScores(kTenths, {.temperature = 1, .top_p = .6f, .typical_p = .5f}),
               {kGone, kGone, -1.203973f, kGone});
}
TEST(Filters, XtcTakesAllButTheLeastOfTheTopChoices) {
  ExpectScores(
      FilterScores(kTenths, {.temperature = 1, .xtc_probability = 1, .xtc_threshold = .15f}),
      {-2.302585f, -1.609438f, kGone, kGone});
  // One choice above the threshold stays.
  ExpectScores(
      FilterScores(kTenths, {.temperature = 1, .xtc_probability = 1, .xtc_threshold = .35f}),
      kTenths);
  ExpectScores(
      FilterScores(kTenths, {.temperature = 1, .xtc_probability = 1, .xtc_threshold = .6f}),
      kTenths);
}
TEST(Filters, XtcTossesAFreshCoinForEachPosition) {
  int happened = 0;
  for (uint32_t position = 0; position < 1000; ++position) {
    const auto kept = FilterScores(
        kTenths,
        {.temperature = 1, .position = position, .xtc_probability = .3f, .xtc_threshold = .15f});
    happened += kept[3] == kGone;
  }
  EXPECT_NEAR(happened, 300, 58);  // four deviations of a binomial: 4 sqrt(1000 .3 .7)
}

// --- processors

TEST(Processors, RepetitionMultipliesNegativeLogits) {
  State s({0, 1});
  s.row.repetition_penalty = 2;
  ExpectScores(s.Process({-1, 1, 3}), {-2, .5f, 3});
}
TEST(Processors, PresenceAndFrequencySeeTheOutputAlone) {
  State s({0}, {2, 2});
  s.row.presence_penalty = .5f;
  s.row.frequency_penalty = .25f;
  ExpectScores(s.Process({1, 1, 1}), {1, 1, 0});
}
TEST(Processors, RepetitionSeesPromptAndOutputAndComesFirst) {
  State s({0}, {2});
  s.row.repetition_penalty = 2;
  s.row.presence_penalty = .5f;
  ExpectScores(s.Process({1, 1, 1}), {.5f, 1, 0});
}
TEST(Processors, PenaltiesIgnoreWhatStandsPastTheLength) {
  State s({0}, {1});
  s.words[SamplerLayout::history_offset() + 2] = 2;  // of an earlier user of the slot
  s.row.repetition_penalty = 2;
  s.row.frequency_penalty = 1;
  ExpectScores(s.Process({1, 1, 1}), {.5f, -.5f, 1});
}
TEST(Processors, BiasActsAtTemperatureZero) {
  State s;
  s.Lists({{3, -100}, {0, 1}});
  EXPECT_EQ(s.Token(kTenths), 2);
  ExpectScores(s.Process({0, 0, 0, 0}), {1, 0, 0, -100});
}
TEST(Processors, BiasEndsAtItsPosition) {
  State s({5}, {1, 1});  // two tokens are out: the draw is at position 2
  s.Lists({{3, kGone, 2}, {2, kGone, 3}});
  ExpectScores(s.Process({1, 1, 1, 1}), {1, 1, kGone, 1});
}
TEST(Processors, BadWordsMayNotBeCompleted) {
  State s({4}, {5, 6});
  s.Lists({}, {{1}, {6, 2}, {4, 5, 6, 3}, {5, 4}, {0, 4, 5, 6, 7}});
  ExpectScores(s.Process({0, 0, 0, 0, 0, 0, 0, 0}), {0, kGone, kGone, kGone, 0, 0, 0, 0});
}
TEST(Processors, AMaskLeavesTheAllowed) {
  State s;
  s.Mask({1, 2});
  ExpectScores(s.Process({5, 1, 2, 9}), {kGone, 1, 2, kGone});
}
TEST(Processors, NothingLeftFallsBackToTheBestAllowed) {
  State s;
  s.Mask({1, 2}).Lists({{1, kGone}, {2, kGone}});
  s.row.temperature = 1;
  EXPECT_EQ(s.Token({5, 3, 4, 9}), 2);
  EXPECT_EQ(s.Token({5, NAN, NAN, 9}), 1);
  s.Mask({});
  EXPECT_EQ(s.Token({5, 3, 4, 9}), 0);
}
TEST(Processors, DryTakesFromWhatWouldContinueARepeat) {
  // 1 2 3 4 | 1 2 3: 4 would make a repeat of three longer.
  State s({1, 2, 3, 4, 1}, {2, 3});
  s.row.dry_multiplier = 1;
  s.row.dry_base = 2;
  s.row.dry_allowed_length = 2;
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, -2});  // 1 * 2^(3 - 2)
  s.row.dry_allowed_length = 4;
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, 0});
  s.row.dry_allowed_length = 1;
  s.row.dry_last_n = 6;  // 2 3 4 1 2 3: a repeat of two
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, -2});
}
TEST(Processors, DryStopsAtBreakersAndSparesThem) {
  State s({1, 2, 3, 4, 1}, {2, 3});
  s.row.dry_multiplier = 1;
  s.row.dry_base = 2;
  s.row.dry_allowed_length = 1;
  s.Breakers({2});  // only the 3 after the 2 counts
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, -1});
  s.Breakers({4});
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, 0});
  s.Breakers({0, 1, 2, 3, 4, 5, 6, 7});  // any set will do, also all
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, 0});
  s.row.use_breakers = false;  // an earlier choice's are nobody's: 1 2 3 repeats
  ExpectScores(s.Process({0, 0, 0, 0, 0}), {0, 0, 0, 0, -4});
}
TEST(Processors, ARepeatOfAThousandTokensCostsAFiniteOrInfinitePenaltyAndNoNan) {
  SamplingRow row{.dry_multiplier = 1, .dry_base = 1.75f, .dry_allowed_length = 2};
  EXPECT_FALSE(std::isnan(DryPenalty(row, 1000)));
  EXPECT_GT(DryPenalty(row, 1000), 1e37f);
}

// --- draws

TEST(Draws, ASeededRowDrawsTheSameAtAnyPlaceAmongAnyNeighbours) {
  std::vector<float> logits(50);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const SamplerLayout layout{.vocabulary = 50, .history = 8, .lists = 0};
  SamplingRow mine{.temperature = 0.9f, .top_p = 0.95f, .seed = 42, .position = 3};
  const int32_t alone = SampleToken(logits.data(), 50, mine);
  for (size_t neighbours = 0; neighbours < 16; ++neighbours) {
    for (size_t place = 0; place <= neighbours; ++place) {
      Tensor x{.shape = {static_cast<int64_t>(neighbours) + 1, 50}, .f = {}, .i = {}};
      Tensor params{.shape = {static_cast<int64_t>(neighbours) + 1, kSampleParamCount},
                    .f = std::vector<float>((neighbours + 1) * kSampleParamCount),
                    .i = {}};
      for (size_t r = 0; r <= neighbours; ++r) {
        x.f.insert(x.f.end(), logits.begin(), logits.end());
        SamplingRow other{.temperature = 1, .seed = 7 * r, .position = static_cast<uint32_t>(r)};
        PackSamplingRow(r == place ? mine : other, &params.f[r * kSampleParamCount]);
      }
      KvState state;
      auto out = Evaluate(Op::kSample, {SamplerAttrs{layout}}, {&x, &params, nullptr}, &state, 16);
      ASSERT_TRUE(out.ok()) << out.error().message;
      EXPECT_EQ((*out)[0].i[place], alone) << neighbours << " " << place;
    }
  }
  std::set<int32_t> choices;
  for (mine.choice = 0; mine.choice < 8; ++mine.choice)
    choices.insert(SampleToken(logits.data(), 50, mine));
  EXPECT_GT(choices.size(), 1u);  // n choices of one seed differ
  mine.temperature = 0;
  const int32_t greedy = SampleToken(logits.data(), 50, mine);
  mine.seed = 43;
  EXPECT_EQ(SampleToken(logits.data(), 50, mine), greedy);
}

TEST(Draws, AForcedRowGivesItsTokenAndWritesNothing) {
  const SamplerLayout layout{.vocabulary = 4, .history = 8, .lists = 0};
  KvState state;
  Tensor x{.shape = {2, 4}, .f = {0, 1, 2, 3, 3, 2, 1, 0}, .i = {}};
  Tensor params{
      .shape = {2, kSampleParamCount}, .f = std::vector<float>(2 * kSampleParamCount), .i = {}};
  PackSamplingRow({.slot = 1, .length = 5, .forced = 2}, &params.f[0]);
  PackSamplingRow({.slot = 2, .length = 5}, &params.f[kSampleParamCount]);
  auto out = Evaluate(Op::kSample, {SamplerAttrs{layout}}, {&x, &params, nullptr}, &state, 16);
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ((*out)[0].i, (std::vector<int32_t>{2, 0}));
  const std::vector<int32_t> nothing(static_cast<size_t>(layout.words()));
  EXPECT_EQ(state.slots[1], nothing);
  std::vector<int32_t> want = nothing;
  want[SamplerLayout::last_token_offset()] = 0;
  want[SamplerLayout::history_offset() + 5] = 0;
  EXPECT_EQ(state.slots[2], want);
}

TEST(Draws, WhatOneStepDrawsFeedsTheNext) {
  const SamplerLayout layout{.vocabulary = 4, .history = 8, .lists = 0};
  KvState state;
  Tensor x{.shape = {1, 4}, .f = {0, 1, 9, 3}, .i = {}};
  Tensor params{
      .shape = {1, kSampleParamCount}, .f = std::vector<float>(kSampleParamCount), .i = {}};
  PackSamplingRow({.slot = 3, .length = 7}, &params.f[0]);
  ASSERT_TRUE(
      Evaluate(Op::kSample, {SamplerAttrs{layout}}, {&x, &params, nullptr}, &state, 16).ok());
  const Tensor ids{.shape = {3}, .f = {}, .i = {1, -4, 0}};
  auto fed = Evaluate(Op::kTokenFeed, {SamplerAttrs{layout}}, {&ids, nullptr}, &state, 16);
  ASSERT_TRUE(fed.ok());
  EXPECT_EQ((*fed)[0].i, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(state.slots[3][SamplerLayout::history_offset() + 7], 2);
}

TEST(Draws, AZeroedRowIsGreedyWithoutASlot) {
  const float zeros[kSampleParamCount] = {};
  const SamplingRow row = UnpackSamplingRow(zeros);
  EXPECT_EQ(row.slot, -1);
  EXPECT_EQ(row.forced, -1);
  EXPECT_EQ(row.logprobs, -1);
  EXPECT_EQ(SampleToken(kTenths.data(), 4, row), 3);
}

TEST(SamplingRowWords, EveryFieldSurvivesPacking) {
  const SamplingRow row{.temperature = 0.7f,
                        .top_k = 40,
                        .top_p = 0.9f,
                        .min_p = 0.05f,
                        .seed = 0xff800001ffc00001ull,  // NaN patterns on purpose
                        .position = 0x7f800001,
                        .choice = 3,
                        .typical_p = 0.8f,
                        .top_n_sigma = 1.5f,
                        .repetition_penalty = 1.1f,
                        .presence_penalty = -2,
                        .frequency_penalty = 0.5f,
                        .dry_multiplier = 0.8f,
                        .dry_base = 1.5f,
                        .dry_allowed_length = 3,
                        .dry_last_n = -1,
                        .xtc_probability = 0.25f,
                        .xtc_threshold = 0.2f,
                        .slot = 0,
                        .length = 1 << 20,
                        .prompt_length = 77,
                        .bias_words = 9,
                        .bad_word_words = 8,
                        .use_breakers = true,
                        .use_mask = true,
                        .forced = 0,
                        .logprobs = 20};
  float params[kSampleParamCount];
  PackSamplingRow(row, params);
  EXPECT_EQ(UnpackSamplingRow(params), row);
}

// --- log-probabilities

struct Listed {
  std::vector<float> values = std::vector<float>(kLogprobValues, 7);
  std::vector<int32_t> ids = std::vector<int32_t>(kBestTokens, 7);
};
Listed List(const std::vector<float>& x, SamplingRow row, int32_t token) {
  Listed l;
  TopLogprobs(x.data(), static_cast<int64_t>(x.size()), row, token, l.values.data(), l.ids.data());
  return l;
}

TEST(Logprobs, AreRawWithTheBestFirst) {
  // Neither temperature nor what was forced or banned shows.
  const Listed l = List(kTenths, {.temperature = 0.5f, .forced = 1, .logprobs = 3}, 1);
  EXPECT_NEAR(l.values[0], std::log(.2f), 1e-6f);
  EXPECT_EQ(l.values[1], 3);
  EXPECT_EQ(std::vector<int32_t>(l.ids.begin(), l.ids.begin() + 4),
            (std::vector<int32_t>{3, 2, 1, -1}));
  EXPECT_NEAR(l.values[2], std::log(.4f), 1e-6f);
  EXPECT_NEAR(l.values[4], std::log(.2f), 1e-6f);
  EXPECT_EQ(l.values[5], -INFINITY);
}
TEST(Logprobs, ZeroListsTheTokenAlone) {
  const Listed l = List(kTenths, {.logprobs = 0}, 3);
  EXPECT_NEAR(l.values[0], std::log(.4f), 1e-6f);
  EXPECT_EQ(l.values[1], 1);
  EXPECT_EQ(l.ids, std::vector<int32_t>(kBestTokens, -1));
}
TEST(Logprobs, ARowThatWantsNoneIsLeftAlone) {
  const Listed l = List(kTenths, {}, 3);
  EXPECT_EQ(l.values, std::vector<float>(kLogprobValues, 7));
  EXPECT_EQ(l.ids, std::vector<int32_t>(kBestTokens, 7));
}
TEST(Logprobs, TiesAreRankedByIdAndProbabilitiesNeverPassOne) {
  std::vector<float> x(40, 2.0f);
  const Listed l = List(x, {.logprobs = 20}, 10);
  EXPECT_EQ(l.values[1], 11);
  std::vector<int32_t> first(20);
  std::iota(first.begin(), first.end(), 0);
  EXPECT_EQ(l.ids, first);
  double sum = 0;
  for (int i = 0; i < 20; ++i)
    sum += std::exp(static_cast<double>(l.values[2 + static_cast<size_t>(i)]));
  EXPECT_NEAR(sum, 0.5, 1e-6);
}
TEST(Logprobs, AreNeverNan) {
  for (const std::vector<float>& x : {std::vector<float>{NAN, NAN, NAN},
                                      {-INFINITY, -INFINITY, -INFINITY},
                                      {INFINITY, 0, INFINITY},
                                      {3e38f, -3e38f, 0}}) {
    const Listed l = List(x, {.logprobs = 3}, 1);
    for (const float v : l.values) {
      EXPECT_FALSE(std::isnan(v));
      EXPECT_LE(v, 3);  // the rank; log-probabilities are at most 0
    }
  }
  EXPECT_NEAR(List({INFINITY, 0, INFINITY}, {.logprobs = 3}, 0).values[0], std::log(.5f), 1e-6f);
}
TEST(Logprobs, TheGreedyTokenIsTheFirst) {
  const std::vector<float> x = {0, 3, 1, 3, NAN};
  EXPECT_EQ(List(x, {.logprobs = 5}, 0).ids[0], SampleToken(x.data(), 5, {}));
}

// --- layout and builder

TEST(SamplerLayout, PartsFollowOneAnotherInWholeLines) {
  const SamplerLayout l{.vocabulary = 33, .history = 100, .lists = 10};
  EXPECT_EQ(l.history_offset(), 4);
  EXPECT_EQ(l.mask_offset(), 104);
  EXPECT_EQ(l.mask_words(), 2);
  EXPECT_EQ(l.breakers_offset(), 106);
  EXPECT_EQ(l.lists_offset(), 108);
  EXPECT_EQ(l.words(), 128);
}
TEST(SamplerLayout, ListsThatDoNotFitAreAnErrorWithTheNumbers) {
  const SamplerLayout l{.vocabulary = 10, .history = 1, .lists = 5};
  const std::vector<TokenBias> bias = {{1, 2}};
  EXPECT_TRUE(PackLists(l, bias, std::vector<std::vector<int32_t>>{{1}}).ok());
  const auto r = PackLists(l, bias, std::vector<std::vector<int32_t>>{{1, 2}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(r.error().message.find("6 words"), std::string::npos) << r.error().message;
}

Builder WithSampler(std::optional<SamplerLayout> sampler) {
  return {"m",
          [](const std::string&) {
            return WeightInfo{DType::kF32, {10, 10}};
          },
          {.sampler = sampler}};
}

TEST(Builder, SamplesAndFeedsThroughOneSlotState) {
  const SamplerLayout layout{.vocabulary = 10, .history = 64};
  Builder b = WithSampler(layout);
  const ValueId x = b.Embed("e.weight", 10, 10);
  EXPECT_EQ(b.TokenIds(), b.TokenIds());
  const Builder::Sampled s = b.Sample(b.OutputOnly(x));
  auto g = b.Finish({s.tokens, s.values, s.ids});
  ASSERT_TRUE(g.ok()) << g.error().message;
  ASSERT_EQ(g->state_groups.size(), 1u);
  EXPECT_EQ(g->state_groups[0].kind, StateGroup::Kind::kSlot);
  EXPECT_EQ(g->state_groups[0].name, kSamplerGroup);
  EXPECT_EQ(g->state_groups[0].slot_bytes, layout.bytes());
  EXPECT_EQ(CountNodes(*g, Op::kTokenFeed), 1);
  EXPECT_EQ(ToString(g->value(s.values).shape), "[O, 22]");
  EXPECT_EQ(ToString(g->value(s.ids).shape), "[O, 20]");
}
TEST(Builder, RefusesASamplerOfAnotherVocabulary) {
  Builder b = WithSampler(SamplerLayout{.vocabulary = 11, .history = 64});
  const Builder::Sampled s = b.Sample(b.OutputOnly(b.Embed("e.weight", 10, 10)));
  auto g = b.Finish({s.tokens});
  ASSERT_FALSE(g.ok());
  EXPECT_NE(g.error().message.find("vocabulary"), std::string::npos) << g.error().message;
}
TEST(Builder, RefusesToSampleWithoutASampler) {
  Builder b = WithSampler(std::nullopt);
  b.Sample(b.OutputOnly(b.Embed("e.weight", 10, 10)));
  auto g = b.Finish({});
  ASSERT_FALSE(g.ok());
  EXPECT_NE(g.error().message.find("without a sampler"), std::string::npos);
}

}  // namespace
}  // namespace vt::ir
