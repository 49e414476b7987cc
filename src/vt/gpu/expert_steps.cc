// Nodes of experts: their matrices and their sum; routers are passed on.
#include "vt/gpu/expert_steps.h"

#include <algorithm>

#include "base/strings.h"
#include "vt/gpu/args_experts.h"
#include "vt/gpu/expert_nodes.h"
#include "vt/gpu/expert_plain_steps.h"
#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_plan.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/router_steps.h"
#include "vt/gpu/rows_work.h"

namespace vt::gpu {
namespace {

using ir::DType;
using ir::Op;

// The rows of the step by expert, in the workspace.
struct Tiles {
  QuantTilePlan plan;
  int64_t most = 0;         // tiles
  int64_t order_bytes = 0;  // before them
  int64_t bytes() const { return order_bytes + most * int64_t{sizeof(QuantExpertTile)}; }
};
Tiles TilesOf(const GroupedShape& s, const DeviceFacts& d) {
  Tiles t;
  t.plan = PlanQuantExpertTile(s.pairs(), s.experts, d);
  // Each expert may have one that is not full.
  t.most = std::min(s.pairs(), s.pairs() / t.plan.shape.rows + s.experts + 1);
  t.order_bytes = (s.pairs() * 4 + 15) / 16 * 16;
  return t;
}

int64_t ExpertBytes(const Context& c, ir::ValueId matrix) {
  const ir::Value& v = c.value(matrix);
  const int64_t rows = v.shape[1].At(c.bucket()), k = v.shape[2].At(c.bucket());
  if (const auto format = QuantFormatOf(v.dtype)) return QuantLayout::Of(*format, rows, k).bytes;
  return rows * PitchOf(k) * ir::Info(c.device.value_type).bytes;
}

class Compiler {
 public:
  Compiler(const Context& c, ir::NodeId id)
      : c_(c), id_(id), l_(ReadGrouped(c.node(id))), s_(ShapeOf(c.plan.graph, l_, c.bucket())) {}

  void Run() {
    if (ir::IsQuantised(c_.value(l_.out).dtype)) return Up();
    if (c_.value(l_.x).dtype == DType::kQ8_A32) return Gemv();
    if (SupportsPlainExperts(c_.plan.graph, c_.node(id_), c_.bucket(), c_.device))
      return CompilePlainExperts(c_, id_);
    Sort();
    int32_t column = 0;
    for (const ir::ValueId w : l_.matrices) {
      Tile(w, column);
      column += static_cast<int32_t>(c_.value(w).shape[1].At(c_.bucket()));
    }
  }

 private:
  bool SharedX() const { return c_.value(l_.x).shape.size() == 2; }

  QuantExpertArgs Common() const {
    QuantExpertArgs a;
    a.linear.header = c_.header();
    a.linear.x = QuantRowsOf(c_, l_.x);
    a.linear.act = l_.act;
    a.ids = c_.Ints(l_.ids);
    a.expert_bytes = ExpertBytes(c_, l_.matrices[0]);
    a.experts = static_cast<int32_t>(s_.experts);
    a.chosen = static_cast<int32_t>(s_.chosen);
    a.shared_x = SharedX() ? 1 : 0;
    return a;
  }

  // Of an act_mul, quantised.
  void Up() {
    QuantExpertUpArgs u;
    u.experts = Common();
    QuantGemvArgs& g = u.experts.linear;
    g.count = {Of::kTokens, 1};
    g.segment_count = 0;
    for (const auto& matrices : {l_.matrices, l_.shared}) {
      for (const ir::ValueId w : matrices) g.segments[g.segment_count++].w = QuantMatrixOf(c_, w);
    }
    u.y = QuantRowsOf(c_, l_.out);
    int32_t blocks = u.y.blocks;
    if (l_.shared_out != ir::kNone) {
      u.shared_y = QuantRowsOf(c_, l_.shared_out);
      blocks = std::max(blocks, u.shared_y.blocks);
    }
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>(blocks);
    config.grid_y = static_cast<unsigned>(s_.tokens * (s_.chosen + (l_.shared.empty() ? 0 : 1)));
    config.threads = kQuantExpertsUpThreads;
    u.tokens = static_cast<int32_t>(s_.tokens);
    u.here = TakeChoice(c_, l_.ids, true);
    config.shared_bytes = 36 * sizeof(float);  // 32 values, and which expert it is
    if (u.here.logits != nullptr) config.grid_y += static_cast<unsigned>(s_.tokens);
    config.early = true;
    c_.Emit(id_,
            "quant_experts_up" + QuantSetSuffix({g.segments, static_cast<size_t>(g.segment_count)}),
            config, u);
  }

  void Gemv() {
    QuantExpertArgs a = Common();
    QuantGemvArgs& g = a.linear;
    g.out = c_.RowsOf(l_.out);
    g.out_type = ValueTypeOf(c_.value(l_.out).dtype);
    g.count = c_.CountOf(l_.out);
    if (l_.residual != ir::kNone) {
      g.residual = c_.RowsOf(l_.residual);
      g.residual_type = ValueTypeOf(c_.value(l_.residual).dtype);
    }
    const bool sums = l_.weights != ir::kNone, act = l_.act != RowFn::kNone;
    if (sums) a.weights = static_cast<const float*>(c_.Address(l_.weights));
    const int64_t rows = sums ? s_.tokens : s_.pairs();
    int32_t column = 0;
    // Segments of one launch have experts of one size.
    for (size_t i = 0; i < l_.matrices.size();) {
      a.expert_bytes = ExpertBytes(c_, l_.matrices[i]);
      g.segment_count = g.units = 0;
      for (; i < l_.matrices.size() && g.segment_count < kQuantSegments &&
             ExpertBytes(c_, l_.matrices[i]) == a.expert_bytes;
           ++i) {
        QuantSegment& s = g.segments[g.segment_count];
        s.w = QuantMatrixOf(c_, l_.matrices[i]);
        s.column = act ? 0 : column;
        s.first_unit = act ? 0 : g.units;
        column += s.w.rows;
        if (!act || g.segment_count == 0)
          g.units += static_cast<int32_t>(QuantUnits(s.w.rows, act));
        ++g.segment_count;
      }
      if (!l_.shared.empty()) {
        g.segments[1].w = QuantMatrixOf(c_, l_.shared[0]);
        a.shared = QuantRowsOf(c_, l_.shared_x);
        a.gate = c_.RowsOf(l_.gate);
        a.gate_type = ValueTypeOf(c_.value(l_.gate).dtype);
      }
      if (sums && Down(a)) continue;
      const int64_t summed = sums ? s_.chosen + static_cast<int64_t>(l_.shared.size()) : 0;
      const QuantGemvPlan plan = PlanQuantExperts(rows, g.units, g.x.blocks, summed, c_.device);
      g.parts = plan.parts;
      g.groups = plan.groups;
      g.lanes = plan.lanes;
      LaunchConfig config;
      config.grid_x = static_cast<unsigned>(plan.blocks);
      config.grid_y = static_cast<unsigned>(rows);
      config.threads = static_cast<unsigned>(plan.parts * plan.groups * c_.device.properties.wave);
      config.shared_bytes = static_cast<unsigned>(plan.shared_bytes);
      config.early = true;
      const size_t segments = sums ? 1 + l_.shared.size() : 1;
      c_.Emit(id_,
              sums ? "quant_experts_sum" + QuantSetSuffix({g.segments, segments}) : "quant_experts",
              config, a);
    }
  }

  // A sum whose rows are short enough for a wave an expert; false: nothing was emitted.
  bool Down(QuantExpertArgs a) {
    const size_t segments = 1 + l_.shared.size();
    const QuantDownPlan plan =
        PlanQuantDown(std::max(a.linear.x.blocks, a.shared.blocks),
                      s_.chosen + static_cast<int64_t>(l_.shared.size()), c_.device);
    if (plan.lanes == 0 || a.linear.segment_count > 1) return false;
    a.linear.lanes = plan.lanes;
    LaunchConfig config;
    config.grid_x =
        static_cast<unsigned>((a.linear.segments[0].w.rows + plan.rows - 1) / plan.rows);
    config.grid_y = static_cast<unsigned>(s_.tokens);
    config.threads = static_cast<unsigned>((s_.chosen + static_cast<int64_t>(l_.shared.size())) *
                                           c_.device.properties.wave);
    config.shared_bytes = static_cast<unsigned>(plan.shared_bytes);
    config.early = true;
    c_.Emit(id_, "quant_experts_down" + QuantSetSuffix({a.linear.segments, segments}), config, a);
    return true;
  }

  void Sort() {
    tiles_ = TilesOf(s_, c_.device);
    std::byte* workspace = c_.workspace() + c_.parts().experts;
    sort_.header = c_.header();
    sort_.ids = c_.Ints(l_.ids);
    sort_.count = c_.CountOf(l_.out);
    sort_.experts = static_cast<int32_t>(s_.experts);
    sort_.rows = tiles_.plan.shape.rows;
    sort_.most_tiles = static_cast<int32_t>(tiles_.most);
    sort_.order = reinterpret_cast<int32_t*>(workspace);
    sort_.tiles = reinterpret_cast<QuantExpertTile*>(workspace + tiles_.order_bytes);
    LaunchConfig config;
    config.threads = kExpertSortThreads;
    config.shared_bytes = static_cast<unsigned>(ExpertSortBytes(sort_.experts));
    config.early = true;
    // Once for all matrices that the same ids choose.
    const auto last = std::find_if(c_.launches.rbegin(), c_.launches.rend(),
                                   [](const Launch& l) { return l.kernel == "expert_sort"; });
    const bool done = last != c_.launches.rend() && c_.node(last->node).inputs[1] == l_.ids;
    if (!done) c_.Emit(id_, "expert_sort", config, sort_);
  }

  void Tile(ir::ValueId matrix, int32_t column) {
    QuantExpertTileArgs a;
    QuantTileArgs& t = a.linear;
    t.header = c_.header();
    t.x = c_.RowsOf(l_.x);
    t.out = c_.RowsOf(l_.out);
    t.k = static_cast<int32_t>(s_.k);
    t.blocks = static_cast<int32_t>(PitchOf(s_.k) / 32);
    t.out_f32 = c_.value(l_.out).dtype == DType::kF32 ? 1 : 0;
    t.packed = c_.Aligned(l_.x) ? 1 : 0;
    t.segment.column = column;
    if (IsQuantMatrix(c_.value(matrix))) {
      t.segment.w = QuantMatrixOf(c_, matrix);
    } else {
      t.segment.w.format = QuantFormat::kPlain;
      t.segment.w.planes.low = static_cast<const char*>(c_.Address(matrix));
      t.segment.w.rows = static_cast<int32_t>(c_.value(matrix).shape[1].At(c_.bucket()));
    }
    a.tiles = sort_.tiles;
    a.order = sort_.order;
    a.expert_bytes = ExpertBytes(c_, matrix);
    a.chosen = static_cast<int32_t>(s_.chosen);
    a.shared_x = SharedX() ? 1 : 0;
    const QuantTileShape& shape = tiles_.plan.shape;
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>((t.segment.w.rows + shape.columns - 1) / shape.columns);
    config.grid_y = static_cast<unsigned>(tiles_.most);
    config.threads = static_cast<unsigned>(shape.waves * c_.device.properties.wave);
    config.shared_bytes = static_cast<unsigned>(tiles_.plan.shared_bytes);
    config.early = true;
    c_.Emit(id_, tiles_.plan.kernel, c_.device.value_type, config, a);
  }

  const Context& c_;
  ir::NodeId id_;
  Grouped l_;
  GroupedShape s_;
  Tiles tiles_ = {};
  ExpertSortArgs sort_;
};

void CompileSum(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  ExpertSumArgs a;
  a.header = c.header();
  a.x = ViewOf(c, n.inputs[0]);
  a.y = ViewOf(c, n.outputs[0]);
  a.weights = static_cast<const float*>(c.Address(n.inputs[1]));
  a.count = c.CountOf(n.outputs[0]);
  a.chosen = static_cast<int32_t>(c.value(n.inputs[0]).shape[1].At(c.bucket()));
  a.width = a.y.rows.width;
  const int64_t chunk = 16 / ir::Info(c.device.value_type).bytes;
  const auto whole = [&](ir::ValueId v) {
    return c.value(v).dtype == c.device.value_type && c.Aligned(v);
  };
  a.packed = a.width % chunk == 0 && whole(n.inputs[0]) && whole(n.outputs[0]) ? 1 : 0;
  const int64_t threads = c.MostRows(n.outputs[0]) * ((a.width + chunk - 1) / chunk);
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>((threads + kExpertSumThreads - 1) / kExpertSumThreads);
  config.threads = kExpertSumThreads;
  config.early = true;
  c.Emit(id, "expert_sum", c.device.value_type, config, a);
}

}  // namespace

void CompileExperts(const Context& c, ir::NodeId id) {
  switch (c.node(id).op) {
    case Op::kRouter:
    case Op::kHashRouter:
      return CompileRouter(c, id);
    case Op::kExpertSum:
      return CompileSum(c, id);
    case Op::kNormRouter:
    case Op::kNormRouterGate:
    case Op::kRmsNormRouter:
      return CompileNormRouter(c, id);
    default:
      return Compiler(c, id).Run();
  }
}

bool SupportsExperts(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                     const DeviceFacts& d) {
  if (IsNormRouter(n.op)) return SupportsNormRouter(g, n, b, d);
  const auto type = [&](size_t i) { return g.value(n.inputs[i]).dtype; };
  if (n.op == Op::kRouter || n.op == Op::kHashRouter)
    return type(0) == DType::kF32 && g.value(n.inputs[0]).shape.back().count <= kMostExperts;
  if (n.op == Op::kExpertSum)
    return type(1) == DType::kF32 && (type(0) == DType::kF32 || type(0) == d.value_type);
  const Grouped l = ReadGrouped(n);
  const auto quantised = [&](ir::ValueId w) { return IsQuantMatrix(g.value(w)); };
  if (g.value(l.x).dtype == DType::kQ8_A32) {
    if (l.second != ir::kNone || n.op == Op::kExpertsActMul || n.op == Op::kExpertsDownUngated)
      return false;
    if (!std::all_of(l.matrices.begin(), l.matrices.end(), quantised) ||
        !std::all_of(l.shared.begin(), l.shared.end(), quantised))
      return false;
    for (const ir::ValueId v : {l.residual, l.gate}) {
      if (v != ir::kNone && g.value(v).dtype != DType::kF32 && g.value(v).dtype != d.value_type)
        return false;
    }
    if (l.shared_x != ir::kNone && g.value(l.shared_x).dtype != DType::kQ8_A32) return false;
    if (l.weights != ir::kNone) return g.value(l.weights).dtype == DType::kF32;
    // A wave of an act_mul has rows of both weights.
    const auto same = [&](const std::vector<ir::ValueId>& w) {
      return w.size() < 2 || g.value(w[0]).dtype == g.value(w[1]).dtype;
    };
    return l.act == RowFn::kNone || (same(l.matrices) && same(l.shared));
  }
  return SupportsPlainExperts(g, n, b, d) ||
         (n.op == Op::kGroupedLinear && g.value(l.x).dtype == d.value_type);
}

int64_t ExpertWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  int64_t bytes = 0;
  for (const ir::Node& n : g.nodes) {
    if (IsNormRouter(n.op))
      bytes = std::max(bytes, b.tokens * g.value(n.inputs[2]).shape[0].At(b) * 4);
    if (n.op != Op::kGroupedLinear || g.value(n.inputs[0]).dtype == DType::kQ8_A32) continue;
    bytes = std::max(bytes, TilesOf(ShapeOf(g, ReadGrouped(n), b), d).bytes());
  }
  return bytes;
}

}  // namespace vt::gpu
