// Runs steps of a loaded model: builds the packed input, picks the bucket, runs or replays it.
//
// One for every model and every device. Buckets are compiled, warmed and, where device and policy
// say so, captured when the runner is made; a step goes to the smallest bucket that holds it. Rows
// past a step's counts are padding (slot -1, length 0). Up to kMaxInFlight steps may be launched
// before the first is retired; steps run in the order of their launch. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/engine/kv_layout.h"
#include "vt/device/backend.h"
#include "vt/device/step_layout.h"
#include "vt/ir/sampling.h"

namespace vllm::engine {

// One request's share of a step: `tokens` stand at positions start, start + 1, ...
struct StepRow {
  std::span<const int32_t> tokens;  // an id below 0: the token last sampled for slot -1 - id
  int64_t start = 0;
  std::span<const int32_t> blocks;  // KV blocks, or pages of several, from position 0 on
  // Those of layers with windows, of which the ones behind the window may be any; empty: the same.
  std::span<const int32_t> window_blocks = {};
  // Names a table that only grows from step to step, so that what stands in the input buffer
  // already isn't copied again; 0: another one each time.
  uint64_t table = 0;
  enum class Outputs : uint8_t { kNone, kLast, kAll, kFirst } outputs = Outputs::kLast;
  const vt::ir::SamplingRow* sampling = nullptr;  // of the last token; nullptr: greedy
  // Of kAll: the token whose log-probability is wanted after each of `tokens`, which is the
  // prompt's next; shorter by one when the last is to be sampled.
  std::span<const int32_t> scored = {};
  // Recurrent slots: of the state before `tokens` (-1: it is zero), and where the state after them
  // goes. No other row of the step may have this state_write as either.
  int32_t state_read = -1, state_write = -1;
  int64_t first_segment = INT64_MAX;  // see Request
  // Media rows [k, width], of which row k stands for the token at position media_at[k], ascending.
  // They are read until the step is retired.
  std::span<const int32_t> media_at = {};
  const float* media = nullptr;
};

// Output rows, in the order of the step's rows.
struct StepResult {
  int64_t outputs = 0;
  std::vector<int32_t> tokens;    // [outputs]: sampled, or scored
  std::vector<float> logprobs;    // [outputs, kLogprobValues] where a row asked for any; else empty
  std::vector<int32_t> best_ids;  // [outputs, kBestTokens], likewise
  std::vector<float> values;      // of LaunchOptions::hidden and ::logits: [outputs, width]
};

// What a plan of all buckets needs, known before anything is allocated.
struct StepPlans {
  struct One {
    vt::ir::Plan plan;
    bool hidden = false;  // ends in hidden states instead of tokens
  };
  std::vector<One> plans;  // of one kind ascending
  int64_t arena_bytes = 0, input_bytes = 0;
  vt::ir::Bucket limits;
};

struct StepOptions {
  int64_t max_num_seqs = 1;
  int64_t max_num_batched_tokens = 512;
  int64_t output_rows = 1;            // of a step of several tokens a request
  std::vector<int64_t> decode_sizes;  // requests of captured decode steps; empty: the largest alone
  std::vector<int64_t> mixed_sizes;   // tokens of captured mixed steps; the largest always exists
  bool hidden = false;                // also compile steps that end in hidden states
  bool encoder = false;               // whose graph ends in them, and has no other steps
  int64_t output_fold = 1;            // of an encoder: neighbouring tokens that make an output row
  bool use_graphs = false;            // capture
  std::function<void(const std::string&)> warn;  // hears of captures that failed
  int64_t block_size = 16;
  KvLayout layout = {};
  int64_t kv_blocks = 0;      // of each paged group, or pages
  int64_t window_blocks = 0;  // of those with windows; 0: the same
  int64_t slots = 0;          // of the sampler's group
  int64_t recurrent_slots = 0;
};

StepPlans MakeStepPlans(const vt::ir::Graph& graph, const vt::Backend& backend,
                        const StepOptions& options);
// Blocks, slots or rows of a state group.
int64_t StateCount(const vt::ir::StateGroup& group, const StepOptions& options,
                   const vt::ir::Bucket& limits);

class StepRunner {
 public:
  static constexpr int kMaxInFlight = 2;

  struct Memory {
    int64_t weights = 0, state = 0, arena = 0, inputs = 0;  // bytes
  };
  // Why a step runs node by node.
  enum class Eager : uint8_t { kNoGraphs, kHiddenStates, kCaptureFailed };
  static constexpr std::array kEagerNames = {"no graphs", "hidden states", "capture failed"};
  struct Counters {
    int64_t captured = 0, replayed = 0;
    std::array<int64_t, kEagerNames.size()> eager{};  // by Eager
  };

  // `graph`'s outputs are logits [O, V], tokens [O], log-probabilities and best ids; of an encoder
  // hidden states alone. `weights` must outlive the runner.
  static base::Result<std::unique_ptr<StepRunner>> Create(
      vt::Backend& backend, const vt::ir::Graph& graph, StepPlans plans,
      std::map<std::string, vt::DeviceWeight> weights, const StepOptions& options);
  ~StepRunner();

  struct LaunchOptions {
    bool logits = false;  // also bring all logits to the host
    bool hidden = false;  // run the steps that end in hidden states
  };
  // Enqueues a step. REQUIRES: it fits Limits(), fewer than kMaxInFlight are in flight, ids are
  // inside the vocabulary, blocks hold start + tokens.
  base::Status Launch(std::span<const StepRow> rows, const LaunchOptions& options);
  base::Status Launch(std::span<const StepRow> rows) { return Launch(rows, LaunchOptions()); }
  int in_flight() const { return in_flight_; }
  // Whether Retire would not wait. REQUIRES: in_flight() > 0.
  base::Result<bool> Ready();
  // Waits for the oldest step in flight. The result is valid until two more have been launched.
  base::Result<StepResult*> Retire();

  // Writes words into a slot of the sampler's state, before the next step launched.
  base::Status WriteSlot(int slot, int64_t first_word, std::span<const int32_t> words);

  // The largest step: tokens, requests, output rows.
  const vt::ir::Bucket& Limits() const { return limits_; }
  const Memory& memory() const { return memory_; }
  const Counters& counters() const { return counters_; }
  int64_t vocab_size() const { return vocab_; }
  int64_t hidden_size() const { return hidden_size_; }
  vt::Executable& ExecutableFor(const vt::ir::Bucket& step);
  vt::Queue& queue() { return *queue_; }

 private:
  struct Field {
    int32_t* data = nullptr;  // in the packed buffer; nullptr: the graph does not use it
    int64_t count = 0;
  };
  // A bucket, and where its inputs stand.
  struct Compiled {
    vt::ir::Bucket bucket;
    bool hidden = false;
    int64_t tables_begin = 0;  // of the packed input: the first block table
    std::unique_ptr<vt::Executable> executable;
    vt::GraphHandle graph = 0;
    Eager why_eager = Eager::kNoGraphs;
    int64_t ids = -1, types = -1, positions = -1, query_start = -1, seq_lens = -1, rows = -1,
            sampling = -1;
    int64_t state_read = -1, state_write = -1, media = -1;
    struct Group {
      int64_t slots = -1, table = -1, width = 0;
      bool window = false;
      // Of its blocks, those of entry e of a sequence's table are spread * e and so many after it.
      int64_t spread = 1, blocks = 1;
      int32_t At(std::span<const int32_t> entries, int64_t block) const {
        return static_cast<int32_t>(entries[static_cast<size_t>(block / blocks)] * spread +
                                    block % blocks);
      }
    };
    std::vector<Group> groups;  // of paged state groups that the graph uses
    int64_t stride = 0;         // entries a row of the block tables has in the step packed last
    // [request]: the table that stands in the input buffer, and how many entries of it.
    struct Table {
      uint64_t name = 0;
      size_t blocks = 0, window_blocks = 0;
    };
    std::vector<Table> tables;
  };
  // Where the host cannot write to the device, `packed` and `fetched` are host memory that copies
  // need not wait for.
  struct Flight {
    StepResult result;
    std::unique_ptr<vt::Event> event;
    std::byte* packed = nullptr;   // the step's inputs
    std::byte* fetched = nullptr;  // tokens, log-probabilities and ids, in this order
    std::vector<std::vector<int32_t>> slot_words;  // of WriteSlot
  };

  explicit StepRunner(vt::Backend& backend) : backend_(backend) {}
  base::Result<void*> Own(int64_t bytes);
  base::Status OwnState(const vt::ir::Graph& graph, const StepOptions& options);
  base::Status Compile(StepPlans plans);
  base::Status Warm(const StepOptions& options);
  int64_t StrideOf(const Compiled& c, std::span<const StepRow> rows) const;
  Compiled& Pick(const vt::ir::Bucket& step, bool hidden);
  void Pack(Compiled& c, std::span<const StepRow> rows, const vt::ir::Bucket& step,
            std::byte* packed);
  base::Status Send(const Compiled& c, const std::byte* packed);
  int64_t OutputsOf(const StepRow& row) const;
  base::Status SendMedia();
  base::Status Fetch(const Compiled& c, const vt::ir::Bucket& step, bool logprobs, bool logits,
                     Flight& f);
  base::Status Capture(Compiled& c);

  vt::Backend& backend_;
  vt::Bindings bindings_;
  KvLayout layout_;
  std::vector<Compiled> compiled_;  // of one kind ascending
  std::vector<void*> owned_, owned_by_host_;
  std::unique_ptr<vt::Queue> queue_;
  std::array<Flight, kMaxInFlight> flights_;
  int next_ = 0, in_flight_ = 0;
  Compiled* last_packed_ = nullptr;  // whose inputs the buffer holds
  // Of the step packed last: rows of the media state, and where they come from.
  struct MediaRun {
    int64_t slot, count;
    const float* rows;
  };
  std::vector<MediaRun> media_runs_;
  float* media_state_ = nullptr;
  int64_t media_width_ = 0;
  int64_t fold_ = 1;  // see StepOptions::output_fold
  int sampler_group_ = -1;
  int64_t slot_bytes_ = 0;
  vt::ir::Bucket limits_;
  Memory memory_;
  Counters counters_;
  int64_t vocab_ = 0, hidden_size_ = 0;
};

}  // namespace vllm::engine
