// The two real models of the goldens against fp32 logits of their dequantised weights (made with
// transformers) along llama.cpp's greedy text. The models are where `make run` keeps them; absent,
// the tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/os/file.h"
#include "tests/cards.h"
#include "vllm/engine/llm.h"

namespace vllm {
namespace {

struct RealModel {
  std::string name;     // of the test
  std::string file;     // in the cache folder
  std::string goldens;  // in tests/goldens/models/real
  double max_kl;        // mean, nats: what quantised activations may cost with this model's weights
  // In float32: of a log-probability, and of a text's mean. Weights that were rounded once more
  // than the oracle's move them.
  double max_error = 1e-3, max_nll_error = 1e-3;
  std::string device = "cpu";
};

std::string CachePath(const std::string& file) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder =
      cache != nullptr && *cache != 0 ? cache : std::string(home ? home : "") + "/.cache";
  return folder + "/vllm.cpp/" + file;
}

std::vector<int32_t> Ids(const boost::json::value& array) {
  std::vector<int32_t> ids;
  for (const auto& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

std::vector<double> LogProbabilities(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - top);
  std::vector<double> out;
  out.reserve(logits.size());
  for (const float x : logits) out.push_back(double{x} - top - std::log(sum));
  return out;
}

// KL of `mine` from fp32's distribution over its five best ids and one bucket for the rest.
double Divergence(const std::vector<int32_t>& ids, const std::vector<double>& fp32,
                  const std::vector<double>& mine) {
  double kl = 0, p_rest = 1, q_rest = 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double p = std::exp(fp32[i]), log_q = mine[static_cast<size_t>(ids[i])];
    kl += p * (fp32[i] - log_q);
    p_rest -= p;
    q_rest -= std::exp(log_q);
  }
  if (p_rest > 1e-9) kl += p_rest * std::log(p_rest / std::max(q_rest, 1e-12));
  return kl;
}

class RealModelTest : public ::testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    const std::string path = CachePath(GetParam().file);
    if (!base::os::FileExists(path)) {
      GTEST_SKIP()
          << path
          << " is not there: `make run` fetches SmolLM2; the README says how to get Gemma 3 270M";
    }
    auto json = base::ParseJsonFile(std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/real/" +
                                    GetParam().goldens);
    ASSERT_TRUE(json.ok()) << json.error().message;
    cases_ = json->as_object().at("cases").as_array();
    ASSERT_EQ(cases_.size(), 4u);
  }

  static engine::LoadOptions Options() {
    engine::LoadOptions options;
    options.model = CachePath(GetParam().file);
    options.threads = 2;
    options.device = GetParam().device;
    options.module_folders = {std::string(VLLM_BINARY_DIR) + "/examples"};
    return options;
  }

  std::unique_ptr<engine::Llm> Load(const std::string& dtype) {
    engine::LoadOptions options = Options();
    options.dtype = dtype;
    options.max_model_len = 256;
    options.max_num_batched_tokens = 32;  // a row has up to 262,144 logits
    options.score_prompts = true;
    auto llm = engine::Llm::Load(std::move(options));
    if (!llm) {
      ADD_FAILURE() << llm.error().message;
      return nullptr;
    }
    return *std::move(llm);
  }

  struct Place {
    std::vector<int32_t> ids;         // fp32's best five, best first
    std::vector<double> fp32;         // their log-probabilities
    const std::vector<double>& mine;  // all
    int32_t first;                    // this engine's choice
  };

  // Calls `place` for every generated position of every case; returns the largest error of a
  // prompt's mean negative log-likelihood.
  double ForEachPlace(engine::Llm& llm, const std::function<void(const Place&)>& place) {
    double worst_nll = 0;
    for (const auto& value : cases_) {
      const boost::json::object& c = value.as_object();
      std::vector<int32_t> ids = Ids(c.at("prompt_ids"));
      const size_t prompt = ids.size();
      const std::vector<int32_t> greedy = Ids(c.at("llama_cpp_greedy_ids"));
      ids.insert(ids.end(), greedy.begin(), greedy.end());
      double nll = 0;
      size_t rows = 0;
      const auto status = llm.Score(ids, [&](int64_t position, std::span<const float> logits) {
        const std::vector<double> mine = LogProbabilities(logits);
        const auto at = static_cast<size_t>(position);
        ++rows;
        if (at + 1 < prompt) nll -= mine[static_cast<size_t>(ids[at + 1])];
        if (at + 1 < prompt || at + 1 >= ids.size()) return;
        const size_t step = at + 1 - prompt;
        std::vector<double> fp32;
        for (const auto& p : c.at("fp32_top5_logprobs").as_array()[step].as_array()) {
          fp32.push_back(p.to_number<double>());
        }
        const auto first = std::max_element(mine.begin(), mine.end()) - mine.begin();
        place(
            {Ids(c.at("fp32_top5_ids").as_array()[step]), fp32, mine, static_cast<int32_t>(first)});
      });
      EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
      EXPECT_EQ(rows, ids.size());
      nll /= static_cast<double>(prompt - 1);
      worst_nll =
          std::max(worst_nll, std::abs(nll - c.at("fp32_mean_nll_of_prompt").to_number<double>()));
    }
    return worst_nll;
  }

  boost::json::array cases_;
};

TEST_P(RealModelTest, PromptIdsEqualLlamaCpp) {
  const auto llm = Load("auto");
  ASSERT_NE(llm, nullptr);
  for (const auto& value : cases_) {
    const boost::json::object& c = value.as_object();
    const std::string rendered(c.at("rendered").as_string());
    auto ids = llm->EncodePrompt(rendered);
    if (c.contains("messages") && llm->chat_template() != nullptr) {
      text::ChatInput chat;
      chat.messages = c.at("messages").as_array();
      const auto prompt = llm->chat_template()->Render(chat);
      ASSERT_TRUE(prompt.ok()) << prompt.error().message;
      EXPECT_EQ(*prompt, rendered);
      ids = llm->EncodeChat(chat);
    }
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, Ids(c.at("prompt_ids"))) << rendered;
  }
}

TEST_P(RealModelTest, QuantisedWeightsStayCloseToFloat32) {
  const auto llm = Load("auto");
  ASSERT_NE(llm, nullptr);
  double kl = 0;
  int places = 0, clear = 0, agreed = 0;
  ForEachPlace(*llm, [&](const Place& p) {
    kl += Divergence(p.ids, p.fp32, p.mine);
    ++places;
    if (p.fp32[0] - p.fp32[1] <= 0.3)
      return;  // nats: closer calls may go either way under quantisation
    ++clear;
    if (p.first == p.ids[0]) ++agreed;
    EXPECT_EQ(p.first, p.ids[0]) << "place " << places << ", fp32's margin "
                                 << p.fp32[0] - p.fp32[1];
  });
  ASSERT_EQ(places, 192);
  std::cout << GetParam().name << ": mean KL " << kl / places << " over " << places
            << " places (allowed " << GetParam().max_kl << "), first choice equal in " << agreed
            << " of " << clear << " clear places\n";
  EXPECT_LT(kl / places, GetParam().max_kl);
}

TEST_P(RealModelTest, Float32WeightsEqualTheOracle) {
  const auto llm = Load("float32");
  ASSERT_NE(llm, nullptr);
  double worst = 0;
  const double worst_nll = ForEachPlace(*llm, [&](const Place& p) {
    EXPECT_NEAR(p.mine[static_cast<size_t>(p.first)], p.fp32[0], GetParam().max_error);
    for (size_t i = 0; i < p.ids.size(); ++i) {
      worst = std::max(worst, std::abs(p.mine[static_cast<size_t>(p.ids[i])] - p.fp32[i]));
    }
  });
  std::cout << GetParam().name << ": worst log-probability error " << worst << " (allowed "
            << GetParam().max_error << "), worst mean NLL error " << worst_nll << " (allowed "
            << GetParam().max_nll_error << ")\n";
  EXPECT_LT(worst, GetParam().max_error);
  EXPECT_LT(worst_nll, GetParam().max_nll_error);
}

// A key that no query sees must leave zeros, never -inf - -inf: lengths around one and two windows
// of 512.
TEST_P(RealModelTest, LengthsAroundTheWindowGiveFiniteLogProbabilities) {
  engine::LoadOptions options = Options();
  options.max_model_len = 1040;
  const auto llm = engine::Llm::Load(std::move(options));
  ASSERT_TRUE(llm.ok()) << llm.error().message;
  const auto sentence = (*llm)->EncodePrompt("The quick brown fox jumps over the lazy dog. ");
  ASSERT_TRUE(sentence.ok());
  std::vector<int32_t> ids = *sentence;
  while (ids.size() < 1031) ids.insert(ids.end(), sentence->begin() + 1, sentence->end());
  std::map<int64_t, std::pair<size_t, double>> prefilled;  // length -> likeliest token, its value
  const auto check = [&](int64_t first, int64_t last) {
    (*llm)->Reset(0);
    for (int64_t length = first, start = 0; length <= last; ++length) {
      while (start < length) {
        const int64_t n = std::min<int64_t>(512, length - start);
        engine::Chunk chunk;
        chunk.start = start;
        chunk.tokens.assign(ids.begin() + start, ids.begin() + start + n);
        const auto step = (*llm)->Step({&chunk, 1});
        ASSERT_TRUE(step.ok()) << step.error().message;
        start += n;
        if (start < length) continue;
        const auto vocab = static_cast<size_t>((*llm)->runner().vocab_size());
        const std::vector<double> p = LogProbabilities({step->logits, vocab});
        EXPECT_TRUE(std::all_of(p.begin(), p.end(), [](double x) { return std::isfinite(x); }))
            << length << " tokens";
        // Decode sees the window that prefill saw. Sums run in another order, which moves a few
        // int8 codes of activations by one: far less than a key too many or too few would.
        const auto best = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
        const auto [seen, is_new] = prefilled.try_emplace(length, best, p[best]);
        if (!is_new) {
          EXPECT_NEAR(p[seen->second.first], seen->second.second, 0.1) << length;
        }
      }
    }
  };
  for (const int64_t length : {505, 511, 512, 513, 520, 1020, 1024, 1025, 1030})
    check(length, length);  // prefill
  check(505, 520);          // decode
  check(1020, 1029);
}

// The same on every card of this machine. SmolLM2Bf16 is the first with its weights expanded:
// `vllm-quantize --allow-requantize --type BF16`, beside it in the cache folder.
std::vector<RealModel> RealModels() {
  const std::vector<RealModel> models = {
      {"SmolLM2", "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1.json", 0.01},
      {"SmolLM2Bf16", "SmolLM2-135M-Instruct.BF16.gguf", "smollm2-135m-instruct-q4_1.json", 0.005,
       0.2, 0.01},
      {"Gemma3", "gemma-3-270m-q4_k_m.gguf", "gemma-3-270m-q4_k_m.json", 0.02}};
  std::vector<RealModel> all = models;
  for (const std::string& card : testing::Cards()) {
    for (RealModel model : models) {
      model.name += "_" + card.substr(0, card.find(':')) + card.substr(card.find(':') + 1);
      model.device = card;
      all.push_back(std::move(model));
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, RealModelTest, ::testing::ValuesIn(RealModels()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace vllm
