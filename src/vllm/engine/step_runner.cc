#include "vllm/engine/step_runner.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "vt/ir/sampling.h"

namespace vllm::engine {
namespace {

using vt::ir::Bucket;

bool Holds(const Bucket& bucket, const Bucket& step) {
  return step.tokens <= bucket.tokens && step.requests <= bucket.requests &&
         step.outputs <= bucket.outputs;
}

Bucket Count(std::span<const Chunk> chunks) {
  Bucket step{0, static_cast<int64_t>(chunks.size()), 0};
  for (const Chunk& c : chunks) {
    const auto n = static_cast<int64_t>(c.tokens.size());
    step.tokens += n;
    step.outputs += c.logits == Chunk::Logits::kAll ? n : c.logits == Chunk::Logits::kLast ? 1 : 0;
  }
  return step;
}

// Output rows of a scoring step: enough to use every core well, few enough that logits stay small.
constexpr int64_t kScoredRows = 64;

std::vector<Bucket> Buckets(const LoadOptions& o) {
  std::vector<Bucket> buckets = {{o.max_num_seqs, o.max_num_seqs, o.max_num_seqs}};
  const int64_t tokens = std::max(o.max_num_batched_tokens, o.max_num_seqs);
  buckets.push_back({tokens, o.max_num_seqs, o.max_num_seqs});
  if (o.score_prompts)
    buckets.push_back({tokens, o.max_num_seqs, std::max(o.max_num_seqs, kScoredRows)});
  return buckets;
}

}  // namespace

base::Result<void*> StepRunner::Own(int64_t bytes) {
  base::Result<void*> p = backend_.Allocate(std::max<int64_t>(bytes, 1));
  if (p) owned_.push_back(*p);
  return p;
}

base::Result<std::unique_ptr<StepRunner>> StepRunner::Create(
    vt::Backend& backend, const vt::ir::Graph& graph,
    std::map<std::string, vt::DeviceWeight> weights, const LoadOptions& options) {
  std::unique_ptr<StepRunner> r(new StepRunner(backend));
  vt::Bindings& b = r->bindings_;
  for (const auto& [name, weight] : weights) r->memory_.weights += weight.layout.bytes;
  b.weights = std::move(weights);
  b.block_size = options.block_size;
  r->groups_ = graph.state_groups.size();

  const int64_t blocks = options.max_num_seqs *
                         ((options.max_model_len + options.block_size - 1) / options.block_size);
  for (const vt::ir::StateGroup& group : graph.state_groups) {
    const int64_t bytes = blocks * backend.StateBlockBytes(group, options.block_size);
    b.state.emplace_back();
    b.state_blocks.push_back(blocks);
    for (int layer = 0; layer < group.layers; ++layer) {
      base::Result<void*> p = r->Own(bytes);
      if (!p)
        return p.error().In(fmt::format("KV cache of {} tokens, group '{}'",
                                        blocks * options.block_size, group.name));
      b.state.back().push_back(*p);
      r->memory_.state += bytes;
    }
  }

  std::vector<vt::ir::Plan> plans;
  int64_t input_bytes = 0;
  for (const Bucket& bucket : Buckets(options)) {
    plans.push_back(vt::ir::Lower(graph, backend, bucket));
    r->memory_.arena = std::max(r->memory_.arena, plans.back().memory.arena_bytes);
    r->compiled_.push_back({bucket, vt::StepLayout(plans.back().graph, bucket), nullptr});
    input_bytes = std::max(input_bytes, r->compiled_.back().layout.bytes());
    r->limits_.tokens = std::max(r->limits_.tokens, bucket.tokens);
    r->limits_.requests = std::max(r->limits_.requests, bucket.requests);
    r->limits_.outputs = std::max(r->limits_.outputs, bucket.outputs);
  }
  base::Result<void*> arena = r->Own(r->memory_.arena);
  if (!arena) return arena.error().In("activations");
  base::Result<void*> inputs = r->Own(input_bytes);
  if (!inputs) return inputs.error().In("step inputs");
  b.arena = *arena;
  b.inputs = *inputs;
  r->packed_.resize(static_cast<size_t>(input_bytes));

  base::Result<std::unique_ptr<vt::Queue>> queue = backend.CreateQueue();
  if (!queue) return queue.error();
  r->queue_ = *std::move(queue);
  for (size_t i = 0; i < plans.size(); ++i) {
    base::Result<std::unique_ptr<vt::Executable>> e = backend.Compile(std::move(plans[i]), b);
    if (!e) return e.error();
    r->compiled_[i].executable = *std::move(e);
  }
  r->vocab_ = graph.value(graph.outputs.front()).shape.back().count;
  return r;
}

StepRunner::~StepRunner() {
  compiled_.clear();
  for (void* p : owned_) backend_.Free(p);
}

size_t StepRunner::Pick(const Bucket& step) const {
  for (size_t i = 0; i + 1 < compiled_.size(); ++i) {
    if (Holds(compiled_[i].bucket, step)) return i;
  }
  return compiled_.size() - 1;
}

const vt::Executable& StepRunner::ExecutableFor(const Bucket& step) const {
  return *compiled_[Pick(step)].executable;
}
vt::Executable& StepRunner::ExecutableFor(const Bucket& step) {
  return *compiled_[Pick(step)].executable;
}

void StepRunner::Pack(const Compiled& c, std::span<const Chunk> chunks, const KvBlocks& blocks) {
  const Bucket step = Count(chunks);
  const vt::StepHeader header = {static_cast<int32_t>(step.tokens),
                                 static_cast<int32_t>(step.requests),
                                 static_cast<int32_t>(step.outputs), 0};
  std::memcpy(packed_.data(), &header, sizeof header);

  const auto field = [&](const std::string& name, int32_t padding) -> int32_t* {
    for (const vt::StepLayout::Field& f : c.layout.fields()) {
      if (f.name != name) continue;
      auto* p = reinterpret_cast<int32_t*>(packed_.data() + f.offset);
      std::fill_n(p, f.count, padding);
      return p;
    }
    return nullptr;
  };
  int32_t* ids = field(vt::ir::kTokenIds, 0);
  int32_t* positions = field(vt::ir::kPositions, 0);
  int32_t* query_start = field(vt::ir::kQueryStart, header.tokens);
  int32_t* seq_lens = field(vt::ir::kSeqLens, 0);
  int32_t* rows = field(vt::ir::kOutputRows, 0);
  auto* sampling = reinterpret_cast<float*>(field(vt::ir::kSampleParams, 0));
  std::vector<int32_t*> slots, tables;
  std::vector<int64_t> table_width;
  for (size_t g = 0; g < groups_; ++g) {
    slots.push_back(field(vt::ir::SlotsName(static_cast<int>(g)), -1));
    const std::string name = vt::ir::BlockTableName(static_cast<int>(g));
    tables.push_back(field(name, 0));
    int64_t width = 0;
    for (const vt::StepLayout::Field& f : c.layout.fields()) {
      if (f.name == name) width = f.count / c.bucket.requests;
    }
    table_width.push_back(width);
  }

  int64_t row = 0, output = 0;
  for (size_t r = 0; r < chunks.size(); ++r) {
    const Chunk& chunk = chunks[r];
    const auto n = static_cast<int64_t>(chunk.tokens.size());
    if (query_start != nullptr) query_start[r] = static_cast<int32_t>(row);
    if (seq_lens != nullptr) seq_lens[r] = static_cast<int32_t>(chunk.start + n);
    for (size_t g = 0; g < groups_; ++g) {
      const std::vector<int32_t>& table = blocks.table(chunk.sequence);
      const size_t count = std::min(table.size(), static_cast<size_t>(table_width[g]));
      if (tables[g] != nullptr)
        std::copy_n(table.data(), count, tables[g] + static_cast<int64_t>(r) * table_width[g]);
    }
    for (int64_t i = 0; i < n; ++i, ++row) {
      ids[row] = chunk.tokens[static_cast<size_t>(i)];
      if (positions != nullptr) positions[row] = static_cast<int32_t>(chunk.start + i);
      for (int32_t* s : slots) {
        if (s != nullptr) s[row] = blocks.Slot(chunk.sequence, chunk.start + i);
      }
      const bool wanted = chunk.logits == Chunk::Logits::kAll ||
                          (chunk.logits == Chunk::Logits::kLast && i == n - 1);
      if (!wanted) continue;
      rows[output] = static_cast<int32_t>(row);
      const SamplingParams& p = chunk.sampling;
      vt::ir::PackSamplingRow({.temperature = p.temperature,
                               .top_k = static_cast<float>(std::max(p.top_k, 0)),
                               .top_p = p.top_p,
                               .min_p = p.min_p,
                               .seed = chunk.seed,
                               .position = static_cast<uint32_t>(chunk.output_position)},
                              sampling + output * vt::ir::kSampleParamCount);
      ++output;
    }
  }
}

base::Result<StepResult> StepRunner::Run(std::span<const Chunk> chunks, const KvBlocks& blocks) {
  const Bucket step = Count(chunks);
  if (!Holds(limits_, step)) {
    return base::Error{
        base::Code::kInternal,
        fmt::format(
            "a step of {} tokens, {} requests and {} output rows is over the limit of {}, {}, {}",
            step.tokens, step.requests, step.outputs, limits_.tokens, limits_.requests,
            limits_.outputs)};
  }
  Compiled& c = compiled_[Pick(step)];
  Pack(c, chunks, blocks);
  base::Status done =
      backend_.CopyToDevice(*queue_, bindings_.inputs, packed_.data(), c.layout.bytes());
  if (done) done = c.executable->Run(*queue_);
  if (!done) return done.error();

  StepResult result;
  result.outputs = step.outputs;
  const std::vector<vt::ir::ValueId>& outputs = c.executable->plan().graph.outputs;
  const void* logits = c.executable->ValueAddress(outputs[0]);
  const void* tokens = c.executable->ValueAddress(outputs[1]);
  if (backend_.HostAddressable()) {
    result.logits = static_cast<const float*>(logits);
    result.tokens = static_cast<const int32_t*>(tokens);
    done = backend_.Synchronize(*queue_);
  } else {
    logits_.resize(static_cast<size_t>(step.outputs * vocab_));
    tokens_.resize(static_cast<size_t>(step.outputs));
    done = backend_.CopyToHost(*queue_, logits_.data(), logits,
                               static_cast<int64_t>(logits_.size() * 4));
    if (done)
      done = backend_.CopyToHost(*queue_, tokens_.data(), tokens,
                                 static_cast<int64_t>(tokens_.size() * 4));
    if (done) done = backend_.Synchronize(*queue_);
    result.logits = logits_.data();
    result.tokens = tokens_.data();
  }
  if (!done) return done.error();
  return result;
}

}  // namespace vllm::engine
