// The fast sampler is held to the reference of vt/ir/sampling.h, row by row.
#include "vt/cpu/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "vt/cpu/isa.h"

namespace vt::cpu {
namespace {

using ir::SamplerLayout;
using ir::SamplingRow;

class SamplerTest : public testing::TestWithParam<std::string> {
 protected:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  float Unit() { return std::uniform_real_distribution<float>(0, 1)(random_); }

  // Logits as models make them, in many shapes: peaked, flat, tied, partly gone.
  std::vector<float> Logits(int64_t vocabulary) {
    std::normal_distribution<float> normal(0, Pick({0.5f, 3.0f, 10.0f}));
    std::vector<float> x(static_cast<size_t>(vocabulary));
    for (float& v : x) v = normal(random_);
    const float step = Pick({0.0f, 0.0f, 1.0f, 0.25f});
    for (float& v : x) v = step > 0 ? std::round(v / step) * step : v;  // many ties
    const uint32_t gone = Pick({1000000u, 1000000u, 10u, 2u, 1u});
    for (float& v : x) {
      if (random_() % gone == 0) v = Pick({-INFINITY, std::nanf("")});
    }
    if (random_() % 50 == 0) x[random_() % x.size()] = INFINITY;
    return x;
  }

  SamplingRow Row(int64_t vocabulary) {
    SamplingRow r;
    r.temperature = Pick({0.0f, 0.3f, 1.0f, 1.0f, 2.0f, 1e-5f});
    r.top_k = Pick({0.0f, 0.0f, 1.0f, 2.0f, 5.0f, 50.0f, 500.0f, 1e9f});
    r.top_p = Pick({1.0f, 1.0f, 0.95f, 0.5f, 1e-7f});
    r.min_p = Pick({0.0f, 0.0f, 0.05f, 1.0f});
    r.top_n_sigma = Pick({0.0f, 0.0f, 0.0f, 1.0f});
    r.typical_p = Pick({1.0f, 1.0f, 1.0f, 1.0f, 0.6f});
    r.xtc_probability = Pick({0.0f, 0.0f, 0.0f, 0.7f});
    r.xtc_threshold = Pick({0.1f, 0.01f, 0.6f});
    r.seed = random_();
    r.position = random_() % 40;
    r.choice = random_() % 3;
    r.forced = random_() % 40 == 0 ? static_cast<int32_t>(vocabulary - 1) : -1;
    return r;
  }

  // A slot of few ids, so that histories repeat themselves.
  std::vector<int32_t> Slot(const SamplerLayout& layout, SamplingRow& r) {
    std::vector<int32_t> words(static_cast<size_t>(layout.words()), -1);
    const auto few = static_cast<uint32_t>(std::min<int64_t>(layout.vocabulary, Pick({2, 6})));
    const auto id = [&] { return static_cast<int32_t>(random_() % few); };
    r.slot = 0;
    r.length = static_cast<int32_t>(random_() % static_cast<uint32_t>(layout.history + 1));
    r.prompt_length = static_cast<int32_t>(random_() % 30);
    for (int32_t i = 0; i < r.length; ++i)
      words[static_cast<size_t>(SamplerLayout::history_offset() + i)] = id();
    r.repetition_penalty = Pick({1.0f, 1.3f, 0.8f});
    r.presence_penalty = Pick({0.0f, 0.5f, -0.5f});
    r.frequency_penalty = Pick({0.0f, 0.0f, 0.25f});
    r.dry_multiplier = Pick({0.0f, 0.8f});
    r.dry_allowed_length = Pick({1, 2, 4});
    r.dry_last_n = Pick({-1, 0, 5, 20});
    std::vector<int32_t> allowed;
    const uint32_t rare = Pick({2u, 10u, 1000000u});
    for (int32_t i = 0; i < layout.vocabulary; ++i) {
      if (random_() % rare != 0) allowed.push_back(i);
    }
    const std::vector<int32_t> mask = ir::PackMask(layout, allowed);
    std::copy(mask.begin(), mask.end(), words.begin() + layout.mask_offset());
    r.use_mask = random_() % 3 == 0;
    const ir::TokenBias bias[] = {{id(), 4}, {id(), -INFINITY, 20}, {id(), -1}};
    const std::vector<std::vector<int32_t>> bad = {{id()}, {id(), id()}, {id(), id(), id()}};
    const int32_t breakers[] = {id(), id()};
    const std::vector<int32_t> breaks = ir::PackMask(layout, breakers);
    std::copy(breaks.begin(), breaks.end(), words.begin() + layout.breakers_offset());
    r.use_breakers = random_() % 2 == 0;
    const auto lists = ir::PackLists(layout, std::span(bias).first(random_() % 4),
                                     std::span(bad).first(random_() % 4));
    EXPECT_TRUE(lists.ok());
    std::copy(lists->words.begin(), lists->words.end(), words.begin() + layout.lists_offset());
    r.bias_words = lists->bias_words;
    r.bad_word_words = lists->bad_word_words;
    return words;
  }

  std::mt19937 random_{20};
  Sampler sampler_;
  const KernelSet kernels_ = *KernelsFor(GetParam());
};

TEST_P(SamplerTest, ChoosesWhatTheReferenceChooses) {
  int drawn = 0;
  for (int i = 0; i < 6000; ++i) {
    const int64_t vocabulary = Pick({1, 2, 33, 64, 65, 300, 1000, 5000});
    const SamplerLayout layout{.vocabulary = vocabulary, .history = 60, .lists = 30};
    const std::vector<float> x = Logits(vocabulary);
    SamplingRow row = Row(vocabulary);
    std::vector<int32_t> slot;
    if (random_() % 2 == 0) slot = Slot(layout, row);
    const int32_t* words = slot.empty() ? nullptr : slot.data();
    const int32_t want = ir::SampleToken(x.data(), vocabulary, row, words, layout);
    drawn += want != ir::ArgMax(x.data(), vocabulary);
    ASSERT_EQ(sampler_.Choose(kernels_, x.data(), vocabulary, row, words, layout), want)
        << "row " << i << ": V " << vocabulary << " T " << row.temperature << " k " << row.top_k
        << " p " << row.top_p << " min_p " << row.min_p << " typical " << row.typical_p << " sigma "
        << row.top_n_sigma << " xtc " << row.xtc_probability << " slot " << slot.size();
  }
  EXPECT_GT(drawn, 1000);  // not all of them are arg-max in disguise
}

TEST_P(SamplerTest, DrawsFromALargeVocabularyAsTheReference) {
  constexpr int64_t kVocabulary = 150001;
  for (int i = 0; i < 40; ++i) {
    const std::vector<float> x = Logits(kVocabulary);
    SamplingRow row = Row(kVocabulary);
    if (i % 2 == 0) row.top_k = 0, row.top_p = 1;
    EXPECT_EQ(sampler_.Choose(kernels_, x.data(), kVocabulary, row, nullptr, {}),
              ir::SampleToken(x.data(), kVocabulary, row))
        << i;
  }
}

TEST_P(SamplerTest, ListsTheLogprobsOfTheReference) {
  for (int i = 0; i < 2000; ++i) {
    const int64_t vocabulary = Pick({1, 5, 20, 64, 1000, 1281, 5000});
    const std::vector<float> x = Logits(vocabulary);
    const auto token = static_cast<int32_t>(random_() % static_cast<uint32_t>(vocabulary));
    const SamplingRow row{.logprobs = Pick({-1, 0, 1, 5, 20})};
    std::vector<float> got(ir::kLogprobValues, 7), want(ir::kLogprobValues, 7);
    std::vector<int32_t> got_ids(ir::kBestTokens, 7), want_ids(ir::kBestTokens, 7);
    sampler_.TopLogprobs(kernels_, x.data(), vocabulary, row, token, got.data(), got_ids.data());
    ir::TopLogprobs(x.data(), vocabulary, row, token, want.data(), want_ids.data());
    ASSERT_EQ(got_ids, want_ids) << i;
    ASSERT_EQ(got[1], want[1]) << i;
    for (size_t j = 0; j < got.size(); ++j) {
      if (got[j] == want[j]) continue;  // infinities too
      // A sum of f32 exponentials is right to about 3e-7.
      ASSERT_NEAR(got[j], want[j], 1e-6f * (1 + std::fabs(want[j]))) << i << " " << j;
    }
  }
}

TEST_P(SamplerTest, PassesAgreeWithPlainLoops) {
  const VocabularyKernels& k = kernels_.vocabulary;
  for (const int64_t n : {1, 15, 64, 100, 3000}) {
    const std::vector<float> x = Logits(n);
    std::vector<float> maxima(static_cast<size_t>((n + kBlock - 1) / kBlock));
    k.block_maxima(x.data(), n, maxima.data());
    double sum = 0, count = 0, mean = 0, squares = 0;
    int64_t above = 0;
    std::vector<float> most(maxima.size(), -INFINITY);
    for (int64_t i = 0; i < n; ++i) {
      const float v = x[static_cast<size_t>(i)];
      float& m = most[static_cast<size_t>(i / kBlock)];
      if (v > m) m = v;
      above += v > 1;
      const double s = static_cast<double>(v) * 0.5;
      if (s >= -1 && s <= 30) sum += std::exp(s - 30);
      if (!(v > -INFINITY)) continue;
      ++count;
      mean += s - 1;
      squares += (s - 1) * (s - 1);
    }
    EXPECT_EQ(maxima, most);
    EXPECT_EQ(k.count_above(x.data(), n, 1), above);
    if (std::find(x.begin(), x.end(), INFINITY) != x.end()) continue;
    EXPECT_NEAR(k.sum_of_exp(x.data(), n, 0.5f, 30, -1), sum, 1e-6 * sum);
    const Moments m = k.moments(x.data(), n, 0.5f, 1);
    EXPECT_EQ(m.count, count);
    EXPECT_NEAR(m.sum, mean, 1e-6 * std::max(1.0, std::fabs(squares)));
    EXPECT_NEAR(m.squares, squares, 1e-6 * std::max(1.0, squares));
  }
}

TEST_P(SamplerTest, RandomBlocksAreThoseOfPhilox) {
  BlockBits bits;
  kernels_.vocabulary.random(1000, 17, 2, 0x123456789abcdef0, bits);
  for (uint32_t i = 0; i < 64; ++i) {
    const auto one = ir::Philox({1000 + i / 4, 17, 2, 0}, {0x9abcdef0, 0x12345678});
    EXPECT_EQ(bits.word[i % 4][i / 4], one[i % 4]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SamplerTest, testing::ValuesIn(AvailableIsas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace vt::cpu
