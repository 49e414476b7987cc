// The gated delta rule on the emulated device: long pieces in chunks, short ones token by token,
// against the formula over thousands of tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/args_recurrent.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/kernel_testing.h"
#include "vt/ir/evaluate_hybrid.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
namespace {

using ir::DType;

// Values of a type, on a multiple of 16 bytes.
class Values {
 public:
  Values(DType type, int64_t count)
      : type_(type), packs_(static_cast<size_t>(ir::Bytes(type, count) / 16 + 1)) {}
  void* data() { return packs_.data(); }
  void* at(int64_t i) { return reinterpret_cast<std::byte*>(packs_.data()) + ir::Bytes(type_, i); }
  void set(int64_t i, float f) { ir::Quantize(type_, &f, at(i), 1); }
  float get(int64_t i) {
    float f = 0;
    ir::Dequantize(type_, at(i), &f, 1);
    return f;
  }

 private:
  struct alignas(16) Pack {
    std::byte bytes[16];
  };
  DType type_;
  std::vector<Pack> packs_;
};

// A request, from beginning to end.
struct Sequence {
  int64_t tokens = 0;
  std::vector<float> qkv, a, b, y, state;
};

struct Layer {
  ir::DeltaAttrs attrs;
  DType type = DType::kF32;
  std::vector<float> rate, dt;
  std::vector<Sequence> sequences;

  // As the type holds them, so that the formula sees the same.
  std::vector<float> Normal(int64_t n, std::mt19937& random, float scale, float middle) const {
    std::normal_distribution<float> normal(middle, scale);
    Values rounded(type, 1);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) {
      rounded.set(0, normal(random));
      x = rounded.get(0);
    }
    return v;
  }

  // Heads that remember long, so that errors would have time to grow, and some that do not.
  Layer(const ir::DeltaAttrs& d, DType t, const std::vector<int64_t>& lengths) : attrs(d), type(t) {
    std::mt19937 random(7);
    for (int64_t h = 0; h < d.v_heads; ++h) {
      rate.push_back(static_cast<float>(h) - 2);
      dt.push_back(0.1f * static_cast<float>(h));
    }
    for (const int64_t n : lengths) {
      sequences.push_back({.tokens = n,
                           .qkv = Normal(n * d.channels(), random, 1, 0.2f),
                           .a = Normal(n * d.v_heads, random, 1, -5),
                           .b = Normal(n * d.v_heads, random, 1, 0),
                           .y = {},
                           .state = {}});
    }
  }

  Sequence Formula(const Sequence& s) const {
    const auto tensor = [](std::vector<int64_t> shape, std::vector<float> f,
                           std::vector<int32_t> i) {
      ir::Tensor t{.shape = {}, .f = std::move(f), .i = std::move(i)};
      for (const int64_t d : shape) t.shape.emplace_back(d);
      return t;
    };
    const int64_t h = attrs.v_heads;
    const ir::Tensor qkv = tensor({s.tokens, attrs.channels()}, s.qkv, {}),
                     a = tensor({s.tokens, h}, s.a, {}), b = tensor({s.tokens, h}, s.b, {}),
                     rates = tensor({h}, rate, {}), dts = tensor({h}, dt, {}),
                     starts = tensor({2}, {}, {0, static_cast<int32_t>(s.tokens)}),
                     read = tensor({1}, {}, {-1}), write = tensor({1}, {}, {0});
    ir::KvState state;
    auto y =
        ir::GatedDelta(attrs, {&qkv, &a, &b, &rates, &dts, nullptr, &starts, &read, &write}, state);
    EXPECT_TRUE(y);
    return {.tokens = s.tokens,
            .qkv = {},
            .a = {},
            .b = {},
            .y = (*y)[0].f,
            .state = state.recurrent.at(0)};
  }

  // Step s takes cuts[r][s] tokens of sequence r. States go from one slot to another and back.
  std::vector<Sequence> Run(const std::vector<std::vector<int64_t>>& cuts) const {
    const int64_t requests = static_cast<int64_t>(sequences.size()), floats = attrs.state_floats();
    const int64_t h = attrs.v_heads, inner = h * attrs.v_dim;
    std::vector<Sequence> done(sequences.size());
    Values slots(DType::kF32, 2 * requests * floats);
    size_t steps = 0;
    for (const auto& c : cuts) steps = std::max(steps, c.size());
    for (size_t s = 0; s < steps; ++s) {
      std::vector<int32_t> starts = {0}, reads, writes;
      for (size_t r = 0; r < cuts.size(); ++r) {
        const int64_t count = s < cuts[r].size() ? cuts[r][s] : 0;
        const auto slot = static_cast<int32_t>(2 * r + s % 2);
        starts.push_back(starts.back() + static_cast<int32_t>(count));
        reads.push_back(s == 0 ? -1 : slot);
        writes.push_back(static_cast<int32_t>(2 * r + (s + 1) % 2));
      }
      const int64_t tokens = starts.back();
      Values qkv(type, tokens * attrs.channels()), a(type, tokens * h), b(type, tokens * h),
          y(type, tokens * inner);
      for (size_t r = 0; r < cuts.size(); ++r) {
        const int64_t from = done[r].tokens, first = starts[r];
        const auto copy = [&](Values& to, const std::vector<float>& all, int64_t width) {
          for (int64_t i = 0; i < (starts[r + 1] - first) * width; ++i)
            to.set(first * width + i, all[static_cast<size_t>(from * width + i)]);
        };
        copy(qkv, sequences[r].qkv, attrs.channels());
        copy(a, sequences[r].a, h);
        copy(b, sequences[r].b, h);
      }
      const Header header{static_cast<int32_t>(tokens), static_cast<int32_t>(requests), 0, 0};
      DeltaArgs d;
      d.header = &header;
      d.state = {.data = static_cast<float*>(slots.data()),
                 .slot_floats = floats,
                 .slots = static_cast<int32_t>(2 * requests),
                 .query_start = starts.data(),
                 .read = reads.data(),
                 .write = writes.data()};
      const auto rows = [](Values& v, int64_t width) {
        return Rows{v.data(), width, 1, static_cast<int32_t>(width)};
      };
      d.qkv = rows(qkv, attrs.channels());
      d.a = rows(a, h);
      d.b = rows(b, h);
      d.y = rows(y, attrs.v_dim);
      d.big_a = rate.data();
      d.dt = dt.data();
      d.k_heads = static_cast<int32_t>(attrs.k_heads);
      d.v_heads = static_cast<int32_t>(h);
      d.k_dim = static_cast<int32_t>(attrs.k_dim);
      d.v_dim = static_cast<int32_t>(attrs.v_dim);
      d.tiled = attrs.tiled ? 1 : 0;
      d.eps = attrs.eps;
      Launch(d, tokens);
      for (size_t r = 0; r < cuts.size(); ++r) {
        for (int64_t i = starts[r] * inner; i < starts[r + 1] * inner; ++i)
          done[r].y.push_back(y.get(i));
        done[r].tokens += starts[r + 1] - starts[r];
        const int64_t slot = writes[r];
        done[r].state.clear();
        for (int64_t i = 0; i < floats; ++i) done[r].state.push_back(slots.get(slot * floats + i));
      }
    }
    return done;
  }

  // As the nodes' compiler does it (recurrent_steps.cc), for a bucket of more tokens and requests.
  void Launch(DeltaArgs d, int64_t tokens) const {
    const int bytes = ir::Info(type).bytes, bucket = static_cast<int>(tokens) + 40;
    DeltaChunkArgs chunks;
    chunks.delta = d;
    chunks.slot_bytes = d.v_heads * DeltaHeadBytes(bytes) + d.k_heads * DeltaKeyBytes(bytes);
    const int slots = (bucket + kDeltaSlotTokens - 1) / kDeltaSlotTokens;
    Values work(DType::kF32, slots * chunks.slot_bytes / 4);
    chunks.work = static_cast<char*>(work.data());
    RunKernel("delta_begin", chunks,
              {.grid_x = slots,
               .grid_y = d.v_heads,
               .threads = kDeltaChunkThreads,
               .shared_bytes = kDeltaBeginShared});
    const int pieces = (d.v_dim + kDeltaChunkColumns - 1) / kDeltaChunkColumns;
    RunKernel("delta_chunks", chunks,
              {.grid_x = d.v_heads * pieces,
               .grid_y = (bucket + kDeltaChunk - 1) / kDeltaChunk,
               .threads = kDeltaChunkThreads,
               .shared_bytes = static_cast<int>(DeltaChunkShared(bytes))});
    d.most_tokens = kDeltaChunk;
    const int waves = d.v_heads * ((d.v_dim + kDeltaColumns - 1) / kDeltaColumns);
    const int a_block = kDeltaThreads / emulated::WaveSize();
    RunKernel("gated_delta_d128", d,
              {.grid_x = (waves + a_block - 1) / a_block,
               .grid_y = d.header->requests + 2,
               .threads = kDeltaThreads});
  }

  template <class Args>
  void RunKernel(const std::string& kernel, const Args& args, const emulated::Shape& shape) const {
    kernel_testing::RunKernel(kernel + "_" + std::string(ir::Name(type)), args, shape);
  }
};

double LargestError(const std::vector<float>& got, const std::vector<float>& want) {
  double largest = 0, error = 0;
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    const double e = std::fabs(static_cast<double>(got[i]) - want[i]);
    error = e <= error ? error : e;  // NaN too
  }
  return error / largest;
}

void ExpectFormula(const Layer& layer, const std::vector<std::vector<int64_t>>& cuts,
                   double bound) {
  const std::vector<Sequence> got = layer.Run(cuts);
  for (size_t r = 0; r < got.size(); ++r) {
    SCOPED_TRACE(fmt::format("sequence {} of {}", r, ir::Name(layer.type)));
    const Sequence want = layer.Formula(layer.sequences[r]);
    ASSERT_EQ(got[r].tokens, want.tokens);
    EXPECT_LE(LargestError(got[r].y, want.y), bound);
    EXPECT_LE(LargestError(got[r].state, want.state), bound);
  }
}

const ir::DeltaAttrs kSmall = {.k_heads = 1, .v_heads = 2, .k_dim = 32, .v_dim = 24};

TEST(GatedDeltaChunks, AgreeWithTheFormulaOverThousandsOfTokens) {
  ExpectFormula(Layer(kSmall, DType::kF32, {4096}), {{4096}}, 1e-4);
  ExpectFormula(Layer(kSmall, DType::kBF16, {4096}), {{4096}}, 8e-3);
  ExpectFormula(Layer(kSmall, DType::kF16, {4096}), {{4096}}, 1e-3);
}

// Chunks begin where a piece does, wherever that is in the request and in the step.
TEST(GatedDeltaChunks, AgreeWithTheFormulaHoweverRequestsAreCutAndMixed) {
  const std::vector<std::vector<int64_t>> cuts = {
      {65, 1, 200, 64}, {3, 127, 1, 66}, {1, 1, 64, 63}, {128, 0, 65, 1}};
  const std::vector<int64_t> lengths = {330, 197, 129, 194};
  ir::DeltaAttrs d = {.k_heads = 2, .v_heads = 4, .k_dim = 64, .v_dim = 40};
  ExpectFormula(Layer(d, DType::kBF16, lengths), cuts, 8e-3);
  d.tiled = true;
  ExpectFormula(Layer(d, DType::kF32, lengths), cuts, 1e-4);
}

// Who else is in a step must not matter to a request, bit for bit.
TEST(GatedDeltaChunks, GiveARequestTheSameBitsAloneAndAmongOthers) {
  const Layer three(kSmall, DType::kBF16, {150, 70, 9});
  Layer alone = three;
  alone.sequences.erase(alone.sequences.begin());
  alone.sequences.pop_back();
  const std::vector<Sequence> among = three.Run({{150}, {70}, {9}}), by_itself = alone.Run({{70}});
  EXPECT_EQ(among[1].y, by_itself[0].y);
  EXPECT_EQ(among[1].state, by_itself[0].state);
}

}  // namespace
}  // namespace vt::gpu
