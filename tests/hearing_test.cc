// A tiny Voxtral against transformers: the encoder's rows, logits of prompts that hear, and what
// the engine must keep apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/os/file.h"
#include "model_forward.h"
#include "model_golden.h"
#include "vllm/audio/mel.h"
#include "vllm/engine/admission.h"
#include "vllm/engine/engine_loop.h"

namespace vllm::testing {
namespace {

constexpr double kTolerance = 2e-4;  // as model_golden_test.cc
const std::string kAudio = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/audio/";

struct Golden {
  std::vector<float> sound, rows;
  int64_t width = 0, vocab = 0;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> logits;
};

Golden Load() {
  const auto json = base::ParseJsonFile(kAudio + "voxtral.json");
  const auto binary = base::os::ReadFile(kAudio + "voxtral.bin");
  Golden g;
  if (!json || !binary) {
    ADD_FAILURE() << "the golden is missing";
    return g;
  }
  const boost::json::object& o = json->as_object();
  const char* at = binary->data();
  const auto take = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    std::memcpy(values.data(), at, values.size() * 4);
    at += values.size() * 4;
    return values;
  };
  g.width = o.at("width").as_int64();
  g.vocab = o.at("vocab").as_int64();
  g.sound = take(o.at("samples").as_int64());
  for (const auto& bins : o.at("bins").as_array())
    (void)take(o.at("frames").as_int64() * bins.as_int64());
  g.rows = take(o.at("rows").as_int64() * g.width);
  for (const auto& prompt : o.at("prompts").as_array()) {
    auto& ids = g.prompts.emplace_back();
    for (const auto& id : prompt.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
    g.logits.push_back(take(static_cast<int64_t>(ids.size()) * g.vocab));
  }
  EXPECT_EQ(at, binary->data() + binary->size());
  return g;
}

std::shared_ptr<engine::Media> Hear(const engine::Llm& llm, std::span<const float> sound) {
  auto media = std::make_shared<engine::Media>();
  const weights::Audio& audio = llm.config().audio;
  media->mel = audio::LogMel(sound, audio.mel_bins, audio.frames());
  return media;
}

bool Hears(const std::vector<int32_t>& prompt) {
  return std::find(prompt.begin(), prompt.end(), 24) != prompt.end();
}

class HearingOn : public ::testing::TestWithParam<std::string> {};

TEST_P(HearingOn, RowsAndLogitsEqualTransformersWhateverTheSteps) {
  const bool cpu = GetParam() == "cpu";
  if (!cpu && !std::filesystem::exists(VLLM_BINARY_DIR "/examples/libvt_emulated.so"))
    GTEST_SKIP() << "this build has no emulated GPU";
  const Golden g = Load();
  engine::LoadOptions options = Float32Options(kAudio + "voxtral", 64);
  options.device = GetParam();
  if (!cpu) options.max_num_batched_tokens = 16;
  auto loaded = engine::Llm::Load(options);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const std::unique_ptr<engine::Llm> llm = *std::move(loaded);
  for (size_t p = 0; p < g.prompts.size(); ++p) {
    const std::vector<int32_t>& ids = g.prompts[p];
    std::shared_ptr<engine::Media> media;
    if (Hears(ids)) {
      media = Hear(*llm, g.sound);
      const base::Status encoded = llm->Encode(ids, *media);
      ASSERT_TRUE(encoded.ok()) << encoded.error().message;
      EXPECT_LE(RelativeError(media->rows, g.rows, g.width), kTolerance);
    }
    const std::vector<int64_t> pieces =
        cpu ? std::vector<int64_t>{64, 7, 1} : std::vector<int64_t>{16};
    for (const int64_t piece : pieces) {
      llm->Reset(0);
      std::vector<float> logits;
      for (int64_t start = 0; start < static_cast<int64_t>(ids.size()); start += piece) {
        engine::Chunk chunk{.start = start, .logits = engine::Chunk::Logits::kAll, .media = media};
        const int64_t end = std::min<int64_t>(start + piece, static_cast<int64_t>(ids.size()));
        chunk.tokens.assign(ids.begin() + start, ids.begin() + end);
        const auto step = llm->Step({&chunk, 1});
        ASSERT_TRUE(step.ok()) << step.error().message;
        logits.insert(logits.end(), step->logits, step->logits + step->outputs * g.vocab);
      }
      EXPECT_LE(RelativeError(logits, g.logits[p], g.vocab), kTolerance)
          << "prompt " << p << " in pieces of " << piece;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, HearingOn, ::testing::Values("cpu", "emulated", "emulated64"),
                         [](const auto& param) { return param.param; });

// What each request of a list gives, all submitted at once.
class Sink : public engine::OutputSink {
 public:
  void Deliver(std::span<engine::Output> outputs) override {
    for (const engine::Output& o : outputs) {
      if (o.token >= 0) tokens[o.request].push_back(o.token);
      cached[o.request] = o.cached_tokens;
      if (o.finish != engine::FinishReason::kNone) finish[o.request] = o.finish;
    }
  }
  void EngineDied(const std::string& why) override { ADD_FAILURE() << why; }
  std::map<engine::RequestId, std::vector<int32_t>> tokens;
  std::map<engine::RequestId, int64_t> cached;
  std::map<engine::RequestId, engine::FinishReason> finish;
};

// An engine that is run by hand.
class HearingEngine : public ::testing::Test {
 protected:
  void Start(int64_t blocks, int64_t seqs) {
    options_ = Float32Options(kAudio + "voxtral", 48, seqs);
    options_.block_size = 4;
    options_.max_num_batched_tokens = 10;  // prompts come in pieces
    auto model = engine::LoadModel(options_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    engine::LoopOptions o = engine::LoopOptionsOf(*model_, options_);
    if (blocks > 0) o.kv_blocks = blocks;
    loop_ = std::make_unique<engine::EngineLoop>(*model_->runner, sink_, o);
  }
  void TearDown() override { loop_.reset(); }

  engine::RequestId Submit(const std::vector<int32_t>& prompt, std::span<const float> sound,
                           int tokens = 12) {
    engine::Request r;
    r.prompt = prompt;
    r.sampling.temperature = 0;
    r.sampling.max_tokens = tokens;
    r.sampling.ignore_eos = true;
    if (!sound.empty()) {
      const weights::Audio& audio = model_->config.audio;
      r.media = std::make_shared<engine::Media>();
      r.media->mel = audio::LogMel(sound, audio.mel_bins, audio.frames());
    }
    auto admitted = engine::Admit(*model_, options_, std::move(r));
    EXPECT_TRUE(admitted.ok()) << (admitted.ok() ? "" : admitted.error().message);
    if (!admitted) return 0;
    const auto id = loop_->Submit(admitted->request, admitted->sampler);
    EXPECT_TRUE(id.ok());
    return id.ok() ? *id : 0;
  }
  void RunAll() {
    while (loop_->RunOnce()) {
    }
  }
  std::vector<int32_t> Alone(const std::vector<int32_t>& prompt, std::span<const float> sound) {
    const engine::RequestId id = Submit(prompt, sound);
    RunAll();
    return sink_.tokens[id];
  }

  engine::LoadOptions options_;
  std::unique_ptr<engine::LoadedModel> model_;
  Sink sink_;
  std::unique_ptr<engine::EngineLoop> loop_;
};

TEST_F(HearingEngine, TwoSoundsUnderOnePromptAreNeverTakenForEachOther) {
  const Golden g = Load();
  Start(0, 2);
  std::vector<float> other = g.sound;
  for (size_t i = 0; i < other.size(); ++i) other[i] = i % 40 < 20 ? 0.3f : -0.3f;
  const std::vector<int32_t> first = Alone(g.prompts[0], g.sound),
                             second = Alone(g.prompts[0], other);
  EXPECT_NE(first, second);
  const engine::RequestId again = Submit(g.prompts[0], g.sound);
  RunAll();
  EXPECT_EQ(sink_.tokens[again], first);
  EXPECT_EQ(sink_.cached[again], 12) << "the same sound's prefix is found";
}

TEST_F(HearingEngine, RequestsThatShareStepsAndLoseTheirBlocksAnswerAsAlone) {
  const Golden g = Load();
  const std::span<const float> half = std::span(g.sound).first(5000);  // one piece
  const std::vector<int32_t> shorter = {1, 3, 25, 24, 24, 24, 24, 24, 60, 4};
  Start(0, 4);
  const std::vector<std::vector<int32_t>> alone = {Alone(g.prompts[0], g.sound),
                                                   Alone(g.prompts[1], g.sound),
                                                   Alone(g.prompts[2], {}), Alone(shorter, half)};
  loop_.reset();
  sink_.tokens.clear();
  Start(12, 4);  // 48 tokens: too few for all of them
  const std::vector<engine::RequestId> ids = {Submit(g.prompts[0], g.sound),
                                              Submit(g.prompts[1], g.sound),
                                              Submit(g.prompts[2], {}), Submit(shorter, half)};
  const engine::RequestId gone = Submit(g.prompts[1], g.sound);
  loop_->Cancel(gone, -1, false);
  RunAll();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(sink_.tokens[ids[i]], alone[i]) << i;
  EXPECT_GT(loop_->Stats().preemptions, 0);
  EXPECT_TRUE(sink_.tokens[gone].empty());
}

TEST_F(HearingEngine, SoundsAndPlacesThatDoNotFitAreRefusedInASentence) {
  const Golden g = Load();
  Start(0, 1);
  engine::Request r;
  r.prompt = {1, 3, 25, 24, 24, 4};
  r.media = std::make_shared<engine::Media>();
  r.media->mel = audio::LogMel(g.sound, 16, 40);
  const auto wrong = engine::Admit(*model_, options_, r);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "the prompt has 2 places for sound, but its sound takes 10");
}

}  // namespace
}  // namespace vllm::testing
