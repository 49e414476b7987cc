#include "vllm/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "vllm/weights/gguf.h"
#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

using namespace testing;  // NOLINT: the builders
namespace fs = std::filesystem;

std::string Refusal(const std::string& path, const OpenOptions& options = {}) {
  const auto r = Checkpoint::Open(path, options);
  return r ? "" : r.error().message;
}
void ExpectRefused(const std::string& path, std::initializer_list<std::string> parts,
                   const OpenOptions& options = {}) {
  const std::string message = Refusal(path, options);
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos)
        << "'" << message << "' lacks '" << part << "'";
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

constexpr const char* kConfig =
    R"({"architectures":["LlamaForCausalLM"],"vocab_size":32,"hidden_size":256,"intermediate_size":512,
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":1,"torch_dtype":"float16","tie_word_embeddings":true})";

// Parts of TinyLlamaGguf as split files.
std::vector<std::string> SplitFiles(int parts) {
  std::vector<std::string> out;
  const GgufBuilder whole = TinyLlamaGguf();
  const int total = static_cast<int>(whole.tensors.size());
  for (int i = 0; i < parts; ++i) {
    GgufBuilder b;
    if (i == 0) b.keys = whole.keys;
    b.keys.push_back(GgufEntry("split.no", 2, Raw(static_cast<uint16_t>(i))));
    b.keys.push_back(GgufEntry("split.count", 2, Raw(static_cast<uint16_t>(parts))));
    b.keys.push_back(GgufEntry("split.tensors.count", 5, Raw(total)));
    const std::string file = whole.Build();
    const auto parsed = ParseGguf(AsBytes(file));
    for (int t = total * i / parts; t < total * (i + 1) / parts; ++t) {
      const GgufTensor& tensor = parsed->tensors[static_cast<size_t>(t)];
      b.Tensor(tensor.name, {tensor.shape.rbegin(), tensor.shape.rend()});
    }
    out.push_back(b.Build());
  }
  return out;
}
std::string PartName(int i) { return "m-0000" + std::to_string(i + 1) + "-of-00003.gguf"; }

TEST(GgufCheckpoint, GivesCanonicalNamesAndBytes) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("tiny.gguf", TinyLlamaGguf().Build());
  const auto c = Checkpoint::Open(path, {});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_TRUE((*c)->is_gguf());
  EXPECT_EQ((*c)->directory(), folder.Path());
  EXPECT_EQ((*c)->tensors().size(), 20u);
  EXPECT_EQ((*c)->Data("model.layers.1.mlp.down_proj.weight")->size(), 16u * 8 * 4);
  (*c)->DropPages("model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ((*c)->Find("model.layers.1.mlp.down_proj.weight")->shape,
            (std::vector<int64_t>{8, 16}));
  EXPECT_FALSE((*c)->Data("lm_head.weight"));
  EXPECT_FALSE((*c)->Want("model.norm.weight", {9}));
  EXPECT_TRUE((*c)->Want("model.norm.weight", {8}));
}

TEST(GgufCheckpoint, RopeFrequenciesGoIntoTheConfiguration) {
  const TemporaryFolder folder;
  GgufBuilder b = TinyLlamaGguf();
  b.Tensor("rope_freqs.weight", {2});
  std::string file = b.Build();
  ExpectRefused(folder.Write("zeros.gguf", file), {"rope_freqs.weight", "positive"});
  file.replace(file.size() - 32, 8, Raw(1.0f) + Raw(8.0f));
  const auto c = Checkpoint::Open(folder.Write("freqs.gguf", file), {});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ((*c)->config().rope.frequency_factors, (std::vector<float>{1, 8}));
  EXPECT_EQ((*c)->Find("rope_freqs.weight"), nullptr);
}

TEST(GgufCheckpoint, AnyPartOrTheFolderOpensASplitModel) {
  const TemporaryFolder folder;
  const std::vector<std::string> parts = SplitFiles(3);
  for (int i = 0; i < 3; ++i) folder.Write(PartName(i), parts[static_cast<size_t>(i)]);
  for (const std::string& path :
       {folder.Path(), folder.Path() + "/", folder.Path(PartName(0)), folder.Path(PartName(2))}) {
    const auto c = Checkpoint::Open(path, {});
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ((*c)->tensors().size(), 20u);
    EXPECT_EQ((*c)->files().size(), 3u);
  }
}

TEST(GgufCheckpoint, BrokenSplitsNameThePart) {
  const TemporaryFolder folder;
  const std::vector<std::string> parts = SplitFiles(3);
  ExpectRefused(folder.Write("cat.gguf", parts[0] + parts[1] + parts[2]),
                {"cat.gguf", "this is part 1 of 3 with data after it"});
  folder.Write("missing/" + PartName(0), parts[0]);
  folder.Write("missing/" + PartName(2), parts[2]);
  ExpectRefused(folder.Path("missing/" + PartName(0)), {"part 2 of 3 is missing"});
  for (int i = 0; i < 3; ++i)
    folder.Write("swapped/" + PartName(i == 0 ? 0 : 3 - i), parts[static_cast<size_t>(i)]);
  ExpectRefused(folder.Path("swapped"), {"out of order", "part 2 of 3", "part 3 of 3"});
  folder.Write("renamed/part0.gguf", parts[0]);
  ExpectRefused(folder.Path("renamed"), {"part0.gguf", "part 1 of 3", "-00001-of-00003.gguf"});
  for (int i = 0; i < 3; ++i)
    folder.Write("twice/" + PartName(i), i == 2 ? SplitFiles(3)[1] : parts[static_cast<size_t>(i)]);
  ExpectRefused(folder.Path("twice"), {"out of order"});
}

TEST(Checkpoint, WrongPathsAreOneSentence) {
  const TemporaryFolder folder;
  ExpectRefused(folder.Path("absent.gguf"), {"absent.gguf", "no such file"});
  ExpectRefused(folder.Path(), {"neither *.safetensors nor *.gguf"});
  ExpectRefused(folder.Write("empty.gguf", ""), {"empty.gguf", "empty"});
  ExpectRefused(folder.Write("text.gguf", "hello world"), {"text.gguf", "not a GGUF file"});
  ExpectRefused("", {"empty"});
  ExpectRefused("/dev/null", {"/dev/null"});
  const std::string locked = folder.Write("locked.gguf", TinyLlamaGguf().Build());
  fs::permissions(locked, fs::perms::none);
  if (::geteuid() != 0) ExpectRefused(locked, {"locked.gguf", "denied"});
  OpenOptions mixed;
  mixed.quantization = "Q4_0";
  ExpectRefused(locked, {"--quantization"}, mixed);
}

TEST(SafetensorsCheckpoint, SingleFile) {
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write(
      "model.safetensors",
      SafetensorsFile(
          R"({"language_model.model.norm.weight":{"dtype":"F32","shape":[256],"data_offsets":[0,1024]},
    "vision_tower.x":{"dtype":"F16","shape":[2],"data_offsets":[1024,1028]}})",
          1028));
  const auto c = Checkpoint::Open(folder.Path(), {});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_FALSE((*c)->is_gguf());
  ASSERT_EQ((*c)->tensors().size(), 1u) << "the vision part is left out";
  EXPECT_EQ((*c)->Data("model.norm.weight")->size(), 1024u);
}

TEST(SafetensorsCheckpoint, ShardsFollowTheIndex) {
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  const auto shard = [](const std::string& name) {
    return SafetensorsFile("{\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                           8);
  };
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  folder.Write("m-1.safetensors", shard("a"));
  ExpectRefused(folder.Path(), {"index.json", "m-2.safetensors is missing"});
  folder.Write("m-2.safetensors", shard("c"));
  ExpectRefused(folder.Path(), {"m-2.safetensors", "'c'", "isn't listed"});
  folder.Write("m-2.safetensors", SafetensorsFile("{}", 0));
  ExpectRefused(folder.Path(), {"index.json", "tensor 'b'", "m-2.safetensors"});
  folder.Write("m-2.safetensors", shard("b"));
  EXPECT_EQ(Refusal(folder.Path()), "");
  fs::remove(folder.Path("model.safetensors.index.json"));
  ExpectRefused(folder.Path(), {"model.safetensors.index.json is missing"});
  fs::remove(folder.Path("config.json"));
  ExpectRefused(folder.Path(), {"config.json"});
}

TEST(DummyCheckpoint, HasEveryTensorInTheMixesFormats) {
  const TemporaryFolder folder;
  folder.Write("config.json", kConfig);
  OpenOptions options;
  options.dummy = true;
  auto c = Checkpoint::Open(folder.Path(), options);
  ASSERT_TRUE(c) << c.error().message;
  // embedding, final norm, and 9 a layer; tied, so without a head
  EXPECT_EQ((*c)->tensors().size(), 2u + 2 * 9);
  EXPECT_EQ((*c)->Find("model.layers.0.mlp.up_proj.weight")->dtype, vt::ir::DType::kF16);

  options.quantization = "Q4_K_M";
  c = Checkpoint::Open(folder.Path("config.json"), options);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ((*c)->Find("model.embed_tokens.weight")->dtype, vt::ir::DType::kQ6_K);
  EXPECT_EQ((*c)->Find("model.layers.0.mlp.up_proj.weight")->dtype, vt::ir::DType::kQ4_K);
  EXPECT_EQ((*c)->Find("model.layers.0.input_layernorm.weight")->dtype, vt::ir::DType::kF32);
  const auto first = (*c)->Data("model.layers.0.mlp.up_proj.weight");
  ASSERT_TRUE(first);
  ASSERT_EQ(first->size(), 512u * 144);
  const std::vector<std::byte> copy(first->begin(), first->end());
  (*c)->DropPages("model.layers.0.mlp.up_proj.weight");
  const auto again = (*c)->Data("model.layers.0.mlp.up_proj.weight");
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), again->begin(), again->end()));
  const auto wanted = (*c)->Want("model.layers.0.extra.weight", {3, 256});
  ASSERT_TRUE(wanted);
  EXPECT_EQ(wanted->bytes, 3u * 144);
  EXPECT_TRUE((*c)->Data("model.layers.0.extra.weight"));

  options.quantization = "Q9";
  ExpectRefused(folder.Path(), {"'Q9'", "Q4_K_M"}, options);
  options.quantization = "";
  ExpectRefused(folder.Path("x.gguf"), {"config.json"}, options);
}

// The shape of a published hybrid with 90 experts, whose Q4_K_M file has 7.87 GiB. Nothing is made
// before it is asked for.
TEST(DummyCheckpoint, AHybridWithExpertsIsAsLargeAsItsFile) {
  const TemporaryFolder folder;
  folder.Write("config.json", R"({"architectures":["Qwen3_5MoeForConditionalGeneration"],
    "text_config":{"vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,
      "num_key_value_heads":2,"head_dim":256,"num_experts":90,"num_experts_per_tok":8,
      "moe_intermediate_size":512,"shared_expert_intermediate_size":512,"full_attention_interval":4}})");
  const auto c = Checkpoint::Open(folder.Path(), {.dummy = true, .quantization = "Q4_K_M"});
  ASSERT_TRUE(c) << c.error().message;
  uint64_t bytes = 0;
  for (const auto& [name, info] : (*c)->tensors()) bytes += info.bytes;
  EXPECT_NEAR(static_cast<double>(bytes) / (1 << 30), 7.87, 0.08);
  const auto type = [&](const std::string& name) {
    return std::string(vt::ir::Name((*c)->Find("model.layers.1." + name)->dtype));
  };
  EXPECT_EQ(type("mlp.gate.weight"), "f32");
  EXPECT_EQ(type("mlp.shared_expert_gate.weight"), "f32");
  EXPECT_EQ(type("mlp.experts.up_proj.weight"), "Q4_K");
  EXPECT_EQ(type("linear_attn.conv1d.weight"), "f32");
  EXPECT_EQ(type("linear_attn.in_proj_qkv.weight"), "Q6_K");
  const auto one = (*c)->Range("model.layers.1.mlp.experts.up_proj.weight", 589824, 2 * 589824);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->size(), 589824u);  // 512 rows of 8 superblocks of 144 bytes
}

}  // namespace
}  // namespace vllm::weights
