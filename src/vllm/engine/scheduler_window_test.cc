// Random requests in little memory, of models whose layers have windows: what a simulated device
// reads through the tables of each step is what the request alone would have written.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>

#include "vllm/engine/scheduler.h"

namespace vllm::engine {
namespace {

constexpr int32_t kEnd = 7;

struct Quiet : SchedulerObserver {
  void OnToken(const Sequence&, double) override {}
  void OnFinish(const Sequence&, FinishReason, double) override {}
};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t h = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
  h ^= h >> 31;
  return h * 0x94D049BB133111EBu;
}

// The token that choice `choice` draws behind a text of this hash: now and then the end.
int32_t Draw(uint64_t text, int32_t choice) {
  const uint64_t h = Mix(text, static_cast<uint64_t>(choice)) >> 33;
  return h % 60 == 0 ? kEnd : static_cast<int32_t>(10 + h % 50);
}

// The one number of a token's hidden state.
float Hidden(uint64_t text) { return static_cast<float>(text % 1000); }

struct Shape {
  int64_t block = 4, window = 6, blocks = 64, window_blocks = 16, longest = 128;
  int64_t sequences = 4, step = 16;
  // Of layers without windows, in a page that holds one of the others instead; 0: there are no
  // pages, else `blocks` of them.
  int64_t page = 0;
  int64_t snapshots = -1;  // of recurrent layers; -1: there are none
  int64_t per_page() const { return std::max<int64_t>(page, 1); }
  bool caching = true, priority = false;
};

// A cell holds the hash of all tokens up to its own; a token's is made from the cell before it. In
// pages a block with windows has as many cells of each token as the others have blocks there.
class Device {
 public:
  explicit Device(const Shape& shape)
      : shape_(shape),
        cells_(static_cast<size_t>(shape.blocks * shape.per_page() * shape.block)),
        window_cells_(static_cast<size_t>(shape.window_blocks * shape.block)),
        slots_(static_cast<size_t>(shape.sequences)),
        states_(static_cast<size_t>(shape.sequences + std::max<int64_t>(shape.snapshots, 0))),
        tables_(static_cast<size_t>(shape.sequences)) {}

  StepResult Run(const ScheduledStep& step) {
    StepResult result;
    result.outputs = step.outputs;
    for (size_t r = 0; r < step.rows.size(); ++r) {
      const Scheduled& row = step.rows[r];
      const Sequence& s = *row.sequence;
      const Table& table = Copy(tables_[r], s);
      if (shape_.snapshots >= 0) {
        const uint64_t state =
            row.state_read < 0 ? 0 : states_[static_cast<size_t>(row.state_read)];
        if (state != (row.start == 0 ? 0 : cells_[At(s.blocks, row.start - 1)])) ++wrong_;
      }
      for (int64_t p = row.start; p < row.start + row.count; ++p) {
        const int32_t token =
            p < s.size() ? s.tokens[static_cast<size_t>(p)] : slots_[static_cast<size_t>(s.slot)];
        const uint64_t before = p == 0 ? 0 : cells_[At(s.blocks, p - 1)];
        const uint64_t now = Mix(before, static_cast<uint64_t>(token));
        cells_[At(s.blocks, p)] = now;
        for (int64_t layer = 0; layer < shape_.per_page() && shape_.window > 0; ++layer)
          WindowCell(s.window.blocks, p, layer) = Written(now, layer);
        Look(table, p);
        const bool last = p + 1 == row.start + row.count;
        if (last && shape_.snapshots >= 0) states_[static_cast<size_t>(row.state_write)] = now;
        if (row.outputs == StepRow::Outputs::kNone) continue;
        if (row.outputs == StepRow::Outputs::kLast && !last) continue;
        if (step.embeds) {
          result.values.push_back(Hidden(now));
          continue;
        }
        const int32_t drawn = Draw(cells_[At(table.blocks, p)], s.choice);
        result.tokens.push_back(drawn);
        result.logprobs.resize(result.tokens.size() * vt::ir::kLogprobValues, -1);
        result.best_ids.resize(result.tokens.size() * vt::ir::kBestTokens, -1);
        if (last && row.samples) slots_[static_cast<size_t>(s.slot)] = drawn;
      }
    }
    return result;
  }
  int64_t wrong() const { return wrong_; }

 private:
  struct Table {
    uint64_t name = 0;
    std::array<size_t, 2> known{};
    std::vector<int32_t> blocks, window;
  };

  // As StepRunner does: what stands there from the last step is not copied again.
  const Table& Copy(Table& there, const Sequence& s) {
    if (there.name != s.table) there.known = {};
    there.name = s.table;
    const auto copy = [](const std::vector<int32_t>& from, size_t& known,
                         std::vector<int32_t>& to) {
      to.resize(std::max(to.size(), from.size()), 0);
      for (size_t i = std::exchange(known, from.size()); i < from.size(); ++i) to[i] = from[i];
    };
    copy(s.blocks, there.known[0], there.blocks);
    if (shape_.window > 0) copy(s.window.blocks, there.known[1], there.window);
    return there;
  }
  size_t At(const std::vector<int32_t>& table, int64_t p) const {
    const int64_t size = shape_.block * shape_.per_page();
    return static_cast<size_t>(table.at(static_cast<size_t>(p / size)) * size + p % size);
  }
  uint64_t& WindowCell(const std::vector<int32_t>& table, int64_t p, int64_t layer) {
    const int64_t entry = table.at(static_cast<size_t>(p / shape_.block));
    const int64_t block = entry * shape_.per_page() + layer;
    std::vector<uint64_t>& cells = shape_.page > 0 ? cells_ : window_cells_;
    return cells.at(static_cast<size_t>(block * shape_.block + p % shape_.block));
  }
  static uint64_t Written(uint64_t text, int64_t layer) {
    return Mix(text, static_cast<uint64_t>(1000 + layer));
  }
  void Look(const Table& table, int64_t position) {
    for (int64_t p = std::max<int64_t>(position - shape_.window + 1, 0); p <= position; ++p) {
      for (int64_t layer = 0; layer < shape_.per_page() && shape_.window > 0; ++layer) {
        if (WindowCell(table.window, p, layer) != Written(cells_[At(table.blocks, p)], layer))
          ++wrong_;
      }
    }
  }

  Shape shape_;
  std::vector<uint64_t> cells_, window_cells_;
  std::vector<int32_t> slots_;  // the last token drawn
  std::vector<uint64_t> states_;
  std::vector<Table> tables_;
  int64_t wrong_ = 0;
};

// A scheduler whose device is as many steps behind as the engine lets it be.
class Bench {
 public:
  explicit Bench(const Shape& shape)
      : shape_(shape),
        pool(shape.blocks, shape.block * shape.per_page(), shape.caching),
        windows(shape.page > 0
                    ? WindowPool(shape.window, shape.block, pool, shape.longest)
                    : WindowPool(shape.window, shape.window_blocks, shape.block, shape.caching)),
        scheduler(pool, windows,
                  {.max_num_seqs = shape.sequences,
                   .max_num_batched_tokens = shape.step,
                   .output_rows = std::max(shape.sequences, shape.step / 2),
                   .max_model_len = shape.longest,
                   .priority = shape.priority,
                   .end_ids = {kEnd},
                   .recurrent = shape.snapshots >= 0,
                   .snapshots = std::max<int64_t>(shape.snapshots, 0),
                   .snapshot_every = 2 * shape.block * shape.per_page()},
                  &quiet_),
        device(shape) {}

  void Add(RequestId id, std::shared_ptr<const Request> request) {
    asked[id] = request;
    scheduler.Add(id, std::move(request), {}, 0);
  }
  // One turn of the engine's loop. False when nothing was done.
  bool Turn(bool behind) {
    if (!behind && !flying_.empty()) Retire();
    ScheduledStep step;
    if (flying_.size() < 2) scheduler.Schedule(step, 0);
    if (step.rows.empty()) {
      if (flying_.empty()) return false;
      Retire();
      return true;
    }
    for (const Scheduled& row : step.rows) {
      const Sequence& s = *row.sequence;
      computed += row.count;
      const auto has = [&](const std::vector<int32_t>& table, int64_t size) {
        return static_cast<int64_t>(table.size()) * size >= row.start + row.count;
      };
      EXPECT_TRUE(has(s.blocks, pool.block_size()));
      EXPECT_TRUE(!windows.used() || has(s.window.blocks, shape_.block));
    }
    StepResult result = device.Run(step);
    flying_.emplace_back(std::move(step), std::move(result));
    return true;
  }
  // Until nothing is left. REQUIRES: no more than `limit` turns.
  void RunAll(int64_t limit) {
    while ((!scheduler.idle() || !flying_.empty()) && --limit > 0) {
      if (!Turn(true)) break;
    }
    EXPECT_GT(limit, 0);
    EXPECT_TRUE(scheduler.idle()) << scheduler.running() << " run, " << scheduler.waiting()
                                  << " wait";
    EXPECT_EQ(pool.free_blocks(), pool.blocks());
    EXPECT_EQ(windows.free_blocks(), windows.blocks());
    EXPECT_EQ(device.wrong(), 0);
  }
  // What was drawn is what each choice would have drawn alone, so far as it got.
  void CompareAlone() const {
    for (const auto& [key, tokens] : got) {
      const Request& r = *asked.at(key.first);
      uint64_t text = 0;
      for (const int32_t t : r.prompt) text = Mix(text, static_cast<uint64_t>(t));
      for (size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_EQ(tokens[i], Draw(text, key.second)) << key.first << ": token " << i;
        text = Mix(text, static_cast<uint64_t>(tokens[i]));
      }
    }
    for (const auto& [id, embedding] : embeddings) {
      const Request& r = *asked.at(id);
      uint64_t text = 0;
      float last = 0, sum = 0;
      for (const int32_t t : r.prompt) {
        text = Mix(text, static_cast<uint64_t>(t));
        sum += last = Hidden(text);
      }
      const bool mean = r.pooling == Pooling::kMean;
      ASSERT_EQ(embedding.size(), 1u);
      ASSERT_NEAR(embedding[0], mean ? sum / static_cast<float>(r.prompt.size()) : last, 1e-2)
          << id;
    }
  }

 private:
  void Retire() {
    std::vector<Output> outputs;
    scheduler.Retire(flying_.front().first, flying_.front().second, 0, outputs);
    flying_.pop_front();
    for (const Output& o : outputs) {
      if (o.token >= 0) got[{o.request, o.choice}].push_back(o.token);
      if (o.finish != FinishReason::kNone) ++finished;
      if (o.extra != nullptr && !o.extra->embedding.empty())
        embeddings[o.request] = o.extra->embedding;
    }
  }

  Shape shape_;
  Quiet quiet_;
  std::deque<std::pair<ScheduledStep, StepResult>> flying_;

 public:
  BlockPool pool;
  WindowPool windows;
  Scheduler scheduler;
  Device device;
  std::map<RequestId, std::shared_ptr<const Request>> asked;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> got;
  std::map<RequestId, std::vector<float>> embeddings;
  int64_t finished = 0, computed = 0;
};

std::shared_ptr<Request> Prompt(int64_t length, int32_t first, int64_t answer) {
  auto r = std::make_shared<Request>();
  for (int64_t i = 0; i < length; ++i) r->prompt.push_back(first + static_cast<int32_t>(i));
  r->sampling.max_tokens = answer;
  r->sampling.ignore_eos = true;
  return r;
}

TEST(SchedulerWindow, RandomRequestsAreThoseOfEachAlone) {
  std::array<int64_t, 2> preemptions{}, hits{};  // without pages, and in pages
  for (unsigned seed = 0; seed < 800; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    Shape shape;
    shape.block = std::array<int64_t, 4>{1, 3, 4, 16}[random() % 4];
    shape.longest = pick(20, 160);
    shape.window = seed % 8 == 0 ? 0 : pick(1, shape.longest - 1);
    shape.step = pick(1, 48);
    shape.sequences = pick(1, 8);
    shape.step = std::max(shape.step, shape.sequences);
    shape.caching = seed % 3 != 0;
    shape.priority = seed % 5 == 0;
    if (seed % 4 == 1) shape.snapshots = pick(0, 12);
    const int64_t most = (shape.longest + shape.block - 1) / shape.block;
    // The least that FitKvCache gives, and some more.
    const int64_t at_once = (shape.window - 1 + shape.step + shape.block - 1) / shape.block + 1;
    shape.blocks = most + pick(0, 2 * most);
    shape.window_blocks = std::min(most, at_once) + pick(0, 1) * pick(0, most);
    if (seed >= 400 && shape.window > 0) {
      shape.page = pick(1, 6);
      const int64_t pages = (most + shape.page - 1) / shape.page;
      shape.blocks = pages + std::min(most, at_once) + pick(0, 1) * pick(0, 2 * most);
    }
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << " block " << shape.block << " window " << shape.window
                 << " step " << shape.step << " page " << shape.page);
    Bench bench(shape);
    int64_t choices = 0, turns = 0;
    std::vector<int32_t> shared;
    for (int64_t i = 0; i < shape.longest; ++i)
      shared.push_back(static_cast<int32_t>(10 + random() % 50));
    for (RequestId id = 1; id <= 30; ++id) {
      auto r = std::make_shared<Request>();
      const std::array<int64_t, 6> lengths = {
          pick(1, shape.longest - 1), pick(1, 8),    shape.window, shape.window + 1,
          shape.block * pick(1, 4),   shape.step + 1};
      const int64_t length = std::clamp<int64_t>(lengths[random() % 6], 1, shape.longest - 1);
      const int64_t same = random() % 2 ? pick(0, length) : 0;
      r->prompt.assign(shared.begin(), shared.begin() + same);
      while (static_cast<int64_t>(r->prompt.size()) < length)
        r->prompt.push_back(static_cast<int32_t>(10 + random() % 50));
      r->sampling.max_tokens = pick(1, shape.longest);
      r->sampling.n = random() % 6 == 0 ? static_cast<int32_t>(pick(2, 3)) : 1;
      if (random() % 5 == 0) r->sampling.prompt_logprobs = 0;
      r->priority = static_cast<int32_t>(random() % 3);
      if (random() % 8 == 0) {
        r->sampling = {};
        r->kind = Request::Kind::kEmbed;
        r->pooling = random() % 2 ? Pooling::kMean : Pooling::kLast;
      }
      choices += r->choices();
      bench.Add(id, r);
      for (int64_t n = pick(0, 12); n > 0; --n, ++turns) bench.Turn(random() % 4 != 0);
      if (random() % 6 == 0) {
        std::vector<Output> outputs;
        bench.scheduler.Finish(static_cast<RequestId>(pick(1, static_cast<int64_t>(id))),
                               random() % 2 ? -1 : 0, FinishReason::kAbort, 0, &outputs);
        bench.finished += static_cast<int64_t>(outputs.size());
      }
    }
    bench.RunAll(200000);
    EXPECT_EQ(bench.finished, choices);
    bench.CompareAlone();
    preemptions[shape.page > 0] += bench.scheduler.counters().preemptions;
    hits[shape.page > 0] += bench.scheduler.counters().prefix_hits;
    if (testing::Test::HasFailure()) break;
  }
  for (const int64_t n : preemptions) EXPECT_GT(n, 100);
  for (const int64_t n : hits) EXPECT_GT(n, 1000);
}

// What a prompt's piece in flight holds comes back by itself: nobody is pre-empted for it, and the
// prompt least of all.
TEST(SchedulerWindow, APromptWaitsForItsOwnPieceInFlight) {
  for (const bool first : {true, false}) {
    for (const int64_t page : {0, 5}) {
      // A request holds the blocks of 5 + 16 tokens across an edge, 7; the other one's window is 3.
      // In pages of five blocks the two have 6 and 6 of the others.
      Bench bench({.blocks = page > 0 ? 22 : 64,
                   .window_blocks = 10,
                   .step = 16,
                   .page = page,
                   .caching = false});
      const RequestId prompt = first ? 1 : 2;
      if (!first) bench.Add(1, Prompt(2, 1000, 100));
      if (!first) bench.Turn(true);
      bench.Add(prompt, Prompt(100, 2000, 5));
      if (first) bench.Add(2, Prompt(2, 1000, 100));
      bench.RunAll(400);
      bench.CompareAlone();
      EXPECT_EQ(bench.finished, 2);
      EXPECT_EQ(bench.scheduler.counters().preemptions, 0) << first << page;
      EXPECT_LE(bench.computed, 100 + 4 + 2 + 99) << first;
    }
  }
}

// Short requests that keep coming take no blocks that a longer prompt was let in for.
TEST(SchedulerWindow, APromptIsNotStarvedByThoseBehindIt) {
  for (const int64_t window : {0, 6, 90, 7}) {
    // The last one in pages of four blocks: 8 of these and 5 of the others are one request's.
    Bench bench({.window = window,
                 .blocks = window == 7 ? 13 : 32,
                 .window_blocks = window == 90 ? 30 : 5,
                 .sequences = 4,
                 .step = 8,
                 .page = window == 7 ? 4 : 0,
                 .caching = false});
    bench.Add(1, Prompt(100, 2000, 2));
    for (RequestId id = 2; id < 60; ++id) {
      bench.Add(id, Prompt(4, 1000, 12));
      for (int i = 0; i < 6; ++i) bench.Turn(true);
    }
    bench.RunAll(4000);
    bench.CompareAlone();
    EXPECT_EQ(bench.finished, 59);
    EXPECT_LE(bench.computed, 101 + 58 * 15 + 300) << window;
  }
}

}  // namespace
}  // namespace vllm::engine
