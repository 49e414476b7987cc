#include "vllm/weights/virtual_tensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/strings.h"
#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

using Tensors = std::map<std::string, TensorInfo>;

// Two experts of [2, 4]; one linear layer and one gated attention layer; 2 key heads, 4 value
// heads.
Config Tiny() {
  Config c;
  c.family = "qwen3_next";
  c.hidden_size = 4;
  c.num_hidden_layers = 2;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 2;
  c.experts = {.count = 2, .per_token = 1, .intermediate_size = 2};
  c.sparse_layers = {true, false};
  c.layer_types = {LayerType::kLinear, LayerType::kFull};
  c.delta = {.k_heads = 2, .v_heads = 4, .k_dim = 1, .v_dim = 3, .conv_width = 4};
  c.attention_gate = true;
  return c;
}

// An f32 tensor at `offset`.
TensorInfo At(uint64_t offset, std::vector<int64_t> shape) {
  uint64_t bytes = 4;
  for (const int64_t n : shape) bytes *= static_cast<uint64_t>(n);
  return {vt::ir::DType::kF32, std::move(shape), {{0, offset, bytes}}, bytes};
}

// "offset+bytes offset+bytes".
std::string Pieces(const Tensors& t, const std::string& name) {
  const auto it = t.find(name);
  if (it == t.end()) return "missing";
  std::vector<std::string> out;
  uint64_t bytes = 0;
  for (const TensorPiece& p : it->second.pieces) {
    out.push_back(fmt::format("{}+{}", p.offset, p.bytes));
    bytes += p.bytes;
  }
  EXPECT_EQ(bytes, it->second.bytes) << name;
  return fmt::format("{}", fmt::join(out, " "));
}

TEST(VirtualTensors, SingleExpertsAreJoinedInTheOrderOfTheirNumbers) {
  Config c = Tiny();
  c.experts.count = 11;  // "10" sorts before "2"
  Tensors t;
  for (int e = 0; e < 11; ++e) {
    const std::string p = fmt::format("model.layers.0.mlp.experts.{}.", e);
    const auto base = static_cast<uint64_t>(1000 * e);
    t[p + "gate_proj.weight"] = At(base, {2, 4});
    t[p + "up_proj.weight"] = At(base + 32, {2, 4});
    t[p + "down_proj.weight"] = At(base + 64, {4, 2});
  }
  const base::Status status = MakeVirtualTensors(c, t);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(t.size(), 3u);
  EXPECT_EQ(t.at("model.layers.0.mlp.experts.gate_proj.weight").shape,
            (std::vector<int64_t>{11, 2, 4}));
  EXPECT_EQ(t.at("model.layers.0.mlp.experts.down_proj.weight").shape,
            (std::vector<int64_t>{11, 4, 2}));
  const std::string up = Pieces(t, "model.layers.0.mlp.experts.up_proj.weight");
  EXPECT_TRUE(base::StartsWith(up, "32+32 1032+32 2032+32 ")) << up;
  EXPECT_TRUE(base::EndsWith(up, " 10032+32")) << up;
}

TEST(VirtualTensors, MixtralsNamesAreTheOthers) {
  Config c = Tiny();
  c.family = "mixtral";
  c.delta = {};
  c.attention_gate = false;
  c.layer_types = {LayerType::kFull, LayerType::kFull};
  Tensors t;
  for (int e = 0; e < 2; ++e) {
    const std::string p = fmt::format("model.layers.0.block_sparse_moe.experts.{}.", e);
    const auto base = static_cast<uint64_t>(1000 * e);
    t[p + "w1.weight"] = At(base, {2, 4});
    t[p + "w3.weight"] = At(base + 32, {2, 4});
    t[p + "w2.weight"] = At(base + 64, {4, 2});
  }
  t["model.layers.0.block_sparse_moe.gate.weight"] = At(5000, {2, 4});
  ASSERT_TRUE(MakeVirtualTensors(c, t));
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.experts.gate_proj.weight"), "0+32 1000+32");
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.experts.up_proj.weight"), "32+32 1032+32");
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.experts.down_proj.weight"), "64+32 1064+32");
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.gate.weight"), "5000+32");
}

TEST(VirtualTensors, GateAndUpInOneAreTakenApart) {
  Tensors t;
  t["model.layers.0.mlp.experts.gate_up_proj"] = At(0, {2, 4, 4});
  t["model.layers.0.mlp.experts.down_proj"] = At(500, {2, 4, 2});
  t["model.layers.0.mlp.shared_expert_gate.weight"] = At(900, {4});
  ASSERT_TRUE(MakeVirtualTensors(Tiny(), t));
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.experts.gate_proj.weight"), "0+32 64+32");
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.experts.up_proj.weight"), "32+32 96+32");
  EXPECT_EQ(Pieces(t, "model.layers.0.mlp.experts.down_proj.weight"), "500+64");
  EXPECT_EQ(t.at("model.layers.0.mlp.shared_expert_gate.weight").shape,
            (std::vector<int64_t>{1, 4}));
}

TEST(VirtualTensors, QueriesAndGatesOfHeadsAreTakenApart) {
  Tensors t;
  t["model.layers.1.self_attn.q_proj.weight"] = At(0, {8, 4});
  t["model.layers.1.self_attn.q_proj.bias"] = At(400, {8});
  ASSERT_TRUE(MakeVirtualTensors(Tiny(), t));
  EXPECT_EQ(Pieces(t, "model.layers.1.self_attn.q_proj.weight"), "0+32 64+32");
  EXPECT_EQ(Pieces(t, "model.layers.1.self_attn.q_gate.weight"), "32+32 96+32");
  EXPECT_EQ(Pieces(t, "model.layers.1.self_attn.q_proj.bias"), "400+8 416+8");
  EXPECT_EQ(Pieces(t, "model.layers.1.self_attn.q_gate.bias"), "408+8 424+8");
}

// Rows of 32 values in a block of 34 bytes.
TEST(VirtualTensors, RowsOfQuantisedTensorsAreWholeBlocks) {
  Config c = Tiny();
  c.hidden_size = 32;
  Tensors t;
  t["model.layers.1.self_attn.q_proj.weight"] = {
      vt::ir::DType::kQ8_0, {8, 32}, {{0, 0, 8 * 34}}, 8 * 34};
  ASSERT_TRUE(MakeVirtualTensors(c, t));
  EXPECT_EQ(Pieces(t, "model.layers.1.self_attn.q_proj.weight"), "0+68 136+68");
  EXPECT_EQ(Pieces(t, "model.layers.1.self_attn.q_gate.weight"), "68+68 204+68");
}

// A key head has a query row, a key row, two heads' 6 value rows and 6 rows of z: 14 rows of 16
// bytes.
TEST(VirtualTensors, ProjectionsByKeyHeadAreTakenApart) {
  Tensors t;
  t["model.layers.0.linear_attn.in_proj_qkvz.weight"] = At(0, {28, 4});
  t["model.layers.0.linear_attn.in_proj_ba.weight"] = At(1000, {8, 4});
  t["model.layers.0.linear_attn.conv1d.weight"] = At(2000, {16, 1, 4});
  ASSERT_TRUE(MakeVirtualTensors(Tiny(), t));
  EXPECT_EQ(Pieces(t, "model.layers.0.linear_attn.in_proj_qkv.weight"),
            "0+16 224+16 16+16 240+16 32+96 256+96");
  EXPECT_EQ(Pieces(t, "model.layers.0.linear_attn.in_proj_z.weight"), "128+96 352+96");
  EXPECT_EQ(Pieces(t, "model.layers.0.linear_attn.in_proj_b.weight"), "1000+32 1064+32");
  EXPECT_EQ(Pieces(t, "model.layers.0.linear_attn.in_proj_a.weight"), "1032+32 1096+32");
  EXPECT_EQ(t.at("model.layers.0.linear_attn.conv1d.weight").shape, (std::vector<int64_t>{16, 4}));
}

TEST(VirtualTensors, WhatDoesNotFitIsRefusedByTheStoredName) {
  const auto refusal = [](Tensors t) {
    const base::Status status = MakeVirtualTensors(Tiny(), t);
    return status ? std::string() : status.error().message;
  };
  const std::string e = "model.layers.0.mlp.experts.";
  EXPECT_NE(refusal({{e + "0.up_proj.weight", At(0, {3, 4})}}).find(e + "0.up_proj.weight' has"),
            std::string::npos);
  EXPECT_NE(refusal({{e + "0.up_proj.weight", At(0, {2, 4})}}).find(e + "1.up_proj.weight' is"),
            std::string::npos);
  EXPECT_NE(refusal({{e + "2.up_proj.weight", At(0, {2, 4})}}).find(e + "2.up_proj.weight' is of"),
            std::string::npos);
  EXPECT_NE(refusal({{e + "gate_up_proj", At(0, {3, 4, 4})}}).find("gate_up_proj.weight' has"),
            std::string::npos);
  EXPECT_NE(refusal({{"model.layers.1.self_attn.q_proj.weight", At(0, {4, 4})}})
                .find("q_proj.weight' has shape [4, 4]"),
            std::string::npos);
  EXPECT_NE(
      refusal({{e + "gate_proj.weight", At(0, {2, 2, 4})}, {e + "gate_up_proj", At(0, {2, 4, 4})}})
          .find("twice"),
      std::string::npos);
}

// A checkpoint of one layer: two experts and a router, everything else left out.
class Files {
 public:
  Files() {
    folder_.Write("config.json", R"({"architectures":["Qwen3MoeForCausalLM"],"vocab_size":4,
      "hidden_size":4,"intermediate_size":4,"num_hidden_layers":1,"num_attention_heads":1,
      "num_key_value_heads":1,"head_dim":4,"num_experts":2,"num_experts_per_tok":1,
      "moe_intermediate_size":1})");
  }
  // Six expert tensors of 4 values, e * 100 + the place in the file, and a router of 2 x 4.
  base::Result<std::unique_ptr<Checkpoint>> Open(float router) {
    std::string header = "{", data;
    const auto add = [&](const std::string& name, const char* shape, std::vector<float> values) {
      header += fmt::format(R"({}"model.layers.0.mlp.{}":{{"dtype":"F32","shape":{},)",
                            data.empty() ? "" : ",", name, shape);
      header +=
          fmt::format(R"("data_offsets":[{},{}]}})", data.size(), data.size() + values.size() * 4);
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    };
    for (int e = 0; e < 2; ++e) {
      const std::string p = fmt::format("experts.{}.", e);
      const auto v = static_cast<float>(100 * e);
      add(p + "gate_proj.weight", "[1,4]", {v, v + 1, v + 2, v + 3});
      add(p + "up_proj.weight", "[1,4]", {v + 4, v + 5, v + 6, v + 7});
      add(p + "down_proj.weight", "[4,1]", {v + 8, v + 9, v + 10, v + 11});
    }
    add("gate.weight", "[2,4]", {1, 2, 3, 4, 5, 6, 7, router});
    header += "}";
    folder_.Write("model.safetensors", testing::Raw<uint64_t>(header.size()) + header + data);
    return Checkpoint::Open(folder_.Path(), {});
  }

 private:
  testing::TemporaryFolder folder_;
};

std::vector<float> Floats(std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(VirtualTensors, BytesAreThoseOfThePieces) {
  Files files;
  const auto c = files.Open(8);
  ASSERT_TRUE(c) << c.error().message;
  const std::string up = "model.layers.0.mlp.experts.up_proj.weight";
  const auto all = (*c)->Data(up);
  ASSERT_TRUE(all);
  EXPECT_EQ(Floats(*all), (std::vector<float>{4, 5, 6, 7, 104, 105, 106, 107}));
  const auto second = (*c)->Range(up, 16, 32);
  ASSERT_TRUE(second);
  EXPECT_EQ(Floats(*second), (std::vector<float>{104, 105, 106, 107}));
  EXPECT_NE(second->data(), all->data() + 16) << "one expert needs no copy";
  const auto across = (*c)->Range(up, 12, 20);
  ASSERT_TRUE(across);
  EXPECT_EQ(Floats(*across), (std::vector<float>{7, 104}));
  (*c)->DropBytes(up, 0, 16);
  (*c)->DropPages(up);
  EXPECT_EQ(Floats(*(*c)->Data(up)), (std::vector<float>{4, 5, 6, 7, 104, 105, 106, 107}));
  EXPECT_FALSE((*c)->Range("model.norm.weight", 0, 4));
}

TEST(VirtualTensors, ARouterThatIsNoNumberIsRefusedByName) {
  Files files;
  const auto c = files.Open(std::numeric_limits<float>::quiet_NaN());
  ASSERT_FALSE(c);
  EXPECT_NE(c.error().message.find("model.layers.0.mlp.gate.weight"), std::string::npos)
      << c.error().message;
}

}  // namespace
}  // namespace vllm::weights
