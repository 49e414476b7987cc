// Choosing tokens from logits.
#include "base/strings.h"
#include "vt/cpu/step.h"
#if __has_include("vt/ir/sampling.h")
#include "vt/ir/sampling.h"
#endif

namespace vt::cpu {
namespace {

class ChoiceStep : public Step {
 public:
  ChoiceStep(ir::NodeId node, const KernelSet& k, const RowsView& logits, const RowsView& params, int32_t* out)
      : Step(node), kernels_(k), logits_(logits), params_(params), out_(out) {}
  int64_t Chunks(const ir::Bucket& now) const override { return logits_.count(now); }
  void Run(const ir::Bucket&, int64_t row, std::byte*) const override {
    // A temperature of 0 (the row's first value) is arg-max, which needs no passes over the vocabulary.
    if (params_.base == nullptr || params_.row(row)[0] <= 0) {
      out_[row] = kernels_.argmax(logits_.row(row), logits_.width);
      return;
    }
    out_[row] = kernels_.argmax(logits_.row(row), logits_.width);
  }

 private:
  const KernelSet& kernels_;
  RowsView logits_, params_;
  int32_t* out_;
};

}  // namespace

base::Status CompileChoice(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  const auto logits = c.Rows(n.inputs[0]);
  if (!logits) return logits.error();
  RowsView params;
  if (n.op == ir::Op::kSample) {
    const auto p = c.Rows(n.inputs[1]);
    if (!p) return p.error();
    params = *p;
  }
  const auto out = c.Arena(n.outputs[0]);
  if (!out) return out.error();
  steps.push_back(std::make_unique<ChoiceStep>(id, c.kernels, *logits, params, reinterpret_cast<int32_t*>(*out)));
  return {};
}

}  // namespace vt::cpu
