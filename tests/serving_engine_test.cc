// The engine under many requests: on the null device, whose tokens say whether everything was fed
// rightly, and on the CPU against each request alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "base/strings.h"
#include "tests/engine_sink.h"
#include "vllm/engine/engine.h"
#include "vllm/engine/engine_stats.h"
#include "vllm/engine/kv_layout.h"
#include "vllm/engine/llm.h"
#include "vt/null/null.h"

namespace vllm {
namespace {

using engine::Engine;
using engine::FinishReason;
using engine::Request;
using engine::RequestId;
using testing::Answer;
using testing::Collector;

engine::LoadOptions Options(const std::string& device, const std::string& isa = "") {
  engine::LoadOptions o;
  o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/llama_tied";
  o.device = device;
  o.isa = isa;
  o.threads = 2;
  o.dtype = "float32";
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 32;
  o.block_size = 4;
  o.module_folders = {std::string(VLLM_BINARY_DIR) + "/examples"};
  return o;
}

std::unique_ptr<Engine> Load(const engine::LoadOptions& options, Collector& sink) {
  auto e = Engine::Load(options, sink);
  if (!e) {
    ADD_FAILURE() << e.error().message;
    return nullptr;
  }
  return *std::move(e);
}

Request Greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  return r;
}

std::vector<int32_t> RandomIds(std::mt19937& random, int64_t count, int64_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  return ids;
}

std::vector<int32_t> NullAnswer(const std::vector<int32_t>& prompt, int64_t count, int64_t vocab) {
  std::vector<int32_t> out;
  int32_t token = prompt.back();
  for (int64_t i = 0; i < count; ++i) {
    token = vt::null::NextToken(
        token, static_cast<int32_t>(prompt.size()) - 1 + static_cast<int32_t>(i), vocab);
    out.push_back(token);
  }
  return out;
}

// isa, prefix caching, KV tokens.
using NullCase = std::tuple<std::string, bool, int64_t>;
class NullEngineTest : public ::testing::TestWithParam<NullCase> {};

TEST_P(NullEngineTest, EveryRequestGetsItsOwnTokensWhateverRunsBeside) {
  const auto& [isa, caching, kv_tokens] = GetParam();
  engine::LoadOptions options = Options("null", isa);
  options.enable_prefix_caching = caching;
  options.max_model_len = 120;
  options.kv_cache_memory = kv_tokens / options.block_size * 2;  // two layers of a byte a block
  Collector sink;
  const auto engine = Load(options, sink);
  ASSERT_NE(engine, nullptr);
  const int64_t vocab = engine->vocabulary();
  std::mt19937 random(7);
  const std::vector<int32_t> shared = RandomIds(random, 60, vocab);
  struct Sent {
    RequestId id;
    std::vector<int32_t> prompt;
    int64_t max_tokens;
    bool cancelled;
  };
  std::vector<Sent> sent;
  for (int i = 0; i < 200; ++i) {
    // Some share a prefix, of any length.
    std::vector<int32_t> prompt(shared.begin(),
                                shared.begin() + static_cast<int64_t>(random() % 60));
    const auto tail = RandomIds(random, 1 + static_cast<int64_t>(random() % 20), vocab);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    const auto max_tokens = static_cast<int64_t>(1 + random() % 40);
    const auto id = engine->Submit(Greedy(prompt, max_tokens));
    ASSERT_TRUE(id.ok()) << id.error().message;
    const bool cancel = random() % 5 == 0;
    sent.push_back({*id, prompt, max_tokens, cancel});
    if (random() % 3 == 0) sink.WaitForTokens(sent[random() % sent.size()].id, random() % 5);
    if (cancel) engine->Cancel(*id, -1, true);
  }
  for (const Sent& s : sent) {
    const Answer a = sink.Wait(s.id);
    std::vector<int32_t> want = NullAnswer(s.prompt, s.max_tokens, vocab);
    if (a.finish == FinishReason::kAbort) {
      EXPECT_TRUE(s.cancelled);
      ASSERT_LE(a.tokens.size(), want.size());
      want.resize(a.tokens.size());
    } else {
      EXPECT_EQ(a.finish, FinishReason::kLength);
    }
    EXPECT_EQ(a.tokens, want);
  }
  engine->Drain(60);
  const engine::EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(sink.after_finish(), 0);
  EXPECT_GT(stats.steps_replayed, 0);
  EXPECT_EQ(stats.steps_eager.size(), 0u);
  EXPECT_EQ(stats.prefix_hits > 0, caching);
  EXPECT_EQ(stats.preemptions > 0, kv_tokens < 400);
}

INSTANTIATE_TEST_SUITE_P(All, NullEngineTest,
                         ::testing::Values(NullCase{"", true, 4000}, NullCase{"", false, 4000},
                                           NullCase{"", true, 240}, NullCase{"", false, 240},
                                           NullCase{"sync", true, 240},
                                           NullCase{"sync", false, 4000}),
                         [](const auto& p) {
                           return fmt::format(
                               "{}{}{}", std::get<0>(p.param).empty() ? "Ahead" : "Sync",
                               std::get<1>(p.param) ? "Cached" : "Uncached", std::get<2>(p.param));
                         });

TEST(Engine, EagerStepsSayWhy) {
  engine::LoadOptions options = Options("null");
  options.enforce_eager = true;
  Collector sink;
  const auto engine = Load(options, sink);
  sink.Wait(*engine->Submit(Greedy({1, 2, 3}, 4)));
  engine->Drain(10);
  const engine::EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.steps_replayed, 0);
  EXPECT_GE(stats.steps_eager.at("no graphs"), 4);
}

TEST(Engine, ADeviceErrorEndsEveryRequestAndRefusesNewOnes) {
  Collector sink;
  const auto engine = Load(Options("null", "fail=20"), sink);
  ASSERT_NE(engine, nullptr);
  for (int i = 0; i < 2; ++i) {
    const auto id = engine->Submit(Greedy({1, 2, 3}, 1000));
    if (!id.ok()) {  // it died before the second one came
      EXPECT_EQ(id.error().code, base::Code::kUnavailable);
      continue;
    }
    const Answer answer = sink.Wait(*id);
    EXPECT_EQ(answer.finish, FinishReason::kError);
    EXPECT_NE(answer.error.find("told to fail"), std::string::npos);
  }
  EXPECT_NE(sink.died().find("told to fail"), std::string::npos);
  const auto late = engine->Submit(Greedy({1}, 1));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, base::Code::kUnavailable);
  engine->Drain(10);  // returns
}

TEST(Engine, PromptLogprobsAndAnAnswerGoTogetherOneStepAhead) {
  Collector sink;
  const auto engine = Load(Options("null"), sink);
  ASSERT_NE(engine, nullptr);
  Request r = Greedy(std::vector<int32_t>(50, 9), 5);
  r.sampling.prompt_logprobs = 2;
  const Answer a = sink.Wait(*engine->Submit(r));
  EXPECT_EQ(a.prompt_logprobs.size(), 49u);
  EXPECT_EQ(a.tokens, NullAnswer(r.prompt, 5, engine->vocabulary()));
}

TEST(Engine, PriorityNeedsItsPolicy) {
  Collector sink;
  const auto engine = Load(Options("null"), sink);
  Request r = Greedy({1}, 1);
  r.priority = -1;
  const auto refused = engine->Submit(r);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--scheduling-policy priority"), std::string::npos);
  engine::LoadOptions options = Options("null");
  options.scheduling_policy = "priority";
  Collector other;
  const auto by_priority = Load(options, other);
  EXPECT_TRUE(by_priority->Submit(r).ok());
}

TEST(Engine, AFullQueueIsSaidAtOnce) {
  engine::LoadOptions options = Options("null");
  options.max_num_seqs = 1;
  options.max_queue_size = 3;
  Collector sink;
  const auto engine = Load(options, sink);
  int refused = 0;
  std::vector<RequestId> ids;
  for (int i = 0; i < 50; ++i) {
    const auto id = engine->Submit(Greedy({1, 2}, 100));
    if (id.ok()) {
      ids.push_back(*id);
      continue;
    }
    EXPECT_EQ(id.error().code, base::Code::kResourceExhausted);
    ++refused;
  }
  EXPECT_GT(refused, 0);
  for (const RequestId id : ids) EXPECT_EQ(sink.Wait(id).tokens.size(), 100u);
}

TEST(Engine, DrainFinishesWhatRunsAndAbortsWhatIsLate) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  const auto quick = engine->Submit(Greedy({1, 2}, 3));
  const auto endless = engine->Submit(Greedy({1, 2}, 100));
  engine->Drain(0);
  EXPECT_NE(sink.Wait(*quick).finish, FinishReason::kNone);
  EXPECT_NE(sink.Wait(*endless).finish, FinishReason::kNone);
  EXPECT_FALSE(engine->Submit(Greedy({1}, 1)).ok());
}

TEST(Engine, RefusesWhatCannotRunByName) {
  Collector sink;
  engine::LoadOptions options = Options("null");
  options.max_model_len = 64;
  const auto engine = Load(options, sink);
  const auto refused = [&](Request r, const std::string& part) {
    const auto id = engine->Submit(std::move(r));
    ASSERT_FALSE(id.ok()) << part;
    EXPECT_EQ(id.error().code, base::Code::kInvalidArgument);
    EXPECT_NE(id.error().message.find(part), std::string::npos) << id.error().message;
  };
  refused(Greedy({}, 1), "empty");
  refused(Greedy({-1}, 1), "vocabulary");
  refused(Greedy({static_cast<int32_t>(engine->vocabulary())}, 1), "vocabulary");
  refused(Greedy(std::vector<int32_t>(64, 1), 1), "64 tokens");
  Request nan = Greedy({1}, 1);
  nan.sampling.temperature = NAN;
  refused(nan, "temperature");
  Request many = Greedy({1}, 1);
  many.sampling.n = 100000;
  refused(many, "n must");
}

TEST(Engine, AModelThatDoesNotFitIsRefusedBeforeItIsLoaded) {
  Collector sink;
  engine::LoadOptions options = Options("null", "memory=200000");
  const auto engine = Engine::Load(options, sink);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, base::Code::kResourceExhausted);
}

TEST(Engine, ALengthOverTheKvCacheIsRefusedWithTheLargestThatFits) {
  Collector sink;
  engine::LoadOptions options = Options("null");
  options.kv_cache_memory = 20;  // ten blocks of four tokens
  options.max_model_len = 41;
  const auto refused = Engine::Load(options, sink);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("is 40 tokens"), std::string::npos)
      << refused.error().message;
  options.max_model_len = 0;
  const auto lowered = Engine::Load(options, sink);
  ASSERT_TRUE(lowered.ok()) << lowered.error().message;
  EXPECT_EQ((*lowered)->options().max_model_len, 40);
}

TEST(Engine, PoolsEmbeddingsAsTheModelsFilesSay) {
  namespace fs = std::filesystem;
  const engine::LoadOptions plain = Options("null");
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("pooling_{}", ::getpid());
  fs::create_directories(folder / "1_Pooling");
  for (const auto& entry : fs::directory_iterator(plain.model)) {
    fs::copy(entry.path(), folder / entry.path().filename());
  }
  engine::LoadOptions options = plain;
  options.model = folder;
  const auto with = [&](const std::string& json) {
    std::ofstream(folder / "1_Pooling/config.json") << json;
    Collector sink;
    auto engine = Engine::Load(options, sink);
    return engine ? fmt::format("{}", static_cast<int>((*engine)->pooling()))
                  : engine.error().message;
  };
  EXPECT_EQ(with(R"({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": true})"), "1");
  EXPECT_EQ(with(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})"), "2");
  EXPECT_EQ(with(R"({"pooling_mode_lasttoken": true})"), "0");
  EXPECT_NE(with(R"({"pooling_mode_max_tokens": true})").find("'max_tokens'"), std::string::npos);
  EXPECT_EQ(with(R"({"pooling_mode": "mean"})"), "1");
  EXPECT_EQ(with(R"({"pooling_mode": "cls"})"), "2");
  EXPECT_EQ(with(R"({"pooling_mode_mean_tokens": true, "pooling_mode": "lasttoken"})"), "0");
  EXPECT_NE(with(R"({"pooling_mode": "max"})").find("'max'"), std::string::npos);
  EXPECT_NE(with(R"({"pooling_mode": 3})").find("pooling"), std::string::npos);
  EXPECT_NE(
      with(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})").find("several"),
      std::string::npos);
  EXPECT_NE(with("[1, ").find("config.json"), std::string::npos);
  fs::remove_all(folder);
}

// --- on the CPU

class CpuEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine::LoadOptions options = CpuOptions();
    options.score_prompts = true;
    options.max_num_seqs = 1;
    auto llm = engine::Llm::Load(options);
    ASSERT_TRUE(llm.ok()) << llm.error().message;
    llm_ = *std::move(llm);
  }
  virtual engine::LoadOptions CpuOptions() const { return Options("cpu"); }
  // With memory for a few of them at a time; returns how many were pre-empted.
  int64_t MixedRequests(int64_t kv_memory);
  // Log-probabilities of `answer` after `prompt`, computed in one piece, and at each place how far
  // the best is ahead of the second.
  struct Scored {
    std::vector<float> logprobs;
    std::vector<int32_t> best;
    std::vector<float> margin;
  };
  Scored Score(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
    std::vector<int32_t> ids = prompt;
    ids.insert(ids.end(), answer.begin(), answer.end());
    Scored out;
    const auto done = llm_->Score(ids, [&](int64_t position, std::span<const float> row) {
      const auto next = static_cast<size_t>(position + 1);
      if (next < prompt.size() || next >= ids.size()) return;
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x));
      out.logprobs.push_back(
          static_cast<float>(row[static_cast<size_t>(ids[next])] - std::log(sum)));
      size_t best = 0;
      for (size_t i = 1; i < row.size(); ++i) {
        if (row[i] > row[best]) best = i;
      }
      float second = -INFINITY;
      for (size_t i = 0; i < row.size(); ++i) {
        if (i != best) second = std::max(second, row[i]);
      }
      out.best.push_back(static_cast<int32_t>(best));
      out.margin.push_back(row[best] - second);
    });
    EXPECT_TRUE(done.ok()) << done.error().message;
    return out;
  }

  // How many tokens were compared with those of the request alone.
  int CompareAlone(const std::vector<int32_t>& prompt, const Answer& a) {
    EXPECT_EQ(a.logprobs.size(), a.tokens.size());
    const Scored alone = Score(prompt, a.tokens);
    for (size_t i = 0; i < a.tokens.size(); ++i) {
      EXPECT_NEAR(a.logprobs[i], alone.logprobs[i], 1e-3) << i;
      if (alone.margin[i] > 1e-3) EXPECT_EQ(a.tokens[i], alone.best[i]) << i;
    }
    return static_cast<int>(a.tokens.size());
  }

  std::unique_ptr<engine::Llm> llm_;
};

// The design's rule of equality (b): across batches and chunkings, log-probabilities to 1e-3 in
// f32.
int64_t CpuEngineTest::MixedRequests(int64_t kv_memory) {
  int64_t preemptions = 0;
  for (const bool caching : {true, false}) {
    engine::LoadOptions options = CpuOptions();
    options.enable_prefix_caching = caching;
    options.max_model_len = 128;
    options.kv_cache_memory = kv_memory;
    Collector sink;
    const auto engine = Load(options, sink);
    if (engine == nullptr) return 0;
    std::mt19937 random(11);
    const std::vector<int32_t> shared = RandomIds(random, 50, engine->vocabulary());
    std::vector<std::pair<RequestId, Request>> sent;
    for (int i = 0; i < 64; ++i) {
      std::vector<int32_t> prompt;
      if (i % 2 == 0)
        prompt.assign(shared.begin(), shared.begin() + static_cast<int64_t>(random() % 50));
      const auto tail =
          RandomIds(random, 1 + static_cast<int64_t>(random() % 40), engine->vocabulary());
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      Request r = Greedy(prompt, static_cast<int64_t>(1 + random() % 30));
      r.sampling.logprobs = 0;
      const auto id = engine->Submit(r);
      EXPECT_TRUE(id.ok()) << id.error().message;
      if (!id) return 0;
      sent.emplace_back(*id, r);
      if (i % 3 == 0) sink.WaitForTokens(*id, random() % 3);
      if (i % 9 == 8) engine->Cancel(sent[random() % sent.size()].first, -1, true);
    }
    int compared = 0;
    for (const auto& [id, request] : sent) {
      compared += CompareAlone(request.prompt, sink.Wait(id));
    }
    EXPECT_GT(compared, 500);
    engine->Drain(60);
    const engine::EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.window_blocks_used, 0);
    EXPECT_EQ(stats.prefix_hits > 0, caching);
    preemptions += stats.preemptions;
  }
  return preemptions;
}

// Fifty blocks of four tokens in f32.
TEST_F(CpuEngineTest, MixedRequestsEqualEachAlone) { EXPECT_GT(MixedRequests(50 * 5120), 0); }

// One vector of 24 + 8 numbers a token, in each of two layers.
class CpuLatentTest : public CpuEngineTest {
 protected:
  engine::LoadOptions CpuOptions() const override {
    engine::LoadOptions o = Options("cpu");
    o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/deepseek_v2";
    return o;
  }
};

TEST_F(CpuLatentTest, MixedRequestsEqualEachAlone) {
  EXPECT_GT(MixedRequests(50 * 4 * 2 * (24 + 8) * 4), 0);
}

// Families with windows of seven to twelve tokens, whose blocks are given back. The reference has
// room for all of them, so it never does.
class CpuWindowTest : public CpuEngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    CpuEngineTest::SetUp();
    for (const vt::ir::StateGroup& g : llm_->graph().state_groups) {
      if (g.kind == vt::ir::StateGroup::Kind::kSlot) continue;
      (g.window > 0 ? window_bytes_ : bytes_) +=
          g.layers * llm_->backend().StateBlockBytes(g, llm_->options().block_size);
    }
    ASSERT_GT(window_bytes_, 0);
    std::vector<int64_t> block_bytes;
    for (const vt::ir::StateGroup& g : llm_->graph().state_groups)
      block_bytes.push_back(llm_->backend().StateBlockBytes(g, llm_->options().block_size));
    layout_ = engine::LayOutKv(llm_->graph().state_groups, block_bytes);
    const std::set<std::string> paged = {"gemma3", "gemma4", "gpt_oss", "llama4"};
    EXPECT_EQ(layout_.paged(), paged.contains(GetParam()));
  }
  // Of so many blocks, and so many with windows.
  int64_t Memory(int64_t blocks, int64_t window_blocks) const {
    if (!layout_.paged()) return blocks * bytes_ + window_blocks * window_bytes_;
    const int64_t n = layout_.page_blocks;
    return ((blocks + n - 1) / n + window_blocks) * layout_.page_bytes();
  }
  engine::LoadOptions CpuOptions() const override {
    engine::LoadOptions o = Options("cpu");
    o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/" + GetParam();
    o.max_model_len = 256;
    if (llm_ == nullptr) o.max_num_batched_tokens = 256;  // of the reference
    return o;
  }

  int64_t bytes_ = 0, window_bytes_ = 0;  // of a block
  engine::KvLayout layout_;
};

TEST_P(CpuWindowTest, ALongRequestNeedsNoMoreThanItsWindow) {
  for (const bool caching : {true, false}) {
    engine::LoadOptions options = CpuOptions();
    options.enable_prefix_caching = caching;
    options.max_num_seqs = 2;
    // All of one request, and of windows the 12 blocks of 11 tokens and a step's 32, across an
    // edge.
    options.kv_cache_memory = Memory(64, 12);
    Collector sink;
    const auto engine = Load(options, sink);
    ASSERT_NE(engine, nullptr);
    EXPECT_LE(engine->Stats().window_blocks, 12);
    EXPECT_EQ(engine->Stats().window_blocks == 0, layout_.paged());
    std::mt19937 random(5);
    const std::vector<int32_t> prompt = RandomIds(random, 150, engine->vocabulary());
    for (int turn = 0; turn < 2; ++turn) {
      Request r = Greedy(prompt, 100);
      r.sampling.logprobs = 0;
      EXPECT_EQ(CompareAlone(prompt, sink.Wait(*engine->Submit(r))), 100);
    }
    engine->Drain(60);
    const engine::EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.preemptions, 0);
    EXPECT_EQ(stats.window_blocks_used, 0);
  }
}

TEST_P(CpuWindowTest, RequestsWhoseWindowsGrowArePreempted) {
  for (const bool caching : {true, false}) {
    engine::LoadOptions options = CpuOptions();
    options.enable_prefix_caching = caching;
    options.kv_cache_memory = Memory(64, 12);
    Collector sink;
    const auto engine = Load(options, sink);
    ASSERT_NE(engine, nullptr);
    std::mt19937 random(6);
    std::vector<std::pair<RequestId, std::vector<int32_t>>> sent;
    for (int i = 0; i < 12; ++i) {
      Request r = Greedy(RandomIds(random, 1 + i % 3, engine->vocabulary()), 40);
      r.sampling.logprobs = 0;
      sent.emplace_back(*engine->Submit(r), r.prompt);
    }
    for (const auto& [id, prompt] : sent) EXPECT_EQ(CompareAlone(prompt, sink.Wait(id)), 40);
    engine->Drain(60);
    EXPECT_GT(engine->Stats().preemptions, 0);
    EXPECT_EQ(engine->Stats().window_blocks_used, 0);
  }
}

TEST_P(CpuWindowTest, MixedRequestsEqualEachAlone) { MixedRequests(Memory(50, 25)); }

INSTANTIATE_TEST_SUITE_P(Families, CpuWindowTest,
                         ::testing::Values("gemma3", "gemma4", "gpt_oss", "llama4",
                                           "mistral_window", "mixtral", "deepseek_v4",
                                           "deepseek_v4_wide"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(CpuEngineTest, PromptLogprobsAreThoseOfOnePass) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  std::mt19937 random(3);
  const std::vector<int32_t> ids = RandomIds(random, 90, engine->vocabulary());
  Request r = Greedy(ids, 0);
  r.sampling.prompt_logprobs = 3;
  const Answer a = sink.Wait(*engine->Submit(r));
  EXPECT_TRUE(a.tokens.empty());
  ASSERT_EQ(a.prompt_logprobs.size(), ids.size() - 1);
  const Scored want = Score({ids[0]}, {ids.begin() + 1, ids.end()});
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const engine::TokenLogprobs& l = a.prompt_logprobs[i];
    EXPECT_EQ(l.token, ids[i + 1]);
    EXPECT_NEAR(l.logprob, want.logprobs[i], 1e-4);
    ASSERT_EQ(l.top.size(), 3u);
    EXPECT_GE(l.top[0].second, l.top[1].second);
    EXPECT_EQ(l.rank == 1, l.top[0].first == l.token);
  }
}

TEST_F(CpuEngineTest, ASeededRequestDoesNotDependOnItsNeighbours) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  Request r = Greedy({5, 6, 7}, 20);
  r.sampling.temperature = 1;
  r.sampling.seed = 42;
  const Answer alone = sink.Wait(*engine->Submit(r));
  ASSERT_EQ(alone.tokens.size(), 20u);
  std::vector<RequestId> others;
  for (int i = 0; i < 12; ++i) {
    Request o = r;
    if (i % 2 == 0) {
      o.sampling.seed.reset();
    } else {
      o.sampling.seed = 100 + i;
    }
    others.push_back(*engine->Submit(o));
  }
  const Answer together = sink.Wait(*engine->Submit(r));
  EXPECT_EQ(together.tokens, alone.tokens);
  std::set<std::vector<int32_t>> different;
  for (const RequestId id : others) different.insert(sink.Wait(id).tokens);
  EXPECT_GT(different.size(), 8u);
}

TEST_F(CpuEngineTest, ChoicesOfOneSeedDifferAndRepeat) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  Request r = Greedy({5, 6, 7, 8, 9}, 12);
  r.sampling.temperature = 1;
  r.sampling.seed = 1;
  r.sampling.n = 3;
  const RequestId first = *engine->Submit(r), second = *engine->Submit(r);
  std::set<std::vector<int32_t>> different;
  for (int32_t c = 0; c < 3; ++c) {
    const Answer a = sink.Wait(first, c), b = sink.Wait(second, c);
    EXPECT_EQ(a.tokens, b.tokens);
    different.insert(a.tokens);
  }
  EXPECT_EQ(different.size(), 3u);
}

TEST_F(CpuEngineTest, BiasBansMinimumAndStopsTakeEffect) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  const Request plain = Greedy({5, 6, 7}, 10);
  const Answer free = sink.Wait(*engine->Submit(plain));
  ASSERT_EQ(free.tokens.size(), 10u);
  Request bias = plain;
  bias.sampling.logit_bias = {{free.tokens[0], -100.0f}};
  EXPECT_NE(sink.Wait(*engine->Submit(bias)).tokens[0], free.tokens[0]);
  Request only = plain;
  only.sampling.allowed_token_ids = {11, 12};
  for (const int32_t t : sink.Wait(*engine->Submit(only)).tokens) EXPECT_TRUE(t == 11 || t == 12);
  Request stop = plain;
  stop.sampling.stop_token_ids = {free.tokens[0]};
  const Answer stopped = sink.Wait(*engine->Submit(stop));
  EXPECT_EQ(stopped.tokens.size(), 1u);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  stop.sampling.min_tokens = 4;
  const Answer later = sink.Wait(*engine->Submit(stop));
  EXPECT_GE(later.tokens.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(later.tokens[i], free.tokens[0]);
  // With a strong penalty nothing that was said, asked or answered, is said again.
  Request once = plain;
  once.sampling.presence_penalty = 2;
  once.sampling.logit_bias = {};
  once.sampling.repetition_penalty = 1e6f;
  const Answer varied = sink.Wait(*engine->Submit(once));
  std::set<int32_t> seen(plain.prompt.begin(), plain.prompt.end());
  int repeats = 0;
  for (const int32_t t : varied.tokens) repeats += seen.insert(t).second ? 0 : 1;
  EXPECT_EQ(repeats, 0);
}

TEST_F(CpuEngineTest, EmbeddingsDoNotDependOnPiecesOrNeighbours) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  std::mt19937 random(5);
  const std::vector<int32_t> ids = RandomIds(random, 100, engine->vocabulary());
  for (const engine::Pooling pooling :
       {engine::Pooling::kLast, engine::Pooling::kMean, engine::Pooling::kFirst}) {
    Request r;
    r.kind = Request::Kind::kEmbed;
    r.pooling = pooling;
    r.prompt = ids;
    const Answer alone = sink.Wait(*engine->Submit(r));
    ASSERT_EQ(static_cast<int64_t>(alone.embedding.size()), engine->hidden_size());
    std::vector<RequestId> beside;
    for (int i = 0; i < 10; ++i) beside.push_back(*engine->Submit(Greedy({1, 2, i}, 20)));
    Request other = r;
    other.prompt.resize(7);
    const RequestId shorter = *engine->Submit(other);
    const Answer together = sink.Wait(*engine->Submit(r));
    for (size_t i = 0; i < alone.embedding.size(); ++i) {
      EXPECT_NEAR(together.embedding[i], alone.embedding[i], 1e-4);
    }
    const Answer part = sink.Wait(shorter);
    EXPECT_EQ(part.embedding == alone.embedding, pooling == engine::Pooling::kFirst);
    for (const RequestId id : beside) EXPECT_EQ(sink.Wait(id).tokens.size(), 20u);
  }
}

}  // namespace
}  // namespace vllm
