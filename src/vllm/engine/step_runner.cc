#include "vllm/engine/step_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"

namespace vllm::engine {
namespace {

using vt::ir::Bucket;

bool Holds(const Bucket& bucket, const Bucket& step) {
  return step.tokens <= bucket.tokens && step.requests <= bucket.requests &&
         step.outputs <= bucket.outputs;
}

bool WantsLogprobs(std::span<const StepRow> rows) {
  return std::any_of(rows.begin(), rows.end(), [](const StepRow& row) {
    return row.sampling != nullptr && row.sampling->logprobs >= 0;
  });
}

// Sizes below `largest` that were asked for, and the largest itself; ascending.
std::vector<int64_t> Sizes(std::vector<int64_t> sizes, int64_t largest) {
  std::erase_if(sizes, [&](int64_t n) { return n < 1 || n >= largest; });
  sizes.push_back(largest);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace

int64_t StateCount(const vt::ir::StateGroup& group, const StepOptions& options,
                   const Bucket& limits) {
  if (group.kind != vt::ir::StateGroup::Kind::kSlot)
    return group.window > 0 && options.window_blocks > 0 ? options.window_blocks
                                                         : options.kv_blocks;
  if (group.name == vt::ir::kMediaGroup) return limits.tokens;
  return group.name == vt::ir::kRecurrentGroup ? options.recurrent_slots : options.slots;
}

StepPlans MakeStepPlans(const vt::ir::Graph& graph, const vt::Backend& backend,
                        const StepOptions& o) {
  StepPlans out;
  const auto add = [&](const vt::ir::Graph& g, const Bucket& bucket, bool hidden) {
    vt::ir::Plan plan = vt::ir::Lower(g, backend, bucket);
    out.arena_bytes = std::max(out.arena_bytes, plan.memory.arena_bytes);
    out.input_bytes = std::max(out.input_bytes, vt::StepLayout(plan.graph, bucket).bytes());
    out.limits.tokens = std::max(out.limits.tokens, bucket.tokens);
    out.limits.requests = std::max(out.limits.requests, bucket.requests);
    out.limits.outputs = std::max(out.limits.outputs, bucket.outputs);
    out.plans.push_back({std::move(plan), hidden});
  };
  const int64_t tokens = std::max(o.max_num_batched_tokens, o.max_num_seqs);
  const int64_t outputs = std::max(o.output_rows, o.max_num_seqs);
  if (o.encoder) {  // of every token may be wanted
    for (const int64_t n : Sizes(o.mixed_sizes, tokens))
      add(graph, {n, std::min(n, o.max_num_seqs), n / o.output_fold}, true);
    return out;
  }
  for (const int64_t n : Sizes(o.decode_sizes, o.max_num_seqs)) add(graph, {n, n, n}, false);
  for (const int64_t n : Sizes(o.mixed_sizes, tokens)) {
    add(graph, {n, std::min(n, o.max_num_seqs), std::min(n, outputs)}, false);
  }
  if (o.hidden && graph.hidden != vt::ir::kNone) {
    vt::ir::Graph states = graph;
    states.outputs = {graph.hidden};
    // The sampler stands at the graph's end. It writes state, so no pass would drop it, nor the
    // head.
    while (!states.nodes.empty() && (states.nodes.back().op == vt::ir::Op::kSample ||
                                     states.nodes.back().op == vt::ir::Op::kTopLogprobs)) {
      states.nodes.pop_back();
    }
    add(states, {tokens, o.max_num_seqs, std::min(tokens, outputs)}, true);
  }
  return out;
}

base::Result<void*> StepRunner::Own(int64_t bytes) {
  base::Result<void*> p = backend_.Allocate(std::max<int64_t>(bytes, 1));
  if (p) owned_.push_back(*p);
  return p;
}

base::Status StepRunner::OwnState(const vt::ir::Graph& graph, const StepOptions& options) {
  vt::Bindings& b = bindings_;
  std::vector<std::byte*> lanes;
  const int64_t lane_bytes = options.kv_blocks * layout_.lane_bytes;
  for (int64_t lane = 0; lane < layout_.lanes; ++lane) {
    base::Result<void*> p = Own(lane_bytes);
    if (!p) return p.error().In(fmt::format("KV cache, {} pages", options.kv_blocks));
    lanes.push_back(static_cast<std::byte*>(*p));
    memory_.state += lane_bytes;
  }
  for (size_t g = 0; g < graph.state_groups.size(); ++g) {
    const vt::ir::StateGroup& group = graph.state_groups[g];
    b.state.emplace_back();
    if (layout_.Holds(g)) {
      b.state_blocks.push_back(options.kv_blocks * layout_.spread[g]);
      for (const KvLayout::Place& at : layout_.places[g])
        b.state.back().push_back(lanes[static_cast<size_t>(at.lane)] + at.offset);
      continue;
    }
    const int64_t count = StateCount(group, options, limits_);
    const int64_t bytes = backend_.StateBlockBytes(group, options.block_size);
    if (group.name == vt::ir::kSamplerGroup) {
      sampler_group_ = static_cast<int>(g);
      slot_bytes_ = bytes;
    }
    b.state_blocks.push_back(count);
    for (int layer = 0; layer < group.layers; ++layer) {
      base::Result<void*> p = Own(count * bytes);
      if (!p) {
        return p.error().In(
            fmt::format("state '{}', {} blocks of {} bytes", group.name, count, bytes));
      }
      b.state.back().push_back(*p);
      memory_.state += count * bytes;
      if (group.name != vt::ir::kMediaGroup) continue;
      media_state_ = static_cast<float*>(*p);
      media_width_ = group.slot_bytes / 4;
    }
  }
  return {};
}

base::Result<std::unique_ptr<StepRunner>> StepRunner::Create(
    vt::Backend& backend, const vt::ir::Graph& graph, StepPlans plans,
    std::map<std::string, vt::DeviceWeight> weights, const StepOptions& options) {
  std::unique_ptr<StepRunner> r(new StepRunner(backend));
  vt::Bindings& b = r->bindings_;
  for (const vt::ir::Value& v : graph.values) {
    if (v.kind != vt::ir::ValueKind::kWeight) continue;
    const auto weight = weights.find(v.name);
    if (weight == weights.end()) continue;
    // Experts are as many matrices of this layout.
    const int64_t matrices = v.shape.size() == 3 ? v.shape[0].count : 1;
    r->memory_.weights += weight->second.layout.bytes * matrices;
  }
  b.weights = std::move(weights);
  b.block_size = options.block_size;
  r->limits_ = plans.limits;
  r->layout_ = options.layout;
  const base::Status state = r->OwnState(graph, options);
  if (!state) return state.error();
  r->memory_.arena = plans.arena_bytes;
  r->memory_.inputs = plans.input_bytes;
  r->fold_ = options.output_fold;
  r->vocab_ = graph.value(graph.outputs.front()).shape.back().count;
  if (graph.hidden != vt::ir::kNone) {
    r->hidden_size_ = graph.value(graph.hidden).shape.back().count;
  } else if (options.encoder) {
    r->hidden_size_ = r->vocab_;
  }
  base::Result<void*> arena = r->Own(plans.arena_bytes);
  if (!arena) return arena.error().In("activations");
  base::Result<void*> inputs = r->Own(plans.input_bytes);
  if (!inputs) return inputs.error().In("step inputs");
  b.arena = *arena;
  b.inputs = *inputs;
  base::Result<std::unique_ptr<vt::Queue>> queue = backend.CreateQueue();
  if (!queue) return queue.error();
  r->queue_ = *std::move(queue);
  for (Flight& f : r->flights_) {
    base::Result<std::unique_ptr<vt::Event>> event = backend.CreateEvent();
    if (!event) return event.error();
    f.event = *std::move(event);
    if (backend.HostAddressable()) continue;
    const int64_t fetched =
        4 * plans.limits.outputs * (1 + vt::ir::kLogprobValues + vt::ir::kBestTokens);
    for (const auto& [memory, bytes] :
         {std::pair(&f.packed, plans.input_bytes), std::pair(&f.fetched, fetched)}) {
      base::Result<void*> p = backend.AllocateHost(bytes);
      if (!p) return p.error().In("the host's side of step inputs");
      r->owned_by_host_.push_back(*p);
      *memory = static_cast<std::byte*>(*p);
    }
  }
  base::Status done = r->Compile(std::move(plans));
  if (done) done = r->Warm(options);
  if (!done) return done.error();
  return r;
}

base::Status StepRunner::Compile(StepPlans plans) {
  for (StepPlans::One& one : plans.plans) {
    Compiled c;
    c.bucket = one.plan.bucket;
    c.hidden = one.hidden;
    const vt::StepLayout layout(one.plan.graph, c.bucket);
    c.tables_begin = layout.bytes();
    c.why_eager = c.hidden ? Eager::kHiddenStates : Eager::kNoGraphs;
    c.ids = layout.OffsetOf(vt::ir::kTokenIds);
    c.types = layout.OffsetOf(vt::ir::kTokenTypes);
    c.positions = layout.OffsetOf(vt::ir::kPositions);
    c.query_start = layout.OffsetOf(vt::ir::kQueryStart);
    c.seq_lens = layout.OffsetOf(vt::ir::kSeqLens);
    c.rows = layout.OffsetOf(vt::ir::kOutputRows);
    c.sampling = layout.OffsetOf(vt::ir::kSampleParams);
    c.state_read = layout.OffsetOf(vt::ir::kStateRead);
    c.state_write = layout.OffsetOf(vt::ir::kStateWrite);
    c.media = layout.OffsetOf(vt::ir::kMediaRows);
    for (size_t g = 0; g < one.plan.graph.state_groups.size(); ++g) {
      const std::string table = vt::ir::BlockTableName(static_cast<int>(g));
      Compiled::Group group{.slots = layout.OffsetOf(vt::ir::SlotsName(static_cast<int>(g))),
                            .table = layout.OffsetOf(table),
                            .window = one.plan.graph.state_groups[g].window > 0};
      if (layout_.Holds(g)) {
        group.spread = layout_.spread[g];
        group.blocks = group.window ? 1 : group.spread;
      }
      for (const vt::StepLayout::Field& f : layout.fields()) {
        if (f.name == table) group.width = f.count / c.bucket.requests;
      }
      if (group.table >= 0) c.tables_begin = std::min(c.tables_begin, group.table);
      if (group.slots >= 0 || group.table >= 0) c.groups.push_back(group);
    }
    base::Result<std::unique_ptr<vt::Executable>> e =
        backend_.Compile(std::move(one.plan), bindings_);
    if (!e) return e.error();
    c.executable = *std::move(e);
    c.tables.resize(static_cast<size_t>(c.bucket.requests));
    compiled_.push_back(std::move(c));
  }
  return {};
}

// A step of padding in every bucket: it grows libraries' workspaces to their high-water mark, after
// which a capture may not allocate.
base::Status StepRunner::Warm(const StepOptions& options) {
  for (Compiled& c : compiled_) {
    Flight& f = flights_[0];
    Pack(c, {}, {0, 0, 0},
         f.packed != nullptr ? f.packed : static_cast<std::byte*>(bindings_.inputs));
    base::Status done;
    if (f.packed != nullptr) done = Send(c, f.packed);
    if (done) done = c.executable->Run(*queue_);
    if (done) done = backend_.Synchronize(*queue_);
    if (done && options.use_graphs && (!c.hidden || options.encoder)) {
      const base::Status captured = Capture(c);
      if (captured) {
        ++counters_.captured;
      } else {
        // It runs eager, which is slower and as good.
        c.why_eager = Eager::kCaptureFailed;
        if (options.warn) {
          options.warn(fmt::format(
              "the step of {} tokens, {} requests could not be captured and runs eager: {}",
              c.bucket.tokens, c.bucket.requests, captured.error().message));
        }
      }
    }
    if (!done) {
      return done.error().In(fmt::format("warming up the bucket of {} tokens", c.bucket.tokens));
    }
  }
  return {};
}

base::Status StepRunner::Capture(Compiled& c) {
  base::Status done = backend_.BeginCapture(*queue_);
  if (!done) return done;
  done = c.executable->Run(*queue_);
  base::Result<vt::GraphHandle> graph = backend_.EndCaptureGraph(*queue_);
  if (!done) {
    if (graph) backend_.DestroyGraph(*graph);
    return done;
  }
  if (!graph) return graph.error();
  c.graph = *graph;
  return {};
}

StepRunner::~StepRunner() {
  while (in_flight_ > 0) {
    if (!Retire()) break;
  }
  for (const Compiled& c : compiled_) {
    if (c.graph != 0) backend_.DestroyGraph(c.graph);
  }
  compiled_.clear();
  for (void* p : owned_) backend_.Free(p);
  for (void* p : owned_by_host_) backend_.FreeHost(p);
}

StepRunner::Compiled& StepRunner::Pick(const Bucket& step, bool hidden) {
  Compiled* last = nullptr;
  for (Compiled& c : compiled_) {
    if (c.hidden != hidden) continue;
    last = &c;
    if (Holds(c.bucket, step)) break;
  }
  return *last;
}

vt::Executable& StepRunner::ExecutableFor(const Bucket& step) {
  return *Pick(step, false).executable;
}

// The block tables' row stride in this step. Where inputs are copied, no more than is used.
int64_t StepRunner::StrideOf(const Compiled& c, std::span<const StepRow> rows) const {
  int64_t width = 0, used = 1;
  for (const Compiled::Group& g : c.groups) width = std::max(width, g.width);
  if (backend_.HostAddressable()) return width;
  for (const StepRow& row : rows) {
    for (const Compiled::Group& g : c.groups) {
      const auto& entries = g.window && !row.window_blocks.empty() ? row.window_blocks : row.blocks;
      used = std::max(used, static_cast<int64_t>(entries.size()) * g.blocks);
    }
  }
  return std::min(used, width);
}

// Copies what Pack wrote. Block tables stand at the end of the buffer, each at its place, and most
// of each is not in use.
base::Status StepRunner::Send(const Compiled& c, const std::byte* packed) {
  int64_t begin = 0, end = c.tables_begin;
  auto* const inputs = static_cast<std::byte*>(bindings_.inputs);
  for (const Compiled::Group& g : c.groups) {
    if (g.table < 0) continue;
    const int64_t bytes = c.bucket.requests * c.stride * 4;
    if (g.table != end) {
      const base::Status s =
          backend_.CopyToDevice(*queue_, inputs + begin, packed + begin, end - begin);
      if (!s) return s;
      begin = g.table;
    }
    end = g.table + bytes;
  }
  return backend_.CopyToDevice(*queue_, inputs + begin, packed + begin, end - begin);
}

int64_t StepRunner::OutputsOf(const StepRow& row) const {
  if (row.outputs == StepRow::Outputs::kNone) return 0;
  return row.outputs == StepRow::Outputs::kAll ? static_cast<int64_t>(row.tokens.size()) / fold_
                                               : 1;
}

// Enqueues the copies of the media rows that Pack saw. The steps before have read theirs by then.
base::Status StepRunner::SendMedia() {
  for (const MediaRun& run : media_runs_) {
    const base::Status s =
        backend_.CopyToDevice(*queue_, media_state_ + run.slot * media_width_, run.rows,
                              run.count * media_width_ * static_cast<int64_t>(sizeof(float)));
    if (!s) return s;
  }
  return {};
}

void StepRunner::Pack(Compiled& c, std::span<const StepRow> rows, const Bucket& step,
                      std::byte* packed) {
  const vt::StepHeader header = {
      static_cast<int32_t>(step.tokens), static_cast<int32_t>(step.requests),
      static_cast<int32_t>(step.outputs), static_cast<int32_t>(StrideOf(c, rows))};
  std::memcpy(packed, &header, sizeof header);
  if (std::exchange(last_packed_, &c) != &c || packed != bindings_.inputs) {
    std::fill(c.tables.begin(), c.tables.end(), Compiled::Table{});
  }
  c.stride = header.table_stride;
  const auto field = [&](int64_t offset) {
    return offset < 0 ? nullptr : reinterpret_cast<int32_t*>(packed + offset);
  };
  int32_t* ids = field(c.ids);
  int32_t* types = field(c.types);
  int32_t* positions = field(c.positions);
  int32_t* query_start = field(c.query_start);
  int32_t* seq_lens = field(c.seq_lens);
  int32_t* output_rows = field(c.rows);
  int32_t* state_read = field(c.state_read);
  int32_t* state_write = field(c.state_write);
  int32_t* media = field(c.media);
  auto* sampling = reinterpret_cast<float*>(field(c.sampling));

  int64_t token = 0, output = 0;
  int32_t medium = 0;
  media_runs_.clear();
  if (media != nullptr) std::fill_n(media, c.bucket.tokens, -1);
  for (size_t r = 0; r < rows.size(); ++r) {
    const StepRow& row = rows[r];
    const auto n = static_cast<int64_t>(row.tokens.size());
    if (query_start != nullptr) query_start[r] = static_cast<int32_t>(token);
    if (seq_lens != nullptr) seq_lens[r] = static_cast<int32_t>(row.start + n);
    if (state_read != nullptr) state_read[r] = row.state_read;
    if (state_write != nullptr) state_write[r] = row.state_write;
    if (ids != nullptr) std::copy(row.tokens.begin(), row.tokens.end(), ids + token);
    if (types != nullptr) {
      for (int64_t i = 0; i < n; ++i) types[token + i] = row.start + i < row.first_segment ? 0 : 1;
    }
    if (positions != nullptr) {
      for (int64_t i = 0; i < n; ++i) positions[token + i] = static_cast<int32_t>(row.start + i);
    }
    if (media != nullptr) {
      size_t k = static_cast<size_t>(
          std::lower_bound(row.media_at.begin(), row.media_at.end(), row.start) -
          row.media_at.begin());
      const size_t first = k;
      const int32_t slot = medium;
      for (; k < row.media_at.size() && row.media_at[k] < row.start + n; ++k)
        media[token + row.media_at[k] - row.start] = medium++;
      if (k > first) {
        media_runs_.push_back(
            {slot, medium - slot, row.media + static_cast<int64_t>(first) * media_width_});
      }
    }
    // Most tables stand there from the last step, but for a block at their end.
    Compiled::Table& there = c.tables[r];
    if (there.name != row.table || row.table == 0) there = {};
    const Compiled::Table known =
        std::exchange(there, {row.table, row.blocks.size(), row.window_blocks.size()});
    for (const Compiled::Group& g : c.groups) {
      const bool apart = g.window && !row.window_blocks.empty();
      const std::span<const int32_t> blocks = apart ? row.window_blocks : row.blocks;
      if (int32_t* table = field(g.table)) {
        const auto first = static_cast<int64_t>(apart ? known.window_blocks : known.blocks);
        const int64_t count = std::min(static_cast<int64_t>(blocks.size()) * g.blocks, g.width);
        for (int64_t i = first * g.blocks; i < count; ++i)
          table[static_cast<int64_t>(r) * c.stride + i] = g.At(blocks, i);
      }
      if (int32_t* slots = field(g.slots)) {
        const auto size = static_cast<int32_t>(bindings_.block_size);
        for (int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<int32_t>(row.start + i);
          slots[token + i] = g.At(blocks, at / size) * size + at % size;
        }
      }
    }
    const int64_t wanted = OutputsOf(row);
    const bool first = row.outputs == StepRow::Outputs::kFirst;
    for (int64_t i = n - wanted; i < n; ++i, ++output) {
      if (output_rows != nullptr) {
        const int64_t at = first ? 0 : fold_ == 1 ? i : (i - (n - wanted)) * fold_;
        output_rows[output] = static_cast<int32_t>(token + at);
      }
      if (sampling == nullptr) continue;
      vt::ir::SamplingRow params = row.sampling != nullptr ? *row.sampling : vt::ir::SamplingRow{};
      const auto scored = static_cast<size_t>(i - (n - wanted));
      if (row.outputs == StepRow::Outputs::kAll && scored < row.scored.size()) {
        params.forced = row.scored[scored];
      }
      vt::ir::PackSamplingRow(params, sampling + output * vt::ir::kSampleParamCount);
    }
    token += n;
  }

  // Padding: rows that write nothing, see nothing, have no state and choose greedily.
  const Bucket& b = c.bucket;
  if (ids != nullptr) std::fill(ids + token, ids + b.tokens, 0);
  for (int32_t* p : {types, positions}) {
    if (p != nullptr) std::fill(p + token, p + b.tokens, 0);
  }
  if (query_start != nullptr) {
    std::fill(query_start + step.requests, query_start + b.requests + 1, header.tokens);
  }
  if (seq_lens != nullptr) std::fill(seq_lens + step.requests, seq_lens + b.requests, 0);
  for (int32_t* states : {state_read, state_write}) {
    if (states != nullptr) std::fill(states + step.requests, states + b.requests, -1);
  }
  if (output_rows != nullptr) std::fill(output_rows + output, output_rows + b.outputs, 0);
  if (sampling != nullptr) {
    std::fill(sampling + output * vt::ir::kSampleParamCount,
              sampling + b.outputs * vt::ir::kSampleParamCount, 0.0f);
  }
  for (const Compiled::Group& g : c.groups) {
    if (int32_t* slots = field(g.slots)) std::fill(slots + token, slots + b.tokens, -1);
  }
}

base::Status StepRunner::Launch(std::span<const StepRow> rows, const LaunchOptions& options) {
  Bucket step{0, static_cast<int64_t>(rows.size()), 0};
  for (const StepRow& row : rows) {
    step.tokens += static_cast<int64_t>(row.tokens.size());
    step.outputs += OutputsOf(row);
  }
  if (!Holds(limits_, step) || in_flight_ == kMaxInFlight) {
    return base::Error{
        base::Code::kInternal,
        fmt::format("a step of {} tokens, {} requests, {} outputs with {} in flight is over the "
                    "limits {}, {}, {}",
                    step.tokens, step.requests, step.outputs, in_flight_, limits_.tokens,
                    limits_.requests, limits_.outputs)};
  }
  Compiled& c = Pick(step, options.hidden);
  Flight& f = flights_[static_cast<size_t>(next_)];
  base::Status done;
  if (f.packed == nullptr) {
    Pack(c, rows, step, static_cast<std::byte*>(bindings_.inputs));
  } else {
    Pack(c, rows, step, f.packed);
    done = Send(c, f.packed);
  }
  if (done) done = SendMedia();
  if (done && c.graph != 0) {
    ++counters_.replayed;
    done = backend_.ReplayGraph(*queue_, c.graph);
  } else if (done) {
    ++counters_.eager[static_cast<size_t>(c.why_eager)];
    done = c.executable->Run(*queue_);
  }
  if (done) {
    done = Fetch(c, step, !options.hidden && WantsLogprobs(rows), options.logits, f);
  }
  if (done) done = backend_.Record(*queue_, *f.event);
  if (!done) return done;
  next_ = (next_ + 1) % kMaxInFlight;
  ++in_flight_;
  return {};
}

// Enqueues the copies of what the step gives.
base::Status StepRunner::Fetch(const Compiled& c, const Bucket& step, bool logprobs, bool logits,
                               Flight& f) {
  StepResult& result = f.result;
  const std::vector<vt::ir::ValueId>& outputs = c.executable->plan().graph.outputs;
  std::byte* staged = f.fetched;
  const auto copy = [&](size_t output, int64_t width, auto& to) -> base::Status {
    to.resize(static_cast<size_t>(step.outputs * width));
    if (to.empty()) return {};
    void* there = to.data();
    // Logits and hidden states are large and seldom: their copy may wait.
    if (staged != nullptr && static_cast<const void*>(&to) != &result.values) {
      there = staged;
      staged += to.size() * 4;
    }
    return backend_.CopyToHost(*queue_, there, c.executable->ValueAddress(outputs[output]),
                               static_cast<int64_t>(to.size() * 4));
  };
  result.outputs = step.outputs;
  result.tokens.clear();
  result.logprobs.clear();
  result.best_ids.clear();
  result.values.clear();
  if (c.hidden) return copy(0, hidden_size_, result.values);
  base::Status done = copy(1, 1, result.tokens);
  if (done && logprobs) done = copy(2, vt::ir::kLogprobValues, result.logprobs);
  if (done && logprobs) done = copy(3, vt::ir::kBestTokens, result.best_ids);
  if (done && logits) done = copy(0, vocab_, result.values);
  return done;
}

base::Result<bool> StepRunner::Ready() {
  const int oldest = (next_ + kMaxInFlight - in_flight_) % kMaxInFlight;
  return backend_.Ready(*flights_[static_cast<size_t>(oldest)].event);
}

base::Result<StepResult*> StepRunner::Retire() {
  const int oldest = (next_ + kMaxInFlight - in_flight_) % kMaxInFlight;
  Flight& f = flights_[static_cast<size_t>(oldest)];
  --in_flight_;
  const base::Status done = backend_.Wait(*f.event);
  if (!done) return done.error();
  f.slot_words.clear();
  if (const std::byte* from = f.fetched) {
    const auto take = [&](auto& to) {
      if (!to.empty()) std::memcpy(to.data(), from, to.size() * 4);
      from += to.size() * 4;
    };
    take(f.result.tokens);
    take(f.result.logprobs);
    take(f.result.best_ids);
  }
  return &f.result;
}

base::Status StepRunner::WriteSlot(int slot, int64_t first_word, std::span<const int32_t> words) {
  if (words.empty()) return {};
  auto* state = static_cast<std::byte*>(bindings_.state[static_cast<size_t>(sampler_group_)][0]);
  std::byte* to = state + slot * slot_bytes_ + first_word * 4;
  const auto bytes = static_cast<int64_t>(words.size_bytes());
  // The words must live until the copy ran, which is certain once the next step has been retired.
  const int32_t* from = words.data();
  if (!backend_.HostAddressable()) {
    auto& kept = flights_[static_cast<size_t>(next_)].slot_words;
    from = kept.emplace_back(words.begin(), words.end()).data();
  }
  return backend_.CopyToDevice(*queue_, to, from, bytes);
}

}  // namespace vllm::engine
