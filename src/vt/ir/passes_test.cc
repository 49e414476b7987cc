#include "vt/ir/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "vt/ir/builder.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {
namespace {

// Wants int8 blocks for quantised weights, supports what the test says.
class FakeTarget : public Target {
 public:
  std::string TargetName() const override { return "fake"; }
  bool Supports(const Graph&, const Node& node, const Bucket&) const override {
    return !IsFused(node.op) || (fused && lacks.count(node.op) == 0);
  }
  int64_t Launches(const Plan& plan) const override { return CountComputed(plan); }
  DType ValueType() const override { return type; }
  DType ActivationFormat(DType weight, const Bucket&) const override {
    return quantise && IsQuantised(weight) ? DType::kQ8_A32 : type;
  }
  WeightLayout LayoutFor(DType format, int64_t rows, int64_t columns, WeightUse) const override {
    return {"row", rows * Bytes(format, columns)};
  }
  std::string PickKernel(const Graph&, const Node& node, const Bucket&) const override {
    return std::string(Name(node.op)) + ".fake";
  }
  Rates MachineRates() const override { return {}; }
  int64_t WorkspaceBytes(const Graph&, const Bucket&) const override { return workspace; }
  int64_t workspace = 0;

  bool fused = true;
  std::set<Op> lacks;
  bool quantise = true;
  DType type = DType::kF32;
};

constexpr int64_t kWidth = 64;

// Every "*.weight" is [out, kWidth] as asked for; the format follows from the name.
WeightSource AnyWeights(std::map<std::string, WeightInfo> all) {
  return [all = std::move(all)](const std::string& name) -> std::optional<WeightInfo> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

struct Layer {
  Graph graph;
  ValueId logits;
};

// One llama-like block: norm, q/k/v of mixed formats, attention, residual, gate/up/down, last norm
// and head.
Layer Block() {
  std::map<std::string, WeightInfo> w;
  const auto add = [&](const std::string& n, DType t, std::vector<int64_t> s) {
    w[n + ".weight"] = {t, std::move(s)};
  };
  add("embed", DType::kQ8_0, {100, kWidth});
  add("in_norm", DType::kF32, {kWidth});
  add("post_norm", DType::kF32, {kWidth});
  add("norm", DType::kF32, {kWidth});
  add("q", DType::kQ4_0, {64, kWidth});
  add("k", DType::kQ8_0, {32, kWidth});
  add("v", DType::kQ5_0, {32, kWidth});
  add("o", DType::kQ8_0, {kWidth, 64});
  add("gate", DType::kQ8_0, {96, kWidth});
  add("up", DType::kQ8_0, {96, kWidth});
  add("down", DType::kQ8_0, {kWidth, 96});
  Builder b("block", AnyWeights(std::move(w)), {.max_model_len = 64});
  const RopeAttrs rope{.rotary_dim = 16, .frequencies = std::vector<float>(8, 0.5f)};
  ValueId h = b.Embed("embed.weight", 100, kWidth);
  const ValueId x = b.RmsNorm(h, "in_norm.weight", 1e-5f);
  const ValueId q = b.Rope(b.Heads(b.Linear(x, "q", 64), 4, 16), rope);
  const ValueId k = b.Rope(b.Heads(b.Linear(x, "k", 32), 2, 16), rope);
  const ValueId v = b.Heads(b.Linear(x, "v", 32), 2, 16);
  const ValueId a =
      b.Attention(q, k, v, {.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25f}, "attn");
  h = b.Add(h, b.Linear(a, "o", kWidth));
  const ValueId y = b.RmsNorm(h, "post_norm.weight", 1e-5f);
  // up comes first: merged, gate and up would fuse with what follows into one node.
  const ValueId up = b.Linear(y, "up", 96);
  const ValueId m = b.Mul(b.Act(b.Linear(y, "gate", 96), Activation::kSilu), up);
  h = b.Add(h, b.Linear(m, "down", kWidth));
  const ValueId out = b.OutputOnly(b.RmsNorm(h, "norm.weight", 1e-5f));
  auto g = b.Finish({out});
  EXPECT_TRUE(g) << g.error().message;
  return {*g, out};
}

const Bucket kBucket{.tokens = 5, .requests = 2, .outputs = 2};

const Node* Find(const Graph& g, Op op, const std::string& name = "") {
  for (const Node& n : g.nodes) {
    if (n.op == op && (name.empty() || n.name == name)) return &n;
  }
  return nullptr;
}

TEST(MergeLinears, MergesSiblingsOfMixedFormatsIntoSegments) {
  Graph g = Block().graph;
  MergeLinears(g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(g)) << Verify(g).error().message;
  EXPECT_EQ(CountNodes(g, Op::kLinear), 4);  // qkv, o, gate and up, down
  const Node* qkv = Find(g, Op::kLinear, "q+k+v");
  ASSERT_NE(qkv, nullptr) << Dump(g);
  EXPECT_EQ(qkv->attrs.as<LinearAttrs>().segments, 3);
  EXPECT_EQ(ToString(g.value(qkv->outputs[0]).shape), "[T, 128]");
  const Node* v = Find(g, Op::kSlice, "v");
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->attrs.as<SliceAttrs>(), (SliceAttrs{96, 32}));
}

TEST(MergeLinears, KeepsApartWhatWantsDifferentActivations) {
  Graph g = Block().graph;
  for (Value& v : g.values) {
    if (v.name == "k.weight") v.dtype = DType::kBF16;
  }
  MergeLinears(g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(g));
  EXPECT_NE(Find(g, Op::kLinear, "q+v"), nullptr);
  EXPECT_NE(Find(g, Op::kLinear, "k"), nullptr);
}

// A block of experts with a shared one: router, gate and up, down, on one normed value.
// Of plain weights where `all` says of which type they are.
Graph ExpertBlock(std::optional<DType> all = {}) {
  std::map<std::string, WeightInfo> w = {{"embed.weight", {DType::kQ8_0, {100, kWidth}}},
                                         {"norm.weight", {DType::kF32, {kWidth}}},
                                         {"router.weight", {DType::kF32, {8, kWidth}}},
                                         {"shared.gate.weight", {DType::kQ8_0, {32, kWidth}}},
                                         {"shared.up.weight", {DType::kQ8_0, {32, kWidth}}},
                                         {"shared.down.weight", {DType::kQ8_0, {kWidth, 32}}},
                                         {"experts.gate.weight", {DType::kQ4_0, {8, 32, kWidth}}},
                                         {"experts.up.weight", {DType::kQ4_0, {8, 32, kWidth}}},
                                         {"experts.down.weight", {DType::kQ5_0, {8, kWidth, 32}}}};
  for (auto& [name, info] : w) {
    if (all && info.shape.size() > 1) info.dtype = *all;
  }
  Builder b("experts", AnyWeights(std::move(w)), {.max_model_len = 64});
  const ValueId x = b.Embed("embed.weight", 100, kWidth);
  const ValueId m = b.RmsNorm(x, "norm.weight", 1e-5f);
  const auto [weights, ids] = b.Router(b.Linear(m, "router", 8), {.top_k = 2}, "router.top");
  const ValueId gate = b.Act(b.GroupedLinear(m, ids, "experts.gate", 8, 32), Activation::kSilu);
  const ValueId chosen = b.Mul(gate, b.GroupedLinear(m, ids, "experts.up", 8, 32));
  const ValueId experts =
      b.ExpertSum(b.GroupedLinear(chosen, ids, "experts.down", 8, kWidth), weights);
  const ValueId shared_gate = b.Act(b.Linear(m, "shared.gate", 32), Activation::kSilu);
  const ValueId s = b.Mul(shared_gate, b.Linear(m, "shared.up", 32));
  auto g = b.Finish({b.Add(x, b.Add(experts, b.Linear(s, "shared.down", kWidth)))});
  EXPECT_TRUE(g) << g.error().message;
  return *g;
}

TEST(MergeLinears, MergesExpertsByTheirIds) {
  Graph g = ExpertBlock();
  MergeLinears(g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(g)) << Verify(g).error().message;
  const Node* both = Find(g, Op::kGroupedLinear, "experts.gate+up");
  ASSERT_NE(both, nullptr) << Dump(g);
  EXPECT_EQ(both->attrs.as<GroupedLinearAttrs>().segments, 2);
  EXPECT_EQ(ToString(g.value(both->outputs[0]).shape), "[T, 2, 64]");
  EXPECT_EQ(CountNodes(g, Op::kGroupedLinear), 2);
}

TEST(Lower, ExpertsAndTheSharedOneReadOneQuantisedValue) {
  FakeTarget target;
  target.lacks = {Op::kGroupedLinearActMul, Op::kLinearActMul, Op::kGroupedLinearActMulQuantize,
                  Op::kExpertsUp,           Op::kNormRouter,   Op::kActMulQuantizeLinearAdd,
                  Op::kExpertsActMul};
  const Plan plan = Lower(ExpertBlock(), target, kBucket);
  const Graph& g = plan.graph;
  const Node* experts = Find(g, Op::kGroupedLinear, "experts.gate+up");
  const Node* shared = Find(g, Op::kLinear, "shared.gate+up");
  ASSERT_NE(experts, nullptr) << Dump(g);
  ASSERT_NE(shared, nullptr) << Dump(g);
  EXPECT_EQ(experts->inputs[0], shared->inputs[0]);
  EXPECT_EQ(g.value(experts->inputs[0]).dtype, DType::kQ8_A32);
  // The norm's, and each of the two activations', with its act * mul.
  EXPECT_EQ(CountNodes(g, Op::kQuantize) + CountNodes(g, Op::kRmsNormQuantize), 1) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kActMulQuantize), 2) << Dump(g);
}

TEST(Lower, ARecurrentLayerIsOneNode) {
  const DeltaAttrs delta{.k_heads = 2, .v_heads = 4, .k_dim = 8, .v_dim = 8};
  std::map<std::string, WeightInfo> w = {{"embed.weight", {DType::kF32, {100, kWidth}}},
                                         {"conv.weight", {DType::kF32, {delta.channels(), 4}}},
                                         {"A", {DType::kF32, {4}}},
                                         {"dt", {DType::kF32, {4}}},
                                         {"norm.weight", {DType::kF32, {8}}},
                                         {"qkv.weight", {DType::kF32, {delta.channels(), kWidth}}},
                                         {"z.weight", {DType::kF32, {32, kWidth}}},
                                         {"a.weight", {DType::kF32, {4, kWidth}}},
                                         {"b.weight", {DType::kF32, {4, kWidth}}}};
  Builder b("delta", AnyWeights(std::move(w)), {.max_model_len = 64});
  const ValueId x = b.Embed("embed.weight", 100, kWidth);
  const ValueId qkv = b.Linear(x, "qkv", delta.channels()), a = b.Linear(x, "a", 4),
                beta = b.Linear(x, "b", 4), z = b.Heads(b.Linear(x, "z", 32), 4, 8);
  const ValueId y =
      b.GatedDeltaNet(qkv, a, beta, delta, 4, {"conv.weight", "A", "dt"}, "delta_net");
  const ValueId normed = b.RmsNorm(y, "norm.weight", 1e-6f);
  auto g = b.Finish({b.Mul(normed, b.Act(z, Activation::kSilu))});
  ASSERT_TRUE(g) << g.error().message;
  const Graph lowered = Lower(*g, FakeTarget(), kBucket).graph;
  ASSERT_TRUE(Verify(lowered)) << Verify(lowered).error().message;
  const Node* net = Find(lowered, Op::kGatedDeltaNet);
  ASSERT_NE(net, nullptr) << Dump(lowered);
  EXPECT_EQ(lowered.value(net->outputs[1]).kind, ValueKind::kState);
  EXPECT_EQ(CountNodes(lowered, Op::kCausalConv) + CountNodes(lowered, Op::kGatedDelta), 0);
}

// The router and the shared expert are found beside what quantises: nothing leads from there to
// them.
TEST(Lower, ExpertsAreTwoNodesBehindTheirRouter) {
  const Graph g = Lower(ExpertBlock(), FakeTarget(), kBucket).graph;
  ASSERT_TRUE(Verify(g)) << Verify(g).error().message;
  EXPECT_EQ(CountNodes(g, Op::kNormRouter), 1) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kExpertsUp), 1) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kExpertsDownUngated), 1) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kSlice) + CountNodes(g, Op::kRouter), 0) << Dump(g);
}

TEST(Lower, ExpertsAreTwoNodesWhereNothingIsQuantisedWithin) {
  FakeTarget target;
  target.lacks = {Op::kExpertsUp,           Op::kGroupedLinearActMulQuantize,
                  Op::kExpertsActMul,       Op::kExpertsDownUngated,
                  Op::kGroupedLinearSumAdd, Op::kGroupedLinearSumAddAdd};
  const Graph g = Lower(ExpertBlock(), target, kBucket).graph;
  EXPECT_EQ(CountNodes(g, Op::kGroupedLinearActMul), 1) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kGroupedLinearSum), 1) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kSlice), 0) << Dump(g);
}

TEST(SplitLinears, ExpertsThatNothingFusesWithAreApartAgain) {
  FakeTarget target;
  target.lacks = {Op::kExpertsUp, Op::kExpertsActMul, Op::kGroupedLinearActMulQuantize,
                  Op::kGroupedLinearActMul};
  target.quantise = false;
  const Graph g = Lower(ExpertBlock(), target, kBucket).graph;
  ASSERT_TRUE(Verify(g)) << Verify(g).error().message;
  EXPECT_NE(Find(g, Op::kGroupedLinear, "experts.gate"), nullptr) << Dump(g);
  EXPECT_NE(Find(g, Op::kGroupedLinear, "experts.up"), nullptr) << Dump(g);
  EXPECT_EQ(CountNodes(g, Op::kSlice), 0) << Dump(g);
}

// A width of 57 + 40 + 32 + 1: the odd ones go, the others stay together and move up.
TEST(SplitLinears, RowsOfManyTokensStayAligned) {
  std::map<std::string, WeightInfo> w = {{"embed.weight", {DType::kBF16, {100, kWidth}}}};
  const std::vector<std::pair<std::string, int64_t>> parts = {
      {"a", 57}, {"b", 40}, {"c", 32}, {"d", 1}};
  for (const auto& [name, rows] : parts) {
    w[name + ".weight"] = {DType::kBF16, {rows, kWidth}};
    w[name + ".bias"] = {DType::kF32, {rows}};
  }
  Builder b("odd", AnyWeights(std::move(w)), {.max_model_len = 128});
  const ValueId x = b.Embed("embed.weight", 100, kWidth);
  std::vector<ValueId> out;
  for (const auto& [name, rows] : parts)
    out.push_back(b.Act(b.Linear(x, name, rows, true), Activation::kSilu));
  auto g = b.Finish(out);
  ASSERT_TRUE(g) << g.error().message;
  FakeTarget target;
  target.quantise = false;
  EXPECT_EQ(CountNodes(Lower(*g, target, {64, 2, 2}).graph, Op::kLinear), 1);
  const Graph many = Lower(*g, target, {65, 2, 2}).graph;
  ASSERT_TRUE(Verify(many)) << Verify(many).error().message;
  EXPECT_EQ(CountNodes(many, Op::kLinear), 3) << Dump(many);
  const Node* c = Find(many, Op::kSlice, "c");
  ASSERT_NE(c, nullptr) << Dump(many);
  EXPECT_EQ(c->attrs.as<SliceAttrs>(), (SliceAttrs{40, 32}));
  const Node* a = Find(many, Op::kLinear, "a");
  ASSERT_NE(a, nullptr) << Dump(many);
  EXPECT_EQ(many.value(a->inputs[1]).name, "a.weight");
  EXPECT_EQ(many.value(a->inputs[2]).name, "a.bias");
}

// Of plain weights: the router needs the norm's row, which stays as it is. The shared expert stands
// beside the chosen ones, or apart where a target has no op for both.
TEST(Lower, ExpertsOfPlainValuesAreTwoNodesBehindTheirRouter) {
  for (const bool apart : {false, true}) {
    FakeTarget target;
    if (apart) target.lacks = {Op::kExpertsActMul, Op::kExpertsDownUngated};
    const Graph g = Lower(ExpertBlock(DType::kBF16), target, kBucket).graph;
    ASSERT_TRUE(Verify(g)) << Verify(g).error().message;
    const Node* router = Find(g, Op::kRmsNormRouter);
    ASSERT_NE(router, nullptr) << Dump(g);
    ASSERT_EQ(router->outputs.size(), 3u);
    const Node* up = Find(g, apart ? Op::kGroupedLinearActMul : Op::kExpertsActMul);
    ASSERT_NE(up, nullptr) << Dump(g);
    EXPECT_EQ(up->inputs[0], router->outputs[0]);
    EXPECT_EQ(up->inputs[1], router->outputs[2]);
    const Node* down = Find(g, apart ? Op::kGroupedLinearSumAddAdd : Op::kExpertsDownUngated);
    ASSERT_NE(down, nullptr) << Dump(g);
    EXPECT_EQ(down->inputs[0], up->outputs[0]);
    EXPECT_EQ(down->inputs[2], router->outputs[1]);
    if (apart) {
      EXPECT_EQ(g.value(down->inputs[4]).name, "shared.down");
    } else {
      EXPECT_EQ(down->inputs[4], up->outputs[1]);
      EXPECT_EQ(g.value(down->inputs[5]).name, "shared.down.weight");
      EXPECT_EQ(CountNodes(g, Op::kLinear) + CountNodes(g, Op::kLinearActMul), 0) << Dump(g);
    }
    EXPECT_EQ(CountNodes(g, Op::kAdd), 0);
    EXPECT_EQ(CountNodes(g, Op::kSlice) + CountNodes(g, Op::kRouter) + CountNodes(g, Op::kRmsNorm),
              0)
        << Dump(g);
  }
}

TEST(Roofline, ExpertsCostWhatTheyMeet) {
  FakeTarget target;
  target.lacks = {Op::kExpertsUp, Op::kExpertsActMul, Op::kGroupedLinearActMulQuantize};
  const Plan plan = Lower(ExpertBlock(), target, {1, 1, 1});
  const Node* experts = Find(plan.graph, Op::kGroupedLinearActMul);
  ASSERT_NE(experts, nullptr);
  const auto bytes = [&](int64_t tokens) {
    return Predict(plan.graph, *experts, {tokens, 1, 1}, 1, {}).bytes;
  };
  const double matrix = 2.0 * 32 * static_cast<double>(Bytes(DType::kQ4_0, kWidth));
  // One token meets its two experts; many meet all eight. Beside them only small values move.
  EXPECT_NEAR(bytes(1) / (2 * matrix), 1, 0.3);
  EXPECT_NEAR((bytes(1000) - 999 * (bytes(1) - 2 * matrix)) / (8 * matrix), 1, 0.2);
}

TEST(MergeLinears, PutsBiasesAfterAllWeights) {
  std::map<std::string, WeightInfo> w = {{"e.weight", {DType::kF32, {9, 32}}}};
  for (const char* n : {"a", "b", "c"}) {
    w[std::string(n) + ".weight"] = {DType::kF32, {8, 32}};
    w[std::string(n) + ".bias"] = {DType::kF32, {8}};
  }
  Builder b("m", AnyWeights(w), {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId p = b.Linear(x, "a", 8, true), q = b.Linear(x, "b", 8, true),
                r = b.Linear(x, "c", 8);
  auto g = b.Finish({p, q, r});
  ASSERT_TRUE(g) << g.error().message;
  MergeLinears(*g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(*g));
  const Node* merged = Find(*g, Op::kLinear, "a+b");
  ASSERT_NE(merged, nullptr);
  std::vector<std::string> names;
  for (const ValueId v : merged->inputs) names.push_back(g->value(v).name);
  EXPECT_EQ(names, (std::vector<std::string>{"e", "a.weight", "b.weight", "a.bias", "b.bias"}));
  EXPECT_NE(Find(*g, Op::kLinear, "c"), nullptr);  // no bias: stays alone
}

TEST(InsertQuantize, OneNodeADistinctActivationAfterCommonSubexpressions) {
  Graph g = Block().graph;
  InsertQuantize(g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(g)) << Verify(g).error().message;
  EXPECT_EQ(CountNodes(g, Op::kQuantize), 7);  // one a linear: q k v o gate up down
  CommonSubexpressions(g);
  ASSERT_TRUE(Verify(g));
  EXPECT_EQ(CountNodes(g, Op::kQuantize), 4);  // q k v share one, gate and up another
}

TEST(CommonSubexpressions, TellsAttributesApartAndNeverMergesWrites) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId p = b.Scale(x, 2), q = b.Scale(x, 2), r = b.Scale(x, 3);
  const ValueId s = b.Add(p, q), h = b.Heads(x, 2, 16), h2 = b.Heads(x, 4, 8),
                h3 = b.Heads(x, 2, 16);
  auto g = b.Finish({s, r, h, h2, h3, q});
  ASSERT_TRUE(g);
  CommonSubexpressions(*g);
  ASSERT_TRUE(Verify(*g));
  EXPECT_EQ(CountNodes(*g, Op::kScale), 2);
  EXPECT_EQ(CountNodes(*g, Op::kReshape), 2);
  EXPECT_EQ(g->outputs, (std::vector<ValueId>{s, r, h, h2, h, p}));
}

TEST(DropDeadNodes, KeepsStateWrites) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId h = b.Heads(x, 2, 16);
  b.Attention(h, h, h, {.heads = 2, .kv_heads = 2, .head_dim = 16}, "a");
  b.Scale(x, 4);
  auto g = b.Finish({x});
  ASSERT_TRUE(g);
  DropDeadNodes(*g);
  ASSERT_TRUE(Verify(*g));
  EXPECT_EQ(CountNodes(*g, Op::kKvWrite), 1);
  EXPECT_EQ(CountNodes(*g, Op::kAttention), 0);
  EXPECT_EQ(CountNodes(*g, Op::kScale), 0);
}

TEST(Lower, FusesABlockForQuantisedWeights) {
  std::vector<std::pair<std::string, std::string>> trace;
  FakeTarget target;
  target.lacks = {Op::kRmsNormQuantizeLinear, Op::kQuantizeLinearAdd, Op::kActMulQuantizeLinearAdd};
  const Plan plan = Lower(Block().graph, target, kBucket, &trace);
  ASSERT_TRUE(Verify(plan.graph)) << Verify(plan.graph).error().message;
  EXPECT_EQ(CountNodes(plan.graph, Op::kRmsNormQuantize), 1);
  EXPECT_EQ(CountNodes(plan.graph, Op::kAddRmsNormQuantize), 1);  // after attention
  EXPECT_EQ(CountNodes(plan.graph, Op::kAddRmsNorm), 0);
  EXPECT_EQ(CountNodes(plan.graph, Op::kLinearAdd), 1);  // before the head
  EXPECT_EQ(CountNodes(plan.graph, Op::kActMulQuantize), 1);
  EXPECT_EQ(CountNodes(plan.graph, Op::kAdd), 0);
  EXPECT_EQ(CountNodes(plan.graph, Op::kQuantize), 1);  // of attention's output
  EXPECT_EQ(plan.kernels.size(), plan.graph.nodes.size());
  ASSERT_EQ(trace.size(), 7u);
  EXPECT_EQ(trace.back().first, "drop dead nodes");
}

TEST(Lower, FusesWithoutQuantisation) {
  FakeTarget t;
  t.quantise = false;
  const Plan plan = Lower(Block().graph, t, kBucket);
  ASSERT_TRUE(Verify(plan.graph));
  EXPECT_EQ(CountNodes(plan.graph, Op::kLinearAdd), 2);
  EXPECT_EQ(CountNodes(plan.graph, Op::kAddRmsNorm), 0);
  EXPECT_EQ(CountNodes(plan.graph, Op::kActMul), 1);
  EXPECT_EQ(CountNodes(plan.graph, Op::kRmsNormLinear), 2);
}

TEST(Lower, FusesNothingThatTheTargetLacks) {
  FakeTarget t;
  t.fused = false;
  const Plan plan = Lower(Block().graph, t, kBucket);
  ASSERT_TRUE(Verify(plan.graph));
  for (const Node& n : plan.graph.nodes) EXPECT_FALSE(IsFused(n.op)) << n.name;
}

TEST(Lower, GivesNodesTheDevicesValueTypeButKeepsOutputsF32) {
  FakeTarget t;
  t.type = DType::kBF16;
  const Layer block = Block();
  const Plan plan = Lower(block.graph, t, kBucket);
  ASSERT_TRUE(Verify(plan.graph));
  EXPECT_EQ(plan.graph.value(block.logits).dtype, DType::kF32);
  EXPECT_EQ(plan.graph.value(Find(plan.graph, Op::kEmbed)->outputs[0]).dtype, DType::kBF16);
}

TEST(Fuse, AnOutputOfTheGraphInsideAPatternBlocksIt) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId act = b.Act(x, Activation::kSilu);
  auto g = b.Finish({b.Mul(act, x), act});
  ASSERT_TRUE(g);
  Fuse(*g, FakeTarget(), kBucket);
  EXPECT_EQ(CountNodes(*g, Op::kActMul), 0);
}

TEST(Fuse, MatchesACommutedMultiplication) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId up = b.Scale(x, 3);
  const ValueId y = b.Mul(up, b.Act(x, Activation::kGeluTanh));
  auto g = b.Finish({y});
  ASSERT_TRUE(g);
  Fuse(*g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(*g));
  const Node* fused = Find(*g, Op::kActMul);
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->inputs, (std::vector<ValueId>{x, up}));
}

TEST(Fuse, DoesNotConsumeItsOwnInput) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId act = b.Act(b.Embed("e.weight", 9, 32), Activation::kSilu);
  auto g = b.Finish({b.Mul(act, act)});
  ASSERT_TRUE(g);
  Fuse(*g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(*g));
  EXPECT_EQ(CountNodes(*g, Op::kActMul), 0);
}

TEST(Fuse, PlacesTheFusedNodeBeforeAnEarlyUserOfTheSum) {
  Builder b("m",
            AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}, {"n.weight", {DType::kF32, {32}}}}),
            {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId s = b.Add(x, b.Scale(x, 2));
  const ValueId early = b.Scale(s, 5);
  const ValueId y = b.RmsNorm(s, "n.weight", 1e-5f);
  auto g = b.Finish({early, y});
  ASSERT_TRUE(g);
  Fuse(*g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(*g)) << Verify(*g).error().message << Dump(*g);
  EXPECT_EQ(CountNodes(*g, Op::kAddRmsNorm), 1);
}

TEST(Fuse, FindsSoftCapAndGemmasSandwichAndHeadNorms) {
  Builder b("m",
            AnyWeights({{"e.weight", {DType::kF32, {9, 32}}},
                        {"n.weight", {DType::kF32, {32}}},
                        {"h.weight", {DType::kF32, {16}}}}),
            {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId r = b.Add(x, b.RmsNorm(b.Act(x, Activation::kExp), "n.weight", 1e-5f, 1));
  const ValueId h = b.Rope(b.RmsNorm(b.Heads(r, 2, 16), "h.weight", 1e-6f),
                           {.rotary_dim = 8, .frequencies = {1, 1, 1, 1}});
  auto g = b.Finish({b.SoftCap(r, 30), h});
  ASSERT_TRUE(g) << g.error().message;
  Fuse(*g, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(*g));
  EXPECT_EQ(CountNodes(*g, Op::kSoftCap), 1);
  EXPECT_EQ(CountNodes(*g, Op::kRmsNormAdd), 1);
  EXPECT_EQ(CountNodes(*g, Op::kRmsNormRope), 1);
}

// Two Gemma layers' worth: what a decode step of a GPU should be made of.
TEST(Fuse, FindsLinearsWithTheirNormsAndGates) {
  const auto weights = [](const std::string& n) -> std::optional<WeightInfo> {
    if (n.find("norm") != std::string::npos) return WeightInfo{DType::kF32, {32}};
    if (n == "down.weight") return WeightInfo{DType::kF32, {32, 48}};
    if (n == "e.weight") return WeightInfo{DType::kF32, {9, 32}};
    if (n.find("bias") != std::string::npos) return WeightInfo{DType::kF32, {32}};
    return WeightInfo{DType::kF32, {n[0] == 'q' || n[0] == 'o' ? 32 : 48, 32}};
  };
  Builder b("m", weights, {});
  ValueId x = b.Embed("e.weight", 9, 32);
  // A norm before two linears with biases, of which one has another user too.
  const ValueId h = b.RmsNorm(x, "norm1.weight", 1e-5f);
  const ValueId q = b.Linear(h, "q", 32, true), q2 = b.Linear(h, "q2", 32, true);
  const ValueId o = b.Linear(b.Emit(Op::kSub, "sub", {q, q2}), "o", 32);
  const ValueId r = b.Add(x, b.RmsNorm(o, "norm2.weight", 1e-5f, 1));
  const ValueId m = b.RmsNorm(r, "norm3.weight", 1e-5f, 1);
  const ValueId gate = b.Linear(m, "gate", 48), up = b.Linear(m, "up", 48);
  const ValueId g = b.Mul(b.Act(gate, Activation::kSilu), up);
  const ValueId d = b.Linear(g, "down", 32);
  const ValueId r2 = b.Add(r, b.RmsNorm(d, "norm4.weight", 1e-5f, 1));
  const ValueId last = b.Linear(b.RmsNorm(r2, "norm5.weight", 1e-5f), "q3", 32);
  auto graph = b.Finish({last, r2});
  ASSERT_TRUE(graph) << graph.error().message;
  const Plan plan = Lower(*graph, FakeTarget(), kBucket);
  ASSERT_TRUE(Verify(plan.graph)) << Verify(plan.graph).error().message << Dump(plan.graph);
  std::vector<Op> ops;
  for (const Node& n : plan.graph.nodes) {
    if (n.op != Op::kSlice) ops.push_back(n.op);
  }
  EXPECT_EQ(ops,
            (std::vector<Op>{Op::kEmbed, Op::kRmsNormLinear, Op::kSub, Op::kLinear,
                             Op::kNormAddNormLinearActMul, Op::kLinear, Op::kNormAddNormLinear}))
      << Dump(plan.graph);
  const Node* first = Find(plan.graph, Op::kRmsNormLinear);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->inputs.size(), 6u);  // x, its norm's weight, two matrices, two biases
  // The same without fusing means the same.
  EXPECT_GT(Predict(plan.graph, *first, kBucket, 1, {}).flops,
            0.9 * 2 * 2 * 32 * 32 * static_cast<double>(kBucket.tokens));
}

TEST(Fuse, AGateThatIsTheSecondHalfIsLeftAlone) {
  const auto weights = [](const std::string& n) -> std::optional<WeightInfo> {
    if (n == "e.weight") return WeightInfo{DType::kF32, {9, 32}};
    return WeightInfo{DType::kF32, {48, 32}};
  };
  Builder b("m", weights, {});
  const ValueId x = b.Embed("e.weight", 9, 32);
  const ValueId up = b.Linear(x, "up", 48), gate = b.Linear(x, "gate", 48);
  auto g = b.Finish({b.Mul(up, b.Act(gate, Activation::kSilu))});
  ASSERT_TRUE(g);
  const Plan plan = Lower(*g, FakeTarget(), kBucket);
  EXPECT_EQ(CountNodes(plan.graph, Op::kLinearActMul), 0);
  EXPECT_EQ(CountNodes(plan.graph, Op::kActMul), 1);
}

// q and k meet at the attention alone.
TEST(Fuse, TiesRotationsTheCacheWriteAndAttentionTogether) {
  for (const bool normed : {false, true}) {
    const auto weights = [](const std::string& n) -> std::optional<WeightInfo> {
      if (n == "e.weight") return WeightInfo{DType::kF32, {9, 32}};
      if (n.find("norm") != std::string::npos) return WeightInfo{DType::kF32, {16}};
      return WeightInfo{DType::kF32, {n[0] == 'q' ? 64 : 32, 32}};
    };
    Builder b("m", weights, {});
    ValueId x = b.Embed("e.weight", 9, 32);
    const RopeAttrs rope{.rotary_dim = 16, .frequencies = std::vector<float>(8, 0.5f)};
    for (int layer = 0; layer < 2; ++layer) {
      ValueId q = b.Heads(b.Linear(x, "q", 64), 4, 16), k = b.Heads(b.Linear(x, "k", 32), 2, 16);
      const ValueId v = b.Heads(b.Linear(x, "v", 32), 2, 16);
      if (normed) {
        q = b.RmsNorm(q, "qnorm.weight", 1e-6f);
        k = b.RmsNorm(k, "knorm.weight", 1e-6f, 1);
      }
      const ValueId a = b.Attention(b.Rope(q, rope), b.Rope(k, rope), v,
                                    {.heads = 4, .kv_heads = 2, .head_dim = 16}, "attn");
      x = b.Slice(a, 0, 32);
    }
    auto g = b.Finish({x});
    ASSERT_TRUE(g) << g.error().message;
    const Op whole = normed ? Op::kNormRopeAttention : Op::kRopeAttention;
    FakeTarget target;
    const Plan all = Lower(*g, target, kBucket);
    ASSERT_TRUE(Verify(all.graph)) << Verify(all.graph).error().message << Dump(all.graph);
    EXPECT_EQ(CountNodes(all.graph, whole), 2) << Dump(all.graph);
    EXPECT_EQ(CountNodes(all.graph, Op::kAttention), 0);
    EXPECT_EQ(Find(all.graph, whole)->inputs.size(), normed ? 11u : 9u);

    target.lacks = {whole};
    const Plan plan = Lower(*g, target, kBucket);
    ASSERT_TRUE(Verify(plan.graph)) << Verify(plan.graph).error().message << Dump(plan.graph);
    const Op fused = normed ? Op::kNormRopeKvWrite : Op::kRopeKvWrite;
    EXPECT_EQ(CountNodes(plan.graph, fused), 2) << Dump(plan.graph);
    EXPECT_EQ(CountNodes(plan.graph, Op::kKvWrite), 0);
    EXPECT_EQ(CountNodes(plan.graph, Op::kAttention), 2);
    EXPECT_EQ(Find(plan.graph, fused)->inputs.size(), normed ? 8u : 6u);
  }
}

TEST(Lower, ATargetsWorkspaceStandsBehindTheValues) {
  FakeTarget target;
  target.workspace = 1000;
  const Plan plan = Lower(Block().graph, target, kBucket);
  EXPECT_EQ(plan.workspace_bytes, 1000);
  EXPECT_EQ(plan.workspace_offset % 256, 0);
  EXPECT_EQ(plan.memory.arena_bytes, plan.workspace_offset + 1000);
  for (const Placement& p : plan.memory.places) {
    if (p.buffer == kNone) continue;
    EXPECT_LE(p.offset, plan.workspace_offset);
  }
}

// What the sampler and the graph's end read is f32, and so is what that is computed from value by
// value.
TEST(Lower, CappedLogitsAreF32BeforeTheCapToo) {
  Builder b(
      "m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}, {"h.weight", {DType::kF32, {9, 32}}}}),
      {});
  auto g = b.Finish({b.SoftCap(b.Linear(b.Embed("e.weight", 9, 32), "h", 9), 30)});
  ASSERT_TRUE(g);
  FakeTarget target;
  target.type = DType::kBF16;
  const Plan plan = Lower(*g, target, kBucket);
  EXPECT_EQ(plan.graph.value(Find(plan.graph, Op::kLinear)->outputs[0]).dtype, DType::kF32);
  EXPECT_EQ(plan.graph.value(Find(plan.graph, Op::kEmbed)->outputs[0]).dtype, DType::kBF16);
}

// Live ranges are recomputed here from scratch, by walking views through node inputs.
TEST(PlanMemory, NoTwoLiveBuffersOverlapAndViewsStayInside) {
  for (const bool optimised : {false, true}) {
    const Graph source = Block().graph;
    const Plan plan = optimised ? Lower(source, FakeTarget(), kBucket)
                                : LowerUnoptimised(source, FakeTarget(), kBucket);
    const Graph& g = plan.graph;
    const auto& places = plan.memory.places;
    std::map<ValueId, std::pair<int, int>> life;
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      std::vector<ValueId> touched = g.nodes[n].inputs;
      touched.insert(touched.end(), g.nodes[n].outputs.begin(), g.nodes[n].outputs.end());
      for (const ValueId v : touched) {
        const ValueId owner = places[static_cast<size_t>(v)].buffer;
        if (owner == kNone) continue;
        const auto [it, fresh] =
            life.emplace(owner, std::pair(static_cast<int>(n), static_cast<int>(n)));
        if (!fresh) it->second.second = static_cast<int>(n);
      }
    }
    for (const ValueId v : g.outputs) life[places[static_cast<size_t>(v)].buffer].second = 1 << 20;
    int overlaps_checked = 0;
    for (const auto& [a, la] : life) {
      const Placement& pa = places[static_cast<size_t>(a)];
      EXPECT_EQ(pa.offset % 64, 0);
      EXPECT_LE(pa.offset + pa.bytes, plan.memory.arena_bytes);
      for (const auto& [b, lb] : life) {
        if (a >= b || la.second < lb.first || lb.second < la.first) continue;
        const Placement& pb = places[static_cast<size_t>(b)];
        EXPECT_TRUE(pa.offset + pa.bytes <= pb.offset || pb.offset + pb.bytes <= pa.offset)
            << g.value(a).name << " and " << g.value(b).name;
        ++overlaps_checked;
      }
    }
    EXPECT_GT(overlaps_checked, 5);
    int64_t total = 0;
    for (const auto& [v, l] : life) total += places[static_cast<size_t>(v)].bytes;
    EXPECT_LT(plan.memory.arena_bytes, total);  // memory is reused
  }
}

TEST(PlanMemory, SlicesAndReshapesOfAMergedLinearAreStridedViews) {
  FakeTarget target;
  target.lacks = {Op::kRmsNormQuantizeLinear};
  const Plan plan = Lower(Block().graph, target, kBucket);
  const Graph& g = plan.graph;
  const ValueId qkv = Find(g, Op::kLinear, "q+k+v")->outputs[0];
  const ValueId k = Find(g, Op::kSlice, "k")->outputs[0];
  const auto& places = plan.memory.places;
  const Placement& p = places[static_cast<size_t>(k)];
  EXPECT_EQ(p.buffer, qkv);
  EXPECT_EQ(p.row_stride, 128);
  EXPECT_EQ(p.offset, places[static_cast<size_t>(qkv)].offset + 64 * 4);
  int heads = 0;
  for (const Node& n : g.nodes) {
    if (n.op != Op::kReshape) continue;
    ++heads;
    EXPECT_EQ(places[static_cast<size_t>(n.outputs[0])].buffer, qkv);
    EXPECT_EQ(places[static_cast<size_t>(n.outputs[0])].row_stride, 128);
  }
  EXPECT_EQ(heads, 3);
}

TEST(PlanMemory, ASliceBetweenHeadsIsACopy) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId x = b.Heads(b.Embed("e.weight", 9, 32), 2, 16);
  const ValueId s = b.Slice(x, 0, 8);
  auto g = b.Finish({s});
  ASSERT_TRUE(g);
  const MemoryPlan plan = PlanMemory(*g, kBucket);
  EXPECT_EQ(plan.places[static_cast<size_t>(s)].buffer, s);
  EXPECT_EQ(plan.places[static_cast<size_t>(s)].row_stride, 16);
}

TEST(PlanMemory, AReshapeToAnotherTypeIsACopy) {
  Builder b("m", AnyWeights({{"e.weight", {DType::kF32, {9, 32}}}}), {});
  const ValueId x = b.Embed("e.weight", 9, 32), y = b.Heads(x, 2, 16);
  auto g = b.Finish({y});
  ASSERT_TRUE(g);
  EXPECT_EQ(PlanMemory(*g, kBucket).places[static_cast<size_t>(y)].buffer, x);
  g->values[static_cast<size_t>(y)].dtype = DType::kBF16;
  EXPECT_EQ(PlanMemory(*g, kBucket).places[static_cast<size_t>(y)].buffer, y);
}

TEST(PlanMemory, IsDeterministic) {
  const Plan a = Lower(Block().graph, FakeTarget(), kBucket),
             b = Lower(Block().graph, FakeTarget(), kBucket);
  for (size_t v = 0; v < a.memory.places.size(); ++v)
    EXPECT_EQ(a.memory.places[v].offset, b.memory.places[v].offset);
}

TEST(Predict, CountsWeightBytesAndDotProducts) {
  const Graph g = Block().graph;
  const Rates rates{.bytes_per_second = 1e9,
                    .flops_per_second = 1e12,
                    .int8_ops_per_second = 1e12,
                    .seconds_per_node = 0};
  const Cost gate = Predict(g, *Find(g, Op::kLinear, "gate"), kBucket, 10, rates);
  EXPECT_EQ(gate.bytes, 96 * kWidth / 32 * 34 + 5 * kWidth * 4 + 5 * 96 * 4);
  EXPECT_EQ(gate.flops, 2.0 * 5 * 96 * kWidth);
  EXPECT_DOUBLE_EQ(gate.seconds, gate.bytes / 1e9);
  const Cost attention = Predict(g, *Find(g, Op::kAttention), kBucket, 10, rates);
  EXPECT_EQ(attention.flops, 4.0 * 5 * 4 * 16 * 10);
  EXPECT_GE(attention.bytes,
            2 * 10 * 128.0);  // two requests, ten tokens of 2 * 2 heads * 16 halves
  EXPECT_EQ(Predict(g, *Find(g, Op::kReshape), kBucket, 10, rates).seconds, 0);
  EXPECT_LT(Predict(g, *Find(g, Op::kEmbed), kBucket, 10, rates).bytes,
            100 * kWidth);  // rows, not the table
}

TEST(DumpPlan, HasALineANodeAndATotal) {
  const Plan plan = Lower(Block().graph, FakeTarget(), kBucket);
  const std::string text = DumpPlan(plan, 7, FakeTarget().MachineRates(), 10, {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
            static_cast<long>(plan.graph.nodes.size() + 3));
  EXPECT_NE(text.find("q+k+v"), std::string::npos);
  EXPECT_NE(text.find("linear.fake"), std::string::npos);
  EXPECT_NE(text.find("total: "), std::string::npos);
}

}  // namespace
}  // namespace vt::ir
