// The kernels that choose tokens, on the emulated device, held to the sampler's reference
// (ir/sampling.h) row by row: batches of rows with every setting mixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "vt/gpu/args_choice.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/kernel_testing.h"
#include "vt/ir/sampling.h"

namespace vt::gpu {
namespace {

using ir::SamplerLayout;
using ir::SamplingRow;
using kernel_testing::RunKernel;

constexpr int kPaddingRows = 2;
constexpr int32_t kUntouched = -77;

// A step's rows, their slots, and what the kernels need beside.
class Batch {
 public:
  Batch(int64_t vocabulary, int64_t stride, SamplerLayout layout)
      : vocabulary_(vocabulary), stride_(stride), layout_(layout) {}

  void Add(const std::vector<float>& logits, SamplingRow row, const std::vector<int32_t>& slot) {
    row.slot = slot.empty() ? row.slot : rows();
    logits_.resize(logits_.size() + static_cast<size_t>(stride_), std::nanf(""));
    std::copy(logits.begin(), logits.end(), logits_.end() - stride_);
    slots_.resize(slots_.size() + static_cast<size_t>(layout_.words()), -1);
    std::copy(slot.begin(), slot.end(), slots_.end() - layout_.words());
    rows_.push_back(row);
  }
  int rows() const { return static_cast<int>(rows_.size()); }
  const SamplingRow& row(int i) const { return rows_[static_cast<size_t>(i)]; }
  const float* logits(int i) const { return &logits_[static_cast<size_t>(i * stride_)]; }
  int32_t* slot(int i) { return &slots_[static_cast<size_t>(i * layout_.words())]; }

  std::vector<int32_t> Sample() {
    Prepare();
    RunKernel("sample_scan_f32", args_,
              {args_.chunks, all(), threads(4096, 16, 256), kChoiceScanShared});
    RunKernel("sample_pick_f32", args_, {all(), 1, threads(1 << 20, 4, 512), kChoicePickShared});
    return tokens_;
  }
  void TopLogprobs(const std::vector<int32_t>& tokens, std::vector<float>& values,
                   std::vector<int32_t>& ids) {
    Prepare();
    std::copy(tokens.begin(), tokens.end(), tokens_.begin());
    values.assign(static_cast<size_t>(all() * kChoiceValues), 7);
    ids.assign(static_cast<size_t>(all() * kChoiceBest), 7);
    args_.values = values.data();
    args_.values_stride = kChoiceValues;
    args_.ids = ids.data();
    RunKernel("top_logprobs_scan_f32", args_,
              {args_.chunks, all(), threads(4096, 16, 256), kChoiceScratch});
    RunKernel("top_logprobs_list_f32", args_,
              {all(), 1, threads(1 << 20, 4, 512), kChoicePickShared});
  }

 private:
  int all() const { return rows() + kPaddingRows; }
  int threads(int64_t most_ids, int64_t each, int64_t most) const {
    const int64_t items = (std::min(vocabulary_, most_ids) + each - 1) / each;
    return static_cast<int>(std::clamp<int64_t>((items + 63) / 64 * 64, 64, most));
  }
  void Prepare() {
    header_ = {1, 1, rows(), 0};
    params_.assign(static_cast<size_t>(all() * kChoiceParams), 0);
    for (int i = 0; i < rows(); ++i) ir::PackSamplingRow(row(i), &params_[i * kChoiceParams]);
    tokens_.assign(static_cast<size_t>(all()), kUntouched);
    logits_.resize(static_cast<size_t>(all() * stride_), std::nanf(""));
    const int64_t work_stride = (vocabulary_ + 63) / 64 * 64, chunks = (vocabulary_ + 4095) / 4096,
                  waves = threads(4096, 16, 256) / emulated::WaveSize();
    work_.assign(static_cast<size_t>(all() * work_stride), std::nanf(""));
    parts_.resize(static_cast<size_t>(all() * chunks));
    std::memset(static_cast<void*>(parts_.data()), 0xff, parts_.size() * sizeof(ChoicePart));
    maxima_.assign(static_cast<size_t>(all() * chunks * waves), std::nanf(""));
    args_ = {.header = &header_,
             .logits = logits_.data(),
             .stride = stride_,
             .vocabulary = static_cast<int32_t>(vocabulary_),
             .chunks = static_cast<int32_t>(chunks),
             .scan_waves = static_cast<int32_t>(waves),
             .aligned = stride_ % 4 == 0 && reinterpret_cast<uintptr_t>(logits_.data()) % 16 == 0,
             .params = params_.data(),
             .slots = {.words = slots_.data(),
                       .count = rows(),
                       .history = static_cast<int32_t>(layout_.history),
                       .lists = static_cast<int32_t>(layout_.lists),
                       .stride = layout_.words(),
                       .mask = layout_.mask_offset(),
                       .breakers = layout_.breakers_offset(),
                       .lists_at = layout_.lists_offset()},
             .tokens = tokens_.data(),
             .work = work_.data(),
             .work_stride = work_stride,
             .parts = parts_.data(),
             .maxima = maxima_.data()};
  }

  int64_t vocabulary_, stride_;
  SamplerLayout layout_;
  std::vector<float> logits_, params_, work_, maxima_;
  std::vector<int32_t> slots_, tokens_;
  std::vector<SamplingRow> rows_;
  std::vector<ChoicePart> parts_;
  Header header_{};
  ChoiceArgs args_;
};

class ChoiceTest : public testing::Test {
 protected:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  // Logits as models make them, in many shapes: peaked, flat, tied, partly gone.
  std::vector<float> Logits(int64_t vocabulary) {
    std::normal_distribution<float> normal(0, Pick({0.0f, 0.5f, 3.0f, 10.0f}));
    std::vector<float> x(static_cast<size_t>(vocabulary));
    for (float& v : x) v = normal(random_);
    const float step = Pick({0.0f, 0.0f, 1.0f, 0.25f, 8.0f});
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
    r.temperature = Pick({0.0f, 0.3f, 1.0f, 1.0f, 2.0f, 1e-5f, INFINITY});
    r.top_k = Pick({0.0f, 0.0f, 1.0f, 2.0f, 5.0f, 50.0f, 500.0f, 2000.0f, 1e9f});
    r.top_p = Pick({1.0f, 1.0f, 0.95f, 0.5f, 1e-7f});
    r.min_p = Pick({0.0f, 0.0f, 0.0f, 0.05f, 1.0f, 3.0f});
    r.top_n_sigma = Pick({0.0f, 0.0f, 0.0f, 1.0f, 1e30f});
    r.typical_p = Pick({1.0f, 1.0f, 1.0f, 1.0f, 0.6f, 0.95f});
    r.xtc_probability = Pick({0.0f, 0.0f, 0.0f, 0.7f});
    r.xtc_threshold = Pick({0.1f, 0.01f, 0.0001f, 0.0f, 0.6f});
    r.seed = random_() | uint64_t{random_()} << 32;
    r.position = random_() % 40;
    r.choice = random_() % 3;
    r.forced = random_() % 40 == 0 ? static_cast<int32_t>(vocabulary - 1) : -1;
    return r;
  }

  // A slot of few ids, so that histories repeat themselves.
  std::vector<int32_t> Slot(const SamplerLayout& layout, SamplingRow& r) {
    std::vector<int32_t> words(static_cast<size_t>(layout.words()), -1);
    const auto few = static_cast<uint32_t>(std::min<int64_t>(layout.vocabulary, Pick({2, 6})));
    const uint32_t step = Pick({1u, std::max(1u, static_cast<uint32_t>(layout.vocabulary / few))});
    const auto id = [&] { return static_cast<int32_t>(random_() % few * step); };
    r.length = static_cast<int32_t>(random_() % static_cast<uint32_t>(layout.history + 1));
    r.prompt_length = static_cast<int32_t>(random_() % 30);
    for (int32_t i = 0; i < r.length; ++i)
      words[static_cast<size_t>(SamplerLayout::history_offset() + i)] = id();
    r.repetition_penalty = Pick({1.0f, 1.3f, 0.8f});
    r.presence_penalty = Pick({0.0f, 0.5f, -0.5f});
    r.frequency_penalty = Pick({0.0f, 0.0f, 0.25f});
    r.dry_multiplier = Pick({0.0f, 0.8f});
    r.dry_base = Pick({1.75f, 1.0f, 30.0f});
    r.dry_allowed_length = Pick({1, 2, 4, -3, 1000});
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

  // Chooses for every row, and holds tokens and slots to the reference; how many tokens are not
  // simply the best.
  int Check(Batch& batch, int64_t vocabulary, const SamplerLayout& layout) {
    std::vector<int32_t> want;
    std::vector<std::vector<int32_t>> slots;
    int drawn = 0;
    for (int i = 0; i < batch.rows(); ++i) {
      const SamplingRow& row = batch.row(i);
      const bool slot = row.slot >= 0 && row.slot < batch.rows();
      want.push_back(ir::SampleToken(batch.logits(i), vocabulary, row,
                                     slot ? batch.slot(i) : nullptr, layout));
      drawn += want.back() != ir::ArgMax(batch.logits(i), vocabulary);
      slots.emplace_back(batch.slot(i), batch.slot(i) + layout.words());
      if (slot && row.forced < 0) ir::RecordToken(row, layout, want.back(), slots.back().data());
    }
    const std::vector<int32_t> got = batch.Sample();
    for (int i = 0; i < batch.rows(); ++i) {
      const SamplingRow& row = batch.row(i);
      EXPECT_EQ(got[static_cast<size_t>(i)], want[static_cast<size_t>(i)])
          << "row " << i << ": V " << vocabulary << " T " << row.temperature << " k " << row.top_k
          << " p " << row.top_p << " min_p " << row.min_p << " typical " << row.typical_p
          << " sigma " << row.top_n_sigma << " xtc " << row.xtc_probability << " "
          << row.xtc_threshold << " slot " << row.slot << " mask " << row.use_mask << " dry "
          << row.dry_multiplier << " bias " << row.bias_words << " bad " << row.bad_word_words;
      EXPECT_TRUE(std::equal(slots[static_cast<size_t>(i)].begin(),
                             slots[static_cast<size_t>(i)].end(), batch.slot(i)))
          << i;
    }
    for (int i = batch.rows(); i < batch.rows() + kPaddingRows; ++i)
      EXPECT_EQ(got[static_cast<size_t>(i)], kUntouched);
    return drawn;
  }

  std::mt19937 random_{20};
};

TEST_F(ChoiceTest, ChoosesWhatTheReferenceChooses) {
  int drawn = 0;
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    const int64_t vocabulary = Pick({1, 2, 33, 300, 1000, 1024, 1025, 3000, 4097, 5000});
    const SamplerLayout layout{.vocabulary = vocabulary, .history = 60, .lists = 30};
    Batch batch(vocabulary, vocabulary + Pick({0, 3, 8}), layout);
    for (int i = 0; i < 25; ++i) {
      SamplingRow row = Row(vocabulary);
      row.slot = Pick({-1, 1000000});  // no such slot
      std::vector<int32_t> slot;
      if (random_() % 2 == 0) slot = Slot(layout, row);
      batch.Add(Logits(vocabulary), row, slot);
    }
    drawn += Check(batch, vocabulary, layout);
  }
  EXPECT_GT(drawn, 200);  // not all of them are arg-max in disguise
}

// Each filter alone, and pairs of them, over rows too flat for the list of candidates.
TEST_F(ChoiceTest, FiltersLargeVocabulariesAsTheReference) {
  constexpr int64_t kVocabulary = 30001;
  const SamplerLayout layout{.vocabulary = kVocabulary, .history = 4, .lists = 4};
  const SamplingRow settings[] = {
      {.temperature = 1},
      {.temperature = 1, .top_k = 20},
      {.temperature = 1, .top_k = 900},
      {.temperature = 1, .top_k = 5000},
      {.temperature = 1, .top_k = 29999},
      {.temperature = 0.7f, .top_p = 0.9f},
      {.temperature = 1.5f, .top_p = 0.999f},
      {.temperature = 1, .top_k = 3000, .top_p = 0.8f},
      {.temperature = 1, .min_p = 0.01f},
      {.temperature = 1, .top_p = 0.99f, .min_p = 0.001f},
      {.temperature = 1, .typical_p = 0.9f},
      {.temperature = 1, .top_p = 0.95f, .typical_p = 0.3f},
      {.temperature = 1, .top_k = 4000, .typical_p = 0.5f},
      {.temperature = 1, .top_n_sigma = 1},
      {.temperature = 1, .xtc_probability = 1, .xtc_threshold = 1e-4f},
      {.temperature = 1, .top_p = 0.97f, .xtc_probability = 1, .xtc_threshold = 1e-4f}};
  Batch batch(kVocabulary, kVocabulary + 3, layout);
  for (const float deviation : {0.0f, 0.3f, 3.0f}) {
    std::normal_distribution<float> normal(0, deviation);
    for (SamplingRow row : settings) {
      std::vector<float> x(kVocabulary);
      const float step = Pick({0.0f, 0.5f});
      for (float& v : x) v = deviation > 0 ? normal(random_) : 2;
      for (float& v : x) v = step > 0 ? std::round(v / step) * step : v;
      row.seed = random_();
      batch.Add(x, row, {});
    }
  }
  Check(batch, kVocabulary, layout);
}

TEST_F(ChoiceTest, ListsTheLogprobsOfTheReference) {
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    const int64_t vocabulary = Pick({1, 5, 20, 64, 1000, 1281, 5000, 9000});
    Batch batch(vocabulary, vocabulary + Pick({0, 3}), {.vocabulary = vocabulary});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 25; ++i) {
      batch.Add(Logits(vocabulary), {.logprobs = Pick({-1, 0, 1, 5, 20})}, {});
      tokens.push_back(static_cast<int32_t>(random_() % static_cast<uint32_t>(vocabulary)));
    }
    std::vector<float> got;
    std::vector<int32_t> got_ids;
    batch.TopLogprobs(tokens, got, got_ids);
    std::vector<float> want(got.size(), 7);
    std::vector<int32_t> want_ids(got_ids.size(), 7);
    for (int i = 0; i < batch.rows(); ++i) {
      ir::TopLogprobs(batch.logits(i), vocabulary, batch.row(i), tokens[static_cast<size_t>(i)],
                      &want[static_cast<size_t>(i * kChoiceValues)],
                      &want_ids[static_cast<size_t>(i * kChoiceBest)]);
    }
    ASSERT_EQ(got_ids, want_ids);
    for (size_t j = 0; j < got.size(); ++j) {
      if (got[j] == want[j]) continue;  // infinities too
      ASSERT_NE(j % kChoiceValues, 1u) << "a rank: " << got[j] << " " << want[j];
      // Of f32 exponentials.
      ASSERT_NEAR(got[j], want[j], 1e-6f * (1 + std::fabs(want[j]))) << j;
    }
  }
}

TEST_F(ChoiceTest, FeedsTheLastTokensOfSlots) {
  const Header header{5, 1, 1, 0};
  int32_t words[32] = {};
  words[0] = 41;
  words[16] = 42;
  const int32_t ids[] = {7, -1, -2, -3, 0, -1};
  int32_t out[6] = {kUntouched, kUntouched, kUntouched, kUntouched, kUntouched, kUntouched};
  const TokenFeedArgs args{.header = &header,
                           .ids = ids,
                           .slots = {.words = words, .count = 2, .stride = 16},
                           .out = out};
  RunKernel("token_feed_f32", args, {1, 1, 64, 0});
  // There is no third slot; the sixth row is padding.
  EXPECT_EQ(std::vector<int32_t>(out, out + 6),
            (std::vector<int32_t>{7, 41, 42, -3, 0, kUntouched}));
}

TEST_F(ChoiceTest, TakesTheFirstOfTheHighest) {
  for (const int width : {1, 70, 3000}) {
    std::vector<float> x;
    std::vector<int32_t> want, got(4, kUntouched);
    for (int r = 0; r < 3; ++r) {
      const std::vector<float> row = Logits(width);
      x.insert(x.end(), row.begin(), row.end());
      want.push_back(ir::ArgMax(row.data(), width));
    }
    want.push_back(kUntouched);
    const Header header{1, 1, 3, 0};
    const ArgMaxArgs args{.header = &header,
                          .logits = {x.data(), width, 1, width},
                          .count = {Of::kOutputs, 1},
                          .out = got.data()};
    RunKernel("argmax_f32", args, {4, 1, 128, kChoiceScratch});
    EXPECT_EQ(got, want);
  }
}

}  // namespace
}  // namespace vt::gpu
