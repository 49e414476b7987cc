// Attention on the emulated device, compiled as a plan compiles it: steps with many requests of
// random lengths, held to softmax in f64 over the values that the cache holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/args_attention.h"
#include "vt/gpu/context.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/kernel_testing.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
namespace {

using ir::DType;
using kernel_testing::Bytes;
using kernel_testing::RunAll;

struct Case {
  std::string name;
  DType type = DType::kBF16, cache = DType::kBF16;
  int64_t heads = 4, kv_heads = 2, dim = 64, block = 16;
  int64_t v_dim = 0;  // of a latent cache
  float softcap = 0;
  int64_t window = 0;
  bool causal = true;
  std::vector<int64_t> lens = {},
                       added = {};  // of each request: tokens in the cache, and of this step
  int units = 4;                    // multiprocessors: more than a few cut requests into parts
  int64_t shared_bytes = 200 << 10;
  bool sinks = false;
  int long_tokens = -1;  // how many the work list calls so; -1: none may be
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

float Rounded(float v, DType t) {
  std::byte b[4];
  ir::Quantize(t, &v, b, 1);
  ir::Dequantize(t, b, &v, 1);
  return v;
}

class Attention : public testing::TestWithParam<Case> {
 protected:
  float Random() { return static_cast<float>(static_cast<int>(random_() % 4001) - 2000) / 1000; }
  std::mt19937 random_{11};
};

TEST_P(Attention, IsSoftmaxOverTheCache) {
  const Case& t = GetParam();
  const auto requests = static_cast<int64_t>(t.lens.size());
  int64_t tokens = 0;
  for (const int64_t n : t.added) tokens += n;
  const int64_t longest = *std::max_element(t.lens.begin(), t.lens.end());
  const int64_t stride = (longest + t.block - 1) / t.block + 1;
  // Two rows and a request of padding.
  ir::Bucket bucket{tokens + 2, requests + 1, 1};
  if (tokens == requests) bucket = {tokens + 2, requests + 2, 1};

  ir::Graph g;
  g.state_groups.push_back(
      {.name = "global", .dtype = t.cache, .layers = 1, .kv_heads = t.kv_heads, .head_dim = t.dim});
  const bool latent = t.v_dim > 0;
  const int64_t v_dim = latent ? t.v_dim : t.dim;
  g.state_groups.back().latent = latent;
  const auto add = [&](const std::string& name, DType d, ir::Shape shape, ir::ValueKind kind) {
    g.values.push_back({.name = name, .dtype = d, .shape = std::move(shape), .kind = kind});
    return static_cast<ir::ValueId>(g.values.size() - 1);
  };
  using ir::ValueKind;
  const auto q = add("q", t.type, {ir::T(), t.heads, t.dim}, ValueKind::kNode);
  const auto state = add("kv", t.cache, {}, ValueKind::kState);
  g.values.back().group = g.values.back().layer = 0;
  const auto positions = add(ir::kPositions, DType::kI32, {ir::T()}, ValueKind::kInput);
  const auto start =
      add(ir::kQueryStart, DType::kI32, {ir::Dim(1, ir::Sym::kRequests, 1)}, ValueKind::kInput);
  const auto lens = add(ir::kSeqLens, DType::kI32, {ir::R()}, ValueKind::kInput);
  const auto table = add(ir::BlockTableName(0), DType::kI32, {ir::R(), stride}, ValueKind::kInput);
  const auto out = add("out", t.type, {ir::T(), t.heads * v_dim}, ValueKind::kNode);
  ir::AttentionAttrs attrs{.heads = t.heads, .kv_heads = t.kv_heads, .head_dim = t.dim};
  attrs.scale = 1 / std::sqrt(static_cast<float>(t.dim));
  attrs.softcap = t.softcap;
  attrs.window = t.window;
  attrs.causal = t.causal;
  attrs.v_dim = t.v_dim;
  attrs.sinks = t.sinks;
  g.nodes.push_back({.op = ir::Op::kAttention,
                     .name = "attention",
                     .inputs = {q, state, positions, start, lens, table},
                     .outputs = {out},
                     .attrs = {attrs}});
  if (t.sinks)
    g.nodes.back().inputs.push_back(add("sinks", DType::kF32, {t.heads}, ValueKind::kWeight));
  // A second layer, which may begin early: counters must be as they were.
  g.nodes.push_back(g.nodes.back());

  DeviceFacts device;
  device.properties.units = t.units;
  device.properties.wave = emulated::WaveSize();
  device.properties.shared_bytes = t.shared_bytes;
  device.value_type = t.type;
  if (t.long_tokens >= 0) {
    device.long_blocks = 0;
    device.long_heads = 2;
  }
  ASSERT_TRUE(SupportsAttention(g, g.nodes[0], bucket, device));

  // The arena: q, out, workspace.
  const int64_t size = ir::Info(t.type).bytes, row = t.heads * t.dim, out_row = t.heads * v_dim;
  ir::Plan plan;
  plan.bucket = bucket;
  plan.memory.places.resize(g.values.size());
  const int64_t out_at = (bucket.tokens * row * size + 255) / 256 * 256;
  plan.memory.places[static_cast<size_t>(q)] = {q, 0, row, out_at};
  plan.memory.places[static_cast<size_t>(out)] = {out, out_at, out_row, out_at};
  plan.workspace_offset = 2 * out_at;
  plan.workspace_bytes = AttentionWorkspace(g, bucket, device);
  plan.graph = g;
  Bytes arena(plan.workspace_offset + plan.workspace_bytes);
  std::fill(arena.data.begin(), arena.data.end(), std::byte{0xff});  // NaN

  // Inputs.
  const StepLayout layout(g, bucket);
  Bytes inputs(layout.bytes());
  const auto ints = [&](const std::string& name) {
    return reinterpret_cast<int32_t*>(inputs.at() + layout.OffsetOf(name));
  };
  auto* header = reinterpret_cast<Header*>(inputs.at());
  *header = {static_cast<int32_t>(tokens), static_cast<int32_t>(requests), 1,
             static_cast<int32_t>(stride)};
  const int64_t blocks = requests * stride + 1;
  std::vector<int32_t> order(static_cast<size_t>(blocks));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::shuffle(order.begin(), order.end(), random_);
  int32_t at = 0;
  for (int64_t r = 0; r < requests; ++r) {
    const auto i = static_cast<size_t>(r);
    ints(ir::kQueryStart)[r] = at;
    ints(ir::kSeqLens)[r] = static_cast<int32_t>(t.lens[i]);
    for (int64_t n = 0; n < t.added[i]; ++n)
      ints(ir::kPositions)[at++] = static_cast<int32_t>(t.lens[i] - t.added[i] + n);
    for (int64_t b = 0; b < stride; ++b)
      ints(ir::BlockTableName(0))[r * stride + b] =
          b * t.block < t.lens[i] ? order[static_cast<size_t>(r * stride + b)] : 1 << 30;
  }
  for (int64_t r = requests; r <= bucket.requests; ++r) ints(ir::kQueryStart)[r] = at;

  const KvLayer kv = KvLayerOf(g.state_groups[0], t.block);
  const int64_t bytes = ir::Info(t.cache).bytes, block_values = kv.block_bytes / bytes;
  std::vector<float> cache(static_cast<size_t>(blocks * block_values));
  for (float& v : cache) v = Rounded(Random(), t.cache);
  // What no request reads is NaN.
  std::vector<bool> used(static_cast<size_t>(blocks * t.block));
  for (int64_t r = 0; r < requests; ++r) {
    for (int64_t p = 0; p < t.lens[static_cast<size_t>(r)]; ++p)
      used[static_cast<size_t>(ints(ir::BlockTableName(0))[r * stride + p / t.block] * t.block +
                               p % t.block)] = true;
  }
  for (int64_t i = 0; i < std::ssize(cache); ++i) {
    const int64_t slot = i / block_values * t.block + i / t.dim % t.block;
    if (!used[static_cast<size_t>(slot)]) cache[static_cast<size_t>(i)] = std::nanf("");
  }
  Bytes stored(blocks * kv.block_bytes);
  ir::Quantize(t.cache, cache.data(), stored.at(), std::ssize(cache));
  std::vector<float> query(static_cast<size_t>(tokens * row));
  for (float& v : query) v = Rounded(2 * Random(), t.type);
  ir::Quantize(t.type, query.data(), arena.at(), std::ssize(query));

  std::vector<float> sinks(static_cast<size_t>(t.heads));
  for (float& v : sinks) v = 3 * Random();
  Bindings bindings;
  bindings.weights["sinks"] = {sinks.data(), DType::kF32, {kVectorLayout, t.heads * 4}};
  bindings.state = {{stored.at()}};
  bindings.state_blocks = {blocks};
  bindings.block_size = t.block;
  bindings.arena = arena.at();
  bindings.inputs = inputs.at();
  std::vector<Launch> launches;
  base::Status status;
  const Context c = {plan,
                     bindings,
                     layout,
                     device,
                     [](const void*, int64_t) { return base::Result<void*>(nullptr); },
                     launches,
                     status};
  CompileStepBegin(c);
  CompileAttention(c, 0);
  CompileAttention(c, 1);
  ASSERT_TRUE(status) << status.error().message;
  RunAll(launches);
  if (t.long_tokens >= 0) {
    AttentionBeginArgs begin;
    std::memcpy(&begin, launches[0].args.data(), sizeof begin);
    const AttentionList& list = begin.lists[0].list;
    EXPECT_EQ(std::count_if(list.items, list.items + list.lane_begin[list.lanes],
                            [](const DecodeItem& it) { return it.cached < 0 && it.part == 0; }),
              t.long_tokens);
  }

  std::vector<float> got(static_cast<size_t>(tokens * out_row));
  ir::Dequantize(t.type, arena.at() + out_at, got.data(), std::ssize(got));
  double error = 0;
  for (int64_t r = 0, token = 0; r < requests; ++r) {
    for (int64_t n = 0; n < t.added[static_cast<size_t>(r)]; ++n, ++token) {
      const int64_t len = t.lens[static_cast<size_t>(r)];
      const int64_t position = len - t.added[static_cast<size_t>(r)] + n;
      const int64_t last = t.causal ? position + 1 : len;
      const int64_t first = t.window > 0 ? std::max<int64_t>(0, position - t.window + 1) : 0;
      for (int64_t h = 0; h < t.heads; ++h) {
        std::vector<double> p;
        double high = -INFINITY, sum = 0;
        const auto cached = [&](int64_t key, int64_t half) {
          const int64_t block = ints(ir::BlockTableName(0))[r * stride + key / t.block];
          const int64_t after = latent ? 0 : half * block_values / 2;
          return &cache[static_cast<size_t>(block * block_values + after +
                                            (h / (t.heads / t.kv_heads) * t.block + key % t.block) *
                                                t.dim)];
        };
        for (int64_t key = first; key < last; ++key) {
          double dot = 0;
          for (int64_t d = 0; d < t.dim; ++d)
            dot +=
                double{query[static_cast<size_t>(token * row + h * t.dim + d)]} * cached(key, 0)[d];
          dot *= attrs.scale;
          if (t.softcap != 0) dot = t.softcap * std::tanh(dot / t.softcap);
          p.push_back(dot);
          high = std::max(high, dot);
        }
        if (t.sinks) {
          high = std::max(high, double{sinks[static_cast<size_t>(h)]});
          sum = std::exp(sinks[static_cast<size_t>(h)] - high);
        }
        for (double& v : p) sum += v = std::exp(v - high);
        double worst = 0, most = 0;
        for (int64_t d = 0; d < v_dim; ++d) {
          double want = 0;
          for (int64_t key = first; key < last; ++key)
            want += p[static_cast<size_t>(key - first)] / sum * cached(key, 1)[d];
          const float v = got[static_cast<size_t>(token * out_row + h * v_dim + d)];
          worst = std::isfinite(v) ? std::max(worst, std::fabs(v - want)) : INFINITY;
          most = std::max(most, std::fabs(want));
        }
        // Long averages are near zero: the weights' rounding counts against values of about 1.
        error = std::max(error, worst / std::max(most, 0.5));
      }
    }
  }
  // f32: sums in another order. Else weights (of values up to 2) and result are rounded, by 2^-9 or
  // 2^-12, and the least size counts as a half.
  const double bound = t.type == DType::kF32 ? 2e-5 : t.type == DType::kBF16 ? 1.2e-2 : 1.5e-3;
  EXPECT_LT(error, bound);
  RecordProperty("error", fmt::format("{}", error));
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  std::mt19937 random(5);
  const auto lengths = [&](size_t count, int64_t most) {
    std::vector<int64_t> l(count);
    for (int64_t& v : l) v = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    return l;
  };
  const auto decode = [&](Case c, std::vector<int64_t> lens) {
    c.lens = std::move(lens);
    c.added.assign(c.lens.size(), 1);
    cases.push_back(std::move(c));
  };
  decode({.name = "one"}, {200});
  decode({.name = "one_short"}, {1});
  decode({.name = "many_parts", .units = 24}, {2000});
  decode({.name = "most_parts", .units = 160}, {5200});
  decode({.name = "uneven_requests", .units = 16}, {900, 20, 30, 700, 1});
  decode({.name = "one_lane_each", .units = 8}, {400, 350, 390, 410});
  decode({.name = "many_requests", .kv_heads = 1, .dim = 32}, lengths(40, 700));
  decode({.name = "few_requests", .units = 16}, lengths(3, 900));
  decode({.name = "block64", .block = 64}, lengths(5, 300));
  decode({.name = "block32", .block = 32}, lengths(5, 300));
  decode({.name = "block48", .block = 48}, lengths(5, 300));
  for (const int64_t group : {1, 3, 16, 17, 40}) {
    decode({.name = fmt::format("group{}", group), .heads = 2 * group, .dim = 32, .units = 12},
           lengths(4, 600));
  }
  for (const int64_t window : {1, 31, 64, 333}) {
    decode({.name = fmt::format("window{}", window), .window = window, .units = 16},
           lengths(6, 700));
  }
  for (const int64_t dim : {16, 80, 96, 112, 128, 160, 256}) {
    decode({.name = fmt::format("dim{}", dim), .dim = dim}, lengths(3, 200));
  }
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType cache : {DType::kF32, DType::kF16, DType::kBF16}) {
      decode({.name = fmt::format("{}_cache_{}", ir::Name(type), ir::Name(cache)),
              .type = type,
              .cache = cache,
              .dim = 80},
             lengths(3, 300));
    }
  }
  decode({.name = "f32_dim256", .type = DType::kF32, .cache = DType::kF32, .dim = 256}, {100, 7});
  decode({.name = "f32_dim256_little_memory",
          .type = DType::kF32,
          .cache = DType::kF32,
          .dim = 256,
          .shared_bytes = 64 << 10},
         {100, 7});
  decode({.name = "dim256_little_memory", .dim = 256, .shared_bytes = 64 << 10}, {300, 7});
  for (const int64_t dim : {264, 320, 512}) {
    decode({.name = fmt::format("wide{}", dim), .dim = dim}, lengths(3, 200));
    decode({.name = fmt::format("wide{}_f32", dim),
            .type = DType::kF32,
            .cache = DType::kF32,
            .dim = dim,
            .shared_bytes = 64 << 10},
           {100, 7});
  }
  decode({.name = "wide_many_parts", .heads = 8, .kv_heads = 1, .dim = 512, .units = 24}, {900});
  decode({.name = "wide_group17", .heads = 34, .dim = 512, .block = 48, .units = 12}, {90, 200, 1});
  decode({.name = "wide_little_memory", .dim = 512, .window = 64, .shared_bytes = 64 << 10},
         {300, 7});
  for (const DType cache : {DType::kF32, DType::kF16, DType::kF8_E4M3}) {
    decode({.name = fmt::format("wide_cache_{}", ir::Name(cache)), .cache = cache, .dim = 512},
           lengths(3, 200));
  }
  decode({.name = "softcap", .softcap = 1.5f, .units = 16}, lengths(4, 900));
  decode({.name = "sinks", .units = 16, .sinks = true}, lengths(4, 900));
  decode({.name = "window_without_causal", .window = 9, .causal = false}, {20, 40});

  // Long tokens, of heads that share keys and have as many parts as there are lanes: `units` of
  // them to a bucket's token and head. Then those of just too few keys.
  const auto many = [&](Case c, int64_t parts, int64_t keys, int long_tokens) {
    c.name = "long_" + c.name;
    c.units = static_cast<int>(parts * c.heads);
    c.long_tokens = long_tokens;
    decode(std::move(c), {parts * LongKeys(static_cast<int>(c.dim / 8)) + keys});
  };
  for (const int64_t dim : {64, 128, 256}) {
    const auto name = [&](const char* which) { return fmt::format("dim{}{}", dim, which); };
    many({.name = name(""), .heads = 8, .kv_heads = 1, .dim = dim}, 6, 1, 1);
    many({.name = name("_not"), .heads = 8, .kv_heads = 1, .dim = dim}, 6, 0, 0);
  }
  for (const int64_t group : {2, 3, 4, 7, 9, 17}) {
    many({.name = fmt::format("group{}", group), .heads = group, .kv_heads = 1, .dim = 128}, 6, 77,
         1);
  }
  many({.name = "kv_heads", .heads = 12, .kv_heads = 3, .dim = 256}, 6, 133, 1);
  many({.name = "block48", .heads = 8, .dim = 128, .block = 48}, 6, 133, 1);
  many({.name = "softcap", .heads = 8, .dim = 128, .softcap = 1.5f}, 6, 133, 1);
  many({.name = "sinks", .heads = 8, .dim = 256, .sinks = true}, 6, 133, 1);
  many({.name = "group1", .heads = 2, .dim = 256}, 8, 133, 0);
  many({.name = "dim112", .heads = 4, .dim = 112}, 6, 400, 0);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const DType cache : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E4M3}) {
      many({.name = fmt::format("{}_cache_{}", ir::Name(type), ir::Name(cache)),
            .type = type,
            .cache = cache,
            .heads = 4,
            .kv_heads = 1,
            .dim = 256},
           6, 33, type == cache ? 1 : 0);
    }
  }
  const auto together = [&](Case c, std::vector<int64_t> lens, int long_tokens) {
    c.name = "long_" + c.name;
    c.kv_heads = 1;
    c.dim = 256;
    c.units = static_cast<int>(2 * (std::ssize(lens) + 2) * c.heads);
    c.long_tokens = long_tokens;
    decode(std::move(c), std::move(lens));
  };
  together({.name = "and_short", .heads = 4}, {2600, 40}, 1);
  together({.name = "short_between", .heads = 2}, {3000, 1, 3100, 70}, 2);
  together({.name = "whole_in_a_lane", .heads = 2, .sinks = true}, {4000, 400}, 2);
  together({.name = "end_in_others_lanes", .heads = 2}, {4000, 3990, 4010, 3970, 3980}, 5);
  together({.name = "through_a_window", .heads = 4, .window = 2400}, {3000, 100}, 1);

  // Latent caches: many parts of a token, more heads than a block's, vectors of several kinds.
  const auto latent = [](std::string name, int64_t heads, int64_t dim, int64_t v_dim, int units) {
    return Case{.name = "latent_" + std::move(name),
                .heads = heads,
                .kv_heads = 1,
                .dim = dim,
                .v_dim = v_dim,
                .units = units};
  };
  decode(latent("one", 16, 576, 512, 24), {200});
  decode(latent("many_parts", 3, 96, 64, 48), {2500});
  decode(latent("most_parts", 5, 40, 30, 160), {5200});
  decode(latent("heads40", 40, 80, 64, 16), {300, 1, 64});
  decode(latent("requests", 4, 128, 50, 8), lengths(20, 300));
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    Case c = latent(fmt::format("{}_cache_f8", ir::Name(type)), 6, 576, 512, 16);
    c.type = type;
    c.cache = DType::kF8_E4M3;
    decode(c, {130, 40});
  }
  {
    Case c = latent("block48_softcap", 4, 64, 32, 16);
    c.block = 48;
    c.softcap = 2;
    decode(c, {500, 70});
  }

  const auto step = [&](Case c, std::vector<int64_t> lens, std::vector<int64_t> added) {
    c.lens = std::move(lens);
    c.added = std::move(added);
    cases.push_back(std::move(c));
  };
  step({.name = "mixed"}, {5, 133, 1, 70, 300}, {5, 33, 1, 70, 2});
  step({.name = "mixed_cached"}, {200, 133, 90, 470, 300}, {5, 33, 1, 130, 2});
  step({.name = "mixed_window", .window = 40}, {200, 133, 90, 470, 300}, {5, 33, 1, 130, 2});
  step({.name = "mixed_softcap", .softcap = 2}, {200, 133, 90}, {5, 33, 1});
  step({.name = "mixed_all_seen", .causal = false}, {200, 133, 90}, {5, 33, 1});
  for (const int64_t dim : {16, 80, 96, 128, 256}) {
    step({.name = fmt::format("mixed_dim{}", dim), .dim = dim}, {100, 133, 90}, {70, 3, 1});
  }
  for (const int64_t group : {1, 2, 4, 8, 17}) {
    step({.name = fmt::format("mixed_wide_group{}", group),
          .heads = group,
          .kv_heads = 1,
          .dim = 512},
         {50, 40, 90}, {20, 3, 1});
  }
  step(latent("mixed", 4, 96, 64, 8), {200, 133, 90, 470, 300}, {5, 33, 1, 60, 2});
  step(latent("mixed_large", 16, 576, 512, 8), {70, 133, 33}, {3, 2, 1});
  step({.name = "mixed_wide_little_memory", .heads = 16, .dim = 512, .shared_bytes = 64 << 10},
       {40, 33}, {11, 3});
  step({.name = "mixed_wide_some_memory", .heads = 8, .dim = 512, .shared_bytes = 99 << 10},
       {50, 60, 90}, {21, 3, 1});
  step({.name = "mixed_wide_window", .dim = 512, .window = 40}, {100, 133, 90}, {5, 1, 71});
  step({.name = "mixed_wide_softcap_all_seen", .dim = 512, .softcap = 2, .causal = false},
       {70, 33, 60}, {5, 33, 1});
  step({.name = "mixed_wide_f16_of_bf16", .type = DType::kF16, .dim = 320, .block = 32},
       {100, 133, 90}, {70, 3, 1});
  step({.name = "mixed_wide_f32", .type = DType::kF32, .cache = DType::kBF16, .dim = 512}, {60, 33},
       {21, 3});
  for (const int64_t group : {1, 3, 7, 17}) {
    step({.name = fmt::format("mixed_group{}", group), .heads = 2 * group, .dim = 32},
         {100, 133, 90}, {70, 3, 1});
  }
  step({.name = "mixed_f32", .type = DType::kF32, .cache = DType::kF32}, {100, 133, 90},
       {70, 3, 1});
  step({.name = "mixed_f16", .type = DType::kF16, .cache = DType::kF16, .dim = 96}, {100, 133, 90},
       {70, 3, 1});
  step({.name = "mixed_convert", .cache = DType::kF16, .block = 32}, {100, 133, 90}, {70, 3, 1});
  step({.name = "mixed_block48", .block = 48}, {100, 133, 90}, {70, 3, 1});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Attention, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// --- writing

struct WriteCase {
  std::string name;
  ir::Op op = ir::Op::kNormRopeKvWrite;
  DType type = DType::kF32, cache = DType::kF32;
  int64_t heads = 5, kv_heads = 2, dim = 64, block = 16;
  int64_t rotary = 64;
  bool interleaved = false;
  float offset = 0, magnitude = 1;
  int64_t extra = 0;  // values between rows, as of a view of a merged linear's output
};
std::ostream& operator<<(std::ostream& out, const WriteCase& c) { return out << c.name; }

class KvWriting : public testing::TestWithParam<WriteCase> {};

TEST_P(KvWriting, NormsRotatesAndWritesWhereSlotsSay) {
  const WriteCase& t = GetParam();
  std::mt19937 random(3);
  const auto value = [&] {
    return static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 1000;
  };
  const int64_t tokens = 5, blocks = 3;
  const ir::Bucket bucket{tokens + 2, 2, 1};
  ir::Graph g;
  g.state_groups.push_back(
      {.name = "global", .dtype = t.cache, .layers = 1, .kv_heads = t.kv_heads, .head_dim = t.dim});
  const auto add = [&](const std::string& name, DType d, ir::Shape shape, ir::ValueKind kind) {
    g.values.push_back({.name = name, .dtype = d, .shape = std::move(shape), .kind = kind});
    return static_cast<ir::ValueId>(g.values.size() - 1);
  };
  using ir::ValueKind;
  const auto q = add("q", t.type, {ir::T(), t.heads, t.dim}, ValueKind::kNode);
  const auto k = add("k", t.type, {ir::T(), t.kv_heads, t.dim}, ValueKind::kNode);
  const auto v = add("v", t.type, {ir::T(), t.kv_heads, t.dim}, ValueKind::kNode);
  const auto q_out = add("q'", t.type, {ir::T(), t.heads, t.dim}, ValueKind::kNode);
  const auto state = add("kv", t.cache, {}, ValueKind::kState);
  g.values.back().group = g.values.back().layer = 0;
  const auto positions = add(ir::kPositions, DType::kI32, {ir::T()}, ValueKind::kInput);
  const auto slots = add(ir::SlotsName(0), DType::kI32, {ir::T()}, ValueKind::kInput);
  const auto wq = add("wq", DType::kF32, {t.dim}, ValueKind::kWeight);
  const auto wk = add("wk", DType::kF32, {t.dim}, ValueKind::kWeight);
  ir::NormAttrs q_norm{1e-5f, t.offset}, k_norm{1e-6f, t.offset};
  ir::RopeAttrs rope{
      .rotary_dim = t.rotary, .interleaved = t.interleaved, .magnitude = t.magnitude};
  for (int64_t i = 0; i < t.rotary / 2; ++i)
    rope.frequencies.push_back(
        std::pow(100.0f, -2.0f * static_cast<float>(i) / static_cast<float>(t.rotary)));
  ir::Node node{.op = t.op, .name = "write"};
  const bool norms = t.op == ir::Op::kNormRopeKvWrite, ropes = t.op != ir::Op::kKvWrite;
  if (!ropes) {
    node.inputs = {state, k, v, slots};
  } else {
    node.inputs = {q, k, v, positions, state, slots};
    node.outputs = {q_out, state};
    node.attrs.v = norms ? ir::FusedAttrs{{{q_norm}, {rope}, {k_norm}, {rope}, {}}}
                         : ir::FusedAttrs{{{rope}, {rope}, {}}};
    if (norms) node.inputs.insert(node.inputs.end(), {wq, wk});
  }
  g.nodes.push_back(node);

  DeviceFacts device;
  device.properties.wave = emulated::WaveSize();
  device.properties.shared_bytes = 64 << 10;
  device.value_type = t.type;
  ASSERT_TRUE(SupportsAttention(g, g.nodes[0], bucket, device));
  const int64_t size = ir::Info(t.type).bytes;
  ir::Plan plan;
  plan.graph = g;
  plan.bucket = bucket;
  plan.memory.places.resize(g.values.size());
  std::map<ir::ValueId, int64_t> offset, stride;
  int64_t arena_bytes = 0;
  for (const auto& [id, heads] :
       {std::pair{q, t.heads}, {k, t.kv_heads}, {v, t.kv_heads}, {q_out, t.heads}}) {
    offset[id] = arena_bytes;
    stride[id] = heads * t.dim + t.extra;
    plan.memory.places[static_cast<size_t>(id)] = {id, arena_bytes, stride[id], 0};
    arena_bytes += (bucket.tokens * stride[id] * size + 63) / 64 * 64;
  }
  Bytes arena(arena_bytes);
  std::map<ir::ValueId, std::vector<float>> rows;
  for (const auto& [id, at] : offset) {
    rows[id].resize(static_cast<size_t>(bucket.tokens * stride[id]));
    for (float& x : rows[id]) x = Rounded(value(), t.type);
    ir::Quantize(t.type, rows[id].data(), arena.at() + at, std::ssize(rows[id]));
  }
  const StepLayout layout(g, bucket);
  Bytes inputs(layout.bytes());
  const auto ints = [&](const std::string& name) {
    return reinterpret_cast<int32_t*>(inputs.at() + layout.OffsetOf(name));
  };
  *reinterpret_cast<Header*>(inputs.at()) = {static_cast<int32_t>(tokens), 1, 1, 1};
  const std::vector<int32_t> slot = {
      static_cast<int32_t>(t.block), -1, 7, static_cast<int32_t>(3 * t.block - 1), 0, 1, 2};
  for (int64_t i = 0; i < bucket.tokens; ++i) {
    ints(ir::SlotsName(0))[i] = slot[static_cast<size_t>(i)];
    ints(ir::kPositions)[i] = static_cast<int32_t>(3 + 9 * i);
  }
  const KvLayer kv = KvLayerOf(g.state_groups[0], t.block);
  Bytes cache(blocks * kv.block_bytes);
  std::vector<float> weights(static_cast<size_t>(2 * t.dim));
  for (float& x : weights) x = value();
  Bindings bindings;
  bindings.weights["wq"] = {weights.data(), DType::kF32, {kVectorLayout, t.dim * 4}};
  bindings.weights["wk"] = {weights.data() + t.dim, DType::kF32, {kVectorLayout, t.dim * 4}};
  bindings.state = {{cache.at()}};
  bindings.state_blocks = {blocks};
  bindings.block_size = t.block;
  bindings.arena = arena.at();
  bindings.inputs = inputs.at();
  std::vector<std::vector<std::byte>> constants;
  std::vector<Launch> launches;
  base::Status status;
  const Context c = {plan,
                     bindings,
                     layout,
                     device,
                     [&](const void* data, int64_t bytes) {
                       const auto* p = static_cast<const std::byte*>(data);
                       constants.emplace_back(p, p + bytes);
                       return base::Result<void*>(constants.back().data());
                     },
                     launches,
                     status};
  CompileAttention(c, 0);
  ASSERT_TRUE(status) << status.error().message;
  RunAll(launches);

  // What a head becomes.
  const auto head = [&](const float* x, int64_t token, const float* w, float eps) {
    std::vector<double> y(x, x + t.dim), z;
    if (norms && w != nullptr) {
      double sum = 0;
      for (const double e : y) sum += e * e;
      for (size_t d = 0; d < y.size(); ++d)
        y[d] *= (w[d] + t.offset) / std::sqrt(sum / static_cast<double>(t.dim) + eps);
    }
    z = y;
    for (size_t i = 0; ropes && w != nullptr && i < rope.frequencies.size(); ++i) {
      const size_t a = t.interleaved ? 2 * i : i,
                   b = t.interleaved ? a + 1 : a + rope.frequencies.size();
      const double angle = static_cast<float>(3 + 9 * token) * rope.frequencies[i];
      z[a] = t.magnitude * (y[a] * std::cos(angle) - y[b] * std::sin(angle));
      z[b] = t.magnitude * (y[b] * std::cos(angle) + y[a] * std::sin(angle));
    }
    return z;
  };
  const auto near = [](const std::vector<double>& want, const float* got, DType type) {
    const double relative = type == DType::kF32 ? 2e-6 : type == DType::kF16 ? 6e-4 : 5e-3;
    for (size_t d = 0; d < want.size(); ++d)
      ASSERT_NEAR(got[d], want[d], relative * std::fabs(want[d]) + 4e-6) << d;
  };
  std::vector<float> got(static_cast<size_t>(bucket.tokens * stride[q_out]));
  ir::Dequantize(t.type, arena.at() + offset[q_out], got.data(), std::ssize(got));
  const int64_t block_values = kv.block_bytes / ir::Info(t.cache).bytes;
  std::vector<float> stored(static_cast<size_t>(blocks * block_values));
  ir::Dequantize(t.cache, cache.at(), stored.data(), std::ssize(stored));
  std::vector<bool> written(stored.size());
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t h = 0; ropes && h < t.heads; ++h) {
      const float* x = &rows[q][static_cast<size_t>(i * stride[q] + h * t.dim)];
      near(head(x, i, weights.data(), q_norm.eps),
           &got[static_cast<size_t>(i * stride[q_out] + h * t.dim)], t.type);
    }
    const int64_t s = slot[static_cast<size_t>(i)];
    if (s < 0) continue;
    for (int64_t h = 0; h < t.kv_heads; ++h) {
      const auto at =
          static_cast<size_t>(s / t.block * block_values + (h * t.block + s % t.block) * t.dim);
      const size_t value_at = at + static_cast<size_t>(block_values / 2);
      const auto from = static_cast<size_t>(i * stride[k] + h * t.dim);
      near(head(&rows[k][from], i, weights.data() + t.dim, k_norm.eps), &stored[at], t.cache);
      near(head(&rows[v][from], i, nullptr, 0), &stored[value_at], t.cache);
      std::fill_n(written.begin() + static_cast<long>(at), t.dim, true);
      std::fill_n(written.begin() + static_cast<long>(value_at), t.dim, true);
    }
  }
  for (size_t i = 0; i < stored.size(); ++i) ASSERT_TRUE(written[i] || stored[i] == 0) << i;
  for (int64_t i = 0; i < bucket.tokens; ++i) {  // what is between rows, and rows of padding
    for (int64_t d = i < tokens && ropes ? t.heads * t.dim : 0; d < stride[q_out]; ++d) {
      const auto at = static_cast<size_t>(i * stride[q_out] + d);
      ASSERT_EQ(got[at], rows[q_out][at]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KvWriting,
    testing::Values(WriteCase{.name = "plain"},
                    WriteCase{.name = "bf16", .type = DType::kBF16, .cache = DType::kBF16},
                    WriteCase{.name = "f16_into_f32", .type = DType::kF16},
                    WriteCase{.name = "f32_into_bf16", .cache = DType::kBF16},
                    WriteCase{.name = "f32_into_f16", .cache = DType::kF16, .block = 32},
                    WriteCase{.name = "interleaved", .interleaved = true},
                    WriteCase{.name = "part_is_rotated", .dim = 80, .rotary = 20},
                    WriteCase{
                        .name = "part_interleaved", .dim = 96, .rotary = 24, .interleaved = true},
                    WriteCase{.name = "wide", .dim = 256, .rotary = 256, .offset = 1},
                    WriteCase{.name = "widest", .dim = 512, .rotary = 128},
                    WriteCase{.name = "magnitude", .dim = 128, .rotary = 128, .magnitude = 1.3f},
                    WriteCase{.name = "narrow", .dim = 16, .rotary = 16},
                    WriteCase{.name = "rows_apart", .extra = 48},
                    WriteCase{.name = "rows_on_odd_addresses", .type = DType::kBF16, .extra = 3},
                    WriteCase{.name = "without_norm", .op = ir::Op::kRopeKvWrite, .rotary = 32},
                    WriteCase{.name = "only_written", .op = ir::Op::kKvWrite},
                    WriteCase{.name = "only_written_bf16_into_f16",
                              .op = ir::Op::kKvWrite,
                              .type = DType::kBF16,
                              .cache = DType::kF16,
                              .dim = 112}),
    [](const auto& info) { return info.param.name; });

// --- a cache of E4M3, which no graph asks for yet: written, then read one key at a time, of which
// the value is the result.

double E4M3(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return bits & 0x80 ? -size : size;
}
double NearestE4M3(float v) {
  int best = 0;
  for (int bits = 0; bits < 0x7f; ++bits) {  // ties to the even mantissa
    const double now = std::fabs(E4M3(bits) - std::fabs(v)),
                 then = std::fabs(E4M3(best) - std::fabs(v));
    if (now < then || (now == then && bits % 2 == 0)) best = bits;
  }
  return std::copysign(E4M3(best), v);
}

TEST(KvOfEightBits, KeepsTheNearestValue) {
  constexpr int kSlots = 16, kDim = 16;
  Header header = {kSlots, 1, 1, 1};
  std::vector<float> values;
  for (int bits = 0; bits < 0x7f; ++bits) {  // every value, halfway to the next, and just beyond
    const double low = E4M3(bits), middle = bits == 0x7e ? 460 : (low + E4M3(bits + 1)) / 2;
    values.push_back(static_cast<float>(bits % 3 == 0 ? -low : low));
    values.push_back(static_cast<float>(bits % 5 == 0 ? -middle : middle));
  }
  values.push_back(std::nextafter(static_cast<float>((E4M3(40) + E4M3(41)) / 2), 0.0f));
  values.push_back(1e9f);
  ASSERT_EQ(values.size(), kSlots * kDim);
  Bytes cache(2 * kSlots * kDim), query(kSlots * kDim * 4), out(kSlots * kDim * 4);
  std::vector<int32_t> slots(kSlots);
  for (int i = 0; i < kSlots; ++i) slots[static_cast<size_t>(i)] = i;
  KvLayer kv = {reinterpret_cast<char*>(cache.at()), 2 * kSlots * kDim, kSlots, 1, kDim, kKvF8};
  const Rows rows = {values.data(), kDim, 1, kDim};
  const auto launch = [](const std::string& name, const auto& args, int64_t blocks, int64_t bytes) {
    Launch l;
    l.kernel = name;
    l.config.grid_x = static_cast<unsigned>(blocks);
    l.config.threads = static_cast<unsigned>(4 * emulated::WaveSize());
    l.config.shared_bytes = static_cast<unsigned>(bytes);
    l.args.resize(sizeof args);
    std::memcpy(l.args.data(), &args, sizeof args);
    RunAll({l});
  };
  KvWriteArgs write;
  write.header = &header;
  write.k = write.v = rows;
  write.kv = kv;
  write.slots = slots.data();
  launch("kv_write_f32", write, kSlots, 4 * kDim * 4);

  std::vector<DecodeItem> items;
  for (int i = 0; i < kSlots; ++i) items.push_back({i, 0, i, i + 1, 0, 1, 0, 0});
  std::vector<int32_t> lanes = {0, kSlots}, table = {0}, counters = {0};
  AttentionArgs read;
  read.header = &header;
  read.list = {.items = items.data(), .lane_begin = lanes.data(), .lanes = 1};
  read.q = {query.at(), kDim, 1, kDim};
  read.out = {out.at(), kDim, 1, kDim};
  read.kv = kv;
  read.block_table = table.data();
  read.block_shift = 4;
  read.counters = counters.data();
  launch("attention_decode_convert_d64_f32", read, 1,
         DecodeQueryBytes(64, 4) + 4 * DecodeWaveBytes(64, 4, false));
  const auto* got = reinterpret_cast<const float*>(out.at());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(got[i], NearestE4M3(values[i])) << "of " << values[i];
}

}  // namespace
}  // namespace vt::gpu
