// Cases of experts and of recurrent layers.
#include "tests/op_case_builder.h"

namespace tests {
namespace {

using Routed = Builder::Routed;

// Steps of one to many tokens: alone, few, and more than there are experts.
std::vector<OpStep> TokenSteps() { return {{{1}}, {{2}}, {{3}, 1}, {{17}}, {{41}, 2}, {{0}, 3}}; }

// Lengths that differ in one step, decodes after prefills, padding, a lone step of nothing.
std::vector<OpStep> RequestSteps() {
  return {{{5, 33, 1}, 2, 1}, {{1, 1, 20}},      {{1, 1, 1}},       {{1, 0, 17}, 1}, {{2, 3, 0}, 1},
          {{40, 1, 1}, 3, 2}, {{1, 1, 1}, 1, 1}, {{0, 0, 0}, 2, 1}, {{1, 65, 1}}};
}

void Add(std::vector<OpCase>& cases, OpCase c) { cases.push_back(std::move(c)); }

Routed Route(CaseBuilder& c, int64_t experts, RouterAttrs a) {
  return c.b.Router(c.X(experts, "logits.weight"), a, "router");
}

void AddRouters(std::vector<OpCase>& cases) {
  const std::vector<std::pair<std::string, RouterAttrs>> kinds = {
      {"softmax", {}},
      {"softmax.normalised", {.normalise = true}},
      {"sigmoid", {.sigmoid = true, .scale = 2.5f}},
      {"bias", {.sigmoid = true, .normalise = true, .bias = true}},
      {"softmax.bias", {.scale = 0.5f, .bias = true}},
      {"scales", {.normalise = true, .expert_scales = true}},
      {"sigmoid.bias.scales", {.sigmoid = true, .bias = true, .expert_scales = true}},
  };
  for (const auto& [kind, attrs] : kinds) {
    for (const auto& [experts, chosen] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {5, 5}, {8, 2}, {60, 4}, {128, 8}, {300, 10}}) {
      CaseBuilder c(fmt::format("router.{}.e{}.k{}", kind, experts, chosen));
      RouterAttrs a = attrs;
      a.top_k = chosen;
      const Routed r = c.b.Router(c.X(experts, "logits.weight"), a, "router",
                                  a.bias ? c.Vector("bias", experts) : "",
                                  a.expert_scales ? c.Vector("scales", experts) : "");
      Add(cases, c.Finish({r.weights, r.ids}, RowSteps()));
    }
  }
  for (const bool bias : {false, true}) {
    for (const auto& [experts, groups, stay, chosen] :
         std::vector<std::array<int64_t, 4>>{{32, 4, 2, 6}, {64, 8, 1, 8}, {12, 3, 3, 12}}) {
      CaseBuilder c(
          fmt::format("router.groups{}.{}of{}{}", experts, stay, groups, bias ? ".bias" : ""));
      const RouterAttrs a = {.top_k = chosen,
                             .sigmoid = bias,
                             .normalise = bias,
                             .groups = groups,
                             .top_groups = stay,
                             .bias = bias};
      const Routed r = c.b.Router(c.X(experts, "logits.weight"), a, "router",
                                  bias ? c.Vector("bias", experts) : "");
      Add(cases, c.Finish({r.weights, r.ids}, RowSteps()));
    }
  }
  // About half of the logits are equal, or no numbers at all; experts must be taken from those too.
  for (const bool numbers : {true, false}) {
    for (const bool sigmoid : {true, false}) {
      CaseBuilder c(
          fmt::format("router.{}.{}", numbers ? "ties" : "nan", sigmoid ? "sigmoid" : "softmax"));
      const ValueId x = c.X(20, "logits.weight"), half = c.b.Act(x, Activation::kRelu);
      const ValueId logits = numbers ? half : c.b.Add(x, c.b.Emit(Op::kDiv, "nan", {half, half}));
      const Routed r =
          c.b.Router(logits, {.top_k = 16, .sigmoid = sigmoid, .normalise = true}, "router");
      Add(cases, c.Finish({r.weights, r.ids}, RowSteps()));
    }
  }
}

// Gate, up and down as models have them, over values that all chosen experts share, and not.
OpCase ExpertsCase(const std::string& name, int64_t experts, int64_t chosen, int64_t k, int64_t n,
                   DType up, DType down, std::vector<OpStep> steps, bool everybody_the_same) {
  CaseBuilder c(name);
  const ValueId x = c.X(k);
  ValueId logits = c.X(experts, "logits.weight");
  if (everybody_the_same) logits = c.b.Scale(logits, 0);
  const Routed r = c.b.Router(logits, {.top_k = chosen, .normalise = true}, "router");
  const ValueId gate = c.Grouped(x, r.ids, "gate", experts, n, k, up);
  const ValueId h =
      c.b.Mul(c.b.Act(gate, Activation::kSilu), c.Grouped(x, r.ids, "up", experts, n, k, up));
  const ValueId y = c.b.ExpertSum(c.Grouped(h, r.ids, "down", experts, k, n, down), r.weights);
  return c.Finish({c.b.Add(x, y)}, std::move(steps));
}

void AddGroupedLinears(std::vector<OpCase>& cases) {
  for (const DType t : kFormats) {
    const std::string f(Name(t));
    CaseBuilder c(fmt::format("grouped_linear.{}", f));
    const Routed r = Route(c, 6, {.top_k = 2});
    const ValueId x = c.X(256);
    // Two segments of odd sizes, then values of their own for each expert; nothing to fuse with.
    const ValueId a = c.Grouped(x, r.ids, "a", 6, 33, 256, t),
                  b = c.Grouped(x, r.ids, "b", 6, 256, 256, t);
    const ValueId own = c.Grouped(b, r.ids, "c", 6, 16, 256, t);
    // b stays of the device's type: what is only scaled on its way out is f32.
    Add(cases, c.Finish({c.b.Scale(a, 2), c.b.Add(b, b), own}, TokenSteps()));
    Add(cases,
        ExpertsCase(fmt::format("experts.{}", f), 7, 2, 256, 256, t, t, TokenSteps(), false));
  }
  // Experts that nobody chose, one that everybody did, and all of them.
  const DType q4 = DType::kQ4_K, q6 = DType::kQ6_K;
  Add(cases, ExpertsCase("experts.e30.k1", 30, 1, 256, 256, q4, q6, TokenSteps(), false));
  Add(cases, ExpertsCase("experts.everybody", 11, 3, 256, 256, q4, q6, TokenSteps(), true));
  Add(cases, ExpertsCase("experts.one", 1, 1, 256, 256, q6, q4, TokenSteps(), false));
  Add(cases, ExpertsCase("experts.all", 5, 5, 256, 256, q4, q4, TokenSteps(), false));
  Add(cases,
      ExpertsCase("experts.odd", 7, 3, 37, 41, DType::kF32, DType::kF16, TokenSteps(), false));
  Add(cases, ExpertsCase("experts.wide", 4, 2, 256, 512, DType::kQ5_K, DType::kQ8_0,
                         {{{1}}, {{200}}}, false));

  CaseBuilder c("grouped_linear.mixed");  // segments of formats that differ
  const Routed r = Route(c, 9, {.top_k = 3});
  const ValueId x = c.X(256);
  std::vector<ValueId> all;
  for (const DType t : {q4, DType::kQ8_0, q6, DType::kBF16}) {
    all.push_back(c.b.Scale(c.Grouped(x, r.ids, std::string(Name(t)), 9, 24, 256, t), 2));
  }
  Add(cases, c.Finish(std::move(all), TokenSteps()));

  // A shared expert, by the gate of a token.
  CaseBuilder shared("experts.shared");
  const ValueId h = shared.X(256);
  const Routed s = Route(shared, 8, {.top_k = 2});
  const ValueId y = shared.b.ExpertSum(shared.Grouped(h, s.ids, "e", 8, 256, 256, q4), s.weights);
  const ValueId gate =
      shared.b.Act(shared.Linear(h, "gate", 1, 256, DType::kF32), Activation::kSigmoid);
  const ValueId z = shared.b.ScaleRows(shared.Linear(h, "s", 256, 256, q4), gate);
  Add(cases, shared.Finish({shared.b.Add(y, z)}, TokenSteps()));
}

enum class SharedGate { kNone, kFirst, kLast };  // made before the shared expert, or behind it

// A sparse layer's second half: from the norm to the sum with what came in, with a shared expert of
// another width or without.
OpCase ExpertBlock(const std::string& name, int64_t experts, int64_t chosen, int64_t k, int64_t n,
                   int64_t shared, DType up, DType down, RouterAttrs router,
                   std::vector<OpStep> steps, SharedGate gated = SharedGate::kLast) {
  CaseBuilder c(name);
  const ValueId x = c.X(k);
  const ValueId h = c.b.RmsNorm(x, c.Vector("norm", k), 1e-6f, 1);
  router.top_k = chosen;
  const Routed r = c.b.Router(c.Linear(h, "router", experts, k, DType::kF32), router, "router",
                              router.bias ? c.Vector("bias", experts) : "",
                              router.expert_scales ? c.Vector("scales", experts) : "");
  const auto mlp = [&](ValueId gate, ValueId up_) {
    return c.b.Mul(c.b.Act(gate, Activation::kSilu), up_);
  };
  const auto grouped = [&](ValueId v, const char* part, int64_t rows, int64_t columns, DType t) {
    return c.Grouped(v, r.ids, part, experts, rows, columns, t);
  };
  // The gate first, as in models: only so are the two one op.
  const ValueId gates = grouped(h, "gate", n, k, up), ups = grouped(h, "up", n, k, up);
  ValueId y = c.b.ExpertSum(grouped(mlp(gates, ups), "down", k, n, down), r.weights);
  if (shared > 0) {
    const auto gate = [&] {
      return c.b.Act(c.Linear(h, "shared.router", 1, k, DType::kF32), Activation::kSigmoid);
    };
    const ValueId first = gated == SharedGate::kFirst ? gate() : kNone;
    const ValueId shared_gate = c.Linear(h, "shared.gate", shared, k, down),
                  shared_up = c.Linear(h, "shared.up", shared, k, down);
    const ValueId z = c.Linear(mlp(shared_gate, shared_up), "shared.down", k, shared, up);
    y = c.b.Add(y, gated == SharedGate::kNone
                       ? z
                       : c.b.ScaleRows(z, gated == SharedGate::kFirst ? first : gate()));
  }
  const ValueId sum = c.b.Add(x, y);
  // The next layer's norm and sum read it too.
  const ValueId next = c.b.RmsNorm(sum, c.Vector("next", k), 1e-6f);
  return c.Finish({c.b.Add(sum, c.Linear(next, "next", k, k, up))}, std::move(steps));
}

void AddExpertBlocks(std::vector<OpCase>& cases) {
  // Steps of few tokens, where all is fused, among others.
  const std::vector<OpStep> steps = {{{1}}, {{1}}, {{2}}, {{3}, 1}, {{8}}, {{17}}, {{0}, 1}};
  const DType q4 = DType::kQ4_K, q6 = DType::kQ6_K, q8 = DType::kQ8_0;
  const auto add = [&](OpCase c) { Add(cases, std::move(c)); };
  add(ExpertBlock("expert_block.plain", 9, 2, 256, 256, 0, q4, q6, {.normalise = true}, steps));
  add(ExpertBlock("expert_block.shared", 9, 3, 256, 256, 512, q4, q6, {}, steps));
  add(ExpertBlock("expert_block.shared_narrow", 40, 8, 256, 512, 256, q6, q4,
                  {.sigmoid = true, .normalise = true, .scale = 2.5f, .bias = true}, steps,
                  SharedGate::kFirst));
  add(ExpertBlock("expert_block.bias", 12, 5, 96, 160, 0, q8, DType::kQ4_0,
                  {.sigmoid = true, .groups = 3, .top_groups = 2, .bias = true}, steps));
  add(ExpertBlock("expert_block.one", 1, 1, 64, 32, 32, DType::kIQ4_NL, DType::kQ5_1, {}, steps));
  add(ExpertBlock("expert_block.wide", 70, 11, 2048, 32, 256, q4, DType::kQ4_0, {},
                  {{{1}}, {{2}}}));
  // Plain values; rows that are no whole lines, and longer than what is under way at once.
  const DType half = DType::kF16, brain = DType::kBF16;
  add(ExpertBlock("expert_block.bf16", 9, 3, 256, 88, 0, brain, brain, {.normalise = true}, steps));
  add(ExpertBlock("expert_block.f16", 6, 5, 96, 136, 32, half, half,
                  {.sigmoid = true, .scale = 2.5f, .bias = true}, steps));
  add(ExpertBlock("expert_block.mixed", 12, 4, 64, 64, 32, brain, q8, {}, steps));
  add(ExpertBlock("expert_block.long_bf16", 3, 2, 64, 2176, 0, brain, brain, {}, {{{1}}, {{2}}}));
  add(ExpertBlock("expert_block.wide_bf16", 5, 2, 2176, 40, 0, brain, brain, {}, {{{1}}, {{2}}}));
  // A shared expert without a gate: of several waves, narrower than the others, of rows that are no
  // whole 16 bytes, beside more experts than a block has waves, of rows in several turns.
  const auto ungated = [&](const char* name, int64_t experts, int64_t chosen, int64_t k, int64_t n,
                           int64_t shared, DType t, std::vector<OpStep> of) {
    add(ExpertBlock(fmt::format("expert_block.ungated_{}_{}", name, Name(t)), experts, chosen, k, n,
                    shared, t, t, {}, std::move(of), SharedGate::kNone));
  };
  for (const DType t : {half, brain}) {
    ungated("wider", 9, 3, 256, 88, 200, t, steps);
    ungated("narrow", 6, 2, 96, 136, 40, t, steps);
    ungated("odd", 6, 2, 64, 64, 36, t, {{{1}}, {{4}}});
    ungated("many", 23, 11, 64, 32, 96, t, {{{1}}, {{2}}});
    ungated("long", 5, 2, 64, 1160, 2312, t, {{{1}}, {{3}, 1}});
  }
  add(ExpertBlock("expert_block.ungated_q4", 9, 3, 256, 256, 512, q4, q6, {}, {{{1}}, {{2}}},
                  SharedGate::kNone));
  for (const auto& [a, b] :
       std::vector<std::pair<DType, DType>>{{DType::kQ3_K, DType::kQ5_K}, {DType::kQ5_K, q6}}) {
    add(ExpertBlock(fmt::format("expert_block.{}.{}", Name(a), Name(b)), 5, 2, 256, 256, 256, a, b,
                    {}, {{{1}}, {{2}}}));
  }
  add(ExpertBlock("expert_block.few_wide", 5, 2, 2048, 256, 0, q4, q6, {}, {{{1}}}));
}

// Many experts behind a norm and its router, routed as models do it. Where a step has few tokens,
// a device may choose in the launch of the experts' first matrices.
void AddExpertChoices(std::vector<OpCase>& cases) {
  const auto add = [&](const char* kind, int64_t experts, int64_t shared, DType up, DType down,
                       const RouterAttrs& router) {
    Add(cases,
        ExpertBlock(fmt::format("expert_choice.{}.e{}.{}", kind, experts, Name(up)), experts, 8, 64,
                    32, shared, up, down, router, {{{1}}, {{3}, 1}}, SharedGate::kNone));
  };
  struct Kind {
    const char* name;
    RouterAttrs router;
    int64_t quantised, plain;  // how many experts
  };
  const RouterAttrs of_groups = {.scale = 16, .groups = 8, .top_groups = 3, .group_max = true},
                    biased = {.sigmoid = true, .normalise = true, .scale = 2.5f, .bias = true};
  RouterAttrs biased_groups = biased, rooted = biased;
  biased_groups.groups = 8;
  biased_groups.top_groups = 4;
  rooted.sigmoid = false;
  rooted.root = true;
  for (const Kind& k : std::vector<Kind>{
           {"softmax", {}, 130, 256},                                         // Qwen2
           {"normalised", {.normalise = true}, 256, 200},                     // Qwen3
           {"normalised", {.normalise = true}, 300, 130},                     // for waves of 64
           {"softmax.bias", {.normalise = true, .bias = true}, 130, 256},     // ERNIE
           {"softmax.groups", of_groups, 256, 200},                           // DeepSeek-V2
           {"scales", {.normalise = true, .expert_scales = true}, 200, 130},  // Gemma 4
           {"sigmoid", {.sigmoid = true}, 130, 200},                          // Llama 4
           {"sigmoid.bias", biased, 200, 300},                                // GLM-4.5
           {"sigmoid.groups", biased_groups, 200, 256},                       // DeepSeek-V3
           {"root", rooted, 256, 130},                                        // DeepSeek-V4
           {"root.scales", {.root = true, .expert_scales = true}, 200, 256}}) {
    add(k.name, k.quantised, 0, DType::kQ8_0, DType::kQ4_0, k.router);
    add(k.name, k.plain, 0, DType::kBF16, DType::kBF16, k.router);
  }
  // Beside a shared one; and matrices of f32.
  add("shared", 256, 32, DType::kQ4_0, DType::kQ8_0, biased);
  add("shared", 200, 32, DType::kBF16, DType::kBF16, biased);
  add("shared", 256, 32, DType::kF32, DType::kF32, {.normalise = true});
}

// A layer's first half: norm, quantised q, k and v (and a gate), attention, and back.
OpCase AttentionBlock(const std::string& name, AttentionAttrs a, int64_t k, DType t, DType v_type,
                      bool gated, bool bias, int64_t rotary) {
  CaseBuilder c(name, {.dtype = DType::kF16, .block_size = 16, .max_model_len = 160});
  a.scale = 1 / std::sqrt(static_cast<float>(a.head_dim));
  ValueId x = c.X(k);
  for (const std::string p : {"0.", "1."}) {
    const ValueId h = c.b.RmsNorm(x, c.Vector(p + "norm", k), 1e-6f);
    const auto head = [&](const std::string& n, int64_t heads, DType format) {
      return c.b.Heads(c.Linear(h, p + n, heads * a.head_dim, k, format, bias), heads, a.head_dim);
    };
    const auto rotated = [&](const std::string& n, int64_t heads) {
      const ValueId y =
          c.b.RmsNorm(head(n, heads, t), c.Vector(p + n + "_norm", a.head_dim), 1e-6f);
      return c.b.Rope(y, Rotation(rotary));
    };
    const ValueId q = rotated("q", a.heads), key = rotated("k", a.kv_heads);
    const ValueId v = head("v", a.kv_heads, v_type);
    ValueId y = c.b.Attention(q, key, v, a, p + "attn");
    const int64_t width = a.heads * a.head_dim;
    if (gated) y = c.b.Mul(y, c.b.Act(c.Linear(h, p + "gate", width, k, t), Activation::kSigmoid));
    x = c.b.Add(x, c.Linear(y, p + "o", k, width, t));
  }
  return c.Finish({c.b.Scale(x, 2)},
                  {{{1}}, {{1}}, {{30}}, {{1}}, {{1}}, {{0}, 1}, {{20}, 2}, {{1}}}, 5e-5);
}

void AddAttentionBlocks(std::vector<OpCase>& cases) {
  const DType q4 = DType::kQ4_K, q6 = DType::kQ6_K;
  const auto add = [&](OpCase c) { Add(cases, std::move(c)); };
  add(AttentionBlock("attention_block.h4of2", {.heads = 4, .kv_heads = 2, .head_dim = 64}, 256, q4,
                     q6, false, false, 64));
  add(AttentionBlock("attention_block.bias", {.heads = 3, .kv_heads = 1, .head_dim = 96}, 96,
                     DType::kQ8_0, DType::kQ5_0, false, true, 48));
  add(AttentionBlock("attention_block.gated", {.heads = 4, .kv_heads = 2, .head_dim = 128}, 256, q6,
                     q4, true, false, 32));
  add(AttentionBlock("attention_block.d256", {.heads = 2, .kv_heads = 1, .head_dim = 256}, 512, q4,
                     q4, false, false, 256));
}

void AddSums(std::vector<OpCase>& cases) {
  for (const int64_t width : {1, 33, 100, 257}) {
    CaseBuilder c(fmt::format("expert_sum.w{}", width));
    const Routed r = Route(c, 12, {.top_k = 5, .normalise = true});
    const ValueId y = c.b.Heads(c.X(5 * width), 5, width);
    Add(cases, c.Finish({c.b.ExpertSum(y, r.weights)}, RowSteps()));

    CaseBuilder s(fmt::format("scale_rows.w{}", width));
    const ValueId x = s.X(width + 4), f = s.X(3, "f.weight");
    const ValueId heads = s.b.Heads(s.X(3 * width, "h.weight"), 3, width);
    Add(cases, s.Finish({s.b.ScaleRows(s.b.Slice(x, 2, width), s.b.Slice(f, 1, 1)),
                         s.b.ScaleRows(heads, s.b.Heads(f, 3, 1))},
                        RowSteps()));
  }
}

// A layer's recurrent part: from projections side by side to gated values.
// `sums`: results stay of the device's type.
OpCase DeltaCase(const std::string& name, DeltaAttrs a, int64_t width, std::vector<OpStep> steps,
                 bool slices = false, bool sums = false) {
  CaseBuilder c(name);
  const int64_t inner = a.v_heads * a.v_dim;
  // Between forgetting at once and hardly anything.
  ValueId qkv, gate, rates, b;
  if (slices) {
    const ValueId all = c.b.Scale(c.X(a.channels() + inner), 1.5f);
    qkv = c.b.Slice(all, 0, a.channels());
    gate = c.b.Slice(all, a.channels(), inner);
    const ValueId ba = c.b.Scale(c.X(2 * a.v_heads, "ba.weight"), 2, -2);
    b = c.b.Slice(ba, 0, a.v_heads);
    rates = c.b.Slice(ba, a.v_heads, a.v_heads);
  } else {
    qkv = c.X(a.channels(), "qkv.weight");
    gate = c.X(inner, "z.weight");
    rates = c.b.Scale(c.X(a.v_heads, "a.weight"), 3, -4);
    b = c.X(a.v_heads, "b.weight");
  }
  const ValueId y =
      c.b.GatedDeltaNet(qkv, rates, b, a, width,
                        {.conv = c.Matrix("conv", a.channels(), width),
                         // Of models that store the rate itself it is negative (op_run).
                         .a = c.Vector(a.log_a ? "A_log" : "negative.A", a.v_heads),
                         .dt = c.Vector("dt_bias", a.v_heads)},
                        "delta");
  const ValueId normed = c.b.RmsNorm(y, c.Vector("norm", a.v_dim), 1e-6f);
  const ValueId out =
      c.b.Mul(normed, c.b.Act(c.b.Heads(gate, a.v_heads, a.v_dim), Activation::kSilu));
  return c.Finish({sums ? c.b.Add(out, out) : c.b.Scale(out, 2)}, std::move(steps), 5e-5);
}

}  // namespace

void AddExperts(std::vector<OpCase>& cases) {
  AddRouters(cases);
  AddGroupedLinears(cases);
  AddExpertBlocks(cases);
  AddExpertChoices(cases);
  AddAttentionBlocks(cases);
  AddSums(cases);
}

void AddRecurrent(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& name, DeltaAttrs a, int64_t width, bool slices = false) {
    Add(cases, DeltaCase("gated_delta." + name, a, width, RequestSteps(), slices));
  };
  add("h2.d16", {.k_heads = 2, .v_heads = 2, .k_dim = 16, .v_dim = 16}, 4);
  add("h1of3.d8x24.tiled",
      {.k_heads = 1, .v_heads = 3, .k_dim = 8, .v_dim = 24, .log_a = false, .tiled = true}, 2);
  add("h2of6.d32x16", {.k_heads = 2, .v_heads = 6, .k_dim = 32, .v_dim = 16}, 3);
  add("h2of6.d32x16.tiled", {.k_heads = 2, .v_heads = 6, .k_dim = 32, .v_dim = 16, .tiled = true},
      3, true);
  add("h2of4.d64x32", {.k_heads = 2, .v_heads = 4, .k_dim = 64, .v_dim = 32, .log_a = false}, 4,
      true);
  add("h1of2.d128", {.k_heads = 1, .v_heads = 2, .k_dim = 128, .v_dim = 128}, 4);
  add("h2of4.d128.tiled", {.k_heads = 2, .v_heads = 4, .k_dim = 128, .v_dim = 128, .tiled = true},
      4);
  add("h2.d128x64", {.k_heads = 2, .v_heads = 2, .k_dim = 128, .v_dim = 64}, 3, true);
  add("h1of2.d128x192", {.k_heads = 1, .v_heads = 2, .k_dim = 128, .v_dim = 192}, 2);
  add("h1.d160x16", {.k_heads = 1, .v_heads = 1, .k_dim = 160, .v_dim = 16}, 4);
  Add(cases, DeltaCase("gated_delta.h1of2.d128.sum",
                       {.k_heads = 1, .v_heads = 2, .k_dim = 128, .v_dim = 128}, 4,
                       {{{1, 1}}, {{5, 2}}, {{1, 1}, 1, 1}}, false, true));
  add("h1of2.d20x36.odd", {.k_heads = 1, .v_heads = 2, .k_dim = 20, .v_dim = 36}, 4);
  add("h1.d3x5.odd", {.k_heads = 1, .v_heads = 1, .k_dim = 3, .v_dim = 5}, 2);
  // Pieces of whole chunks of 64 tokens, of more and of less, beside others and after them; and
  // many chunks, over which errors would grow.
  const auto add_long = [&](const std::string& name, DeltaAttrs a, std::vector<OpStep> steps) {
    OpCase c = DeltaCase("gated_delta.long." + name, a, 4, std::move(steps));
    c.recurrent_bound = 0.2;  // over more than a thousand tokens 16 bits drift further apart
    Add(cases, std::move(c));
  };
  add_long("h2of4.d64x40.tiled",
           {.k_heads = 2, .v_heads = 4, .k_dim = 64, .v_dim = 40, .tiled = true},
           {{{130, 1, 70}, 3, 1}, {{64, 65, 0}}, {{1, 1, 128}, 2}, {{20, 192, 3}}});
  add_long("h1of2.d128", {.k_heads = 1, .v_heads = 2, .k_dim = 128, .v_dim = 128},
           {{{100}}, {{1}}, {{129}, 5}});
  add_long("h1of2.d32.t1280", {.k_heads = 1, .v_heads = 2, .k_dim = 32, .v_dim = 32},
           {{{1000}}, {{80}}, {{200}}});
  // Two layers, whose states must not mix.
  CaseBuilder c("gated_delta.layers");
  ValueId x = c.X(64);
  for (const char* layer : {"0.", "1."}) {
    const std::string p = layer;
    const DeltaAttrs a = {.k_heads = 2, .v_heads = 2, .k_dim = 16, .v_dim = 16};
    const ValueId y = c.b.GatedDeltaNet(c.Linear(x, p + "qkv", a.channels(), 64, DType::kF32),
                                        c.b.Scale(c.Linear(x, p + "a", 2, 64, DType::kF32), 1, -3),
                                        c.Linear(x, p + "b", 2, 64, DType::kF32), a, 4,
                                        {.conv = c.Matrix(p + "conv", a.channels(), 4),
                                         .a = c.Vector(p + "A", 2),
                                         .dt = c.Vector(p + "dt", 2)},
                                        p + "delta");
    const ValueId flat = c.b.Emit(Op::kReshape, p + "flat", {y}, {ReshapeAttrs{{T(), Dim(32)}}});
    x = c.b.Add(x, c.Linear(flat, p + "out", 64, 32, DType::kF32));
  }
  Add(cases, c.Finish({x}, RequestSteps(), 5e-5));
}

void AddHybridSpeed(std::vector<OpCase>& cases) {
  // The shapes of Qwen3-30B-A3B, with fewer experts to make, and of Qwen3-Next.
  for (const int64_t rows : {1, 8, 32}) {
    Add(cases, ExpertsCase(fmt::format("experts.Q4_K.8of12.t{}", rows), 12, 8, 2048, 768,
                           DType::kQ4_K, DType::kQ6_K, {{{rows}}}, false));
  }
  for (const int64_t rows : {1, 8, 128}) {
    CaseBuilder c(fmt::format("router.e512.k10.t{}", rows));
    const Routed r = Route(c, 512, {.top_k = 10, .normalise = true});
    Add(cases, c.Finish({r.weights, r.ids}, {{{rows}}}));
    Add(cases, DeltaCase(fmt::format("gated_delta.t{}", rows),
                         {.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128}, 4,
                         {{{rows}}, {{rows}}}));
  }
}

}  // namespace tests
