// Choosing tokens from logits.
#include "vt/cpu/step.h"
#include "vt/ir/sampling.h"

namespace vt::cpu {
namespace {

class ChoiceStep : public Step {
 public:
  ChoiceStep(ir::NodeId node, const KernelSet& k, const RowsView& logits, const RowsView& params,
             int32_t* out)
      : Step(node), kernels_(k), logits_(logits), params_(params), out_(out) {}
  int64_t Chunks(const ir::Bucket& now) const override { return logits_.count(now); }
  void Run(const ir::Bucket&, int64_t row, std::byte*) const override {
    const ir::SamplingRow r =
        params_.base == nullptr ? ir::SamplingRow{} : ir::UnpackSamplingRow(params_.row(row));
    // A temperature of 0 is arg-max, of which there is a vector form.
    out_[row] = r.temperature == 0 ? kernels_.argmax(logits_.row(row), logits_.width)
                                   : ir::SampleToken(logits_.row(row), logits_.width, r);
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
  steps.push_back(std::make_unique<ChoiceStep>(id, c.kernels, *logits, params,
                                               reinterpret_cast<int32_t*>(*out)));
  return {};
}

}  // namespace vt::cpu
