// Choosing tokens from logits, and feeding chosen ones to the next step.
#include "base/strings.h"
#include "vt/cpu/sampler.h"
#include "vt/cpu/step.h"
#include "vt/ir/sampling.h"

namespace vt::cpu {
namespace {

using ir::Op;

// The slots of a sampler, as bound.
struct Slots {
  std::byte* base = nullptr;
  int64_t count = 0;
  ir::SamplerLayout layout;

  // nullptr: there is no such slot.
  int32_t* at(int64_t slot) const {
    if (slot < 0 || slot >= count) return nullptr;
    return reinterpret_cast<int32_t*>(base + slot * layout.bytes());
  }
};

base::Result<Slots> SlotsOf(const Context& c, const ir::Node& n, ir::ValueId state) {
  const ir::Value& v = c.value(state);
  const auto group = static_cast<size_t>(v.group), layer = static_cast<size_t>(v.layer);
  if (group >= c.bindings.state.size() || layer >= c.bindings.state[group].size() ||
      group >= c.bindings.state_blocks.size()) {
    return base::Error{base::Code::kInternal,
                       fmt::format("cpu: the state of '{}' has no memory", n.name)};
  }
  return Slots{static_cast<std::byte*>(c.bindings.state[group][layer]),
               c.bindings.state_blocks[group], n.attrs.as<ir::SamplerAttrs>().layout};
}

class FeedStep : public Step {
 public:
  FeedStep(ir::NodeId node, const int32_t* ids, Slots slots, int32_t* out)
      : Step(node), ids_(ids), slots_(slots), out_(out) {}
  int64_t Chunks(const ir::Bucket& now) const override { return now.tokens > 0 ? 1 : 0; }
  void Run(const ir::Bucket& now, int64_t, std::byte*) const override {
    for (int64_t t = 0; t < now.tokens; ++t) {
      out_[t] = ids_[t];
      if (ids_[t] >= 0) continue;
      const int32_t* slot = slots_.at(-1 - int64_t{ids_[t]});
      if (slot != nullptr) out_[t] = slot[ir::SamplerLayout::last_token_offset()];
    }
  }

 private:
  const int32_t* ids_;
  Slots slots_;
  int32_t* out_;
};

class ArgMaxStep : public Step {
 public:
  ArgMaxStep(ir::NodeId node, const KernelSet& k, const RowsView& logits, int32_t* out)
      : Step(node), kernels_(k), logits_(logits), out_(out) {}
  int64_t Chunks(const ir::Bucket& now) const override { return logits_.count(now); }
  void Run(const ir::Bucket&, int64_t row, std::byte*) const override {
    out_[row] = kernels_.argmax(logits_.row(row), logits_.width);
  }

 private:
  const KernelSet& kernels_;
  RowsView logits_;
  int32_t* out_;
};

// Scratch of the thread that runs a row.
Sampler& ThisThreadsSampler() {
  thread_local Sampler sampler;
  return sampler;
}

class SampleStep : public Step {
 public:
  SampleStep(ir::NodeId node, const KernelSet& k, const RowsView& logits, const RowsView& params,
             Slots slots, int32_t* out)
      : Step(node), kernels_(k), logits_(logits), params_(params), slots_(slots), out_(out) {}
  int64_t Chunks(const ir::Bucket& now) const override { return logits_.count(now); }
  void Run(const ir::Bucket&, int64_t i, std::byte*) const override {
    const ir::SamplingRow row = ir::UnpackSamplingRow(params_.row(i));
    int32_t* slot = slots_.at(row.slot);
    out_[i] = ThisThreadsSampler().Choose(kernels_, logits_.row(i), logits_.width, row, slot,
                                          slots_.layout);
    if (slot != nullptr && row.forced < 0) ir::RecordToken(row, slots_.layout, out_[i], slot);
  }

 private:
  const KernelSet& kernels_;
  RowsView logits_, params_;
  Slots slots_;
  int32_t* out_;
};

class LogprobStep : public Step {
 public:
  LogprobStep(ir::NodeId node, const KernelSet& k, const RowsView& logits, const RowsView& params,
              const int32_t* tokens, const RowsView& values, int32_t* ids)
      : Step(node),
        kernels_(k),
        logits_(logits),
        params_(params),
        tokens_(tokens),
        values_(values),
        ids_(ids) {}
  int64_t Chunks(const ir::Bucket& now) const override { return logits_.count(now); }
  void Run(const ir::Bucket&, int64_t i, std::byte*) const override {
    const ir::SamplingRow row = ir::UnpackSamplingRow(params_.row(i));
    if (row.logprobs < 0 || tokens_[i] < 0 || tokens_[i] >= logits_.width) return;
    ThisThreadsSampler().TopLogprobs(kernels_, logits_.row(i), logits_.width, row, tokens_[i],
                                     values_.row(i), ids_ + i * ir::kBestTokens);
  }

 private:
  const KernelSet& kernels_;
  RowsView logits_, params_;
  const int32_t* tokens_;
  RowsView values_;
  int32_t* ids_;
};

// The first failure of several look-ups is kept.
template <typename T>
T Take(base::Result<T> r, base::Status& status) {
  if (r) return *r;
  if (status.ok()) status = r.error();
  return T{};
}

}  // namespace

base::Status CompileChoice(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  base::Status status;
  const auto ids_at = [&](ir::ValueId v) {
    return reinterpret_cast<int32_t*>(Take(c.Arena(v), status));
  };
  std::unique_ptr<Step> step;
  if (n.op == Op::kTokenFeed) {
    step =
        std::make_unique<FeedStep>(id, Take(c.Input(n.inputs[0]), status),
                                   Take(SlotsOf(c, n, n.inputs[1]), status), ids_at(n.outputs[0]));
  } else {
    const RowsView logits = Take(c.Rows(n.inputs[0]), status);
    if (n.op == Op::kArgMax) {
      step = std::make_unique<ArgMaxStep>(id, c.kernels, logits, ids_at(n.outputs[0]));
    } else if (n.op == Op::kSample) {
      step = std::make_unique<SampleStep>(id, c.kernels, logits, Take(c.Rows(n.inputs[1]), status),
                                          Take(SlotsOf(c, n, n.inputs[2]), status),
                                          ids_at(n.outputs[0]));
    } else {
      step =
          std::make_unique<LogprobStep>(id, c.kernels, logits, Take(c.Rows(n.inputs[1]), status),
                                        Take(c.Input(n.inputs[2]), status),
                                        Take(c.Rows(n.outputs[0]), status), ids_at(n.outputs[1]));
    }
  }
  if (!status) return status;
  steps.push_back(std::move(step));
  return {};
}

}  // namespace vt::cpu
