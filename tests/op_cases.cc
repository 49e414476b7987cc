#include "tests/op_cases.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/op_case_builder.h"

namespace tests {
namespace {

void AddRowOps(std::vector<OpCase>& cases) {
  for (const int64_t width : {1, 33, 64, 100, 257}) {
    const auto add = [&](const std::string& op, auto body) {
      CaseBuilder c(fmt::format("{}.w{}", op, width));
      std::vector<ValueId> outputs = body(c);
      cases.push_back(c.Finish(std::move(outputs), RowSteps()));
    };
    const auto binary = [&](Op op, bool broadcast) {
      add(fmt::format("{}{}", Name(op), broadcast ? ".row" : ""),
          [&](CaseBuilder& c) -> std::vector<ValueId> {
            const ValueId a = c.X(width);
            ValueId y =
                broadcast ? c.b.Weight(c.Vector("v", width), {width}) : c.X(width, "y.weight");
            // A divisor near zero would magnify the reference's own rounding.
            if (op == Op::kDiv && !broadcast) y = c.b.Act(y, Activation::kExp);
            return {c.b.Emit(op, "op", {a, y})};
          });
    };
    for (const Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv}) binary(op, false);
    for (const Op op : {Op::kAdd, Op::kMul}) binary(op, true);
    add("scale", [&](CaseBuilder& c) -> std::vector<ValueId> {
      return {c.b.Scale(c.X(width), -1.5f, 0.25f)};
    });
    add("softcap",
        [&](CaseBuilder& c) -> std::vector<ValueId> { return {c.b.SoftCap(c.X(width), 1.5f)}; });
    add("unary", [&](CaseBuilder& c) -> std::vector<ValueId> {
      std::vector<ValueId> all;
      const ValueId x = c.b.Scale(c.X(width), 4);  // into the flat parts too
      for (int fn = 0; fn <= static_cast<int>(Activation::kQuickGelu); ++fn) {
        all.push_back(c.b.Act(x, static_cast<Activation>(fn)));
      }
      return all;
    });
    add("clamp", [&](CaseBuilder& c) -> std::vector<ValueId> {
      const ValueId x = c.X(width);
      return {c.b.Clamp(x, -0.5f, 0.25f), c.b.Clamp(x, -INFINITY, 0.125f)};
    });
    add("expert_bias", [&](CaseBuilder& c) -> std::vector<ValueId> {
      const ValueId y = c.b.Heads(c.X(3 * width), 3, width);
      const auto chosen = c.b.Router(c.X(5, "logits.weight"), {.top_k = 3}, "router");
      return {c.b.ExpertBias(y, chosen.ids, c.Matrix("bias", 5, width), 5)};
    });
    add("act_mul", [&](CaseBuilder& c) -> std::vector<ValueId> {
      const ValueId a = c.X(width), u = c.X(width, "y.weight");
      return {c.b.Mul(c.b.Act(a, Activation::kSilu), u),
              c.b.Mul(u, c.b.Act(a, Activation::kGeluTanh))};
    });
    add("rms_norm", [&](CaseBuilder& c) -> std::vector<ValueId> {
      return {c.b.RmsNorm(c.X(width), c.Vector("w", width), 1e-5f),
              c.b.RmsNorm(c.X(width), c.Vector("w16", width, DType::kBF16), 1e-6f, 1),
              c.b.RmsNorm(c.X(width), "", 1e-5f)};
    });
    add("add_rms_norm", [&](CaseBuilder& c) -> std::vector<ValueId> {
      const ValueId s = c.b.Add(c.X(width), c.X(width, "y.weight"));
      return {c.b.RmsNorm(s, c.Vector("w", width), 1e-5f), s};
    });
    add("rms_norm_add", [&](CaseBuilder& c) -> std::vector<ValueId> {
      return {
          c.b.Add(c.X(width), c.b.RmsNorm(c.X(width, "y.weight"), c.Vector("w", width), 1e-6f, 1))};
    });
    add("layer_norm", [&](CaseBuilder& c) -> std::vector<ValueId> {
      if (width == 1)
        return {c.b.Scale(c.X(width), 2)};  // one value has no variance: the result is noise
      return {c.b.LayerNorm(c.X(width), c.Vector("w", width), c.Vector("b", width), 1e-5f),
              c.b.LayerNorm(c.X(width), c.Vector("w", width), "", 1e-5f)};
    });
    add("softmax", [&](CaseBuilder& c) -> std::vector<ValueId> {
      const ValueId x = c.b.Scale(c.X(width), 3);
      return {c.b.Emit(Op::kSoftmax, "softmax", {x}),
              c.b.Emit(Op::kLogSoftmax, "log_softmax", {x})};
    });
    add("softmax_sum", [&](CaseBuilder& c) -> std::vector<ValueId> {  // values of the device's type
      const ValueId y = c.b.Emit(Op::kSoftmax, "softmax", {c.X(width)});
      return {c.b.Add(y, y)};
    });
    add("concat", [&](CaseBuilder& c) -> std::vector<ValueId> {
      return {c.b.Emit(Op::kConcat, "concat", {c.X(width), c.X(2 * width, "y.weight")})};
    });
    add("slice", [&](CaseBuilder& c) -> std::vector<ValueId> {  // strided inputs of row ops
      const ValueId x = c.b.Scale(c.X(3 * width), 2);
      const ValueId a = c.b.Slice(x, 0, width), m = c.b.Slice(x, width, width),
                    z = c.b.Slice(x, 2 * width, width);
      return {c.b.Add(a, m), c.b.Mul(c.b.Act(m, Activation::kSilu), z),
              c.b.RmsNorm(z, c.Vector("w", width), 1e-5f)};
    });
    add("gather",
        [&](CaseBuilder& c) -> std::vector<ValueId> { return {c.b.OutputOnly(c.X(width))}; });
    add("state_rows", [&](CaseBuilder& c) -> std::vector<ValueId> {
      return {c.b.Scale(c.b.Media(width, c.X(width)), 2)};
    });
    add("argmax", [&](CaseBuilder& c) -> std::vector<ValueId> {
      return {c.b.Emit(Op::kArgMax, "argmax", {c.b.OutputOnly(c.X(width))})};
    });
  }
}

// What an encoder of sound begins and ends with.
void AddMedia(std::vector<OpCase>& cases) {
  for (const int64_t width : {5, 64}) {
    CaseBuilder c(fmt::format("media.w{}", width));
    const ValueId x = c.b.Scale(c.b.Media(3 * width), 2);
    const ValueId y = c.b.Add(c.b.Slice(x, 0, width), c.b.Slice(x, width, width));
    cases.push_back(c.Finish({c.b.Scale(c.b.OutputOnly(y, 4), 0.5f)},
                             {{{4}}, {{5}, 3}, {{33, 8}, 1, 1}, {{100}, 2}}));
  }
}

// Several requests a step, each with a slot; what one step draws is fed to the next (op_run gives
// negative ids). Vocabularies of less than a vector, of a few, and of many blocks.
void AddSampler(std::vector<OpCase>& cases) {
  for (const int64_t vocabulary : {1, 33, 257, 1000, 5000}) {
    CaseBuilder c(fmt::format("sample.v{}", vocabulary),
                  {.max_model_len = 256,
                   .sampler = SamplerLayout{.vocabulary = vocabulary, .history = 64, .lists = 40}});
    const ValueId x = c.b.OutputOnly(c.X(8, "x.weight", DType::kF32, vocabulary));
    const ValueId logits = c.Linear(x, "head", vocabulary, 8, DType::kF32);
    const Builder::Sampled s = c.b.Sample(logits);
    cases.push_back(c.Finish({s.tokens, s.values, s.ids, c.b.TokenIds()},
                             {{{3, 1, 2, 1, 4, 1, 1, 1, 2}, 2, 1},
                              {{1, 1, 1, 1, 1, 1, 1, 1, 1}},
                              {{1, 1, 1, 0, 1, 1, 1, 1, 1}, 1, 1},
                              {{1, 1, 1, 1, 1, 1, 1, 1, 1}},
                              {{0, 0, 0, 0, 0, 0, 0, 0, 0}, 2, 1}}));
  }
}

void AddWeights(std::vector<OpCase>& cases) {
  const std::vector<OpStep> rows = {{{1}},  {{2}},     {{3}},   {{7}, 1},
                                    {{31}}, {{33}, 2}, {{100}}, {{0}, 3}};
  for (const DType t : kFormats) {
    const std::string f(Name(t));
    for (const auto& [n, k] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 256}, {7, 512}, {33, 256}, {64, 768}}) {
      CaseBuilder c(fmt::format("linear.{}.n{}.k{}", f, n, k));
      const ValueId y = c.Linear(c.X(k), "l", n, k, t, n == 33);
      cases.push_back(c.Finish({y}, rows));
    }
    if (Info(t).block <= 32) {  // rows of a few blocks only, and for plain types of no whole vector
      const int64_t k = Info(t).block == 1 ? 37 : 96;
      CaseBuilder c(fmt::format("linear.{}.n10.k{}", f, k));
      const ValueId y = c.Linear(c.X(k), "l", 10, k, t);
      cases.push_back(c.Finish({y}, rows));
    }
    if (t == DType::kBF16) {  // of no whole lines, and enough to give two tiles to each wave
      CaseBuilder c("linear.bf16.n14600.k40");
      const ValueId y = c.Linear(c.X(40), "l", 14600, 40, t);
      cases.push_back(c.Finish({y}, {{{1}}, {{2}}}));
    }
    CaseBuilder e(fmt::format("embed.{}", f));
    cases.push_back(e.Finish({e.b.Scale(e.X(256, "table.weight", t), 2)}, rows));

    CaseBuilder tied(fmt::format("tied.{}", f));
    const ValueId x = tied.X(256, "embed.weight", t);
    cases.push_back(tied.Finish({tied.b.Linear(x, "embed", kVocabulary)}, rows));

    CaseBuilder add(fmt::format("linear_add.{}", f));
    const ValueId r = add.X(256);
    cases.push_back(
        add.Finish({add.b.Add(r, add.Linear(add.X(512, "y.weight"), "l", 256, 512, t))}, rows));

    CaseBuilder mlp(
        fmt::format("mlp.{}", f));  // norm and activation with quantisation, merged gate and up
    const ValueId h = mlp.b.Add(mlp.X(256), mlp.X(256, "y.weight"));
    const ValueId m = mlp.b.RmsNorm(h, mlp.Vector("w", 256), 1e-5f);
    const ValueId gated = mlp.Linear(m, "gate", 512, 256, t), up = mlp.Linear(m, "up", 512, 256, t);
    const ValueId a = mlp.b.Mul(mlp.b.Act(gated, Activation::kSilu), up);
    cases.push_back(mlp.Finish({mlp.b.Add(h, mlp.Linear(a, "down", 256, 512, t))}, rows));

    // The sandwich around a residual before a linear, and an activation that is no linear's end.
    CaseBuilder sandwich(fmt::format("sandwich.{}", f));
    const ValueId kept = sandwich.b.Add(
        sandwich.X(256),
        sandwich.b.RmsNorm(sandwich.X(256, "y.weight"), sandwich.Vector("w1", 256), 1e-6f, 1));
    const ValueId normed = sandwich.b.RmsNorm(kept, sandwich.Vector("w2", 256), 1e-5f);
    const ValueId wide = sandwich.Linear(normed, "l", 40, 256, t, true);
    const ValueId act =
        sandwich.b.Mul(sandwich.b.Act(sandwich.X(256, "g.weight"), Activation::kSilu),
                       sandwich.X(256, "u.weight"));
    cases.push_back(sandwich.Finish(
        {sandwich.b.Add(kept, kept), wide, sandwich.Linear(act, "m", 24, 256, t)}, rows));

    CaseBuilder gate(fmt::format("linear_act_mul.{}", f));  // without a norm before it
    const ValueId in = gate.X(256);
    const ValueId g = gate.Linear(in, "gate", 72, 256, t), u = gate.Linear(in, "up", 72, 256, t);
    cases.push_back(gate.Finish({gate.b.Mul(gate.b.Act(g, Activation::kGeluTanh), u)}, rows));
  }
  CaseBuilder c("merged.mixed");  // every format in one input's linears, with odd sizes and no bias
  const ValueId x = c.X(256);
  std::vector<ValueId> all;
  for (const DType t : kFormats) {
    const std::string name(Name(t));
    all.push_back(
        c.b.Scale(c.Linear(x, name, 9 + 2 * static_cast<int64_t>(all.size()), 256, t), 2));
  }
  cases.push_back(c.Finish(std::move(all), rows));

  // Formats that meet in files, of a row that is given and of one that is made by a norm.
  for (const auto& [a, b] : std::vector<std::pair<DType, DType>>{{DType::kQ3_K, DType::kQ5_K},
                                                                 {DType::kQ4_K, DType::kQ6_K},
                                                                 {DType::kQ5_K, DType::kQ6_K}}) {
    CaseBuilder two(fmt::format("merged.{}.{}", Name(a), Name(b)));
    const ValueId given = two.X(256);
    const ValueId made = two.b.RmsNorm(two.X(256, "y.weight"), two.Vector("w", 256), 1e-5f);
    cases.push_back(
        two.Finish({two.Linear(given, "q", 48, 256, a), two.Linear(given, "v", 17, 256, b),
                    two.Linear(made, "k", 33, 256, a), two.Linear(made, "o", 16, 256, b)},
                   {{{1}}, {{2}}, {{4}}, {{7}, 1}, {{0}, 3}}));
  }

  CaseBuilder biased("merged.biases");
  const ValueId z = biased.X(256);
  cases.push_back(biased.Finish({biased.Linear(z, "q", 48, 256, DType::kQ4_K, true),
                                 biased.Linear(z, "k", 17, 256, DType::kQ6_K, true),
                                 biased.Linear(z, "v", 16, 256, DType::kQ8_0, true)},
                                rows));
}

void AddRope(std::vector<OpCase>& cases) {
  for (const auto& [dim, rotary] : std::vector<std::pair<int64_t, int64_t>>{
           {20, 20}, {32, 32}, {80, 32}, {64, 64}, {96, 72}, {128, 128}, {256, 64}}) {
    for (const bool interleaved : {false, true}) {
      CaseBuilder c(fmt::format("rope.d{}.r{}{}", dim, rotary, interleaved ? ".interleaved" : ""));
      const ValueId x = c.b.Heads(c.X(3 * dim), 3, dim);
      RopeAttrs a = Rotation(rotary, interleaved);
      a.magnitude = interleaved ? 1.25f : 1;
      const ValueId normed = c.b.RmsNorm(x, c.Vector("w", dim), 1e-6f);
      RopeAttrs growing = a;  // and does not turn
      growing.growth = 0.5f;
      growing.floor = 3;
      growing.frequencies.assign(growing.frequencies.size(), 0);
      const ValueId y = c.b.Rope(x, a);
      cases.push_back(
          c.Finish({c.b.Add(y, y), c.b.Rope(normed, a), c.b.Rope(x, growing)}, RowSteps()));
    }
  }
}

// q, k and v cut out of one merged linear, rotated, written and attended.
OpCase AttentionCase(const std::string& name, AttentionAttrs a, KvOptions kv,
                     std::vector<OpStep> steps, bool merged = false) {
  CaseBuilder c(name, kv);
  const int64_t nq = a.heads * a.head_dim, nk = a.kv_heads * a.head_dim;
  a.scale = 1 / std::sqrt(static_cast<float>(a.head_dim));
  ValueId q, k, v;
  if (merged) {
    // Small, so that scores are: a softmax of one key would show rounding alone.
    const ValueId x = c.b.Scale(c.X(64), 0.125f);
    q = c.Linear(x, "q", nq, 64, DType::kQ4_0);
    k = c.Linear(x, "k", nk, 64, DType::kQ8_0);
    v = c.Linear(x, "v", nk, 64, DType::kQ5_1);
  } else {
    q = c.X(nq, "q.weight");
    k = c.X(nk, "k.weight");
    v = c.X(nk, "v.weight");
  }
  q = c.b.Rope(c.b.Heads(q, a.heads, a.head_dim), Rotation(a.head_dim));
  k = c.b.Rope(c.b.Heads(k, a.kv_heads, a.head_dim), Rotation(a.head_dim));
  const ValueId y = c.b.Attention(q, k, c.b.Heads(v, a.kv_heads, a.head_dim), a, "attention",
                                  a.sinks ? c.Vector("sinks", a.heads) : "");
  // What leaves a graph is f32 whatever the device's values are; attention gives values.
  return c.Finish({c.b.Add(y, y)}, std::move(steps), 5e-5);
}

void AddAttention(std::vector<OpCase>& cases) {
  const KvOptions kv{.dtype = DType::kF16, .block_size = 16, .max_model_len = 160};
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {4, 2}, {3, 1}, {8, 2}, {7, 1}}) {
    const AttentionAttrs a{.heads = heads, .kv_heads = kv_heads, .head_dim = 64};
    cases.push_back(
        AttentionCase(fmt::format("attention.h{}.kv{}", heads, kv_heads), a, kv, ServingSteps()));
  }
  for (const int64_t dim : {32, 80, 96, 128, 256}) {
    cases.push_back(AttentionCase(fmt::format("attention.d{}", dim),
                                  {.heads = 4, .kv_heads = 2, .head_dim = dim}, kv,
                                  ServingSteps()));
  }
  for (const int64_t window : {1, 8, 16, 24, 1000}) {
    cases.push_back(AttentionCase(fmt::format("attention.window{}", window),
                                  {.heads = 4, .kv_heads = 2, .head_dim = 32, .window = window}, kv,
                                  ServingSteps()));
  }
  for (const int64_t chunk : {1, 7, 16, 40}) {
    cases.push_back(
        AttentionCase(fmt::format("attention.chunk{}", chunk),
                      {.heads = 4, .kv_heads = 2, .head_dim = 32, .window = chunk, .chunked = true},
                      kv, ServingSteps()));
  }
  cases.push_back(AttentionCase("attention.softcap",
                                {.heads = 4, .kv_heads = 1, .head_dim = 64, .softcap = 0.5f}, kv,
                                ServingSteps()));
  cases.push_back(
      AttentionCase("attention.softcap.window",
                    {.heads = 4, .kv_heads = 2, .head_dim = 256, .softcap = 5, .window = 20}, kv,
                    ServingSteps()));
  for (AttentionAttrs a : {AttentionAttrs{.heads = 7, .kv_heads = 1, .head_dim = 64},
                           {.heads = 8, .kv_heads = 2, .head_dim = 32, .window = 16},
                           {.heads = 3, .kv_heads = 3, .head_dim = 80, .softcap = 0.5f},
                           {.heads = 40, .kv_heads = 2, .head_dim = 128},
                           {.heads = 4, .kv_heads = 2, .head_dim = 256, .causal = false}}) {
    a.sinks = true;
    cases.push_back(AttentionCase(fmt::format("attention.sinks.h{}.d{}", a.heads, a.head_dim), a,
                                  kv, ServingSteps()));
  }
  // Heads of more than 256 values, as Gemma 4's layers without a window have.
  const std::vector<OpStep> few = {
      {{5, 18, 1}, 2, 1}, {{1, 1, 7}}, {{30, 0, 3}, 1}, {{1, 1, 1}, 1}};
  for (AttentionAttrs a :
       {AttentionAttrs{.heads = 2, .kv_heads = 1, .head_dim = 512},
        {.heads = 8, .kv_heads = 2, .head_dim = 512, .window = 12},
        {.heads = 8, .kv_heads = 1, .head_dim = 512},
        {.heads = 2, .kv_heads = 2, .head_dim = 320, .window = 7, .chunked = true},
        {.heads = 4, .kv_heads = 2, .head_dim = 512, .softcap = 0.5f, .sinks = true},
        {.heads = 4, .kv_heads = 1, .head_dim = 264, .causal = false, .sinks = true}}) {
    for (const DType t : {DType::kF16, DType::kBF16}) {
      if (t == DType::kBF16 && a.heads != 8) continue;
      cases.push_back(AttentionCase(
          fmt::format("attention.h{}.kv{}.d{}.{}", a.heads, a.kv_heads, a.head_dim, Name(t)), a,
          {.dtype = t, .block_size = 16, .max_model_len = 160}, few));
    }
  }
  for (const auto& [heads, dim] : std::vector<std::pair<int64_t, int64_t>>{{3, 32}, {12, 64}}) {
    cases.push_back(AttentionCase(
        fmt::format("attention.bidirectional.d{}", dim),
        {.heads = heads, .kv_heads = heads, .head_dim = dim, .causal = false}, kv, ServingSteps()));
  }
  cases.push_back(AttentionCase("attention.merged", {.heads = 6, .kv_heads = 2, .head_dim = 32}, kv,
                                ServingSteps(), true));
  cases.push_back(AttentionCase("attention.block32", {.heads = 4, .kv_heads = 2, .head_dim = 64},
                                {.dtype = DType::kF16, .block_size = 32, .max_model_len = 160},
                                ServingSteps()));
  for (const DType t : {DType::kF32, DType::kBF16}) {
    cases.push_back(AttentionCase(
        fmt::format("attention.kv_{}", Name(t)), {.heads = 4, .kv_heads = 2, .head_dim = 64},
        {.dtype = t, .block_size = 16, .max_model_len = 160}, ServingSteps()));
  }
  for (const int64_t dim : {32, 96, 128, 256}) {
    cases.push_back(AttentionCase(
        fmt::format("attention.d{}.kv_bf16", dim), {.heads = 4, .kv_heads = 2, .head_dim = dim},
        {.dtype = DType::kBF16, .block_size = 16, .max_model_len = 160}, few));
  }
  for (const int64_t dim : {64, 512}) {
    cases.push_back(AttentionCase(
        fmt::format("attention.d{}.kv_f8", dim), {.heads = 4, .kv_heads = 2, .head_dim = dim},
        {.dtype = DType::kF8_E4M3, .block_size = 16, .max_model_len = 160},
        dim > 256 ? few : ServingSteps()));
    cases.back().optional = true;
  }
  std::vector<OpStep> lengths = {{{1}}};  // every cache length from 1 to 130
  for (int i = 1; i < 130; ++i) lengths.push_back({{1}});
  cases.push_back(
      AttentionCase("attention.lengths", {.heads = 2, .kv_heads = 1, .head_dim = 32}, kv, lengths));
  cases.push_back(AttentionCase("attention.sinks.lengths",
                                {.heads = 2, .kv_heads = 1, .head_dim = 32, .sinks = true}, kv,
                                lengths));
  cases.push_back(AttentionCase("attention.prefill130", {.heads = 2, .kv_heads = 1, .head_dim = 64},
                                kv, {{{130}}, {{1}}}));
}

// Two layers, as models have them: sandwich norms and windows as Gemma, head norms as Qwen.
void AddBlocks(std::vector<OpCase>& cases) {
  for (const DType t : {DType::kF32, DType::kBF16, DType::kQ4_K, DType::kQ8_0}) {
    CaseBuilder c(fmt::format("block.{}", Name(t)), {.block_size = 16, .max_model_len = 160});
    ValueId h = c.b.Scale(c.X(256, "embed.weight", t), 2);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string p = fmt::format("layers.{}.", layer);
      const auto norm = [&](ValueId x, const std::string& n) {
        return c.b.RmsNorm(x, c.Vector(p + n, 256), 1e-6f, 1);
      };
      const ValueId x = norm(h, "in_norm");
      const auto head = [&](const std::string& n, int64_t heads, DType format) {
        const ValueId y = c.b.Heads(c.Linear(x, p + n, heads * 64, 256, format), heads, 64);
        if (n == "v") return y;
        return c.b.Rope(c.b.RmsNorm(y, c.Vector(p + n + "_norm", 64), 1e-6f), Rotation(64));
      };
      const ValueId q = head("q", 4, t), k = head("k", 2, t),
                    v = head("v", 2, t == DType::kQ4_K ? DType::kQ6_K : t);
      const ValueId a = c.b.Attention(q, k, v,
                                      {.heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 64,
                                       .scale = 0.125f,
                                       .window = layer == 0 ? 0 : 20},
                                      p + "attn");
      h = c.b.Add(h, norm(c.Linear(a, p + "o", 256, 256, t), "post_attn_norm"));
      const ValueId m = norm(h, "pre_mlp_norm");
      const ValueId gate = c.Linear(m, p + "gate", 512, 256, t),
                    up = c.Linear(m, p + "up", 512, 256, t);
      const ValueId g = c.b.Mul(c.b.Act(gate, Activation::kGeluTanh), up);
      h = c.b.Add(h, c.Linear(g, p + "down", 256, 512, t));
    }
    const ValueId out = c.b.RmsNorm(c.b.OutputOnly(h), c.Vector("norm", 256), 1e-6f);
    const ValueId logits = c.b.SoftCap(c.b.Linear(out, "embed", kVocabulary), 30);
    cases.push_back(c.Finish({logits}, ServingSteps(), 5e-5));
  }
}

}  // namespace

std::vector<OpCase> OpCases() {
  std::vector<OpCase> cases;
  AddRowOps(cases);
  AddMedia(cases);
  AddSampler(cases);
  AddWeights(cases);
  AddRope(cases);
  AddAttention(cases);
  AddLatent(cases);
  AddEntries(cases);
  AddBlocks(cases);
  AddExperts(cases);
  AddRecurrent(cases);
  return cases;
}

std::vector<OpCase> SpeedCases() {
  std::vector<OpCase> cases;
  for (const int64_t rows : {1, 8, 128}) {
    for (const DType t : kFormats) {
      CaseBuilder c(fmt::format("linear.{}.t{}", Name(t), rows));
      cases.push_back(c.Finish({c.Linear(c.X(2048), "l", 2048, 2048, t)}, {{{rows}}}));
    }
    CaseBuilder n(fmt::format("rms_norm.t{}", rows));
    cases.push_back(n.Finish({n.b.RmsNorm(n.X(2048), n.Vector("w", 2048), 1e-5f)}, {{{rows}}}));
    cases.push_back(AttentionCase(fmt::format("attention.t{}.context1024", rows),
                                  {.heads = 16, .kv_heads = 4, .head_dim = 128},
                                  {.block_size = 16, .max_model_len = 2048}, {{{1024}}, {{rows}}}));
    cases.push_back(AttentionCase(fmt::format("attention.d512.t{}.context1024", rows),
                                  {.heads = 16, .kv_heads = 2, .head_dim = 512},
                                  {.dtype = DType::kBF16, .block_size = 16, .max_model_len = 2048},
                                  {{{1024}}, {{rows}}}));
  }
  for (const int64_t dim : {256, 512}) {
    cases.push_back(AttentionCase(fmt::format("attention.d{}.prefill2048", dim),
                                  {.heads = 16, .kv_heads = 2, .head_dim = dim},
                                  {.dtype = DType::kBF16, .block_size = 16, .max_model_len = 2048},
                                  {{{2048}}}));
  }
  AddHybridSpeed(cases);
  AddLatentSpeed(cases);
  return cases;
}

}  // namespace tests
