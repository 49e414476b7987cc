// Every family's plan for a device that has all fused ops, and what a step launches on a known
// card: on no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "base/os/file.h"
#include "base/strings.h"
#include "model_golden.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/models/registry.h"
#include "vllm/weights/checkpoint.h"
#include "vt/gpu/target.h"
#include "vt/ir/builder.h"
#include "vt/ir/passes.h"

namespace vllm::testing {
namespace {

using vt::ir::DType;
using vt::ir::Graph;
using vt::ir::Node;
using vt::ir::Op;

// Has every kernel, and wants int8 blocks beside quantised weights.
class AnyTarget : public vt::ir::Target {
 public:
  std::string TargetName() const override { return "any"; }
  bool Supports(const Graph&, const Node&, const vt::ir::Bucket&) const override { return true; }
  int64_t Launches(const vt::ir::Plan& plan) const override { return CountComputed(plan); }
  DType ValueType() const override { return DType::kF32; }
  DType ActivationFormat(DType weight, const vt::ir::Bucket&) const override {
    return vt::ir::IsQuantised(weight) ? DType::kQ8_A32 : DType::kF32;
  }
  vt::ir::WeightLayout LayoutFor(DType format, int64_t rows, int64_t columns,
                                 vt::ir::WeightUse) const override {
    return {"row", rows * vt::ir::Bytes(format, columns)};
  }
  std::string PickKernel(const Graph&, const Node& node, const vt::ir::Bucket&) const override {
    return std::string(vt::ir::Name(node.op));
  }
  vt::ir::Rates MachineRates() const override { return {}; }
};

class FamilyPlanTest : public ::testing::TestWithParam<std::string> {};
class FamilyDummyTest : public ::testing::TestWithParam<std::string> {};  // of a config.json

std::map<Op, int64_t> Count(const Graph& g) {
  std::map<Op, int64_t> count;
  for (const Node& n : g.nodes) ++count[n.op];
  return count;
}

// The family's graph over the stored (or dummy) types, with a sampler where `samples`.
Graph BuildGraph(const weights::Checkpoint& checkpoint, bool samples = false) {
  const weights::Config& c = checkpoint.config();
  const auto build = models::FindFamily(c.family);
  EXPECT_TRUE(build.ok()) << (build.ok() ? "" : build.error().message);
  if (!build) return {};
  vt::ir::Builder builder(
      c.family,
      [&](const std::string& name) -> std::optional<vt::ir::WeightInfo> {
        const weights::TensorInfo* info = checkpoint.Find(name);
        if (info == nullptr) return std::nullopt;
        return vt::ir::WeightInfo{info->shape.size() < 2 ? DType::kF32 : info->dtype, info->shape};
      },
      {.max_model_len = 64,
       .sampler = samples ? std::optional(vt::ir::SamplerLayout{c.vocab_size, 64}) : std::nullopt});
  std::vector<vt::ir::ValueId> outputs = {(*build)(builder, {c, 64})};
  if (samples) {
    const vt::ir::Builder::Sampled s = builder.Sample(outputs[0]);
    outputs = {s.tokens, s.values, s.ids};
  }
  auto graph = builder.Finish(std::move(outputs));
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().message);
  return graph.ok() ? *std::move(graph) : Graph{};
}

TEST_P(FamilyPlanTest, FusesItsSpecialLayersAndQuantisesNoValueTwice) {
  const ModelGolden golden = LoadGolden(GetParam());
  // Stored weights of a GGUF; of safetensors a mix that quantises rows of 32 values.
  const bool gguf = golden.path.ends_with(".gguf");
  const auto checkpoint =
      weights::Checkpoint::Open(golden.path, {.dummy = !gguf, .quantization = gguf ? "" : "Q8_0"});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const weights::Config& c = (*checkpoint)->config();
  const Graph graph = BuildGraph(**checkpoint);
  const Graph plan = Lower(graph, AnyTarget(), {1, 1, 1}).graph;
  ASSERT_TRUE(Verify(plan)) << Verify(plan).error().message;
  // A family that chooses one expert a token may have nothing to sum.
  const bool sums = Count(graph)[Op::kExpertSum] > 0;
  int64_t linear = 0, sparse = 0;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    linear += c.IsLinear(layer) ? 1 : 0;
    sparse += c.IsSparse(layer) ? 1 : 0;
  }
  std::map<Op, int64_t> count = Count(plan);
  EXPECT_EQ(count[Op::kGatedDeltaNet], linear) << Dump(plan);
  const auto any = [&](std::initializer_list<Op> ops) {
    int64_t sum = 0;
    for (const Op op : ops) sum += count[op];
    return sum;
  };
  EXPECT_EQ(
      any({Op::kNormRouterGate, Op::kNormRouter, Op::kRmsNormRouter, Op::kRouter, Op::kHashRouter}),
      sparse);
  // Biases, clamps and scores stand before the activation, between what would be one.
  if (count[Op::kExpertBias] > 0) sparse = 0;
  std::map<vt::ir::ValueId, Op> maker;
  for (const Node& n : graph.nodes) maker[n.outputs[0]] = n.op;
  const bool scored = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    return n.op == Op::kScaleRows && maker[n.inputs[0]] == Op::kGroupedLinear;
  });
  const bool apart = count[Op::kClamp] > 0 || scored;
  EXPECT_EQ(any({Op::kExpertsUp, Op::kExpertsActMul, Op::kGroupedLinearActMulQuantize,
                 Op::kGroupedLinearActMul}),
            apart ? 0 : sparse)
      << Dump(plan);
  EXPECT_EQ(any({Op::kExpertsDown, Op::kExpertsDownUngated, Op::kGroupedLinearSumAddAdd,
                 Op::kGroupedLinearSumAdd, Op::kGroupedLinearSum}),
            sums ? sparse : 0)
      << Dump(plan);
  std::vector<Op> never = {Op::kCausalConv, Op::kGatedDelta};
  if (count[Op::kExpertBias] == 0) never.push_back(Op::kExpertSum);
  for (const Op alone : never)
    EXPECT_EQ(count[alone], 0) << vt::ir::Name(alone) << " is not fused:\n" << Dump(plan);
  if (count[Op::kExpertBias] == 0) {
    // What goes up apart from its activation is two matrices, in a node or each in its own; what
    // comes down is alone where nothing is summed.
    int64_t matrices = 0;
    for (const Node& n : plan.nodes) {
      if (n.op == Op::kGroupedLinear) matrices += n.attrs.as<vt::ir::GroupedLinearAttrs>().segments;
    }
    EXPECT_EQ(matrices, (apart ? 2 * sparse : 0) + (sums ? 0 : sparse)) << Dump(plan);
  }

  // A value's quantised form has one producer: a node that quantises, alone or at the end of
  // others.
  std::map<vt::ir::ValueId, std::string> quantised;
  for (const Node& n : plan.nodes) {
    if (n.op != Op::kQuantize) continue;
    const auto [it, fresh] = quantised.emplace(n.inputs[0], n.name);
    EXPECT_TRUE(fresh) << n.name << " quantises what " << it->second << " has quantised";
  }
}

// A checkpoint of random weights for what a config.json says.
std::unique_ptr<weights::Checkpoint> Dummy(const std::string& name, const std::string& config,
                                           const std::string& quantization) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(base::os::WriteFile((folder / "config.json").string(), config).ok());
  auto checkpoint =
      weights::Checkpoint::Open(folder.string(), {.dummy = true, .quantization = quantization});
  EXPECT_TRUE(checkpoint.ok()) << (checkpoint.ok() ? "" : checkpoint.error().message);
  return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
}

// Whether every node has a kernel there, and the plan's launches can be made.
void ExpectRuns(const Graph& graph, const vt::gpu::GpuTarget& target,
                const vt::ir::Bucket& bucket) {
  const vt::ir::Plan plan = Lower(graph, target, bucket);
  for (const Node& n : plan.graph.nodes) {
    std::string types;
    for (const vt::ir::ValueId v : n.inputs)
      types += fmt::format(" {}", vt::ir::Name(plan.graph.value(v).dtype));
    EXPECT_TRUE(target.Supports(plan.graph, n, bucket))
        << n.name << ", " << vt::ir::Name(n.op) << " of" << types;
  }
  EXPECT_GT(target.Launches(plan), 0);
}

// A token, a few, a prompt.
constexpr vt::ir::Bucket kBuckets[] = {{1, 1, 1}, {5, 3, 3}, {96, 5, 5}};

// The graph is as the engine opens it: of the types that a device of such values holds.
void ExpectRunsOnEveryCard(engine::LoadOptions options, std::initializer_list<DType> types) {
  for (const DType type : types) {
    options.dtype = type == DType::kBF16 ? "bfloat16" : type == DType::kF16 ? "float16" : "float32";
    const auto target = [&](const vt::gpu::KnownCard& card) {
      return vt::gpu::GpuTarget(
          {.properties = card.properties, .value_type = type, .cuda = card.cuda}, card.rates);
    };
    const vt::gpu::GpuTarget any = target(vt::gpu::KnownCards()[0]);
    engine::LoadOptions settled = options;
    const auto opened = engine::OpenModel(settled, &any);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    for (const vt::gpu::KnownCard& card : vt::gpu::KnownCards()) {
      for (const vt::ir::Bucket& bucket : kBuckets) {
        SCOPED_TRACE(fmt::format("{}, {}, {} tokens", card.name, options.dtype, bucket.tokens));
        ExpectRuns(opened->graph, target(card), bucket);
        if (!opened->media.nodes.empty()) ExpectRuns(opened->media, target(card), bucket);
      }
    }
  }
}

TEST_P(FamilyPlanTest, HasAKernelForEachNodeOnEveryKnownCard) {
  engine::LoadOptions options;
  options.model = LoadGolden(GetParam()).path;
  ExpectRunsOnEveryCard(options, {DType::kBF16, DType::kF16, DType::kF32});
}

// What is stored plain in a golden is quantised in other checkpoints of its family.
TEST_P(FamilyDummyTest, HasAKernelForEachNodeOnEveryKnownCard) {
  engine::LoadOptions options;
  options.model = LoadGolden(GetParam()).path;
  options.load_format = "dummy";
  options.quantization = "Q8_0";
  ExpectRunsOnEveryCard(options, {DType::kBF16});
}

// Layers without a window have heads of 512 values there, and may have the keys for values.
TEST(FamilyPlans, Gemma4OfPublishedShapesRunsOnEveryCard) {
  const std::map<std::string, std::string> configs = {
      {"gemma4_e4b", R"({"architectures":["Gemma4ForCausalLM"],"hidden_size":2560,
    "intermediate_size":10240,"num_hidden_layers":42,"num_attention_heads":8,"num_key_value_heads":2,
    "num_kv_shared_layers":18,"hidden_size_per_layer_input":256})"},
      {"gemma4_26b_a4b", R"({"architectures":["Gemma4ForCausalLM"],"hidden_size":2816,
    "intermediate_size":2112,"num_hidden_layers":30,"num_attention_heads":16,
    "num_key_value_heads":8,"num_global_key_value_heads":2,"attention_k_eq_v":true,
    "sliding_window":1024,"hidden_size_per_layer_input":0,"enable_moe_block":true,
    "num_experts":128,"top_k_experts":8,"moe_intermediate_size":704})"}};
  for (const auto& [name, config] : configs) {
    const auto checkpoint = Dummy(name, config, "");
    ASSERT_NE(checkpoint, nullptr);
    const Graph graph = BuildGraph(*checkpoint, true);
    for (const vt::gpu::KnownCard& card : vt::gpu::KnownCards()) {
      for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
        const vt::gpu::GpuTarget target(
            {.properties = card.properties, .value_type = type, .cuda = card.cuda}, card.rates);
        for (const vt::ir::Bucket& bucket : kBuckets) {
          SCOPED_TRACE(fmt::format("{} on {}, {}, {} tokens", name, card.name, vt::ir::Name(type),
                                   bucket.tokens));
          ExpectRuns(graph, target, bucket);
        }
      }
    }
  }
}

// Published shapes with random weights: a step of one token on one H200, the sampler with it.
TEST(FamilyPlans, OneTokenOfAPublishedHybridTakesFewLaunches) {
  const vt::gpu::KnownCard& card = vt::gpu::KnownCards()[0];
  ASSERT_EQ(card.name, "h200");
  const vt::gpu::GpuTarget target({.properties = card.properties, .cuda = card.cuda}, card.rates);
  const auto launches = [&](const std::string& name, const std::string& config) {
    const auto checkpoint = Dummy(name, config, "Q4_K_M");
    if (checkpoint == nullptr) return int64_t{-1};
    const vt::ir::Plan plan = Lower(BuildGraph(*checkpoint, true), target, {1, 1, 1});
    const int64_t count = target.Launches(plan);
    std::cout << name << ": " << count << " launches, " << Count(plan.graph)[Op::kQuantize]
              << " of them quantise alone\n";
    EXPECT_GT(count, 0);
    return count;
  };
  const auto hybrid = [](int experts) {
    return fmt::format(
        R"({{"architectures":["Qwen3_5MoeForConditionalGeneration"],
    "text_config":{{"vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,
      "num_key_value_heads":2,"head_dim":256,"num_experts":{},"num_experts_per_tok":8,
      "moe_intermediate_size":512,"shared_expert_intermediate_size":512,"full_attention_interval":4}}}})",
        experts);
  };
  EXPECT_LE(launches("qwen36_35b_a3b", hybrid(256)), 300);
  EXPECT_LE(launches("qwen36_14b_a3b", hybrid(90)), 300);
  EXPECT_LE(
      launches("qwen3_30b_a3b", R"({"architectures":["Qwen3MoeForCausalLM"],"vocab_size":151936,
    "hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":48,"num_attention_heads":32,
    "num_key_value_heads":4,"head_dim":128,"num_experts":128,"num_experts_per_tok":8,
    "moe_intermediate_size":768,"norm_topk_prob":true})"),
      300);
}

// Plain weights: a layer is two launches before its attention and the sum of its parts, two
// behind it, the norm with the router, and what goes up and comes down, of the shared expert too.
TEST(FamilyPlans, OneTokenOfPlainExpertsTakesFewLaunches) {
  const vt::gpu::KnownCard& card = vt::gpu::KnownCards()[0];
  const vt::gpu::GpuTarget target({.properties = card.properties, .cuda = card.cuda}, card.rates);
  const auto checkpoint = Dummy("deepseek_v2_lite", R"({"architectures":["DeepseekV2ForCausalLM"],
    "vocab_size":102400,"hidden_size":2048,"intermediate_size":10944,"moe_intermediate_size":1408,
    "num_hidden_layers":27,"num_attention_heads":16,"num_key_value_heads":16,"n_shared_experts":2,
    "n_routed_experts":64,"num_experts_per_tok":6,"first_k_dense_replace":1,"kv_lora_rank":512,
    "q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
    "topk_method":"greedy","scoring_func":"softmax","norm_topk_prob":false})",
                                "");
  ASSERT_NE(checkpoint, nullptr);
  const Graph graph = BuildGraph(*checkpoint, true);
  for (const int64_t tokens : {1, 8}) {
    vt::ir::Plan plan = Lower(graph, target, {tokens, tokens, tokens});
    std::map<Op, int64_t> count = Count(plan.graph);
    EXPECT_EQ(count[Op::kExpertsActMul], 26) << Dump(plan.graph);
    EXPECT_EQ(count[Op::kExpertsDownUngated], 26);
    EXPECT_EQ(count[Op::kLatentQueryWrite], 27);
    EXPECT_EQ(count[Op::kRmsNormRouter], 26);
    EXPECT_EQ(count[Op::kGroupedLinear] + count[Op::kExpertSum] + count[Op::kRouter], 0);
    const int64_t launches = target.Launches(plan);
    std::cout << "deepseek_v2_lite, " << tokens << " tokens: " << launches << " launches\n";
    EXPECT_LE(launches, 251);
  }
  // More rows go through tiles.
  std::map<Op, int64_t> count = Count(Lower(graph, target, {9, 9, 9}).graph);
  EXPECT_EQ(count[Op::kGroupedLinear], 78);
  EXPECT_EQ(count[Op::kExpertSum], 26);
}

INSTANTIATE_TEST_SUITE_P(Tiny, FamilyPlanTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& param) { return param.param; });

std::vector<std::string> FolderNames() {
  std::vector<std::string> names = GoldenNames();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("gguf_"); });
  return names;
}
INSTANTIATE_TEST_SUITE_P(Tiny, FamilyDummyTest, ::testing::ValuesIn(FolderNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace vllm::testing
