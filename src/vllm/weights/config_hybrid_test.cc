#include "vllm/weights/config.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;

constexpr const char* kSizes =
    R"({"vocab_size":32,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":8,
  "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512})";

base::Result<Config> Read(std::string_view architecture, std::string_view changes = "{}") {
  json::value v = *base::ParseJson(kSizes);
  v.get_object()["architectures"] = json::array{json::string(architecture)};
  const json::value extra = *base::ParseJson(changes);
  for (const auto& [key, value] : extra.get_object()) v.get_object()[key] = value;
  return ConfigFromJson(v, nullptr);
}

void ExpectRefused(std::string_view architecture, std::string_view changes, const char* part) {
  const base::Result<Config> c = Read(architecture, changes);
  ASSERT_FALSE(c) << changes;
  EXPECT_NE(c.error().message.find(part), std::string::npos)
      << c.error().message << " for " << changes;
}

std::string Sparse(const Config& c) {
  std::string out;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) out += c.IsSparse(i) ? 'e' : '.';
  return out;
}
std::string Linear(const Config& c) {
  std::string out;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) out += c.IsLinear(i) ? 'l' : 'F';
  return out;
}

TEST(HybridConfig, Qwen3MoeSaysWhichLayersHaveExperts) {
  const base::Result<Config> all = Read("Qwen3MoeForCausalLM", R"({"max_window_layers":4})");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(Sparse(*all), "eeeeeeee");
  EXPECT_EQ(all->experts.count, 128);
  EXPECT_EQ(all->experts.per_token, 8);
  EXPECT_EQ(all->experts.intermediate_size, 768);
  EXPECT_FALSE(all->experts.normalise);
  EXPECT_EQ(all->WindowOf(7), 0);
  EXPECT_EQ(all->norm_weight_offset, 0);

  const base::Result<Config> some =
      Read("Qwen3MoeForCausalLM",
           R"({"decoder_sparse_step":2,"mlp_only_layers":[3],"num_local_experts":4,
          "num_experts_per_tok":2,"norm_topk_prob":true,"use_sliding_window":true,"sliding_window":9})");
  ASSERT_TRUE(some) << some.error().message;
  EXPECT_EQ(Sparse(*some), ".e...e.e");
  EXPECT_EQ(some->experts.count, 4);
  EXPECT_TRUE(some->experts.normalise);
  EXPECT_EQ(some->WindowOf(0), 9);

  const base::Result<Config> none = Read("Qwen3MoeForCausalLM", R"({"num_experts":0})");
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(Sparse(*none), "........");
}

TEST(HybridConfig, MixtralsExpertsAreAsWideAsItsMlp) {
  const base::Result<Config> c = Read("MixtralForCausalLM", R"({"sliding_window":null})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->experts.count, 8);
  EXPECT_EQ(c->experts.per_token, 2);
  EXPECT_EQ(c->experts.intermediate_size, 128);
  EXPECT_TRUE(c->experts.normalise);
  EXPECT_EQ(c->rope.theta, 1e6);
  EXPECT_FLOAT_EQ(c->rms_norm_eps, 1e-5f);
}

TEST(HybridConfig, Qwen3NextHasEveryFourthLayerFull) {
  const base::Result<Config> c = Read("Qwen3NextForCausalLM");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(Linear(*c), "lllFlllF");
  EXPECT_EQ(c->delta.k_heads, 16);
  EXPECT_EQ(c->delta.v_heads, 32);
  EXPECT_EQ(c->delta.channels(), 2 * 16 * 128 + 32 * 128);
  EXPECT_EQ(c->delta.conv_width, 4);
  EXPECT_FALSE(c->delta.tiled);
  EXPECT_TRUE(c->delta.log_a);
  EXPECT_TRUE(c->attention_gate);
  EXPECT_EQ(c->rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(c->norm_weight_offset, 1);
  EXPECT_EQ(c->head_dim, 256);
  EXPECT_EQ(c->experts.shared_intermediate_size, 512);

  const base::Result<Config> other =
      Read("Qwen3NextForCausalLM", R"({"full_attention_interval":2,"partial_rotary_factor":0.5})");
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(Linear(*other), "lFlFlFlF");
  EXPECT_EQ(other->rope.partial_rotary_factor, 0.5);
}

TEST(HybridConfig, Qwen35IsReadFromItsTextPart) {
  const json::value v = *base::ParseJson(
      R"({"architectures":["Qwen3_5MoeForConditionalGeneration"],"model_type":"qwen3_5_moe",
      "tie_word_embeddings":false,"vision_config":{"depth":27,"hidden_size":1152},
      "text_config":{"model_type":"qwen3_5_moe_text","vocab_size":32,"hidden_size":64,
        "num_hidden_layers":3,"num_attention_heads":4,"attn_output_gate":true,"mtp_num_hidden_layers":1,
        "layer_types":["linear_attention","full_attention","linear_attention"],"num_experts":90,
        "mlp_only_layers":[],"mamba_ssm_dtype":"float32","rope_parameters":{"rope_type":"default",
          "rope_theta":10000000,"partial_rotary_factor":0.25,"mrope_interleaved":true,
          "mrope_section":[11,11,10]}}})");
  const base::Result<Config> c = ConfigFromJson(v, nullptr);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->family, "qwen3_5_moe");
  EXPECT_EQ(Linear(*c), "lFl");
  EXPECT_EQ(Sparse(*c), "eee");
  EXPECT_EQ(c->experts.count, 90);
  EXPECT_EQ(c->experts.per_token, 8);
  EXPECT_EQ(c->num_kv_heads, 2);
  EXPECT_EQ(c->rope.theta, 1e7);
  EXPECT_EQ(c->tie_word_embeddings, false);

  const base::Result<Config> dense = Read("Qwen3_5ForCausalLM");
  ASSERT_TRUE(dense) << dense.error().message;
  EXPECT_EQ(dense->family, "qwen3_5");
  EXPECT_EQ(Sparse(*dense), "........");
}

TEST(HybridConfig, RefusalsNameTheOption) {
  ExpectRefused("LlamaForCausalLM", R"({"num_experts":8})", "num_experts");
  ExpectRefused("Qwen3_5ForCausalLM", R"({"num_experts":8})", "num_experts");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"num_experts":4,"num_local_experts":5})",
                "num_local_experts is 5");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"num_experts":4})", "num_experts_per_tok is 8");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"num_experts":-1})", "num_experts is -1");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"num_experts":9000000000})", "num_experts");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"decoder_sparse_step":0})", "decoder_sparse_step");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"mlp_only_layers":3})", "mlp_only_layers");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"shared_expert_intermediate_size":8})",
                "shared_expert_intermediate_size");
  ExpectRefused("Qwen3MoeForCausalLM", R"({"moe_router_scale":2})", "moe_router_scale");
  ExpectRefused("MixtralForCausalLM", R"({"norm_topk_prob":false})", "norm_topk_prob");
  ExpectRefused("Qwen3_5MoeForCausalLM", R"({"mlp_only_layers":[1]})", "mlp_only_layers");
  ExpectRefused("Qwen3NextForCausalLM", R"({"attn_output_gate":false})", "attn_output_gate");
  ExpectRefused("Qwen3NextForCausalLM", R"({"linear_num_key_heads":3})", "linear_num_key_heads 3");
  ExpectRefused("Qwen3NextForCausalLM", R"({"linear_key_head_dim":0})", "linear_key_head_dim");
  ExpectRefused("Qwen3NextForCausalLM", R"({"linear_conv_kernel_dim":1})",
                "linear_conv_kernel_dim");
  ExpectRefused("Qwen3NextForCausalLM", R"({"full_attention_interval":0})",
                "full_attention_interval");
  ExpectRefused("Qwen3NextForCausalLM", R"({"layer_types":["linear_attention"]})",
                "layer_types has 1");
  ExpectRefused("Qwen3NextForCausalLM", R"({"layer_types":["sliding_attention"]})",
                "sliding_attention");
  ExpectRefused("Qwen3NextForCausalLM", R"({"hidden_act":"gelu"})", "hidden_act 'gelu'");
  ExpectRefused("Qwen3NextForCausalLM", R"({"sliding_window":9})", "sliding_window");
}

base::Result<Config> ReadGguf(const std::vector<std::string>& keys) {
  testing::GgufBuilder b;
  b.keys = keys;
  const std::string file = b.Build();
  const base::Result<GgufFile> parsed = ParseGguf(testing::AsBytes(file));
  if (!parsed) return parsed.error();
  return ConfigFromGguf(parsed->metadata, [](const std::string& name) {
    return name == "token_embd.weight" ? std::vector<int64_t>{32, 64} : std::vector<int64_t>{};
  });
}

// `numbers` beside the sizes that every architecture has.
std::vector<std::string> Keys(const std::string& arch,
                              const std::vector<std::pair<const char*, uint32_t>>& numbers) {
  std::vector<std::string> keys = {
      testing::GgufString("general.architecture", arch),
      testing::GgufF32(arch + ".attention.layer_norm_rms_epsilon", 1e-6f)};
  const std::vector<std::pair<const char*, uint32_t>> sizes = {
      {"block_count", 5},          {"context_length", 64},       {"embedding_length", 64},
      {"attention.head_count", 4}, {"attention.key_length", 32}, {"attention.value_length", 32}};
  for (const auto* list : {&sizes, &numbers}) {
    for (const auto& [name, value] : *list)
      keys.push_back(testing::GgufU32(arch + "." + name, value));
  }
  return keys;
}
const std::vector<std::pair<const char*, uint32_t>> kHybridKeys = {
    {"expert_count", 6},
    {"expert_used_count", 2},
    {"expert_feed_forward_length", 24},
    {"expert_shared_feed_forward_length", 40},
    {"ssm.conv_kernel", 4},
    {"ssm.state_size", 16},
    {"ssm.group_count", 2},
    {"ssm.time_step_rank", 4},
    {"ssm.inner_size", 96},
    {"rope.dimension_count", 8},
    {"rope.dimension_sections", 1}};

TEST(HybridConfig, GgufsKeysGiveTheSame) {
  std::vector<std::string> keys = Keys("qwen35moe", kHybridKeys);
  keys.push_back(testing::GgufU32("qwen35moe.nextn_predict_layers", 1));
  const base::Result<Config> c = ReadGguf(keys);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->family, "qwen3_5_moe");
  EXPECT_EQ(c->num_hidden_layers, 4);
  EXPECT_EQ(c->nextn_layers, 1);
  EXPECT_EQ(Linear(*c), "lllF");
  EXPECT_EQ(Sparse(*c), "eeee");
  EXPECT_EQ(c->experts.count, 6);
  EXPECT_EQ(c->experts.intermediate_size, 24);
  EXPECT_EQ(c->experts.shared_intermediate_size, 40);
  EXPECT_EQ(c->delta.v_dim, 24);
  EXPECT_TRUE(c->delta.tiled);
  EXPECT_FALSE(c->delta.log_a);
  EXPECT_EQ(c->norm_weight_offset, 0);
  EXPECT_EQ(c->rope.partial_rotary_factor, 0.25);
  EXPECT_FALSE(c->rope_interleaved);

  const base::Result<Config> next = ReadGguf(Keys("qwen3next", kHybridKeys));
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_FALSE(next->delta.tiled);

  const base::Result<Config> mixtral = ReadGguf(
      Keys("llama", {{"expert_count", 8}, {"expert_used_count", 2}, {"feed_forward_length", 48}}));
  ASSERT_TRUE(mixtral) << mixtral.error().message;
  EXPECT_EQ(mixtral->family, "mixtral");
  EXPECT_EQ(mixtral->experts.intermediate_size, 48);
  EXPECT_TRUE(mixtral->rope_interleaved);
}

TEST(HybridConfig, AHybridGgufWithoutAKeyOfItsStateIsRefusedByTheKey) {
  for (const char* missing :
       {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
        "ssm.inner_size", "expert_count", "expert_used_count"}) {
    std::vector<std::pair<const char*, uint32_t>> keys;
    for (const auto& key : kHybridKeys) {
      if (std::string_view(key.first) != missing) keys.push_back(key);
    }
    const base::Result<Config> c = ReadGguf(Keys("qwen35moe", keys));
    ASSERT_FALSE(c) << missing;
    EXPECT_NE(c.error().message.find(std::string("qwen35moe.") + missing), std::string::npos)
        << c.error().message;
  }
}

TEST(HybridConfig, OtherRoutersAndSenselessNumbersInGgufAreRefusedByTheKey) {
  for (const auto& [key, value] : {std::pair{"expert_gating_func", 2u},
                                   {"expert_weights_norm", 0u},
                                   {"expert_weights_scale", 3u},
                                   {"expert_group_count", 2u},
                                   {"nextn_predict_layers", 4000000000u},
                                   {"full_attention_interval", 0u}}) {
    std::vector<std::pair<const char*, uint32_t>> keys = kHybridKeys;
    keys.emplace_back(key, value);
    const base::Result<Config> c = ReadGguf(Keys("qwen35moe", keys));
    ASSERT_FALSE(c) << key;
    EXPECT_NE(c.error().message.find(key), std::string::npos) << c.error().message;
  }
}

}  // namespace
}  // namespace vllm::weights
