// Every family's graph, run by the reference interpreter on no device, against transformers' fp32
// logits: what fails here is a configuration, a name or a family's file, never a backend.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model_golden.h"
#include "vllm/models/registry.h"
#include "vllm/weights/checkpoint.h"
#include "vt/ir/builder.h"
#include "vt/ir/interpreter.h"
#include "vt/ir/quant.h"

namespace vllm::testing {
namespace {

constexpr double kTolerance = 2e-4;  // as model_golden_test.cc
constexpr int64_t kBlock = 16;

std::vector<float> Floats(const weights::Checkpoint& checkpoint, const std::string& name) {
  const auto data = checkpoint.Data(name);
  EXPECT_TRUE(data.ok()) << name;
  if (!data) return {};
  int64_t count = 1;
  for (const int64_t n : checkpoint.Find(name)->shape) count *= n;
  const std::vector<std::byte> aligned(data->begin(), data->end());
  std::vector<float> values(static_cast<size_t>(count));
  vt::ir::Dequantize(checkpoint.Find(name)->dtype, aligned.data(), values.data(), count);
  return values;
}

vt::ir::Tensor Int32(std::vector<int32_t> values) {
  return {{static_cast<int64_t>(values.size())}, {}, std::move(values)};
}

class GraphGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The graph as a family's file says it, before any pass.
  vt::ir::Graph Build(const weights::Checkpoint& checkpoint, int64_t max_model_len) {
    const weights::Config& config = checkpoint.config();
    const auto build = models::FindFamily(config.family);
    EXPECT_TRUE(build.ok()) << (build.ok() ? "" : build.error().message);
    if (!build) return {};
    vt::ir::Builder builder(
        config.family,
        [&](const std::string& name) -> std::optional<vt::ir::WeightInfo> {
          const weights::TensorInfo* info = checkpoint.Find(name);
          if (info == nullptr) return std::nullopt;
          return vt::ir::WeightInfo{vt::ir::DType::kF32, info->shape};
        },
        {.dtype = vt::ir::DType::kF32, .block_size = kBlock, .max_model_len = max_model_len});
    const vt::ir::ValueId logits = (*build)(builder, {config, max_model_len});
    auto graph = builder.Finish({logits});
    EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().message);
    for (const auto& [name, info] : checkpoint.tensors())
      EXPECT_TRUE(builder.used().contains(name)) << name;
    return graph.ok() ? *std::move(graph) : vt::ir::Graph{};
  }
};

std::vector<float> RunStep(vt::ir::Interpreter& interpreter, const vt::ir::Graph& graph,
                           const std::vector<int32_t>& ids, int32_t start, int32_t count,
                           int64_t max_model_len) {
  std::vector<int32_t> tokens, positions, rows;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(ids[static_cast<size_t>(start + i)]);
    positions.push_back(start + i);
    rows.push_back(i);
  }
  std::vector<int32_t> table;
  for (int64_t block = 0; block * kBlock < max_model_len; ++block)
    table.push_back(static_cast<int32_t>(block));
  std::map<std::string, vt::ir::Tensor> inputs = {{vt::ir::kTokenIds, Int32(tokens)},
                                                  {vt::ir::kPositions, Int32(positions)},
                                                  {vt::ir::kQueryStart, Int32({0, count})},
                                                  {vt::ir::kSeqLens, Int32({start + count})},
                                                  {vt::ir::kOutputRows, Int32(rows)}};
  // A recurrent state is read from the slot that the step before wrote, which is another each time.
  static constexpr int32_t kSlots = 3;
  inputs[vt::ir::kStateRead] = Int32({start == 0 ? -1 : (start - 1) % kSlots});
  inputs[vt::ir::kStateWrite] = Int32({(start + count - 1) % kSlots});
  for (int group = 0; group < static_cast<int>(graph.state_groups.size()); ++group) {
    if (graph.state_groups[static_cast<size_t>(group)].kind == vt::ir::StateGroup::Kind::kSlot)
      continue;
    inputs[vt::ir::SlotsName(group)] = Int32(positions);  // block n holds tokens 16 n .. 16 n + 15
    vt::ir::Tensor blocks = Int32(table);
    blocks.shape = {1, static_cast<int64_t>(table.size())};
    inputs[vt::ir::BlockTableName(group)] = blocks;
  }
  const auto values = interpreter.Run({.tokens = count, .requests = 1, .outputs = count}, inputs);
  EXPECT_TRUE(values.ok()) << (values.ok() ? "" : values.error().message);
  return values.ok() ? (*values)[static_cast<size_t>(graph.outputs[0])].f : std::vector<float>{};
}

TEST_P(GraphGoldenTest, InterpretedEqualsTransformersInOnePrefillAndInPieces) {
  const ModelGolden golden = LoadGolden(GetParam());
  ASSERT_FALSE(golden.prompts.empty());
  const auto checkpoint = weights::Checkpoint::Open(golden.path, {});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const std::vector<int32_t>& ids = golden.prompts[2];
  const auto length = static_cast<int32_t>(ids.size());
  const vt::ir::Graph graph = Build(**checkpoint, length);
  ASSERT_FALSE(graph.outputs.empty());
  std::map<std::string, std::vector<float>> known;
  const auto weight = [&](const vt::ir::Value& v) {
    const auto [it, added] = known.try_emplace(v.name);
    if (added) it->second = Floats(**checkpoint, v.name);
    return it->second;
  };
  for (const int32_t first : {length, 11}) {
    vt::ir::Interpreter interpreter(graph, weight, kBlock);
    std::vector<float> rows = RunStep(interpreter, graph, ids, 0, first, length);
    for (int32_t at = first; at < length; ++at) {
      const std::vector<float> row = RunStep(interpreter, graph, ids, at, 1, length);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    const double error = RelativeError(rows, golden.logits[2], golden.vocab);
    EXPECT_LE(error, kTolerance) << "first step of " << first;
    std::cout << GetParam() << ": first step of " << first << ", worst error " << error << "\n";
  }
}

// Random weights for the same config.json: the list of expected tensors is what the family asks
// for, no more and no less.
class DummyGraphTest : public GraphGoldenTest {};

TEST_P(DummyGraphTest, DummyWeightsAreWhatTheFamilyAsksFor) {
  const ModelGolden golden = LoadGolden(GetParam());
  for (const char* mix : {"", "Q4_K_M"}) {
    const auto dummy = weights::Checkpoint::Open(golden.path, {.dummy = true, .quantization = mix});
    ASSERT_TRUE(dummy.ok()) << dummy.error().message;
    EXPECT_FALSE(Build(**dummy, 64).outputs.empty());
    const auto stored = weights::Checkpoint::Open(golden.path, {});
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    for (const auto& [name, info] : (*stored)->tensors()) {
      const weights::TensorInfo* made = (*dummy)->Find(name);
      ASSERT_NE(made, nullptr) << name;
      EXPECT_EQ(made->shape, info.shape) << name;
    }
    EXPECT_EQ((*dummy)->tensors().size(), (*stored)->tensors().size());
  }
}

std::vector<std::string> NamesWithConfig() {
  std::vector<std::string> names = GoldenNames();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("gguf_"); });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Tiny, DummyGraphTest, ::testing::ValuesIn(NamesWithConfig()),
                         [](const auto& param) { return param.param; });

INSTANTIATE_TEST_SUITE_P(Tiny, GraphGoldenTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace vllm::testing
