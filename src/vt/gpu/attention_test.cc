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
#include "vt/gpu/context.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
namespace {

using ir::DType;

struct Case {
  std::string name;
  DType type = DType::kBF16, cache = DType::kBF16;
  int64_t heads = 4, kv_heads = 2, dim = 64, block = 16;
  float softcap = 0;
  int64_t window = 0;
  bool causal = true;
  std::vector<int64_t> lens, added;  // of each request: tokens in the cache, and of this step
  int units = 4;                     // multiprocessors: more than a few cut requests into parts
  int64_t shared_bytes = 200 << 10;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

struct Bytes {
  std::vector<std::byte> data;
  explicit Bytes(int64_t size) : data(static_cast<size_t>(size + 16)) {}
  std::byte* at() {
    return data.data() + (16 - reinterpret_cast<uintptr_t>(data.data()) % 16) % 16;
  }
};

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
  const auto out = add("out", t.type, {ir::T(), t.heads * t.dim}, ValueKind::kNode);
  ir::AttentionAttrs attrs{.heads = t.heads, .kv_heads = t.kv_heads, .head_dim = t.dim};
  attrs.scale = 1 / std::sqrt(static_cast<float>(t.dim));
  attrs.softcap = t.softcap;
  attrs.window = t.window;
  attrs.causal = t.causal;
  g.nodes.push_back({.op = ir::Op::kAttention,
                     .name = "attention",
                     .inputs = {q, state, positions, start, lens, table},
                     .outputs = {out},
                     .attrs = {attrs}});

  DeviceFacts device;
  device.properties.units = t.units;
  device.properties.wave = emulated::WaveSize();
  device.properties.shared_bytes = t.shared_bytes;
  device.value_type = t.type;
  ASSERT_TRUE(SupportsAttention(g, g.nodes[0], bucket, device));

  // The arena: q, out, workspace.
  const int64_t size = ir::Info(t.type).bytes, row = t.heads * t.dim;
  ir::Plan plan;
  plan.bucket = bucket;
  plan.memory.places.resize(g.values.size());
  const int64_t out_at = (bucket.tokens * row * size + 255) / 256 * 256;
  plan.memory.places[static_cast<size_t>(q)] = {q, 0, row, out_at};
  plan.memory.places[static_cast<size_t>(out)] = {out, out_at, row, out_at};
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

  Bindings bindings;
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
  CompileAttention(c, 0);  // a second layer: counters must be as they were
  ASSERT_TRUE(status) << status.error().message;
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& l = launches[i];
    const emulated::Kernel* k = emulated::FindKernel(l.kernel.c_str());
    ASSERT_NE(k, nullptr) << l.kernel;
    ASSERT_EQ(k->args_bytes, l.args.size());
    const emulated::Shape shape{
        static_cast<int>(l.config.grid_x), static_cast<int>(l.config.grid_y),
        static_cast<int>(l.config.threads), static_cast<int>(l.config.shared_bytes)};
    status = emulated::CheckShape(*k, shape);
    ASSERT_TRUE(status) << status.error().message;
    status = emulated::BlockRunner().Run(*k, l.args.data(), shape, i);
    ASSERT_TRUE(status) << status.error().message;
  }

  std::vector<float> got(static_cast<size_t>(tokens * row));
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
          return &cache[static_cast<size_t>(block * block_values + half * block_values / 2 +
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
        for (double& v : p) sum += v = std::exp(v - high);
        double worst = 0, most = 0;
        for (int64_t d = 0; d < t.dim; ++d) {
          double want = 0;
          for (int64_t key = first; key < last; ++key)
            want += p[static_cast<size_t>(key - first)] / sum * cached(key, 1)[d];
          const float v = got[static_cast<size_t>(token * row + h * t.dim + d)];
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
  decode({.name = "softcap", .softcap = 1.5f, .units = 16}, lengths(4, 900));
  decode({.name = "window_without_causal", .window = 9, .causal = false}, {20, 40});

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

}  // namespace
}  // namespace vt::gpu
