// Attention that writes the step's own keys and values, at contexts where its blocks regroup
// (attention_long.h) and just short of it: held to the writing and the reading in launches of their
// own, which other tests hold to plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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
  int64_t heads = 8, kv_heads = 1, dim = 256;
  std::vector<int64_t> lens;  // of requests, with the step's token
  bool norms = true, sinks = false;
  float softcap = 0;
  int64_t window = 0;
  DType type = DType::kBF16;
  int long_tokens = 1;
  int units = 0;  // of the device; 0: a head a block, and lanes enough for parts
  int64_t shared_bytes = 200 << 10;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class LongAttention : public testing::TestWithParam<Case> {
 protected:
  struct Result {
    std::vector<float> out, cache;
    int long_tokens = 0;
    std::string kernel;
  };

  std::vector<float> Some(int64_t n, float size, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v)
      x = size * static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 2000;
    return v;
  }

  // The step in one launch a layer, of which there are two, or in two launches.
  Result Step(bool fused) const {
    const Case& t = GetParam();
    const auto requests = std::ssize(t.lens), tokens = requests;
    constexpr int64_t kBlock = 16;
    const int64_t stride = *std::max_element(t.lens.begin(), t.lens.end()) / kBlock + 2;
    const ir::Bucket bucket{tokens, requests, 1};
    ir::Graph g;
    g.state_groups.push_back({.name = "global",
                              .dtype = t.type,
                              .layers = 1,
                              .kv_heads = t.kv_heads,
                              .head_dim = t.dim});
    using ir::ValueKind;
    const auto add = [&](const std::string& name, DType d, ir::Shape shape, ValueKind kind) {
      g.values.push_back({.name = name, .dtype = d, .shape = std::move(shape), .kind = kind});
      return static_cast<ir::ValueId>(g.values.size() - 1);
    };
    const auto q = add("q", t.type, {ir::T(), t.heads, t.dim}, ValueKind::kNode);
    const auto k = add("k", t.type, {ir::T(), t.kv_heads, t.dim}, ValueKind::kNode);
    const auto v = add("v", t.type, {ir::T(), t.kv_heads, t.dim}, ValueKind::kNode);
    const auto turned = add("q'", t.type, {ir::T(), t.heads, t.dim}, ValueKind::kNode);
    const auto out = add("out", t.type, {ir::T(), t.heads * t.dim}, ValueKind::kNode);
    const auto state = add("kv", t.type, {}, ValueKind::kState);
    g.values.back().group = g.values.back().layer = 0;
    const auto positions = add(ir::kPositions, DType::kI32, {ir::T()}, ValueKind::kInput);
    const auto slots = add(ir::SlotsName(0), DType::kI32, {ir::T()}, ValueKind::kInput);
    const auto start =
        add(ir::kQueryStart, DType::kI32, {ir::Dim(1, ir::Sym::kRequests, 1)}, ValueKind::kInput);
    const auto lens = add(ir::kSeqLens, DType::kI32, {ir::R()}, ValueKind::kInput);
    const auto table =
        add(ir::BlockTableName(0), DType::kI32, {ir::R(), stride}, ValueKind::kInput);
    const auto wq = add("wq", DType::kF32, {t.dim}, ValueKind::kWeight);
    const auto wk = add("wk", DType::kF32, {t.dim}, ValueKind::kWeight);
    const auto sinks = add("sinks", DType::kF32, {t.heads}, ValueKind::kWeight);

    const ir::NormAttrs norm{1e-6f, 0};
    ir::RopeAttrs rope;
    rope.rotary_dim = t.dim / 2;
    for (int64_t i = 0; i < t.dim / 4; ++i)
      rope.frequencies.push_back(
          std::pow(100.0f, -4.0f * static_cast<float>(i) / static_cast<float>(t.dim)));
    ir::AttentionAttrs attention{.heads = t.heads, .kv_heads = t.kv_heads, .head_dim = t.dim};
    attention.scale = 1 / std::sqrt(static_cast<float>(t.dim));
    attention.softcap = t.softcap;
    attention.window = t.window;
    attention.sinks = t.sinks;
    std::vector<ir::ValueId> written = {q, k, v, positions, state, slots};
    if (t.norms) written.insert(written.end(), {wq, wk});
    std::vector<ir::ValueId> read = {start, lens, table};
    if (t.sinks) read.push_back(sinks);
    std::vector<ir::Attrs> parts = {{norm}, {rope}, {norm}, {rope}, {}};
    if (!t.norms) parts = {{rope}, {rope}, {}};
    if (fused) {
      parts.push_back({attention});
      written.insert(written.end(), read.begin(), read.end());
      g.nodes.push_back({.op = t.norms ? ir::Op::kNormRopeAttention : ir::Op::kRopeAttention,
                         .name = "attention",
                         .inputs = written,
                         .outputs = {out, state},
                         .attrs = {ir::FusedAttrs{parts}}});
      g.nodes.push_back(g.nodes.back());  // which finds the list there
    } else {
      g.nodes.push_back({.op = t.norms ? ir::Op::kNormRopeKvWrite : ir::Op::kRopeKvWrite,
                         .name = "write",
                         .inputs = written,
                         .outputs = {turned, state},
                         .attrs = {ir::FusedAttrs{parts}}});
      read.insert(read.begin(), {turned, state, positions});
      g.nodes.push_back({.op = ir::Op::kAttention,
                         .name = "attention",
                         .inputs = read,
                         .outputs = {out},
                         .attrs = {attention}});
    }

    DeviceFacts device;
    device.properties.units =
        t.units > 0 ? t.units : static_cast<int>(std::max<int64_t>(2 * tokens, 6) * t.heads);
    device.properties.wave = emulated::WaveSize();
    device.properties.shared_bytes = t.shared_bytes;
    device.value_type = t.type;
    device.long_blocks = 0;
    device.long_heads = 2;
    for (const ir::Node& n : g.nodes) EXPECT_TRUE(SupportsAttention(g, n, bucket, device));

    ir::Plan plan;
    plan.graph = g;
    plan.bucket = bucket;
    plan.memory.places.resize(g.values.size());
    int64_t at = 0;
    const auto place = [&](ir::ValueId id, int64_t row) {
      plan.memory.places[static_cast<size_t>(id)] = {id, at, row, 0};
      at += (tokens * row * 2 + 255) / 256 * 256;
    };
    for (const auto id : {q, turned, out}) place(id, t.heads * t.dim);
    for (const auto id : {k, v}) place(id, t.kv_heads * t.dim);
    plan.workspace_offset = at;
    plan.workspace_bytes = AttentionWorkspace(g, bucket, device);
    Bytes arena(at + plan.workspace_bytes, std::byte{0xff});
    const std::vector<float> ks = Some(tokens * t.kv_heads * t.dim, 2, 1),
                             vs = Some(std::ssize(ks), 2, 2);
    std::vector<float> qs = Some(tokens * t.heads * t.dim, 4, 3);
    // Every other head looks for its token's own key, which else would hardly count.
    for (int64_t i = 0; i < std::ssize(qs); ++i) {
      const int64_t row = i / t.dim, head = row % t.heads / (t.heads / t.kv_heads);
      if (row % 2 == 0)
        qs[static_cast<size_t>(i)] =
            ks[static_cast<size_t>((row / t.heads * t.kv_heads + head) * t.dim + i % t.dim)];
    }
    for (const auto& [id, values] :
         {std::pair<ir::ValueId, const std::vector<float>*>{q, &qs}, {k, &ks}, {v, &vs}}) {
      std::byte* to = arena.at() + plan.memory.places[static_cast<size_t>(id)].offset;
      ir::Quantize(t.type, values->data(), to, std::ssize(*values));
    }

    const StepLayout layout(g, bucket);
    Bytes inputs(layout.bytes(), std::byte{0xff});
    const auto ints = [&](const std::string& name) {
      return reinterpret_cast<int32_t*>(inputs.at() + layout.OffsetOf(name));
    };
    *reinterpret_cast<Header*>(inputs.at()) = {static_cast<int32_t>(tokens),
                                               static_cast<int32_t>(requests), 1,
                                               static_cast<int32_t>(stride)};
    const KvLayer kv = KvLayerOf(g.state_groups[0], kBlock);
    const int64_t blocks = requests * stride + 1;
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), std::mt19937{7});
    for (int64_t r = 0; r < requests; ++r) {
      const auto len = static_cast<int32_t>(t.lens[static_cast<size_t>(r)]);
      ints(ir::kQueryStart)[r] = static_cast<int32_t>(r);
      ints(ir::kSeqLens)[r] = len;
      ints(ir::kPositions)[r] = len - 1;
      for (int64_t b = 0; b < stride; ++b)
        ints(ir::BlockTableName(0))[r * stride + b] = order[static_cast<size_t>(r * stride + b)];
      ints(ir::SlotsName(0))[r] = static_cast<int32_t>(
          ints(ir::BlockTableName(0))[r * stride + (len - 1) / kBlock] * kBlock +
          (len - 1) % kBlock);
    }
    ints(ir::kQueryStart)[requests] = static_cast<int32_t>(requests);

    std::vector<float> cache = Some(blocks * kv.block_bytes / 2, 2, 9);
    // What this step writes is not there yet.
    for (int64_t i = 0; i < std::ssize(cache); ++i) {
      const int64_t slot = i / (kv.block_bytes / 2) * kBlock + i / t.dim % kBlock;
      const int32_t* mine = ints(ir::SlotsName(0));
      if (std::find(mine, mine + requests, slot) != mine + requests)
        cache[static_cast<size_t>(i)] = std::nanf("");
    }
    Bytes stored(blocks * kv.block_bytes, std::byte{0xff});
    ir::Quantize(t.type, cache.data(), stored.at(), std::ssize(cache));

    std::vector<float> q_weight = Some(t.dim, 2, 20), k_weight = q_weight,
                       sink = Some(t.heads, 4, 22);
    Bindings bindings;
    bindings.weights["wq"] = {q_weight.data(), DType::kF32, {kVectorLayout, t.dim * 4}};
    bindings.weights["wk"] = {k_weight.data(), DType::kF32, {kVectorLayout, t.dim * 4}};
    bindings.weights["sinks"] = {sink.data(), DType::kF32, {kVectorLayout, t.heads * 4}};
    bindings.state = {{stored.at()}};
    bindings.state_blocks = {blocks};
    bindings.block_size = kBlock;
    bindings.arena = arena.at();
    bindings.inputs = inputs.at();
    std::vector<Bytes> constants;
    std::vector<Launch> launches;
    base::Status status;
    const Context c = {plan,
                       bindings,
                       layout,
                       device,
                       [&](const void* data, int64_t bytes) {
                         constants.emplace_back(bytes);
                         std::memcpy(constants.back().at(), data, static_cast<size_t>(bytes));
                         return base::Result<void*>(constants.back().at());
                       },
                       launches,
                       status};
    CompileStepBegin(c);
    CompileAttention(c, 0);
    CompileAttention(c, 1);
    EXPECT_TRUE(status) << status.error().message;
    RunAll(launches);

    Result result;
    result.kernel = launches.back().kernel;
    AttentionBeginArgs begin;
    std::memcpy(&begin, launches[0].args.data(), sizeof begin);
    const AttentionList& list = begin.lists[0].list;
    for (int32_t i = 0; i < list.lane_begin[list.lanes]; ++i)
      result.long_tokens += list.items[i].cached < 0 && list.items[i].part == 0 ? 1 : 0;
    result.out.resize(static_cast<size_t>(tokens * t.heads * t.dim));
    ir::Dequantize(t.type, arena.at() + plan.memory.places[static_cast<size_t>(out)].offset,
                   result.out.data(), std::ssize(result.out));
    result.cache.resize(cache.size());
    ir::Dequantize(t.type, stored.at(), result.cache.data(), std::ssize(cache));
    return result;
  }
};

TEST_P(LongAttention, IsWhatWritingAndReadingGive) {
  const Case& t = GetParam();
  const Result one = Step(true), two = Step(false);
  EXPECT_EQ(one.long_tokens, t.long_tokens);
  EXPECT_EQ(two.long_tokens, t.long_tokens);
  const bool has_room = t.shared_bytes >= 200 << 10;
  const std::string kernel =
      fmt::format("attention_row{}_l{}_r1", has_room ? "_long" : "", t.dim / 8);
  for (const Result& r : {one, two}) EXPECT_TRUE(r.kernel.starts_with(kernel)) << r.kernel;
  const float unit = t.type == DType::kBF16 ? 0x1p-8f : 0x1p-11f;
  for (size_t i = 0; i < two.cache.size(); ++i)
    ASSERT_NEAR(one.cache[i], two.cache[i], unit * std::fabs(two.cache[i])) << i;
  // One of them rounds q between its rotation and the product, the other the weights of keys.
  for (size_t row = 0; row < two.out.size(); row += static_cast<size_t>(t.dim)) {
    float most = 0.1f;
    for (size_t d = 0; d < static_cast<size_t>(t.dim); ++d)
      most = std::max(most, std::fabs(two.out[row + d]));
    for (size_t d = 0; d < static_cast<size_t>(t.dim); ++d)
      ASSERT_NEAR(one.out[row + d], two.out[row + d], 3 * unit * most) << row << " " << d;
  }
}

constexpr int64_t kEnough = 6 * LongKeys(32);

INSTANTIATE_TEST_SUITE_P(
    All, LongAttention,
    testing::Values(
        Case{.name = "long", .lens = {kEnough + 90}},
        Case{.name = "not_long", .lens = {kEnough}, .long_tokens = 0},
        Case{.name = "key_begins_a_part", .lens = {5 * (LongKeys(32) + 64) + 1}},
        Case{.name = "group7", .heads = 14, .kv_heads = 2, .lens = {kEnough + 200}},
        Case{.name = "group12", .heads = 12, .lens = {kEnough + 200}},
        Case{.name = "dim128", .heads = 4, .dim = 128, .lens = {6 * LongKeys(16) + 300}},
        Case{.name = "dim64", .heads = 4, .dim = 64, .lens = {6 * LongKeys(8) + 300}},
        Case{.name = "f16", .heads = 4, .lens = {kEnough + 90}, .type = DType::kF16},
        Case{.name = "without_norm", .heads = 4, .lens = {kEnough + 90}, .norms = false},
        Case{.name = "sinks", .heads = 4, .lens = {kEnough + 90}, .sinks = true},
        Case{.name = "softcap", .heads = 4, .lens = {kEnough + 90}, .softcap = 2},
        Case{.name = "window", .heads = 4, .lens = {kEnough + 900}, .window = kEnough + 90},
        Case{.name = "beside_short", .heads = 4, .lens = {40, 2 * kEnough, 1}},
        // As many parts of a token as there are multiprocessors, for eight heads or for one.
        Case{.name = "no_room",
             .heads = 4,
             .dim = 64,
             .lens = {6 * LongKeys(8) + 300},
             .long_tokens = 0,
             .units = 600,
             .shared_bytes = 9 << 10},
        Case{.name = "two", .heads = 2, .lens = {3000, 2 * kEnough}, .long_tokens = 2}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vt::gpu
