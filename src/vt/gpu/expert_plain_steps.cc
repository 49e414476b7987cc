#include "vt/gpu/expert_plain_steps.h"

#include <algorithm>

#include "vt/gpu/args_experts_plain.h"
#include "vt/gpu/expert_nodes.h"
#include "vt/gpu/quant_steps.h"
#include "vt/gpu/router_steps.h"
#include "vt/ir/rewrite.h"

namespace vt::gpu {
namespace {

using ir::DType;
using ir::Op;

// Each row of x reads its experts' matrices: from so many tokens on, or where experts have more
// rows than this each, tiles read a matrix once for all of its rows.
constexpr int64_t kMostTokens = 8, kMostRowsAnExpert = 2;
// Of rows of x in a block's shared memory, of which several are to have room.
constexpr int64_t kMostShared = 60 << 10;

// Waves of a sum's block, of them those of the shared expert, and the values that each of these has
// of its row: about as many as an expert's, in whole lines.
struct SumWaves {
  int64_t all = 1, shared = 0, part = 0;
};
SumWaves WavesOf(const GroupedShape& s, int64_t shared_k, const DeviceFacts& d) {
  constexpr int64_t kLine = 64;
  const int64_t size = ir::Info(d.value_type).bytes;
  const int64_t most = kPlainExpertsSumThreads / d.properties.wave;
  SumWaves w;
  if (shared_k > 0) {
    const int64_t room = std::max<int64_t>(1, most - s.chosen);
    w.shared = std::min(room, (shared_k + s.k - 1) / s.k);
    w.part = ((shared_k + w.shared - 1) / w.shared + kLine - 1) / kLine * kLine;
    w.shared = (shared_k + w.part - 1) / w.part;
  }
  const int64_t rows = kMostShared / (std::max(s.k, w.part) * size);  // that have room
  w.all = std::min({s.chosen + w.shared, most, rows});
  return w;
}

// As few steps of a wave as a row has.
PlainExpertShape ShapeFor(int64_t k, bool sums, const DeviceFacts& d) {
  const int64_t step = d.properties.wave * 16 / ir::Info(d.value_type).bytes;
  const PlainExpertShape brief = sums ? kPlainExpertsSumShort : kPlainExpertsShort;
  if (k <= brief.depth * step) return brief;
  return sums ? kPlainExpertsSumLong : kPlainExpertsLong;
}

// A block that begins finds out what it is to read, then waits for it, while nothing of it is under
// way. So there are as many blocks as run at once, each with several units of `blocks`.
int64_t TurnsFor(int64_t blocks, int64_t threads, const DeviceFacts& d) {
  constexpr int64_t kThreads = 640;  // of a multiprocessor
  const int64_t at_once = d.properties.units * std::max<int64_t>(1, kThreads / threads);
  const auto over = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
  const int64_t rounds = over(blocks, at_once * kPlainExpertsTurns);
  return over(blocks, at_once * rounds);
}

// But for what goes by blocks and waves.
PlainExpertArgs ArgsOf(const Context& c, const Grouped& l, const GroupedShape& s) {
  PlainExpertArgs a;
  a.header = c.header();
  a.x = c.RowsOf(l.x);
  a.out = ViewOf(c, l.out);
  if (l.residual != ir::kNone) a.residual = ViewOf(c, l.residual);
  if (l.second != ir::kNone) a.second = ViewOf(c, l.second);
  a.ids = c.Ints(l.ids);
  if (l.weights != ir::kNone) a.weights = static_cast<const float*>(c.Address(l.weights));
  a.count = c.CountOf(l.out);
  a.k = static_cast<int32_t>(s.k);
  a.pitch = static_cast<int32_t>(PitchOf(s.k));
  a.experts = static_cast<int32_t>(s.experts);
  a.chosen = static_cast<int32_t>(s.chosen);
  a.shared_x = c.value(l.x).shape.size() == 2 ? 1 : 0;
  a.act = l.act;
  return a;
}

}  // namespace

bool SupportsPlainExperts(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                          const DeviceFacts& d) {
  if (n.op != Op::kGroupedLinear && n.op != Op::kGroupedLinearActMul &&
      n.op != Op::kGroupedLinearSum && n.op != Op::kGroupedLinearSumAdd &&
      n.op != Op::kGroupedLinearSumAddAdd && n.op != Op::kExpertsActMul &&
      n.op != Op::kExpertsDown && n.op != Op::kExpertsDownUngated)
    return false;
  const Grouped l = ReadGrouped(n);
  const GroupedShape s = ShapeOf(g, l, b);
  const ir::Value& x = g.value(l.x);
  const auto plain = [&](ir::ValueId v) {
    return v == ir::kNone || g.value(v).dtype == DType::kF32 || g.value(v).dtype == d.value_type;
  };
  const auto matrix = [&](ir::ValueId w) {
    return g.value(w).kind == ir::ValueKind::kWeight && !IsQuantMatrix(g.value(w));
  };
  // Rows are read by 16 bytes: they stand one behind the other, in memory of their own.
  const auto dense = [&](const ir::Value& v) {
    const int64_t bytes = v.shape.back().At(b) * ir::Info(v.dtype).bytes;
    return v.dtype == d.value_type && v.producer >= 0 &&
           !ir::IsView(g.nodes[static_cast<size_t>(v.producer)].op) && bytes % 16 == 0 &&
           bytes <= kMostShared;
  };
  if (l.shared_x != ir::kNone) {
    const ir::Value& z = g.value(l.shared_x);
    if (!dense(z) || z.shape.size() != 2) return false;
    const SumWaves w = WavesOf(s, z.shape.back().At(b), d);
    if (w.all <= w.shared) return false;
  }
  return b.tokens <= kMostTokens && s.pairs() <= kMostRowsAnExpert * s.experts && dense(x) &&
         (n.op != Op::kExpertsActMul || x.shape.size() == 2) && plain(l.residual) &&
         plain(l.second) && plain(l.gate) &&
         std::all_of(l.matrices.begin(), l.matrices.end(), matrix) &&
         std::all_of(l.shared.begin(), l.shared.end(), matrix);
}

void CompilePlainExperts(const Context& c, ir::NodeId id) {
  const Grouped l = ReadGrouped(c.node(id));
  const GroupedShape s = ShapeOf(c.plan.graph, l, c.bucket());
  const bool sums = l.weights != ir::kNone, act = l.act != RowFn::kNone;
  const PlainExpertShape shape = ShapeFor(s.k, sums, c.device);
  if (!c.Aligned(l.x) || (l.shared_x != ir::kNone && !c.Aligned(l.shared_x)))
    return c.Fail(id, "has rows that cannot be read by 16 bytes");
  PlainExpertArgs a = ArgsOf(c, l, s);
  if (act) a.here = TakeChoice(c, l.ids, false);
  const int64_t wave = c.device.properties.wave;
  const int64_t size = ir::Info(c.device.value_type).bytes;
  const int64_t rows = act ? shape.rows / 2 : shape.rows;
  int64_t waves = kPlainExpertsThreads / wave;
  if (sums) {
    const int64_t shared_k =
        l.shared_x == ir::kNone ? 0 : c.value(l.shared_x).shape.back().At(c.bucket());
    const SumWaves w = WavesOf(s, shared_k, c.device);
    waves = w.all;
    a.shared_waves = static_cast<int32_t>(w.shared);
    a.shared_part = static_cast<int32_t>(w.part);
    a.shared_k = static_cast<int32_t>(shared_k);
    a.shared_pitch = static_cast<int32_t>(PitchOf(shared_k));
    a.stage = static_cast<int32_t>(std::max(s.k, w.part));
    if (shared_k > 0) a.z = c.RowsOf(l.shared_x);
    if (l.gate != ir::kNone) a.gate = ViewOf(c, l.gate);
  } else if (!l.shared.empty()) {
    a.shared_out = ViewOf(c, l.shared_out);
  }
  const auto blocks_of = [&](int64_t outputs, int64_t turns) {
    const int64_t of_block = rows * turns * (sums ? 1 : waves);
    return (outputs + of_block - 1) / of_block;
  };
  const int64_t outputs = c.value(l.matrices[0]).shape[1].At(c.bucket());
  const int64_t shared_outputs =
      act && !l.shared.empty() ? c.value(l.shared[0]).shape[0].At(c.bucket()) : 0;
  const int64_t blocks = (sums ? s.tokens : s.pairs()) * blocks_of(outputs, 1) +
                         s.tokens * blocks_of(shared_outputs, 1);
  const int64_t turns = sums || act ? TurnsFor(blocks, waves * wave, c.device) : 1;
  a.turns = static_cast<int32_t>(turns);
  if (shared_outputs > 0) {
    a.shared_blocks = static_cast<int32_t>(blocks_of(shared_outputs, turns));
    a.shared_grid = static_cast<int32_t>((s.tokens * a.shared_blocks + s.pairs() - 1) / s.pairs());
  }
  for (size_t i = 0; i < l.shared.size(); ++i) {
    LinearSegment& segment = a.segments[(act ? kSharedUp : kSharedDown) + i];
    segment.w = c.Address(l.shared[i]);
    segment.rows = static_cast<int32_t>(c.value(l.shared[i]).shape[0].At(c.bucket()));
  }
  int32_t column = 0;
  for (size_t i = 0; i < l.matrices.size();) {
    a.segment_count = a.units = 0;
    for (; i < l.matrices.size() && a.segment_count < kLinearSegments; ++i) {
      LinearSegment& segment = a.segments[a.segment_count];
      segment.w = c.Address(l.matrices[i]);
      segment.rows = static_cast<int32_t>(c.value(l.matrices[i]).shape[1].At(c.bucket()));
      segment.column = act ? 0 : column;
      segment.first_unit = act ? 0 : a.units;
      column += segment.rows;
      if (!act || a.segment_count == 0)
        a.units += static_cast<int32_t>((segment.rows + rows - 1) / rows);
      ++a.segment_count;
    }
    LaunchConfig config;
    config.grid_x = static_cast<unsigned>(sums ? s.tokens : s.pairs());
    const int64_t of_block = turns * (sums ? 1 : waves);
    const int64_t of_units = (a.units + of_block - 1) / of_block;
    const bool chooses = a.here.logits != nullptr;
    config.grid_y = static_cast<unsigned>(a.shared_grid + of_units + (chooses ? 1 : 0));
    config.threads = static_cast<unsigned>(waves * wave);
    config.shared_bytes = static_cast<unsigned>(
        sums ? waves * (a.stage * size + turns * shape.rows * 4) : s.k * size + (chooses ? 16 : 0));
    config.early = true;
    const char* kernel = sums ? (shape.rows == 2 ? "experts_sum_2x6" : "experts_sum_4x3")
                              : (shape.rows == 2 ? "experts_2x8" : "experts_4x4");
    c.Emit(id, kernel, c.device.value_type, config, a);
  }
}

}  // namespace vt::gpu
