// Runs one op case on a backend and holds it against the reference.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <span>

#include "base/strings.h"
#include "tests/op_bounds.h"
#include "tests/op_cases.h"
#include "tests/op_memory.h"
#include "tests/op_slots.h"
#include "tests/op_weights.h"
#include "vt/device/step_layout.h"
#include "vt/ir/fused.h"
#include "vt/ir/interpreter.h"
#include "vt/ir/quant.h"
#include "vt/ir/sampling.h"

namespace tests {
namespace {

using namespace vt::ir;  // NOLINT: this file is written in the IR's words

// The inputs of one step, and how many of its rows are real.
struct StepInputs {
  Bucket bucket;
  vt::StepHeader header{};
  std::map<std::string, Tensor> tensors;
};

class CaseRun {
 public:
  CaseRun(const OpCase& c, vt::Backend& backend, bool optimise)
      : case_(c), backend_(backend), optimise_(optimise), memory_(backend) {
    result_.tolerance = c.tolerance;
  }

  CaseResult Run(int timed_runs) {
    if (case_.graph.nodes.empty() || case_.steps.empty()) {
      result_.error = "the case does not build";
      return result_;
    }
    base::Status status = Setup();
    for (size_t s = 0; s < case_.steps.size() && status && result_.supported; ++s) {
      const bool last = s + 1 == case_.steps.size();
      status = Step(case_.steps[s], last || timed_runs == kLaunchOnly ? timed_runs : 0);
      if (!status) status = status.error().In(fmt::format("step {}", s));
    }
    if (!status && result_.supported) result_.error = status.error().message;
    return result_;
  }

 private:
  base::Status Setup();
  base::Status Step(const OpStep& step, int timed_runs);
  StepInputs Inputs(const OpStep& step);
  void PageInputs(const OpStep& step, StepInputs& in);
  base::Status Upload(const vt::StepLayout& layout, const StepInputs& in);
  base::Status CheckNodes(vt::Executable& exe, const StepInputs& in);
  base::Status CheckEnd(vt::Executable& exe, const StepInputs& in);
  base::Status Time(vt::Executable& exe, int runs);
  base::Result<Tensor> Read(vt::Executable& exe, ValueId id, const Bucket& bucket);
  // Largest error of the rows that are real.
  // `floor`: rows that are small by cancellation are measured against this share of the tensor.
  double Error(const Value& v, const Tensor& got, const Tensor& want, const StepInputs& in,
               double floor = 1e-2);
  void Note(double error, double bound, const std::string& where);
  base::Status SetUpWeight(const Value& v, const std::vector<NodeId>& users);
  base::Status SetUpSampler(size_t group, size_t requests);
  base::Status SetUpRecurrent(size_t group, size_t requests);
  base::Status SetUpMedia(size_t group);
  SamplingRow SamplerRow(size_t request);
  void RecurrentInputs(const OpStep& step, StepInputs& in);
  bool Compares(const Value& v, int64_t row, const StepInputs& in) const;

  static constexpr int32_t kMedia = 5;  // slots of media rows

  const OpCase& case_;
  vt::Backend& backend_;
  const bool optimise_;
  Memory memory_;
  std::unique_ptr<vt::Queue> queue_;
  vt::Bindings bindings_;
  std::map<std::string, StoredWeight> weights_;
  std::vector<std::vector<int32_t>> blocks_;  // [group]: shuffled physical blocks; none of slots
  int sampler_ = -1;                          // state group
  SamplerLayout layout_;
  SlotStates slots_;
  std::vector<int32_t> recurrent_;  // [request]: the slot of its state; -1: it has none yet
  int steps_ = 0;
  bool quantised_ = false;          // a step so far had codes or 16 bits between its nodes
  std::vector<PackedLists> lists_;  // [request]
  std::vector<int64_t> cached_;     // [request]
  std::map<std::pair<int, int>, KvState> node_states_, end_states_;
  std::mt19937 random_{7};
  CaseResult result_;
};

base::Status CaseRun::SetUpWeight(const Value& v, const std::vector<NodeId>& users) {
  bool linear = false, table = false;
  for (const NodeId n : users) {
    const Op op = case_.graph.nodes[static_cast<size_t>(n)].op;
    linear |= (op == Op::kLinear && v.shape.size() == 2) || v.shape.size() == 3;
    table |= op == Op::kEmbed;
  }
  const WeightUse use = linear  ? WeightUse::kLinear
                        : table ? WeightUse::kEmbedding
                                : WeightUse::kPlain;
  // Linears keep the size of what they multiply.
  const int64_t columns = v.shape.back().At({});
  StoredWeight& w = weights_[v.name] =
      RandomWeight(v, linear && !table ? 1 / std::sqrt(static_cast<float>(columns)) : 1);
  // A device that holds matrices in another type is held to what it holds.
  const DType held = backend_.HeldFormat(v.dtype);
  if (held != v.dtype && use != WeightUse::kPlain) w.values = RoundedTo(held, std::move(w.values));
  // Of experts one matrix after the other.
  const int64_t matrices = v.shape.size() == 3 ? v.shape[0].At({}) : 1;
  const int64_t rows = Rows(v.shape, {}) / matrices;
  const WeightLayout layout = backend_.LayoutFor(v.dtype, rows, columns, use);
  auto p = memory_.Get(layout.bytes * matrices);
  if (!p) return p.error();
  for (int64_t m = 0; m < matrices; ++m) {
    const vt::WeightView view{w.bytes.data() + m * Bytes(v.dtype, rows * columns), v.dtype, rows,
                              columns};
    void* const to = static_cast<std::byte*>(*p) + m * layout.bytes;
    if (auto s = backend_.Repack(view, layout, to); !s) return s;
  }
  bindings_.weights[v.name] = {*p, v.dtype, layout};
  return {};
}

base::Status CaseRun::Setup() {
  auto queue = backend_.CreateQueue();
  if (!queue) return queue.error();
  queue_ = *std::move(queue);
  const auto users = case_.graph.Users();
  for (size_t id = 0; id < case_.graph.values.size(); ++id) {
    const Value& v = case_.graph.values[id];
    if (v.kind != ValueKind::kWeight) continue;
    if (auto status = SetUpWeight(v, users[id]); !status) return status.error().In(v.name);
  }
  const size_t requests = case_.steps[0].added.size();
  cached_.assign(requests, 0);
  bindings_.block_size = case_.block_size;
  for (size_t g = 0; g < case_.graph.state_groups.size(); ++g) {
    const StateGroup& group = case_.graph.state_groups[g];
    if (group.kind == StateGroup::Kind::kSlot) {
      const bool recurrent = group.name == kRecurrentGroup;
      const auto s = group.name == kMediaGroup ? SetUpMedia(g)
                     : recurrent               ? SetUpRecurrent(g, requests)
                                               : SetUpSampler(g, requests);
      if (!s) return s;
      continue;
    }
    const int64_t count = static_cast<int64_t>(requests) * BlocksOfTable(case_.graph) + 2;
    auto& order = blocks_.emplace_back(static_cast<size_t>(count));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), random_);
    auto& layers = bindings_.state.emplace_back();
    const int64_t bytes = count * backend_.StateBlockBytes(group, case_.block_size);
    for (int l = 0; l < group.layers; ++l) {
      auto p = memory_.Get(bytes);
      if (!p) return p.error();
      // NaN in every slot that nobody wrote: a read past a request's length shows.
      if (auto s = backend_.Fill(*queue_, *p, 0xff, bytes); !s) return s;
      layers.push_back(*p);
    }
    bindings_.state_blocks.push_back(count);
  }
  return {};
}

// Request r has slot 2 r: histories that repeat themselves, and lists. Slots between are NaN, and
// so is every word that nobody wrote.
base::Status CaseRun::SetUpSampler(size_t group, size_t requests) {
  sampler_ = static_cast<int>(group);
  for (const Node& n : case_.graph.nodes) {
    if (n.op == Op::kSample) layout_ = n.attrs.as<SamplerAttrs>().layout;
  }
  blocks_.emplace_back();
  const auto count = static_cast<int64_t>(2 * requests);
  if (backend_.StateBlockBytes(case_.graph.state_groups[group], case_.block_size) !=
      layout_.bytes())
    return base::Error{base::Code::kInternal, "a slot of the sampler is not slot_bytes long"};
  auto p = memory_.Get(count * layout_.bytes());
  if (!p) return p.error();
  bindings_.state.push_back({*p});
  bindings_.state_blocks.push_back(count);

  std::vector<int32_t> words(static_cast<size_t>(count * layout_.words()), -1);
  const auto vocabulary = static_cast<int32_t>(layout_.vocabulary);
  std::uniform_int_distribution<int32_t> few(0, std::min(vocabulary, 5) - 1),
      any(0, vocabulary - 1);
  for (size_t r = 0; r < requests; ++r) {
    int32_t* slot = &words[2 * r * static_cast<size_t>(layout_.words())];
    slot[SamplerLayout::last_token_offset()] = any(random_);
    for (int64_t i = 0; i < layout_.history; ++i)
      slot[SamplerLayout::history_offset() + i] = few(random_);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary; ++id) {
      if (random_() % 3 != 0) allowed.push_back(id);
    }
    const std::vector<int32_t> mask = PackMask(layout_, allowed);
    std::copy(mask.begin(), mask.end(), slot + layout_.mask_offset());
    const TokenBias bias[] = {{any(random_), 3},
                              {any(random_), -2},
                              {few(random_), -INFINITY, 2},
                              {any(random_), INFINITY, 1}};
    const std::vector<std::vector<int32_t>> bad = {
        {any(random_)}, {few(random_), few(random_)}, {few(random_), few(random_), few(random_)}};
    const int32_t breakers[] = {few(random_), any(random_)};
    const std::vector<int32_t> breaks = PackMask(layout_, breakers);
    std::copy(breaks.begin(), breaks.end(), slot + layout_.breakers_offset());
    auto lists = PackLists(layout_, bias, bad);
    if (!lists) return lists.error();
    std::copy(lists->words.begin(), lists->words.end(), slot + layout_.lists_offset());
    lists_.push_back(*std::move(lists));
  }
  slots_.Add({.group = sampler_, .device = *p, .words = layout_.words(), .now = std::move(words)});
  return {};
}

// Two slots a request, between which its state goes to and fro; all NaN.
base::Status CaseRun::SetUpRecurrent(size_t group, size_t requests) {
  const StateGroup& g = case_.graph.state_groups[group];
  blocks_.emplace_back();
  recurrent_.assign(requests, -1);
  const auto count = static_cast<int64_t>(2 * requests);
  if (backend_.StateBlockBytes(g, case_.block_size) != g.slot_bytes)
    return base::Error{base::Code::kInternal, "a recurrent slot is not slot_bytes long"};
  auto& layers = bindings_.state.emplace_back();
  bindings_.state_blocks.push_back(count);
  std::vector<int64_t> pieces;
  for (const Node& n : case_.graph.nodes) {
    if (n.op != Op::kGatedDelta) continue;
    const auto& a = n.attrs.as<DeltaAttrs>();
    pieces.assign(static_cast<size_t>(1 + a.v_heads), a.k_dim * a.v_dim);
    pieces[0] = a.state_begin;
  }
  for (int l = 0; l < g.layers; ++l) {
    auto p = memory_.Get(count * g.slot_bytes);
    if (!p) return p.error();
    layers.push_back(*p);
    slots_.Add({.group = static_cast<int>(group),
                .layer = l,
                .device = *p,
                .words = g.slot_bytes / 4,
                .now = std::vector<int32_t>(static_cast<size_t>(count * g.slot_bytes / 4), -1),
                .floats = true,
                .pieces = pieces});
  }
  return {};
}

// Rows that no step changes.
base::Status CaseRun::SetUpMedia(size_t group) {
  const int64_t words = case_.graph.state_groups[group].slot_bytes / 4;
  std::vector<int32_t> now(static_cast<size_t>(kMedia * words));
  std::uniform_real_distribution<float> unit(-1, 1);
  for (int32_t& word : now) word = std::bit_cast<int32_t>(unit(random_));
  auto p = memory_.Get(kMedia * words * 4);
  if (!p) return p.error();
  blocks_.emplace_back();
  bindings_.state.push_back({*p});
  bindings_.state_blocks.push_back(kMedia);
  slots_.Add({.group = static_cast<int>(group),
              .device = *p,
              .words = words,
              .now = std::move(now),
              .floats = true,
              .pieces = {words}});
  return {};
}

// In place, or from one slot to the other. One request begins anew on the way, over what it left.
void CaseRun::RecurrentInputs(const OpStep& step, StepInputs& in) {
  if (recurrent_.empty()) return;
  Tensor reads, writes;
  for (size_t r = 0; r < step.added.size(); ++r) {
    if (step.added[r] == 0) continue;
    const auto first = static_cast<int32_t>(2 * r);
    int32_t& slot = recurrent_[r];
    if (steps_ == 5 && r == 1) slot = -1;
    reads.i.push_back(slot);
    const bool move = (static_cast<size_t>(steps_) + r) % 2 == 1;
    slot = slot < 0 ? first : move ? 2 * first + 1 - slot : slot;
    writes.i.push_back(slot);
  }
  reads.i.resize(static_cast<size_t>(in.bucket.requests), -1);
  writes.i.resize(static_cast<size_t>(in.bucket.requests), -1);
  in.tensors[kStateRead] = std::move(reads);
  in.tensors[kStateWrite] = std::move(writes);
  ++steps_;
}

// Every processor and filter in turn, over the requests.
SamplingRow CaseRun::SamplerRow(size_t r) {
  std::uniform_real_distribution<float> unit(0, 1);
  SamplingRow row{.temperature = r % 3 == 0 ? 0 : 0.5f + unit(random_),
                  .top_k = r % 3 == 2 ? 20.0f : 0,
                  .top_p = r % 2 == 1 ? 0.8f : 1,
                  .min_p = r % 4 == 2 ? 0.05f : 0,
                  .seed = random_(),
                  .position = static_cast<uint32_t>(cached_[r])};
  if (sampler_ < 0) return row;
  row.logprobs = static_cast<int32_t>(r % 4) * 7 - 7;  // none, 0, 7, 14
  if (r == 0) return row;
  row.slot = static_cast<int32_t>(2 * r);
  row.length = 20 + static_cast<int32_t>(cached_[r]);
  row.prompt_length = 12;
  switch (r % 8) {
    case 1:
      row.repetition_penalty = 1.5f;
      row.presence_penalty = 0.5f;
      row.frequency_penalty = 0.25f;
      break;
    case 2:
      row.top_n_sigma = 1.5f;
      break;
    case 3:
      row.use_mask = true;
      row.bias_words = lists_[r].bias_words;
      row.bad_word_words = lists_[r].bad_word_words;
      break;
    case 4:
      row.typical_p = 0.7f;
      break;
    case 5:
      row.xtc_probability = 0.9f;
      row.xtc_threshold = 0.05f;
      break;
    case 6:
      row.dry_multiplier = 0.8f;
      row.dry_allowed_length = 1;
      row.bias_words = lists_[r].bias_words;  // lists stand one after the other
      row.bad_word_words = lists_[r].bad_word_words;
      row.use_breakers = true;
      break;
    case 7:
      row.forced = static_cast<int32_t>(layout_.vocabulary - 1);
      break;
    default:
      row.use_mask = true;
      row.temperature = 1;
      break;
  }
  return row;
}

// Rows of top_logprobs that asked for nothing hold anything.
bool CaseRun::Compares(const Value& v, int64_t row, const StepInputs& in) const {
  if (v.name.rfind("top_logprobs", 0) != 0) return true;
  const Tensor& params = in.tensors.at(kSampleParams);
  return UnpackSamplingRow(&params.f[static_cast<size_t>(row) * kSampleParamCount]).logprobs >= 0;
}

// Slots and block tables. Entries that no query of the step may touch are -1: past the end, and
// before the window.
void CaseRun::PageInputs(const OpStep& step, StepInputs& in) {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    if (slots_.Has(static_cast<int>(g))) continue;
    const int64_t window = case_.graph.state_groups[g].window, width = BlocksOfTable(case_.graph),
                  size = case_.block_size;
    Tensor slots, table;
    table.i.assign(static_cast<size_t>(in.bucket.requests * width), 0);
    size_t row = 0;
    for (size_t r = 0; r < step.added.size(); ++r) {
      if (step.added[r] == 0) continue;
      const int32_t* mine = &blocks_[g][r * static_cast<size_t>(width)];
      const int64_t end = cached_[r] + step.added[r];
      for (int64_t p = cached_[r]; p < end; ++p) {
        slots.i.push_back(static_cast<int32_t>(mine[p / size] * size + p % size));
      }
      const int64_t first = window > 0 ? std::max<int64_t>(0, cached_[r] - window + 1) : 0;
      for (int64_t b = 0; b < width; ++b) {
        const bool seen = b * size < end && (b + 1) * size > first;
        table.i[row * static_cast<size_t>(width) + static_cast<size_t>(b)] = seen ? mine[b] : -1;
      }
      ++row;
    }
    slots.i.resize(static_cast<size_t>(in.bucket.tokens), -1);
    in.tensors[SlotsName(static_cast<int>(g))] = std::move(slots);
    in.tensors[BlockTableName(static_cast<int>(g))] = std::move(table);
  }
}

StepInputs CaseRun::Inputs(const OpStep& step) {
  StepInputs in;
  Tensor ids, positions, starts, lens, rows, params;
  std::uniform_int_distribution<int32_t> token(0, 96);  // below every table's rows
  std::uniform_int_distribution<int32_t> medium(-1, kMedia - 1);
  Tensor media;
  const bool has_media = CountNodes(case_.graph, Op::kStateRows) > 0;
  int32_t taken = 1;  // rows by an output
  for (const Node& n : case_.graph.nodes) {
    if (n.op == Op::kGather && std::holds_alternative<GatherAttrs>(n.attrs.v))
      taken = static_cast<int32_t>(n.attrs.as<GatherAttrs>().count);
  }
  starts.i.push_back(0);
  for (size_t r = 0; r < step.added.size(); ++r) {
    if (step.added[r] == 0) continue;
    for (int64_t i = 0; i < step.added[r]; ++i) {
      // What is generated is fed from the slot.
      const bool fed = sampler_ >= 0 && cached_[r] > 0 && step.added[r] == 1;
      ids.i.push_back(fed ? -1 - static_cast<int32_t>(2 * r) : token(random_));
      media.i.push_back(has_media ? medium(random_) : -1);
      positions.i.push_back(static_cast<int32_t>(cached_[r] + i));
    }
    starts.i.push_back(static_cast<int32_t>(ids.i.size()));
    lens.i.push_back(static_cast<int32_t>(cached_[r] + step.added[r]));
    rows.i.push_back(static_cast<int32_t>(ids.i.size()) - taken);
    const SamplingRow sampling = SamplerRow(r);
    params.f.resize(params.f.size() + kSampleParamCount);
    PackSamplingRow(sampling, &params.f[params.f.size() - kSampleParamCount]);
  }
  const auto tokens = static_cast<int32_t>(ids.i.size()),
             requests = static_cast<int32_t>(lens.i.size());
  in.header = {tokens, requests, requests, static_cast<int32_t>(BlocksOfTable(case_.graph))};
  in.bucket = {.tokens = std::max<int64_t>(1, tokens + step.padding_tokens),
               .requests = std::max<int64_t>(1, requests + step.padding_requests),
               .outputs = std::max<int64_t>(1, requests + step.padding_requests)};
  ids.i.resize(static_cast<size_t>(in.bucket.tokens));
  positions.i.resize(static_cast<size_t>(in.bucket.tokens));
  starts.i.resize(static_cast<size_t>(in.bucket.requests + 1), tokens);
  lens.i.resize(static_cast<size_t>(in.bucket.requests));
  media.i.resize(static_cast<size_t>(in.bucket.tokens), -1);
  rows.i.resize(static_cast<size_t>(in.bucket.outputs));
  params.f.resize(static_cast<size_t>(in.bucket.outputs * kSampleParamCount));
  in.tensors = {{kTokenIds, ids},   {kPositions, positions}, {kQueryStart, starts},
                {kSeqLens, lens},   {kOutputRows, rows},     {kSampleParams, params},
                {kMediaRows, media}};
  PageInputs(step, in);
  RecurrentInputs(step, in);
  return in;
}

base::Status CaseRun::Upload(const vt::StepLayout& layout, const StepInputs& in) {
  std::vector<std::byte> packed(static_cast<size_t>(layout.bytes()));
  std::memcpy(packed.data(), &in.header, sizeof(in.header));
  for (const auto& field : layout.fields()) {
    const Tensor& t = in.tensors.at(field.name);
    const void* data = t.i.empty() ? static_cast<const void*>(t.f.data()) : t.i.data();
    std::memcpy(packed.data() + field.offset, data, static_cast<size_t>(field.count) * 4);
  }
  auto p = memory_.Get(layout.bytes());
  if (!p) return p.error();
  bindings_.inputs = *p;
  if (auto s = backend_.CopyToDevice(*queue_, *p, packed.data(), layout.bytes()); !s) return s;
  return backend_.Synchronize(*queue_);
}

base::Status CaseRun::Step(const OpStep& step, int timed_runs) {
  const StepInputs in = Inputs(step);
  const Plan plan = optimise_ ? Lower(case_.graph, backend_, in.bucket)
                              : LowerUnoptimised(case_.graph, backend_, in.bucket);
  if (auto s = Verify(plan.graph); !s) return s.error().In("lowered graph");
  for (const Node& n : plan.graph.nodes) {
    if (backend_.Supports(plan.graph, n, plan.bucket)) continue;
    result_.supported = false;
    result_.why = fmt::format("{} has no {} for {}", backend_.TargetName(), Name(n.op), n.name);
    return {};
  }
  result_.nodes = static_cast<int>(plan.graph.nodes.size());
  result_.fused = 0;
  for (const Node& n : plan.graph.nodes) result_.fused += IsFused(n.op);

  if (auto s = Upload(vt::StepLayout(plan.graph, in.bucket), in); !s) return s;
  auto arena = memory_.Get(plan.memory.arena_bytes);
  if (!arena) return arena.error();
  bindings_.arena = *arena;
  // NaN everywhere: a value that is read before it is written shows.
  if (auto s = backend_.Fill(*queue_, *arena, 0xff, plan.memory.arena_bytes); !s) return s;
  auto exe = backend_.Compile(plan, bindings_);
  if (!exe) return exe.error().In("compile");
  if (backend_.Launches(plan) < 0)
    return base::Error{base::Code::kInternal, "the plan's launches cannot be told without memory"};
  if (timed_runs == kLaunchOnly) {
    for (size_t r = 0; r < step.added.size(); ++r) cached_[r] += step.added[r];
    return (*exe)->Run(*queue_);
  }
  if (auto s = slots_.Begin(backend_, *queue_, node_states_); !s) return s;
  if (sampler_ >= 0) end_states_[{sampler_, 0}].slots = node_states_[{sampler_, 0}].slots;
  for (size_t g = 0; g < case_.graph.state_groups.size(); ++g) {
    if (case_.graph.state_groups[g].name != kMediaGroup) continue;
    const std::pair media{static_cast<int>(g), 0};
    end_states_[media].recurrent = node_states_[media].recurrent;
  }
  if (auto s = CheckNodes(**exe, in); !s) return s;
  if (auto s = CheckEnd(**exe, in); !s) return s;
  // Inputs that were rounded or quantised in a fused op change what is kept as they do values.
  const double bound = std::max(case_.tolerance, RoundingOf(backend_.ValueType()));
  if (auto s = slots_.End(backend_, *queue_, node_states_, bound); !s) return s;
  for (size_t r = 0; r < step.added.size(); ++r) cached_[r] += step.added[r];
  return timed_runs > 0 ? Time(**exe, timed_runs) : base::Status{};
}

base::Result<Tensor> CaseRun::Read(vt::Executable& exe, ValueId id, const Bucket& bucket) {
  const Value& v = exe.plan().graph.value(id);
  const int64_t rows = v.shape[0].At(bucket),
                width = Elements(v.shape, bucket) / std::max<int64_t>(rows, 1);
  const int64_t stride = exe.plan().memory.places[static_cast<size_t>(id)].row_stride;
  const void* address = exe.ValueAddress(id);
  if (address == nullptr) return base::Error{base::Code::kInternal, v.name + " has no address"};
  const auto width_bytes = static_cast<size_t>(Bytes(v.dtype, width)),
             stride_bytes = static_cast<size_t>(Bytes(v.dtype, stride));
  std::vector<std::byte> span(stride_bytes * static_cast<size_t>(rows - 1) + width_bytes);
  if (auto s =
          backend_.CopyToHost(*queue_, span.data(), address, static_cast<int64_t>(span.size()));
      !s)
    return s.error();
  if (auto s = backend_.Synchronize(*queue_); !s) return s.error();
  Tensor t;
  for (const Dim& d : v.shape) t.shape.emplace_back(d.At(bucket));
  const auto count = static_cast<size_t>(rows * width);
  if (v.dtype == DType::kI32)
    t.i.resize(count);
  else
    t.f.resize(count);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = span.data() + static_cast<size_t>(r) * stride_bytes;
    if (v.dtype == DType::kI32)
      std::memcpy(&t.i[static_cast<size_t>(r * width)], row, width_bytes);
    else
      Dequantize(v.dtype, row, &t.f[static_cast<size_t>(r * width)], width);
  }
  return t;
}

double CaseRun::Error(const Value& v, const Tensor& got, const Tensor& want, const StepInputs& in,
                      double floor) {
  int64_t rows = v.shape[0].At(in.bucket);
  if (v.shape[0].sym == Sym::kTokens) rows = in.header.tokens * v.shape[0].count;
  if (v.shape[0].sym == Sym::kOutputs) rows = in.header.outputs * v.shape[0].count;
  if (rows == 0) return 0;
  const size_t width =
      std::max(got.f.size(), got.i.size()) / static_cast<size_t>(got.shape[0].At({}));
  if (v.dtype == DType::kI32) {
    for (size_t i = 0; i < static_cast<size_t>(rows) * width; ++i) {
      if (got.i[i] != want.i[i] && Compares(v, static_cast<int64_t>(i / width), in))
        return INFINITY;
    }
    return 0;
  }
  float largest = 0;
  for (size_t i = 0; i < static_cast<size_t>(rows) * width; ++i) {
    if (std::isfinite(want.f[i])) largest = std::max(largest, std::fabs(want.f[i]));
  }
  double worst = 0;
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    if (!Compares(v, static_cast<int64_t>(r), in)) continue;
    double scale = std::max(floor * largest, 1e-30), error = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      if (std::isfinite(want.f[i]))
        scale = std::max(scale, static_cast<double>(std::fabs(want.f[i])));
      const double e = std::fabs(static_cast<double>(got.f[i]) - want.f[i]);
      if (got.f[i] == want.f[i]) continue;                          // infinities too
      if (std::isnan(got.f[i]) && std::isnan(want.f[i])) continue;  // as it should be
      error = std::isnan(e) ? INFINITY : std::max(error, e);
    }
    worst = std::max(worst, error / scale);
  }
  return worst;
}

void CaseRun::Note(double error, double bound, const std::string& where) {
  const double relative = error / bound * case_.tolerance;
  if (relative <= result_.max_error && !result_.worst.empty()) return;
  result_.max_error = std::max(result_.max_error, relative);
  result_.worst = where;
}

base::Status CaseRun::CheckNodes(vt::Executable& exe, const StepInputs& in) {
  const Graph& g = exe.plan().graph;
  // Activation blocks stand in the arena in an order that is the backend's own, so they are not
  // read: what they should hold is kept here, and the linears that read them show whether they do.
  std::map<ValueId, Tensor> blocks;
  if (auto s = slots_.Reset(backend_, *queue_); !s) return s;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    double bound = case_.tolerance, floor = 1e-2;
    const auto index = static_cast<int>(n);
    if (auto s = exe.RunNodes(*queue_, index, index + 1); !s) return s.error().In(node.name);
    std::vector<Tensor> held(node.inputs.size());
    std::vector<const Tensor*> args;
    KvState *state = nullptr, *first_state = nullptr;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& v = g.value(node.inputs[i]);
      if (v.kind == ValueKind::kState) {
        first_state = state;
        state = &node_states_[{v.group, v.layer}];
        state->dtype = g.state_groups[static_cast<size_t>(v.group)].dtype;
        args.push_back(nullptr);
        continue;
      }
      if (v.kind == ValueKind::kWeight) held[i].f = weights_.at(v.name).values;
      if (CountsAsX(g, node, node.inputs[i])) {
        const DType type = g.value(node.inputs[0]).dtype;
        held[i].f = RoundedTo(type, std::move(held[i].f));
        if (UnpackingOf(v.dtype, type) > 0) floor = 0.5;
        bound = std::max(bound, UnpackingOf(v.dtype, type));
      }
      if (v.kind == ValueKind::kInput) held[i] = in.tensors.at(v.name);
      held[i].shape.clear();
      for (const Dim& d : v.shape) held[i].shape.emplace_back(d.At(in.bucket));
      if (const auto b = blocks.find(node.inputs[i]); b != blocks.end()) {
        held[i] = b->second;
        // Behind a fused norm or activation a value at the border of two int8 codes may take
        // either; each such code moves a sum of K products by about 1 / (127 sqrt(K)) of itself.
        if (IsFused(g.nodes[static_cast<size_t>(v.producer)].op)) bound = 2e-3;
      } else if (v.kind == ValueKind::kNode) {
        auto t = Read(exe, node.inputs[i], in.bucket);
        if (!t) return t.error();
        held[i] = *std::move(t);
        // Ids of padding rows are anything.
        if (v.dtype == DType::kI32 && v.shape[0] == T()) {
          const auto width = static_cast<int64_t>(held[i].i.size()) / in.bucket.tokens;
          std::fill(held[i].i.begin() + in.header.tokens * width, held[i].i.end(), 0);
        }
      }
      args.push_back(&held[i]);
    }
    // The same within one.
    if (QuantisesWithin(node.op)) bound = 2e-3;
    auto want = Evaluate(node.op, node.attrs, args, state, case_.block_size, first_state);
    if (!want) return want.error().In(node.name);
    if (ReadsCache(node.op) && state->dtype != DType::kF32 && WritesCacheFused(g))
      bound = std::max(bound, state->dtype == DType::kF8_E4M3 ? 3e-2 : 2e-3);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Value& v = g.value(node.outputs[o]);
      if (v.kind != ValueKind::kNode) continue;
      // A result of f32 may come from within a fused op that rounds to the device's type.
      bound = std::max(bound, RoundingOf(v.dtype));
      if (IsFused(node.op)) bound = std::max(bound, RoundingOf(backend_.ValueType()));
      if (IsQuantised(v.dtype)) {
        blocks[node.outputs[o]] = (*want)[o];
        continue;
      }
      auto got = Read(exe, node.outputs[o], in.bucket);
      if (!got) return got.error();
      if (node.op == Op::kTopLogprobs && o == 0) {  // ranks are exact, and larger than the rest
        for (size_t r = 0; r < static_cast<size_t>(in.header.outputs); ++r) {
          float &rank = got->f[r * kLogprobValues + 1],
                &right = (*want)[o].f[r * kLogprobValues + 1];
          if (rank != right && Compares(v, static_cast<int64_t>(r), in)) {
            return base::Error{base::Code::kInternal,
                               fmt::format("row {} has rank {}, not {}", r, rank, right)};
          }
          rank = right = 0;
        }
      }
      Note(Error(v, *got, (*want)[o], in, floor), bound,
           fmt::format("{} {} (T={} R={})", Name(node.op), node.name, in.bucket.tokens,
                       in.bucket.requests));
    }
  }
  return {};
}

// A whole run repeats the node by node run bit for bit, and agrees with the interpreter from start
// to end.
base::Status CaseRun::CheckEnd(vt::Executable& exe, const StepInputs& in) {
  const Graph& g = exe.plan().graph;
  std::vector<Tensor> before;
  for (const ValueId v : g.outputs) {
    auto t = Read(exe, v, in.bucket);
    if (!t) return t.error();
    before.push_back(*std::move(t));
  }
  if (auto s = slots_.Reset(backend_, *queue_); !s) return s;
  // What the nodes left one by one is gone: here a launch may leave a part of its work to the next.
  if (auto s = backend_.Fill(*queue_, bindings_.arena, 0xff, exe.plan().memory.arena_bytes); !s)
    return s;
  if (auto s = exe.Run(*queue_); !s) return s.error().In("run");
  if (auto s = backend_.Synchronize(*queue_); !s) return s;
  if (auto s = slots_.Reset(backend_, *queue_); !s) return s;
  auto profile = exe.Profile(*queue_);
  if (!profile) return profile.error().In("profile");
  if (profile->size() != g.nodes.size())
    return base::Error{base::Code::kInternal, "the profile has not one time a node"};

  std::map<std::string, DType> rounded;
  for (const Node& n : g.nodes) {
    for (const ValueId v : n.inputs) {
      if (CountsAsX(g, n, v)) rounded[g.value(v).name] = g.value(n.inputs[0]).dtype;
    }
  }
  // Tables are read as they are; that the last linear then differs is within the bound below.
  for (const Node& n : g.nodes) {
    if (n.op == Op::kEmbed) rounded.erase(g.value(n.inputs[0]).name);
  }
  const auto weight = [&](const Value& w) {
    const std::vector<float>& values = weights_.at(w.name).values;
    const auto type = rounded.find(w.name);
    return type != rounded.end() ? RoundedTo(type->second, values) : values;
  };
  Interpreter interpreter(g, weight, case_.block_size);
  for (const auto& [key, state] : end_states_) interpreter.state(key.first, key.second) = state;
  auto values = interpreter.Run(in.bucket, in.tensors);
  if (!values) return values.error().In("interpreter");
  for (size_t group = 0; group < g.state_groups.size(); ++group) {
    for (int l = 0; l < g.state_groups[group].layers; ++l) {
      end_states_[{static_cast<int>(group), l}] = interpreter.state(static_cast<int>(group), l);
    }
  }
  for (const Value& v : g.values) {
    quantised_ |=
        v.dtype == DType::kQ8_A32 || (v.kind == ValueKind::kNode && RoundingOf(v.dtype) > 0);
  }
  // Errors add up over nodes. One int8 code that falls the other way moves a row by 1e-3; two
  // layers of random weights make up to 5 % of that, and the cache keeps it for later steps. Each
  // node is held to its own inputs above: the end shows that they are joined rightly.
  double bound = quantised_ ? 0.1 : WritesCacheFused(g) ? 2e-3 : 20 * case_.tolerance;
  for (const StateGroup& group : g.state_groups) {
    if (group.dtype == DType::kF8_E4M3) bound = 5e-2;
    // What a state takes in stays in it, through all steps of the case.
    if (group.name == kRecurrentGroup && RoundingOf(backend_.ValueType()) > 0)
      bound = case_.recurrent_bound;
  }
  for (size_t o = 0; o < g.outputs.size(); ++o) {
    auto again = Read(exe, g.outputs[o], in.bucket);
    if (!again) return again.error();
    const Value& v = g.value(g.outputs[o]);
    if (Error(v, *again, before[o], in) != 0) {
      return base::Error{base::Code::kInternal,
                         fmt::format("{} differs when the step is run again", v.name)};
    }
    // A choice may flip with the last bit of a logit; it was checked on its own inputs above, as
    // was the log-probability of what was chosen.
    if (v.dtype == DType::kI32 || v.name.rfind("top_logprobs", 0) == 0) continue;
    // What was rounded to 16 bits before it cancelled is off by more of what is left.
    const double floor = RoundingOf(backend_.ValueType()) > 0 ? 0.1 : 1e-2;
    Note(Error(v, *again, (*values)[static_cast<size_t>(g.outputs[o])], in, floor), bound,
         "output " + v.name);
  }
  return {};
}

base::Status CaseRun::Time(vt::Executable& exe, int runs) {
  using Clock = std::chrono::steady_clock;
  result_.seconds = INFINITY;
  if (backend_.SupportsGraphCapture() && !backend_.HostAddressable()) {
    // A card: many replays between two looks at the clock.
    constexpr int kReplays = 50;
    if (auto s = backend_.BeginCapture(*queue_); !s) return s;
    if (auto s = exe.Run(*queue_); !s) return s;
    auto graph = backend_.EndCaptureGraph(*queue_);
    if (!graph) return graph.error();
    for (int i = 0; i < runs; ++i) {
      const auto start = Clock::now();
      for (int k = 0; k < kReplays; ++k) {
        if (auto s = backend_.ReplayGraph(*queue_, *graph); !s) return s;
      }
      if (auto s = backend_.Synchronize(*queue_); !s) return s;
      result_.seconds = std::min(
          result_.seconds, std::chrono::duration<double>(Clock::now() - start).count() / kReplays);
    }
    backend_.DestroyGraph(*graph);
    runs = 0;
  }
  for (int i = 0; i < runs; ++i) {
    const auto start = Clock::now();
    if (auto s = exe.Run(*queue_); !s) return s;
    if (auto s = backend_.Synchronize(*queue_); !s) return s;
    result_.seconds =
        std::min(result_.seconds, std::chrono::duration<double>(Clock::now() - start).count());
  }
  const Plan& plan = exe.plan();
  const int64_t context = *std::max_element(cached_.begin(), cached_.end());
  for (const Node& n : plan.graph.nodes) {
    const Cost cost = Predict(plan.graph, n, plan.bucket, context, backend_.MachineRates());
    result_.predicted += cost.seconds;
    result_.bytes += cost.bytes;
  }
  return {};
}

}  // namespace

CaseResult RunCase(const OpCase& c, vt::Backend& backend, bool optimise, int timed_runs) {
  return CaseRun(c, backend, optimise).Run(timed_runs);
}

}  // namespace tests
