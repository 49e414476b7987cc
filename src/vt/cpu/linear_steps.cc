// Linears (and linear + residual) over panels, and rows of a table.
#include <algorithm>

#include "base/strings.h"
#include "vt/cpu/formats.h"
#include "vt/cpu/repack.h"
#include "vt/cpu/step.h"
#include "vt/ir/quant.h"

namespace vt::cpu {
namespace {

class LinearStep : public Step {
 public:
  struct Segment {
    LinearArgs args;  // rows are set at run time
    LinearFn run = nullptr;
    int64_t panels = 0;
    bool brain = false;  // activations of bf16
  };

  LinearStep(ir::NodeId node, ir::Dim outer, int64_t inner, int nr, int threads)
      : Step(node), outer_(outer), inner_(inner), nr_(nr), threads_(threads) {}

  void Add(const Segment& s) { segments_.push_back(s); }

  int64_t Chunks(const ir::Bucket& now) const override {
    const int64_t rows = outer_.At(now) * inner_;
    if (rows == 0) return 0;
    int64_t chunks = 0;
    for (const Segment& s : segments_) {
      const int64_t size = PanelsOfChunk(s, rows);
      chunks += (s.panels + size - 1) / size;
    }
    return chunks;
  }

  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    const int64_t rows = outer_.At(now) * inner_;
    for (const Segment& s : segments_) {
      const int64_t size = PanelsOfChunk(s, rows), chunks = (s.panels + size - 1) / size;
      if (chunk >= chunks) {
        chunk -= chunks;
        continue;
      }
      LinearArgs a = s.args;
      a.rows = rows;
      return s.run(a, chunk * size, std::min((chunk + 1) * size, s.panels), scratch);
    }
  }

  int64_t ScratchBytes() const override {
    int64_t bytes = 0;
    for (const Segment& s : segments_) bytes = std::max(bytes, LinearScratchBytes(nr_, s.args.k));
    return bytes;
  }

 private:
  // Few rows: stretches long enough for the prefetchers (32 KiB), short enough that members end
  // together. Many rows: two panels, which are unpacked together; four of tiles, when all get some.
  int64_t PanelsOfChunk(const Segment& s, int64_t rows) const {
    if (rows >= 4) return s.brain && s.panels >= 16 * threads_ ? 4 : 2;
    const int64_t bytes =
        std::clamp<int64_t>(s.panels * s.args.panel_bytes / (threads_ * 8), 32 << 10, 256 << 10);
    return std::max<int64_t>(1, bytes / s.args.panel_bytes);
  }

  ir::Dim outer_;
  int64_t inner_;
  int nr_, threads_;
  std::vector<Segment> segments_;
};

class EmbedStep : public Step {
 public:
  EmbedStep(ir::NodeId node, const KernelSet& k, const DeviceWeight& w, const int32_t* ids,
            const RowsView& out, int64_t vocab)
      : Step(node),
        kernels_(k),
        weight_(w),
        ids_(ids),
        out_(out),
        vocab_(vocab),
        panels_(w.layout.name != kRowLayout),
        panel_bytes_(PanelBytesOf(w.format, k.nr, k.pairs, out.width)) {}

  int64_t Chunks(const ir::Bucket& now) const override {
    return (out_.count(now) + kRows - 1) / kRows;
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    for (int64_t t = chunk * kRows; t < std::min((chunk + 1) * kRows, out_.count(now)); ++t) {
      const int64_t id = ids_[t];
      if (id < 0 || id >= vocab_) {
        std::fill_n(out_.row(t), out_.width, 0.0f);
        continue;
      }
      const auto* data = static_cast<const std::byte*>(weight_.data);
      if (panels_) {
        kernels_.read_row[static_cast<int>(weight_.format)](data + id / kernels_.nr * panel_bytes_,
                                                            static_cast<int>(id % kernels_.nr),
                                                            out_.width, out_.row(t), scratch);
      } else {
        ir::Dequantize(weight_.format, data + id * ir::Bytes(weight_.format, out_.width),
                       out_.row(t), out_.width);
      }
    }
  }
  int64_t ScratchBytes() const override { return LinearScratchBytes(kernels_.nr, out_.width); }

 private:
  static constexpr int64_t kRows = 16;  // a chunk
  const KernelSet& kernels_;
  DeviceWeight weight_;
  const int32_t* ids_;
  RowsView out_;
  int64_t vocab_;
  bool panels_;
  int64_t panel_bytes_;
};

base::Status CompileEmbed(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  const auto w = c.Weight(n.inputs[0]);
  if (!w) return w.error();
  const auto ids = c.Input(n.inputs[1]);
  if (!ids) return ids.error();
  const auto out = c.Rows(n.outputs[0]);
  if (!out) return out.error();
  const int64_t vocab = c.value(n.inputs[0]).shape[0].At(c.plan.bucket);
  steps.push_back(std::make_unique<EmbedStep>(id, c.kernels, **w, *ids, *out, vocab));
  return {};
}

}  // namespace

base::Status CompileLinear(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  if (n.op == ir::Op::kEmbed) return CompileEmbed(c, id, steps);
  const bool add = n.op == ir::Op::kLinearAdd;
  const ir::LinearAttrs attrs = add ? n.attrs.as<ir::FusedAttrs>().parts[0].as<ir::LinearAttrs>()
                                    : n.attrs.as<ir::LinearAttrs>();

  const ir::Value& x = c.value(n.inputs[0]);
  const int64_t k = x.shape.back().At(c.plan.bucket);
  const auto out = c.Rows(n.outputs[0]);
  if (!out) return out.error();
  LinearArgs base;
  base.k = k;
  const bool int8 = x.dtype == ir::DType::kQ8_A32, brain = x.dtype == ir::DType::kBF16;
  if (int8 || brain) {
    const auto p = c.Arena(n.inputs[0]);
    if (!p) return p.error();
    base.x = *p;
    base.x_stride = int8 ? ActivationRowBytes(k) : 2 * k;
  } else {
    const auto rows = c.Rows(n.inputs[0]);
    if (!rows) return rows.error();
    if (rows->inner != 1 && rows->stride != rows->inner * rows->width) {
      return base::Error{base::Code::kUnsupported,
                         fmt::format("cpu: '{}' reads a strided view of heads", n.name)};
    }
    base.x = reinterpret_cast<const std::byte*>(rows->base);
    base.x_stride = 4 * (rows->inner == 1 ? rows->stride : rows->width);
  }
  base.out_stride = out->inner == 1 ? out->stride : out->width;
  const bool one_row = x.shape.size() == 1;
  auto step = std::make_unique<LinearStep>(id, one_row ? ir::Dim(1) : x.shape[0], out->inner,
                                           c.kernels.nr, c.threads);
  float* y = out->base;
  for (int i = 0; i < attrs.segments; ++i) {
    const ir::ValueId w_id = n.inputs[static_cast<size_t>(1 + i)];
    const auto w = c.Weight(w_id);
    if (!w) return w.error();
    LinearStep::Segment s;
    s.args = base;
    s.brain = brain;
    const LinearFn* table = brain ? c.kernels.brain_linear : c.kernels.linear;
    s.run = table[static_cast<int>((*w)->format)];
    if (s.run == nullptr || (*w)->layout.name != PanelLayoutName(c.kernels, (*w)->format)) {
      return base::Error{base::Code::kInternal,
                         fmt::format("cpu: weight '{}' is in the layout '{}', not in panels",
                                     c.value(w_id).name, (*w)->layout.name)};
    }
    if (!brain && TakesInt8((*w)->format) != int8) {
      return base::Error{base::Code::kInternal,
                         fmt::format("cpu: '{}' has activations of {} for a weight of {}", n.name,
                                     ir::Name(x.dtype), ir::Name((*w)->format))};
    }
    s.args.w = static_cast<const std::byte*>((*w)->data);
    s.args.panel_bytes = PanelBytesOf((*w)->format, c.kernels.nr, c.kernels.pairs, k);
    s.args.n = c.value(w_id).shape[0].At(c.plan.bucket);
    s.args.out = y;
    s.panels = (s.args.n + c.kernels.nr - 1) / c.kernels.nr;
    y += s.args.n;
    if (attrs.bias) {
      const auto b = c.Vector(n.inputs[static_cast<size_t>(1 + attrs.segments + i)]);
      if (!b) return b.error();
      s.args.bias = *b;
    }
    if (add) {
      const auto r = c.Rows(n.inputs.back());
      if (!r) return r.error();
      s.args.residual = r->base;
      s.args.residual_stride = r->inner == 1 ? r->stride : r->width;
    }
    step->Add(s);
  }
  steps.push_back(std::move(step));
  return {};
}

}  // namespace vt::cpu
