#include "vt/null/null.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "vt/ir/sampling.h"

namespace vt::null {
namespace {

bool ReadCount(const std::string& text, int64_t& number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end && number > 0;
}

class NullQueue : public Queue {};
class NullEvent : public Event {
 public:
  bool waited = false;
};

}  // namespace

int32_t NextToken(int32_t token, int32_t position, int64_t vocabulary) {
  const auto mixed = static_cast<uint32_t>(token) * 2654435761u +
                     static_cast<uint32_t>(position) * 40503u + 12345u;
  return static_cast<int32_t>(3 + (mixed >> 8) % static_cast<uint32_t>(vocabulary - 3));
}

int32_t Fold(int32_t state, int32_t token) {
  const uint32_t mixed =
      (static_cast<uint32_t>(state) ^ static_cast<uint32_t>(token)) * 0x9E3779B1u;
  return static_cast<int32_t>((mixed ^ mixed >> 15) + 1);
}

// Reads the step's inputs where the real devices read them, and writes the sampled tokens.
class NullExecutable : public Executable {
 public:
  NullExecutable(NullBackend& backend, ir::Plan plan, const Bindings& bindings)
      : backend_(backend),
        plan_(std::move(plan)),
        bindings_(bindings),
        layout_(plan_.graph, plan_.bucket) {
    for (const ir::Node& node : plan_.graph.nodes) {
      if (node.op != ir::Op::kSample) continue;
      sampler_ = node.attrs.as<ir::SamplerAttrs>().layout;
      group_ = plan_.graph.value(node.inputs[2]).group;
      tokens_ = node.outputs[0];
    }
    for (size_t g = 0; g < plan_.graph.state_groups.size(); ++g) {
      const ir::StateGroup& group = plan_.graph.state_groups[g];
      if (group.name != ir::kRecurrentGroup || layout_.OffsetOf(ir::kStateRead) < 0) continue;
      recurrent_ = static_cast<int32_t*>(bindings_.state[g][0]);
      recurrent_words_ = group.slot_bytes / 4;
      query_start_ = layout_.OffsetOf(ir::kQueryStart);
      state_read_ = layout_.OffsetOf(ir::kStateRead);
      state_write_ = layout_.OffsetOf(ir::kStateWrite);
    }
    ids_ = layout_.OffsetOf(ir::kTokenIds);
    positions_ = layout_.OffsetOf(ir::kPositions);
    rows_ = layout_.OffsetOf(ir::kOutputRows);
    sampling_ = layout_.OffsetOf(ir::kSampleParams);
  }

  const ir::Plan& plan() const override { return plan_; }
  base::Status Run(Queue&) override {
    return backend_.Submit([this] { return Compute(); });
  }
  base::Status RunNodes(Queue& queue, int, int) override { return Run(queue); }
  base::Result<std::vector<double>> Profile(Queue&) override {
    return std::vector<double>(plan_.graph.nodes.size(), 0.0);
  }
  void* ValueAddress(ir::ValueId id) const override {
    const ir::Placement& p = plan_.memory.places[static_cast<size_t>(id)];
    return p.buffer == ir::kNone ? nullptr : static_cast<std::byte*>(bindings_.arena) + p.offset;
  }

 private:
  template <typename T>
  const T* Input(int64_t offset) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(bindings_.inputs) + offset);
  }

  base::Status Compute() {
    if (++backend_.steps_ == backend_.options_.fail) {
      return base::Error{base::Code::kInternal, "the null device was told to fail in this step"};
    }
    const auto& header = *Input<StepHeader>(0);
    const int32_t* positions = Input<int32_t>(positions_);
    // All ids are fed before any is written, as in a graph.
    fed_.resize(static_cast<size_t>(header.tokens));
    for (int32_t t = 0; t < header.tokens; ++t) fed_[static_cast<size_t>(t)] = Fed(t);
    if (recurrent_ != nullptr) {
      const base::Status folded = FoldStates(header);
      if (!folded) return folded;
    }
    if (group_ < 0) return {};  // ends in hidden states
    const int32_t* rows = Input<int32_t>(rows_);
    int32_t* state = Sampler();
    auto* tokens = static_cast<int32_t*>(ValueAddress(tokens_));
    for (int32_t o = 0; o < header.outputs; ++o) {
      const float* packed = Input<float>(sampling_) + o * ir::kSampleParamCount;
      // The two fields that matter here; unpacking whole rows would be most of this device's time.
      int32_t slot = 0, forced = 0;
      std::memcpy(&slot, packed + ir::kParamSlotOne, 4);
      std::memcpy(&forced, packed + ir::kParamForcedOne, 4);
      tokens[o] = forced > 0 ? forced - 1
                             : NextToken(fed_[static_cast<size_t>(rows[o])], positions[rows[o]],
                                         sampler_.vocabulary);
      if (forced == 0 && slot > 0) {
        state[(slot - 1) * sampler_.words() + ir::SamplerLayout::last_token_offset()] = tokens[o];
      }
    }
    return {};
  }

  int32_t* Sampler() const {
    return group_ < 0 ? nullptr
                      : static_cast<int32_t*>(bindings_.state[static_cast<size_t>(group_)][0]);
  }
  int32_t Fed(int32_t row) const {
    const int32_t id = Input<int32_t>(ids_)[row];
    if (id >= 0 || group_ < 0) return id;
    return Sampler()[(-1 - id) * sampler_.words() + ir::SamplerLayout::last_token_offset()];
  }

  // Replaces each fed token by the state after it.
  base::Status FoldStates(const StepHeader& header) {
    const int32_t* starts = Input<int32_t>(query_start_);
    const int32_t* reads = Input<int32_t>(state_read_);
    const int32_t* writes = Input<int32_t>(state_write_);
    const int32_t* positions = Input<int32_t>(positions_);
    const auto wrong = [](const std::string& what) {
      return base::Error{base::Code::kInternal, "the null device: " + what};
    };
    std::map<int32_t, int32_t> readers;  // the last request to read each slot
    for (int32_t r = 0; r < header.requests; ++r) {
      if (reads[r] >= 0) readers[reads[r]] = r;
    }
    std::map<int32_t, std::pair<int32_t, int32_t>> written;
    for (int32_t r = 0; r < header.requests; ++r) {
      int32_t count = 0, state = 0;
      if (reads[r] >= 0) {
        count = recurrent_[reads[r] * recurrent_words_];
        state = recurrent_[reads[r] * recurrent_words_ + 1];
      }
      if (count != positions[starts[r]]) {
        return wrong(fmt::format("request {} reads the state of {} tokens at position {}", r, count,
                                 positions[starts[r]]));
      }
      for (int32_t t = starts[r]; t < starts[r + 1]; ++t) {
        fed_[static_cast<size_t>(t)] = state = Fold(state, fed_[static_cast<size_t>(t)]);
        ++count;
      }
      const auto reader = readers.find(writes[r]);
      if (writes[r] >= 0 &&
          (written.contains(writes[r]) || (reader != readers.end() && reader->second != r))) {
        return wrong(fmt::format("state slot {} is not request {}'s alone", writes[r], r));
      }
      if (writes[r] >= 0) written[writes[r]] = {count, state};
    }
    for (const auto& [slot, state] : written) {
      recurrent_[slot * recurrent_words_] = state.first;
      recurrent_[slot * recurrent_words_ + 1] = state.second;
    }
    return {};
  }

  NullBackend& backend_;
  ir::Plan plan_;
  Bindings bindings_;
  StepLayout layout_;
  ir::SamplerLayout sampler_;
  int group_ = -1;
  ir::ValueId tokens_ = ir::kNone;
  int64_t ids_ = -1, positions_ = -1, rows_ = -1, sampling_ = -1;
  int64_t query_start_ = -1, state_read_ = -1, state_write_ = -1;
  int32_t* recurrent_ = nullptr;  // the first layer's slots
  int64_t recurrent_words_ = 0;   // of a slot
  std::vector<int32_t> fed_;      // [T]: tokens, or the states after them
};

DeviceInfo NullBackend::Info() const {
  return {"null", "computes nothing", static_cast<uint64_t>(options_.memory),
          static_cast<uint64_t>(options_.memory - used_)};
}

base::Result<void*> NullBackend::Allocate(int64_t bytes) {
  const base::Status allowed = RefuseInCapture("Allocate");
  if (!allowed) return allowed.error();
  // Pages come when they are touched, so an arena that nobody writes costs nothing.
  void* p = used_ + bytes > options_.memory ? nullptr : std::calloc(static_cast<size_t>(bytes), 1);
  if (p == nullptr) {
    return base::Error{base::Code::kResourceExhausted,
                       fmt::format("{} bytes wanted, {} free", bytes, options_.memory - used_)};
  }
  blocks_[p] = bytes;
  used_ += bytes;
  return p;
}

void NullBackend::Free(void* p) {
  const auto found = blocks_.find(p);
  if (found == blocks_.end()) return;
  used_ -= found->second;
  blocks_.erase(found);
  std::free(p);
}

base::Status NullBackend::Submit(Work work) {
  if (!capturing_) return work();
  recorded_.push_back(std::move(work));
  return {};
}

base::Result<std::unique_ptr<Queue>> NullBackend::CreateQueue() {
  return std::unique_ptr<Queue>(new NullQueue);
}
base::Status NullBackend::CopyToDevice(Queue& q, void* dst, const void* src, int64_t bytes) {
  return CopyOnDevice(q, dst, src, bytes);
}
base::Status NullBackend::CopyToHost(Queue& q, void* dst, const void* src, int64_t bytes) {
  return CopyOnDevice(q, dst, src, bytes);
}
base::Status NullBackend::CopyOnDevice(Queue&, void* dst, const void* src, int64_t bytes) {
  return Submit([dst, src, bytes]() -> base::Status {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
    return {};
  });
}
base::Status NullBackend::Fill(Queue&, void* dst, uint8_t value, int64_t bytes) {
  return Submit([dst, value, bytes]() -> base::Status {
    std::memset(dst, value, static_cast<size_t>(bytes));
    return {};
  });
}
base::Status NullBackend::Synchronize(Queue&) { return RefuseInCapture("Synchronize"); }

base::Status NullBackend::RefuseInCapture(const char* call) {
  if (!capturing_) return {};
  capture_fault_ = call;
  return base::Error{base::Code::kInternal,
                     fmt::format("{} inside a graph capture: do it before BeginCapture", call)};
}

base::Result<std::unique_ptr<Event>> NullBackend::CreateEvent() {
  return std::unique_ptr<Event>(new NullEvent);
}
base::Status NullBackend::Record(Queue&, Event& e) {
  static_cast<NullEvent&>(e).waited = false;
  return {};
}
base::Status NullBackend::Wait(Event& e) {
  const base::Status allowed = RefuseInCapture("Wait");
  if (!allowed) return allowed;
  static_cast<NullEvent&>(e).waited = true;
  return {};
}
base::Result<bool> NullBackend::Ready(Event& e) {
  return options_.sync || static_cast<NullEvent&>(e).waited;
}

int64_t NullBackend::StateBlockBytes(const ir::StateGroup& group, int64_t) const {
  return group.kind == ir::StateGroup::Kind::kSlot ? group.slot_bytes : 1;
}

base::Result<std::unique_ptr<Executable>> NullBackend::Compile(ir::Plan plan,
                                                               const Bindings& bindings) {
  return std::unique_ptr<Executable>(new NullExecutable(*this, std::move(plan), bindings));
}

base::Status NullBackend::BeginCapture(Queue&) {
  const base::Status allowed = RefuseInCapture("BeginCapture");
  if (!allowed) return allowed;
  capturing_ = true;
  capture_fault_.clear();
  recorded_.clear();
  return {};
}

base::Result<GraphHandle> NullBackend::EndCaptureGraph(Queue&) {
  if (!std::exchange(capturing_, false)) {
    return base::Error{base::Code::kInvalidArgument, "EndCaptureGraph without BeginCapture"};
  }
  if (!capture_fault_.empty()) {
    return base::Error{base::Code::kInternal,
                       fmt::format("the capture is void: {} was called in it", capture_fault_)};
  }
  graphs_[next_graph_] = std::move(recorded_);
  return next_graph_++;
}

base::Status NullBackend::ReplayGraph(Queue&, GraphHandle graph) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) {
    return base::Error{base::Code::kInvalidArgument, fmt::format("graph {} does not exist", graph)};
  }
  for (const Work& work : found->second) {
    const base::Status done = work();
    if (!done) return done;
  }
  return {};
}

std::vector<DeviceInfo> NullPlatform::Devices(std::string*) { return {NullBackend({}).Info()}; }

base::Result<std::unique_ptr<Backend>> NullPlatform::Open(const Options& options) {
  NullOptions o;
  for (const std::string& word : base::Split(options.isa, ',')) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    int64_t* number = name == "fail" ? &o.fail : name == "memory" ? &o.memory : nullptr;
    const std::string text = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "sync" && text.empty()) {
      o.sync = true;
    } else if (number == nullptr || !ReadCount(text, *number)) {
      if (word.empty()) continue;
      return base::Error{
          base::Code::kInvalidArgument,
          fmt::format("--isa '{}': of the null device it is sync, fail=N or memory=N",
                      base::Printable(word))};
    }
  }
  return std::unique_ptr<Backend>(new NullBackend(o));
}

}  // namespace vt::null
