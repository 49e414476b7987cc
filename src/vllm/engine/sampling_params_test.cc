#include "vllm/engine/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "vllm/engine/sampler_settings.h"

namespace vllm::engine {
namespace {

constexpr int64_t kVocabulary = 1000;

std::string Refusal(const std::function<void(SamplingParams&)>& change) {
  SamplingParams p;
  change(p);
  const base::Status s = Validate(p, kVocabulary);
  if (s.ok()) return "";
  EXPECT_EQ(s.error().code, base::Code::kInvalidArgument);
  return s.error().message;
}

TEST(Validate, DefaultsAndBordersAreAllowed) {
  EXPECT_EQ(Refusal([](SamplingParams&) {}), "");
  EXPECT_EQ(Refusal([](SamplingParams& p) {
              p.temperature = 0;
              p.top_k = -1;
              p.min_p = 1;
              p.presence_penalty = -2;
              p.frequency_penalty = 2;
              p.logit_bias = {{0, -100}, {999, 100}};
              p.allowed_token_ids = {0, 999};
              p.logprobs = kMaxLogprobs;
              p.prompt_logprobs = 0;
              p.n = kMaxChoices;
              p.max_tokens = 0;
            }),
            "");
}

TEST(Validate, NamesTheFieldTheRangeAndTheValue) {
  EXPECT_EQ(Refusal([](SamplingParams& p) { p.top_p = 0; }), "top_p must be in (0, 1], got 0");
  EXPECT_EQ(Refusal([](SamplingParams& p) { p.n = 129; }), "n must be in [1, 128], got 129");
}

TEST(Validate, RefusesWhatIsOutsideEachRange) {
  const float nan = std::nanf(""), inf = INFINITY;
  const auto refuses = [](const std::string& field, const auto& member, auto... values) {
    for (const auto v : {values...}) {
      const std::string why = Refusal([&](SamplingParams& p) { p.*member = v; });
      EXPECT_EQ(why.rfind(field + " ", 0), 0u) << field << " = " << v << ": " << why;
    }
  };
  using P = SamplingParams;
  refuses("temperature", &P::temperature, nan, -0.1f, inf);
  refuses("top_k", &P::top_k, -2);
  refuses("top_p", &P::top_p, nan, 0.0f, -1.0f, 1.01f);
  refuses("min_p", &P::min_p, nan, -0.1f, 1.1f);
  refuses("typical_p", &P::typical_p, nan, 0.0f, 1.1f);
  refuses("top_n_sigma", &P::top_n_sigma, nan, inf);
  refuses("repetition_penalty", &P::repetition_penalty, nan, 0.0f, -1.0f, inf);
  refuses("presence_penalty", &P::presence_penalty, nan, -2.1f, 2.1f);
  refuses("frequency_penalty", &P::frequency_penalty, nan, -2.1f, 2.1f);
  refuses("dry_multiplier", &P::dry_multiplier, nan, -1.0f, inf);
  refuses("dry_base", &P::dry_base, nan, 0.5f, inf);
  refuses("dry_allowed_length", &P::dry_allowed_length, 0);
  refuses("dry_penalty_last_n", &P::dry_penalty_last_n, -2);
  refuses("xtc_probability", &P::xtc_probability, nan, -0.1f, 1.1f);
  refuses("xtc_threshold", &P::xtc_threshold, nan, -0.1f, 1.1f);
  refuses("max_tokens", &P::max_tokens, int64_t{-1}, int64_t{1000000000000});
  refuses("min_tokens", &P::min_tokens, int64_t{-1}, int64_t{257});
  refuses("n", &P::n, 0, -1, std::numeric_limits<int32_t>::max());
  refuses("logprobs", &P::logprobs, -2, 21);
  refuses("prompt_logprobs", &P::prompt_logprobs, -2, 21);
}

TEST(Validate, RefusesIdsOutsideTheVocabulary) {
  for (const int32_t id : {-1, 1000}) {
    EXPECT_NE(Refusal([&](SamplingParams& p) {
                p.logit_bias = {{id, 1}};
              }).find("logit_bias"),
              std::string::npos);
    EXPECT_NE(Refusal([&](SamplingParams& p) {
                p.allowed_token_ids = {1, id};
              }).find("allowed_token_ids"),
              std::string::npos);
    EXPECT_NE(Refusal([&](SamplingParams& p) {
                p.bad_words = {{1, id}};
              }).find("bad_words"),
              std::string::npos);
    EXPECT_NE(Refusal([&](SamplingParams& p) { p.stop_token_ids = {id}; }).find("stop_token_ids"),
              std::string::npos);
    EXPECT_NE(Refusal([&](SamplingParams& p) { p.dry_breakers = {id}; }).find("dry_breakers"),
              std::string::npos);
  }
  EXPECT_NE(Refusal([](SamplingParams& p) {
              p.logit_bias = {{1, 100.5f}};
            }).find("logit_bias"),
            std::string::npos);
  EXPECT_NE(Refusal([](SamplingParams& p) {
              p.logit_bias = {{1, std::nanf("")}};
            }).find("logit_bias"),
            std::string::npos);
  EXPECT_NE(Refusal([](SamplingParams& p) { p.bad_words = {{}}; }).find("bad_words"),
            std::string::npos);
  EXPECT_NE(Refusal([](SamplingParams& p) { p.stop = {""}; }).find("stop"), std::string::npos);
}

// --- what the sampler is given

const vt::ir::SamplerLayout kLayout{.vocabulary = kVocabulary, .history = 64, .lists = 100};

SamplerSettings Settings(const SamplingParams& p, std::vector<int32_t> ends = {7}) {
  auto s = MakeSamplerSettings(p, 42, 3, ends, kLayout);
  EXPECT_TRUE(s.ok());
  return s.ok() ? *s : SamplerSettings{};
}

TEST(SamplerSettings, APlainRequestWritesNothingIntoItsSlot) {
  const SamplerSettings s = Settings({.temperature = 0.5f, .top_k = -1, .top_p = 0.9f});
  EXPECT_TRUE(s.words.empty());
  EXPECT_FALSE(s.needs_history);
  EXPECT_EQ(s.row.temperature, 0.5f);
  EXPECT_EQ(s.row.top_k, 0);
  EXPECT_EQ(s.row.seed, 42u);
  EXPECT_EQ(s.row.prompt_length, 3);
  EXPECT_EQ(s.row.top_n_sigma, 0);  // the default of -1 is off
}

// The token that the settings lead to, with logits that rise with the id.
int32_t GreedyAt(const SamplerSettings& s, uint32_t position, std::vector<int32_t> history) {
  std::vector<int32_t> slot(static_cast<size_t>(kLayout.words()));
  std::copy(history.begin(), history.end(), slot.begin() + s.history_offset);
  std::copy(s.words.begin(), s.words.end(), slot.begin() + s.words_offset);
  vt::ir::SamplingRow row = s.row;
  row.slot = 0;
  row.temperature = 0;
  row.position = position;
  row.length = static_cast<int32_t>(history.size());
  std::vector<float> logits(kVocabulary);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  return vt::ir::SampleToken(logits.data(), kVocabulary, row, slot.data(), kLayout);
}

TEST(SamplerSettings, MinTokensBansEndsAndStopIdsUntilThen) {
  const SamplingParams p{.min_tokens = 2, .stop_token_ids = {998}};
  const SamplerSettings s = Settings(p, {999});
  EXPECT_EQ(GreedyAt(s, 0, {1, 2, 3}), 997);
  EXPECT_EQ(GreedyAt(s, 1, {1, 2, 3, 997}), 997);
  EXPECT_EQ(GreedyAt(s, 2, {1, 2, 3, 997, 997}), 999);
  SamplingParams ignoring = p;
  ignoring.ignore_eos = true;
  EXPECT_EQ(GreedyAt(Settings(ignoring, {999}), 0, {1, 2, 3}), 999);
}

TEST(SamplerSettings, MaskBiasAndBadWordsReachTheSlot) {
  SamplingParams p{.logit_bias = {{5, 100}}, .allowed_token_ids = {5, 60, 200}};
  EXPECT_EQ(GreedyAt(Settings(p), 0, {1, 2, 3}), 200);  // 5 + 100 is below
  p.logit_bias = {{200, -100}, {60, 100}};
  EXPECT_EQ(GreedyAt(Settings(p), 0, {1, 2, 3}), 60);  // 160 against 100
  p.bad_words = {{3, 60}};
  const SamplerSettings s = Settings(p);
  EXPECT_TRUE(s.needs_history);
  EXPECT_EQ(GreedyAt(s, 0, {1, 2, 3}), 200);
  EXPECT_EQ(GreedyAt(s, 0, {1, 2, 4}), 60);
}

TEST(SamplerSettings, PenaltiesAndDryNeedTheHistory) {
  EXPECT_TRUE(Settings({.repetition_penalty = 1.1f}).needs_history);
  EXPECT_TRUE(Settings({.presence_penalty = 1}).needs_history);
  EXPECT_TRUE(Settings({.frequency_penalty = 1}).needs_history);
  EXPECT_TRUE(Settings({.dry_multiplier = 1}).needs_history);
  EXPECT_FALSE(Settings({.dry_multiplier = 1, .dry_penalty_last_n = 0}).needs_history);
}

TEST(SamplerSettings, ThousandsOfBreakersTakeNoRoomFromTheLists) {
  const std::vector<int32_t> repeating = {10, 11, 999, 10, 11};
  SamplingParams p{.dry_multiplier = 5, .dry_base = 1};
  EXPECT_EQ(GreedyAt(Settings(p), 0, repeating), 998);                // 999 loses 5
  for (int32_t id = 1; id < 900; ++id) p.dry_breakers.push_back(id);  // as " " has them
  EXPECT_EQ(GreedyAt(Settings(p), 0, repeating), 999);
  p.allowed_token_ids = {11, 998, 999};
  EXPECT_EQ(GreedyAt(Settings(p), 0, repeating), 999);
  p.dry_breakers.erase(p.dry_breakers.begin() + 9, p.dry_breakers.begin() + 11);  // 10 and 11
  EXPECT_EQ(GreedyAt(Settings(p), 0, repeating), 998);
}

TEST(SamplerSettings, ListsThatAreTooLongAreRefusedWithASentence) {
  SamplingParams p;
  for (int32_t id = 0; id < 40; ++id) p.logit_bias.emplace_back(id, 1.0f);
  const auto s = MakeSamplerSettings(p, 0, 1, {}, kLayout);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(s.error().message.find("logit_bias"), std::string::npos) << s.error().message;
}

}  // namespace
}  // namespace vllm::engine
