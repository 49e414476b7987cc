// Linears of which each head has a matrix of its own: chunks of panels of a head, over all tokens.
#include <algorithm>

#include "base/strings.h"
#include "vt/cpu/formats.h"
#include "vt/cpu/repack.h"
#include "vt/cpu/step.h"

namespace vt::cpu {
namespace {

class HeadLinearStep : public Step {
 public:
  // `args` are those of head 0; the next one's matrix stands `matrix_bytes` on.
  HeadLinearStep(ir::NodeId node, LinearFn run, const LinearArgs& args, int64_t heads,
                 int64_t matrix_bytes, int nr, int threads)
      : Step(node),
        run_(run),
        args_(args),
        heads_(heads),
        matrix_bytes_(matrix_bytes),
        nr_(nr),
        panels_((args.n + nr - 1) / nr) {
    // Two panels are unpacked together. About 64 KiB, but chunks for everybody.
    const int64_t most = std::max<int64_t>(heads * panels_ / (4 * threads), 1);
    size_ = std::clamp<int64_t>((64 << 10) / args.panel_bytes, 1, most);
    size_ = std::min((size_ + 1) / 2 * 2, panels_);
  }

  int64_t Chunks(const ir::Bucket& now) const override {
    return now.tokens == 0 ? 0 : heads_ * OfHead();
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    const int64_t head = chunk / OfHead(), begin = chunk % OfHead() * size_;
    LinearArgs a = args_;
    a.rows = now.tokens;
    a.x += head * a.k * 4;
    a.w += head * matrix_bytes_;
    a.out += head * a.n;
    run_(a, begin, std::min(begin + size_, panels_), scratch);
  }
  int64_t ScratchBytes() const override { return LinearScratchBytes(nr_, args_.k); }

 private:
  int64_t OfHead() const { return (panels_ + size_ - 1) / size_; }

  LinearFn run_;
  LinearArgs args_;
  int64_t heads_, matrix_bytes_;
  int nr_;
  int64_t panels_, size_ = 1;
};

}  // namespace

base::Status CompileHeadLinear(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  const auto x = c.Rows(n.inputs[0]), out = c.Rows(n.outputs[0]);
  if (!x) return x.error();
  if (!out) return out.error();
  const auto w = c.Weight(n.inputs[1]);
  if (!w) return w.error();
  const ir::DType format = (*w)->format;
  const LinearFn run = c.kernels.linear[static_cast<int>(format)];
  if (run == nullptr || TakesInt8(format) ||
      (*w)->layout.name != PanelLayoutName(c.kernels, format)) {
    return base::Error{base::Code::kInternal,
                       fmt::format("cpu: '{}' cannot multiply by {} in the layout '{}'", n.name,
                                   ir::Name(format), (*w)->layout.name)};
  }
  LinearArgs a;
  a.k = x->width;
  a.n = out->width;
  a.x = reinterpret_cast<const std::byte*>(x->base);
  a.x_stride = 4 * x->stride;
  a.w = static_cast<const std::byte*>((*w)->data);
  a.panel_bytes = PanelBytesOf(format, c.kernels.nr, c.kernels.pairs, a.k);
  a.out = out->base;
  a.out_stride = out->stride;
  steps.push_back(std::make_unique<HeadLinearStep>(id, run, a, x->inner, (*w)->layout.bytes,
                                                   c.kernels.nr, c.threads));
  return {};
}

}  // namespace vt::cpu
