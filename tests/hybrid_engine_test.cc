// Models with recurrent layers under many requests: on the null device, whose tokens depend on all
// tokens before and which refuses a state that is not the right one, and on the CPU against each
// request alone.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/strings.h"
#include "tests/engine_sink.h"
#include "vllm/engine/engine.h"
#include "vllm/engine/engine_stats.h"
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
using Ids = std::vector<int32_t>;

engine::LoadOptions Options(const std::string& device, const std::string& isa = "") {
  engine::LoadOptions o;
  o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/qwen3_next";
  o.device = device;
  o.isa = isa;
  o.threads = 2;
  o.dtype = "float32";
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 80;
  o.block_size = 4;
  o.mamba_block_size = 64;
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

std::string LoadError(const engine::LoadOptions& options) {
  Collector sink;
  const auto e = Engine::Load(options, sink);
  return e ? "" : e.error().message;
}

Request Greedy(Ids prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 0;
  return r;
}

Ids RandomIds(std::mt19937& random, int64_t count, int64_t vocabulary) {
  Ids ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  return ids;
}

Ids Joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Ids NullAnswer(const Ids& prompt, int64_t count, int64_t vocabulary) {
  int32_t state = 0;
  for (const int32_t id : prompt) state = vt::null::Fold(state, id);
  Ids out;
  auto position = static_cast<int32_t>(prompt.size()) - 1;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(vt::null::NextToken(state, position++, vocabulary));
    state = vt::null::Fold(state, out.back());
  }
  return out;
}

// isa, snapshots (0: prefixes are not cached), KV tokens.
using NullCase = std::tuple<std::string, int64_t, int64_t>;
class NullHybridTest : public ::testing::TestWithParam<NullCase> {};

TEST_P(NullHybridTest, EveryRequestGoesOnFromItsOwnState) {
  const auto& [isa, snapshots, kv_tokens] = GetParam();
  engine::LoadOptions options = Options("null", isa);
  options.mamba_snapshots = snapshots;
  options.max_model_len = 200;
  options.kv_cache_memory = kv_tokens / options.block_size * 2;  // two layers of a byte a block
  Collector sink;
  const auto engine = Load(options, sink);
  ASSERT_NE(engine, nullptr);
  const int64_t vocabulary = engine->vocabulary();
  std::mt19937 random(7);
  const Ids shared = RandomIds(random, 130, vocabulary);
  struct Sent {
    RequestId id;
    Ids prompt;
    int64_t max_tokens;
    bool cancelled;
  };
  std::vector<Sent> sent;
  for (int i = 0; i < 200; ++i) {
    Ids prompt(shared.begin(), shared.begin() + static_cast<int64_t>(random() % 130));
    prompt = Joined(prompt, RandomIds(random, 1 + static_cast<int64_t>(random() % 20), vocabulary));
    if (i % 7 == 6) {  // a conversation goes on
      const Sent& before = sent[random() % sent.size()];
      const Answer turn = sink.Wait(before.id);
      prompt = Joined(Joined(before.prompt, turn.tokens), {1, 2, 3});
      prompt.resize(std::min<size_t>(prompt.size(), 150));
    }
    const auto max_tokens = static_cast<int64_t>(1 + random() % 40);
    Request request = Greedy(prompt, max_tokens);
    request.sampling.n = i % 10 == 3 ? 2 : 1;
    const auto id = engine->Submit(request);
    ASSERT_TRUE(id.ok()) << id.error().message;
    const bool cancel = random() % 5 == 0;
    sent.push_back({*id, prompt, max_tokens, cancel});
    if (random() % 3 == 0) sink.WaitForTokens(sent[random() % sent.size()].id, random() % 5);
    if (cancel) engine->Cancel(*id, -1, true);
  }
  for (const Sent& s : sent) {
    const Answer a = sink.Wait(s.id);
    Ids want = NullAnswer(s.prompt, s.max_tokens, vocabulary);
    if (a.finish == FinishReason::kAbort) {
      EXPECT_TRUE(s.cancelled);
      ASSERT_LE(a.tokens.size(), want.size());
      want.resize(a.tokens.size());
    } else {
      ASSERT_EQ(a.finish, FinishReason::kLength) << a.error;
    }
    EXPECT_EQ(a.tokens, want);
  }
  engine->Drain(60);
  const engine::EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.snapshots, snapshots);
  EXPECT_EQ(stats.snapshots_held, 0);
  EXPECT_LE(stats.snapshots_used, snapshots);
  EXPECT_EQ(stats.snapshots_used > 0, snapshots > 0);
  EXPECT_EQ(stats.snapshot_hits > 0, snapshots > 0);
  EXPECT_EQ(stats.prefix_hits > 0, snapshots > 0);
  EXPECT_EQ(stats.preemptions > 0, kv_tokens < 1000);
  EXPECT_GT(stats.steps_replayed, 0);
  EXPECT_EQ(stats.steps_eager.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, NullHybridTest,
                         ::testing::Values(NullCase{"", 40, 8000}, NullCase{"", 0, 8000},
                                           NullCase{"", 2, 400}, NullCase{"", 100, 400},
                                           NullCase{"", 0, 400}, NullCase{"sync", 10, 400}),
                         [](const auto& p) {
                           return fmt::format("{}{}Snapshots{}",
                                              std::get<0>(p.param).empty() ? "Ahead" : "Sync",
                                              std::get<1>(p.param), std::get<2>(p.param));
                         });

TEST(Hybrid, SlotsAndSnapshotsAreInTheSum) {
  engine::LoadOptions options = Options("null", "memory=3000000");
  options.max_model_len = 100;
  options.max_num_seqs = 200;
  const std::string refused = LoadError(options);
  // Two layers of a filter's state, [3, 160], and of [4, 16, 24], in f32.
  EXPECT_NE(refused.find("of recurrent state (200 slots of 15.75 KiB)"), std::string::npos)
      << refused;
  EXPECT_NE(refused.find("(--max-num-seqs)"), std::string::npos) << refused;
  Collector sink;
  options.max_num_seqs = 0;  // as many as fit
  const auto engine = Load(options, sink);
  ASSERT_NE(engine, nullptr);
  EXPECT_GT(engine->options().max_num_seqs, 1);
  EXPECT_LT(engine->options().max_num_seqs, 64);
  EXPECT_GT(engine->Stats().snapshots, 1);
  EXPECT_NE(engine->memory_summary().find("snapshots, 15.75 KiB each"), std::string::npos)
      << engine->memory_summary();
}

TEST(Hybrid, FlagsOfSnapshotsAreCheckedAndNeedRecurrentLayers) {
  engine::LoadOptions options = Options("null");
  options.mamba_block_size = 100;
  EXPECT_NE(LoadError(options).find("--mamba-block-size is 100, but must be a multiple of 64"),
            std::string::npos);
  options.mamba_block_size = 64;
  options.enable_prefix_caching = false;
  EXPECT_NE(LoadError(options).find("has no effect without prefix caching"), std::string::npos);
  options = Options("null");
  options.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/llama_tied";
  EXPECT_NE(LoadError(options).find("no recurrent layers"), std::string::npos);
  options.mamba_block_size = 0;
  EXPECT_EQ(LoadError(options), "");
}

// --- on the CPU

class CpuHybridTest : public ::testing::Test {
 protected:
  // Log-probabilities of `answer` after `prompt`, computed in one piece.
  std::vector<float> Score(const Ids& prompt, const Ids& answer) {
    if (llm_ == nullptr) {
      engine::LoadOptions options = Options("cpu");
      options.score_prompts = true;
      options.max_num_seqs = 1;
      auto llm = engine::Llm::Load(options);
      if (!llm) {
        ADD_FAILURE() << llm.error().message;
        return {};
      }
      llm_ = *std::move(llm);
    }
    const Ids ids = Joined(prompt, answer);
    std::vector<float> out;
    const auto done = llm_->Score(ids, [&](int64_t position, std::span<const float> row) {
      const auto next = static_cast<size_t>(position + 1);
      if (next < prompt.size() || next >= ids.size()) return;
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x));
      out.push_back(static_cast<float>(row[static_cast<size_t>(ids[next])] - std::log(sum)));
    });
    EXPECT_TRUE(done.ok()) << done.error().message;
    return out;
  }

  std::unique_ptr<engine::Llm> llm_;
};

// The design's rule of equality (b).
TEST_F(CpuHybridTest, MixedRequestsEqualEachAlone) {
  for (const bool caching : {true, false}) {
    engine::LoadOptions options = Options("cpu");
    options.enable_prefix_caching = caching;
    if (!caching) options.mamba_block_size = 0;
    options.max_model_len = 200;
    options.kv_cache_memory = 60 * 10240;  // blocks of four tokens: some are pre-empted
    Collector sink;
    const auto engine = Load(options, sink);
    ASSERT_NE(engine, nullptr);
    std::mt19937 random(11);
    const Ids shared = RandomIds(random, 130, engine->vocabulary());
    std::vector<std::pair<RequestId, Request>> sent;
    for (int i = 0; i < 40; ++i) {
      Ids prompt;
      if (i % 2 == 0)
        prompt.assign(shared.begin(), shared.begin() + static_cast<int64_t>(random() % 130));
      prompt = Joined(
          prompt, RandomIds(random, 1 + static_cast<int64_t>(random() % 40), engine->vocabulary()));
      const Request r = Greedy(prompt, static_cast<int64_t>(1 + random() % 25));
      const auto id = engine->Submit(r);
      ASSERT_TRUE(id.ok()) << id.error().message;
      sent.emplace_back(*id, r);
      if (i % 3 == 0) sink.WaitForTokens(*id, random() % 3);
      if (i % 9 == 8) engine->Cancel(sent[random() % sent.size()].first, -1, true);
    }
    size_t compared = 0;
    for (const auto& [id, request] : sent) {
      const Answer a = sink.Wait(id);
      ASSERT_EQ(a.logprobs.size(), a.tokens.size()) << a.error;
      const std::vector<float> alone = Score(request.prompt, a.tokens);
      ASSERT_EQ(alone.size(), a.tokens.size());
      for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(a.logprobs[i], alone[i], 1e-3);
      compared += alone.size();
    }
    EXPECT_GT(compared, 250u);
    engine->Drain(60);
    const engine::EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.snapshots_held, 0);
    EXPECT_GT(stats.preemptions, 0);
    EXPECT_EQ(stats.snapshot_hits > 0, caching);
  }
}

// Regenerate, edit a turn, go back to the first: each as on a fresh engine, and with what is shared
// not computed again.
TEST_F(CpuHybridTest, TurnsThatAreEditedEqualAFreshEngine) {
  const auto load = [](bool caching, Collector& sink) {
    engine::LoadOptions options = Options("cpu");
    options.enable_prefix_caching = caching;
    if (!caching) options.mamba_block_size = 0;
    options.max_num_seqs = 1;
    return Load(options, sink);
  };
  Collector sink;
  const auto engine = load(true, sink);
  ASSERT_NE(engine, nullptr);
  std::mt19937 random(5);
  const auto some = [&](int64_t count) { return RandomIds(random, count, engine->vocabulary()); };
  const auto ask = [](Engine& e, Collector& to, const Ids& prompt) {
    const auto id = e.Submit(Greedy(prompt, 12));
    EXPECT_TRUE(id.ok());
    return to.Wait(*id);
  };
  const Ids first = some(70);
  const Answer turn = ask(*engine, sink, first);
  EXPECT_EQ(turn.cached_tokens, 0);
  const Ids second = Joined(Joined(first, turn.tokens), some(9));
  const Ids edited = Joined(Joined(first, turn.tokens), some(11));
  struct Case {
    const char* what;
    Ids prompt;
    int64_t cached;
  };
  const Case cases[] = {
      {"second turn", second, 80},  // 70 + 11 tokens had been computed: the answer's last block
      {"regenerated", second, 88},  // of 91: the prompt's last block
      {"edited", edited, 80},       //
      {"the first alone", first, 68}, {"longer than a step", Joined(second, some(100)), 100},
  };
  for (const Case& c : cases) {
    const Answer got = ask(*engine, sink, c.prompt);
    if (std::string(c.what) != "longer than a step") {
      EXPECT_EQ(got.cached_tokens, c.cached) << c.what;
    }
    for (const bool caching : {true, false}) {
      Collector other;
      const auto fresh = load(caching, other);
      ASSERT_NE(fresh, nullptr);
      const Answer want = ask(*fresh, other, c.prompt);
      ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
      // Up to the first near tie that rounding may turn.
      for (size_t i = 0;
           i < want.tokens.size() && (i == 0 || got.tokens[i - 1] == want.tokens[i - 1]); ++i) {
        EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 1e-3) << c.what;
      }
    }
  }
  // With the same cuts of the prompt, bit for bit: the same last piece from the same state.
  const Ids prompt = some(87);
  const Answer once = ask(*engine, sink, prompt), again = ask(*engine, sink, prompt);
  EXPECT_EQ(again.cached_tokens, 84);
  EXPECT_EQ(once.tokens, again.tokens);
  EXPECT_EQ(once.logprobs, again.logprobs);
}

// What a slot held before must not be seen.
TEST_F(CpuHybridTest, ASlotUsedAgainIsAsIfNew) {
  engine::LoadOptions options = Options("cpu");
  options.max_num_seqs = 1;
  options.mamba_block_size = 0;
  options.enable_prefix_caching = false;
  Collector sink, other;
  const auto used = Load(options, sink), fresh = Load(options, other);
  ASSERT_NE(used, nullptr);
  std::mt19937 random(9);
  for (int i = 0; i < 3; ++i) {
    sink.Wait(*used->Submit(Greedy(RandomIds(random, 30, used->vocabulary()), 5)));
  }
  const Ids prompt = RandomIds(random, 20, used->vocabulary());
  const Answer got = sink.Wait(*used->Submit(Greedy(prompt, 20)));
  const Answer want = other.Wait(*fresh->Submit(Greedy(prompt, 20)));
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

TEST_F(CpuHybridTest, EmbeddingsDoNotDependOnPiecesOrNeighbours) {
  Collector sink;
  const auto engine = Load(Options("cpu"), sink);
  ASSERT_NE(engine, nullptr);
  std::mt19937 random(5);
  const Ids ids = RandomIds(random, 150, engine->vocabulary());
  for (const engine::Pooling pooling : {engine::Pooling::kLast, engine::Pooling::kMean}) {
    Request r;
    r.kind = Request::Kind::kEmbed;
    r.pooling = pooling;
    r.prompt = ids;
    const Answer alone = sink.Wait(*engine->Submit(r));
    ASSERT_EQ(static_cast<int64_t>(alone.embedding.size()), engine->hidden_size());
    std::vector<RequestId> beside;
    for (int i = 0; i < 6; ++i) beside.push_back(*engine->Submit(Greedy({1, 2, i}, 20)));
    const Answer together = sink.Wait(*engine->Submit(r));
    for (size_t i = 0; i < alone.embedding.size(); ++i) {
      EXPECT_NEAR(together.embedding[i], alone.embedding[i], 1e-3);
    }
    for (const RequestId id : beside) EXPECT_EQ(sink.Wait(id).tokens.size(), 20u);
  }
}

}  // namespace
}  // namespace vllm
