// Linears by experts: each row by the matrix of its id.
//
// One token: its matrices one after the other, in one job. More tokens: rows are sorted by expert
// first, and gathered, so that each expert's rows go through the kernels of linears together. What
// follows the linear in a fused op is done by the chunk that has the values: activation and product
// of its columns, or the weighted sum, since a chunk then has all experts' values of its columns.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/strings.h"
#include "vt/cpu/formats.h"
#include "vt/cpu/repack.h"
#include "vt/cpu/step.h"

namespace vt::cpu {
namespace {

using ir::Op;

bool IsGrouped(Op op) {
  return op == Op::kGroupedLinear || op == Op::kGroupedLinearActMul || op == Op::kGroupedLinearSum;
}

int64_t RowBytes(ir::DType t, int64_t k) {
  if (t == ir::DType::kQ8_A32) return ActivationRowBytes(k);
  return t == ir::DType::kBF16 ? 2 * k : 4 * k;
}

constexpr int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Rows in the order of their experts, in the plan's workspace.
struct Sorted {
  int32_t* header = nullptr;  // experts that have rows
  int32_t* starts = nullptr;  // [experts + 1]: the first row of each
  int32_t* used = nullptr;    // [experts]: those that have rows
  int32_t* pairs = nullptr;   // [tokens * k]: token * k + j of each row
  std::byte* x = nullptr;     // [tokens * k] rows
  int64_t bytes = 0;

  Sorted(std::byte* base, int64_t experts, int64_t rows, int64_t row_bytes) {
    const auto take = [&](int64_t size) {
      std::byte* p = base + bytes;
      bytes += Aligned(size);
      return p;
    };
    header = reinterpret_cast<int32_t*>(take(4));
    starts = reinterpret_cast<int32_t*>(take(4 * (experts + 1)));
    used = reinterpret_cast<int32_t*>(take(4 * experts));
    pairs = reinterpret_cast<int32_t*>(take(4 * rows));
    x = take(rows * row_bytes);
  }
};

struct Matrices {
  LinearArgs args;  // of one expert: rows, w and out are set at run time
  LinearFn run = nullptr;
  int64_t panels = 0;
  int64_t bytes = 0;  // from one expert's matrix to the next one's
};

// What the steps of one node share.
struct GroupedWork {
  const std::byte* x = nullptr;  // row of (token, j): x + (token * k + j) / shared * x_stride
  int64_t x_stride = 0, row_bytes = 0;
  int64_t shared = 1;
  const int32_t* ids = nullptr;
  int64_t experts = 0, chosen = 0;
  std::vector<Matrices> matrices;
  float* out = nullptr;
  int64_t out_stride = 0, width = 0;
  Sorted sorted{nullptr, 0, 0, 0};
  int nr = 8, threads = 1;

  const std::byte* Row(int64_t pair) const { return x + pair / shared * x_stride; }
  bool IsExpert(int64_t pair) const { return ids[pair] >= 0 && ids[pair] < experts; }
  bool Direct(const ir::Bucket& now) const { return now.tokens == 1; }
  // So little to gather that nobody else need wake.
  bool Little(const ir::Bucket& now) const { return now.tokens * chosen * row_bytes <= (64 << 10); }
  void Gather(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(sorted.x + i * row_bytes, Row(sorted.pairs[i]), static_cast<size_t>(row_bytes));
  }
};

class SortStep : public Step {
 public:
  SortStep(ir::NodeId node, std::shared_ptr<const GroupedWork> work, bool clear)
      : Step(node), work_(std::move(work)), clear_(clear) {}

  int64_t Chunks(const ir::Bucket& now) const override {
    return now.tokens == 0 || work_->Direct(now) ? 0 : 1;
  }
  void Run(const ir::Bucket& now, int64_t, std::byte*) const override {
    const GroupedWork& w = *work_;
    const int64_t rows = now.tokens * w.chosen;
    int32_t* starts = w.sorted.starts;
    std::fill_n(starts, w.experts + 1, 0);
    for (int64_t i = 0; i < rows; ++i) {
      if (w.IsExpert(i)) {
        ++starts[w.ids[i] + 1];
      } else if (clear_) {
        std::fill_n(w.out + i * w.out_stride, w.width, 0.0f);
      }
    }
    *w.sorted.header = 0;
    for (int64_t e = 0; e < w.experts; ++e) {
      if (starts[e + 1] > 0) w.sorted.used[(*w.sorted.header)++] = static_cast<int32_t>(e);
      starts[e + 1] += starts[e];
    }
    for (int64_t i = 0; i < rows; ++i) {
      if (w.IsExpert(i)) w.sorted.pairs[starts[w.ids[i]]++] = static_cast<int32_t>(i);
    }
    // Each start now is the next one's.
    std::copy_backward(starts, starts + w.experts, starts + w.experts + 1);
    starts[0] = 0;
    if (w.Little(now)) w.Gather(0, starts[w.experts]);
  }

 private:
  std::shared_ptr<const GroupedWork> work_;
  bool clear_;
};

class GatherStep : public Step {
 public:
  GatherStep(ir::NodeId node, std::shared_ptr<const GroupedWork> work)
      : Step(node), work_(std::move(work)) {}

  int64_t Chunks(const ir::Bucket& now) const override {
    if (work_->Direct(now) || work_->Little(now)) return 0;
    return (now.tokens * work_->chosen + kRows - 1) / kRows;
  }
  void Run(const ir::Bucket&, int64_t chunk, std::byte*) const override {
    const int64_t rows = work_->sorted.starts[work_->experts];
    work_->Gather(chunk * kRows, std::min((chunk + 1) * kRows, rows));
  }

 private:
  static constexpr int64_t kRows = 32;  // a chunk
  std::shared_ptr<const GroupedWork> work_;
};

// Rows that one expert has.
struct Group {
  int64_t expert = -1, rows = 0;
  const std::byte* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* pairs = nullptr;
};

class GroupedStep : public Step {
 public:
  GroupedStep(ir::NodeId node, std::shared_ptr<const GroupedWork> work)
      : Step(node), work_(std::move(work)), order_(static_cast<size_t>(work_->chosen)) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  int64_t ScratchBytes() const override {
    int64_t bytes = 0;
    for (const Matrices& m : work_->matrices)
      bytes = std::max(bytes, LinearScratchBytes(work_->nr, m.args.k));
    return Aligned(bytes) + TemporaryFloats() * 4;
  }

 protected:
  virtual int64_t TemporaryFloats() const { return 0; }

  // How many groups there are at most.
  int64_t Groups(const ir::Bucket& now) const {
    return work_->Direct(now) ? work_->chosen
                              : std::min(work_->experts, now.tokens * work_->chosen);
  }
  Group GroupAt(const ir::Bucket& now, int64_t i) const {
    const GroupedWork& w = *work_;
    if (w.Direct(now)) {
      return {w.IsExpert(i) ? w.ids[i] : -1, 1, w.Row(i), w.x_stride,
              &order_[static_cast<size_t>(i)]};
    }
    if (i >= *w.sorted.header) return {};
    const int64_t e = w.sorted.used[i], first = w.sorted.starts[e];
    return {e, w.sorted.starts[e + 1] - first, w.sorted.x + first * w.row_bytes, w.row_bytes,
            w.sorted.pairs + first};
  }
  // Panels of a chunk: long enough for the prefetchers, short enough that members end together. Two
  // are unpacked together, four of tiles.
  int64_t PanelsOfChunk(const Matrices& m, int64_t groups, int64_t most) const {
    const int64_t bytes = std::clamp<int64_t>(
        groups * m.panels * m.args.panel_bytes / (work_->threads * 8), 32 << 10, 256 << 10);
    const int64_t panels = std::min(bytes / m.args.panel_bytes, most);
    return panels < 4 ? 2 : panels / 4 * 4;
  }
  static int64_t Parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

  LinearArgs Of(const Matrices& m, const Group& g) const {
    LinearArgs a = m.args;
    a.x = g.x;
    a.x_stride = g.x_stride;
    a.rows = g.rows;
    a.w += g.expert * m.bytes;
    return a;
  }
  // Rows [first, first + count) of a group by panels [begin, end), into `out` [row][stride].
  void Into(const Matrices& m, const Group& g, int64_t first, int64_t count, int64_t begin,
            int64_t end, float* out, int64_t stride, std::byte* scratch) const {
    LinearArgs a = Of(m, g);
    a.x += first * g.x_stride;
    a.rows = count;
    a.out = out - begin * work_->nr;
    a.out_stride = stride;
    m.run(a, begin, end, scratch);
  }
  int64_t Columns(const Matrices& m, int64_t begin, int64_t end) const {
    return std::min(end * work_->nr, m.args.n) - begin * work_->nr;
  }
  float* Temporary(std::byte* scratch) const {
    return reinterpret_cast<float*>(scratch + ScratchBytes()) - TemporaryFloats();
  }

  std::shared_ptr<const GroupedWork> work_;
  std::vector<int32_t> order_;  // 0, 1, ..: the pairs of a lone token
};

class PlainGroupedStep : public GroupedStep {
 public:
  using GroupedStep::GroupedStep;

  int64_t Chunks(const ir::Bucket& now) const override {
    if (now.tokens == 0) return 0;
    const int64_t groups = Groups(now);
    int64_t chunks = 0;
    for (const Matrices& m : work_->matrices) chunks += Parts(m.panels, PanelsOf(m, groups));
    return groups * chunks;
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    const int64_t groups = Groups(now), of_group = Chunks(now) / groups;
    const Group g = GroupAt(now, chunk / of_group);
    if (g.rows == 0) return;
    chunk %= of_group;
    float* y = work_->out;
    for (const Matrices& m : work_->matrices) {
      const int64_t size = PanelsOf(m, groups), parts = Parts(m.panels, size);
      if (chunk >= parts) {
        chunk -= parts;
        y += m.args.n;
        continue;
      }
      const int64_t begin = chunk * size, end = std::min(begin + size, m.panels);
      if (g.expert < 0) {
        std::fill_n(y + *g.pairs * work_->out_stride + begin * work_->nr, Columns(m, begin, end),
                    0.0f);
        return;
      }
      LinearArgs a = Of(m, g);
      a.out = y;
      a.out_rows = g.pairs;
      a.out_stride = work_->out_stride;
      return m.run(a, begin, end, scratch);
    }
  }

 private:
  int64_t PanelsOf(const Matrices& m, int64_t groups) const {
    return PanelsOfChunk(m, groups, m.panels + 3);
  }
};

constexpr int64_t kRowsAtATime = 128;  // of an expert, whose values wait for what follows
constexpr int64_t kMostPanels = 16;

// fn(gate) * up.
class ActMulGroupedStep : public GroupedStep {
 public:
  ActMulGroupedStep(ir::NodeId node, std::shared_ptr<const GroupedWork> work, const KernelSet& k,
                    Activate fn)
      : GroupedStep(node, std::move(work)), kernels_(k), fn_(fn) {}

  int64_t Chunks(const ir::Bucket& now) const override {
    if (now.tokens == 0) return 0;
    const int64_t groups = Groups(now);
    return groups * Parts(gate().panels, PanelsOf(groups));
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    const int64_t size = PanelsOf(Groups(now)), parts = Parts(gate().panels, size);
    const Group g = GroupAt(now, chunk / parts);
    if (g.rows == 0) return;
    const int64_t begin = chunk % parts * size, end = std::min(begin + size, gate().panels);
    const int64_t columns = Columns(gate(), begin, end), stride = size * work_->nr;
    float* out = work_->out + begin * work_->nr;
    if (g.expert < 0) {
      std::fill_n(out + *g.pairs * work_->out_stride, columns, 0.0f);
      return;
    }
    float *gates = Temporary(scratch), *ups = gates + kRowsAtATime * stride;
    for (int64_t first = 0; first < g.rows; first += kRowsAtATime) {
      const int64_t count = std::min(kRowsAtATime, g.rows - first);
      Into(gate(), g, first, count, begin, end, gates, stride, scratch);
      Into(work_->matrices[1], g, first, count, begin, end, ups, stride, scratch);
      for (int64_t r = 0; r < count; ++r) {
        kernels_.act_mul(fn_, gates + r * stride, ups + r * stride, columns,
                         out + g.pairs[first + r] * work_->out_stride);
      }
    }
  }

 protected:
  int64_t TemporaryFloats() const override { return 2 * kRowsAtATime * kMostPanels * work_->nr; }

 private:
  const Matrices& gate() const { return work_->matrices[0]; }
  int64_t PanelsOf(int64_t groups) const { return PanelsOfChunk(gate(), groups, kMostPanels); }
  const KernelSet& kernels_;
  Activate fn_;
};

// The sum over a token's experts, by weights [tokens][k]: chunks of columns, each by all experts.
class SumGroupedStep : public GroupedStep {
 public:
  SumGroupedStep(ir::NodeId node, std::shared_ptr<const GroupedWork> work, const KernelSet& k,
                 const RowsView& weights)
      : GroupedStep(node, std::move(work)), kernels_(k), weights_(weights) {}

  int64_t Chunks(const ir::Bucket& now) const override {
    return now.tokens == 0 ? 0 : Parts(matrix().panels, PanelsOf(Groups(now)));
  }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    const int64_t groups = Groups(now), size = PanelsOf(groups);
    const int64_t begin = chunk * size, end = std::min(begin + size, matrix().panels);
    const int64_t columns = Columns(matrix(), begin, end), stride = size * work_->nr;
    float *out = work_->out + begin * work_->nr, *values = Temporary(scratch);
    for (int64_t t = 0; t < now.tokens; ++t)
      std::fill_n(out + t * work_->out_stride, columns, 0.0f);
    for (int64_t i = 0; i < groups; ++i) {
      const Group g = GroupAt(now, i);
      if (g.expert < 0) continue;
      for (int64_t first = 0; first < g.rows; first += kRowsAtATime) {
        const int64_t count = std::min(kRowsAtATime, g.rows - first);
        Into(matrix(), g, first, count, begin, end, values, stride, scratch);
        for (int64_t r = 0; r < count; ++r) {
          const int64_t t = g.pairs[first + r] / work_->chosen,
                        j = g.pairs[first + r] % work_->chosen;
          kernels_.add_scaled(values + r * stride, weights_.row(t)[j], columns,
                              out + t * work_->out_stride);
        }
      }
    }
  }

 protected:
  int64_t TemporaryFloats() const override { return kRowsAtATime * kMostPanels * work_->nr; }

 private:
  const Matrices& matrix() const { return work_->matrices[0]; }
  // The chunk goes through all groups: its panels times their number are what it reads.
  int64_t PanelsOf(int64_t groups) const {
    const int64_t bytes = std::clamp<int64_t>(groups * matrix().panels * matrix().args.panel_bytes /
                                                  (work_->threads * 8),
                                              32 << 10, 256 << 10) /
                          groups;
    const int64_t panels = std::min(bytes / matrix().args.panel_bytes, kMostPanels);
    return panels < 4 ? 2 : panels / 4 * 4;
  }
  const KernelSet& kernels_;
  RowsView weights_;
};

}  // namespace

int64_t GroupedWorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) {
  int64_t bytes = 0;
  for (const ir::Node& n : graph.nodes) {
    if (!IsGrouped(n.op) || bucket.tokens < 2) continue;
    const ir::Value &x = graph.value(n.inputs[0]), &w = graph.value(n.inputs.back());
    const int64_t rows = ir::Elements(graph.value(n.inputs[1]).shape, bucket);
    const int64_t row_bytes = RowBytes(x.dtype, x.shape.back().At(bucket));
    bytes = std::max(bytes, Sorted(nullptr, w.shape[0].At(bucket), rows, row_bytes).bytes);
  }
  return bytes;
}

base::Status CompileGroupedLinear(const Context& c, ir::NodeId id, Steps& steps) {
  const ir::Node& n = c.plan.graph.nodes[static_cast<size_t>(id)];
  const ir::Value& x = c.value(n.inputs[0]);
  const int64_t k = x.shape.back().At(c.plan.bucket);
  auto work = std::make_shared<GroupedWork>();
  const auto ids = c.Input(n.inputs[1]);
  if (!ids) return ids.error();
  const auto out = c.Rows(n.outputs[0]);
  if (!out) return out.error();
  if (!out->dense())
    return base::Error{base::Code::kInternal, fmt::format("cpu: '{}' is not dense", n.name)};
  work->ids = *ids;
  work->chosen = c.value(n.inputs[1]).shape[1].At(c.plan.bucket);
  work->shared = x.shape.size() == 2 ? work->chosen : 1;
  work->row_bytes = work->x_stride = RowBytes(x.dtype, k);
  work->out = out->base;
  work->out_stride = work->width = out->width;
  work->nr = c.kernels.nr;
  work->threads = c.threads;
  const bool int8 = x.dtype == ir::DType::kQ8_A32, brain = x.dtype == ir::DType::kBF16;
  if (int8 || brain) {
    const auto p = c.Arena(n.inputs[0]);
    if (!p) return p.error();
    work->x = *p;
  } else {
    const auto rows = c.Rows(n.inputs[0]);
    if (!rows) return rows.error();
    if (rows->inner != 1 && !rows->dense()) {
      return base::Error{base::Code::kUnsupported,
                         fmt::format("cpu: '{}' reads a strided view of experts' rows", n.name)};
    }
    work->x = reinterpret_cast<const std::byte*>(rows->base);
    work->x_stride = 4 * (rows->inner == 1 ? rows->stride : rows->width);
  }
  const size_t first = n.op == Op::kGroupedLinearSum ? 3 : 2;
  for (size_t i = first; i < n.inputs.size(); ++i) {
    const auto w = c.Weight(n.inputs[i]);
    if (!w) return w.error();
    const ir::Shape& shape = c.value(n.inputs[i]).shape;
    const ir::DType format = (*w)->format;
    Matrices m;
    m.run = (brain ? c.kernels.brain_linear : c.kernels.linear)[static_cast<int>(format)];
    if (m.run == nullptr || (*w)->layout.name != PanelLayoutName(c.kernels, format) ||
        (!brain && TakesInt8(format) != int8)) {
      return base::Error{
          base::Code::kInternal,
          fmt::format("cpu: '{}' cannot multiply {} by the weight '{}' of {} in the layout '{}'",
                      n.name, ir::Name(x.dtype), c.value(n.inputs[i]).name, ir::Name(format),
                      (*w)->layout.name)};
    }
    work->experts = shape[0].At(c.plan.bucket);
    m.args.k = k;
    m.args.n = shape[1].At(c.plan.bucket);
    m.args.w = static_cast<const std::byte*>((*w)->data);
    m.args.panel_bytes = PanelBytesOf(format, c.kernels.nr, c.kernels.pairs, k);
    m.panels = (m.args.n + c.kernels.nr - 1) / c.kernels.nr;
    m.bytes = (*w)->layout.bytes;
    work->matrices.push_back(m);
  }
  std::byte* workspace = static_cast<std::byte*>(c.bindings.arena) + c.plan.workspace_offset;
  work->sorted =
      Sorted(workspace, work->experts, c.plan.bucket.tokens * work->chosen, work->row_bytes);
  if (c.plan.bucket.tokens > 1) {
    steps.push_back(std::make_unique<SortStep>(id, work, n.op != Op::kGroupedLinearSum));
    steps.push_back(std::make_unique<GatherStep>(id, work));
  }
  if (n.op == Op::kGroupedLinearSum) {
    const auto weights = c.Rows(n.inputs[2]);
    if (!weights) return weights.error();
    steps.push_back(std::make_unique<SumGroupedStep>(id, work, c.kernels, *weights));
  } else if (n.op == Op::kGroupedLinearActMul) {
    const auto& parts = n.attrs.as<ir::FusedAttrs>().parts;
    const Activate fn = ActivateOf(parts[3].as<ir::UnaryAttrs>().fn);
    steps.push_back(std::make_unique<ActMulGroupedStep>(id, work, c.kernels, fn));
  } else {
    steps.push_back(std::make_unique<PlainGroupedStep>(id, work));
  }
  return {};
}

}  // namespace vt::cpu
