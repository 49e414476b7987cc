#include "vllm/weights/config.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;

constexpr const char* kLlama =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,"hidden_size":64,
  "intermediate_size":128,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"rms_norm_eps":1e-5,
  "max_position_embeddings":512,"bos_token_id":1,"eos_token_id":[2,3]})";

// `base` with `changes` (an object's text) on top.
base::Result<Config> Read(std::string_view base, std::string_view changes = "{}",
                          std::string_view generation = "null") {
  json::value v = *base::ParseJson(base);
  const json::value extra = *base::ParseJson(changes);
  for (const auto& [key, value] : extra.get_object()) v.get_object()[key] = value;
  return ConfigFromJson(v, *base::ParseJson(generation));
}
std::string Of(const char* architecture) {
  return R"({"architectures":[")" + std::string(architecture) + R"("]})";
}

void ExpectRefused(std::string_view changes, std::initializer_list<const char*> parts) {
  const base::Result<Config> c = Read(kLlama, changes);
  ASSERT_FALSE(c) << changes;
  for (const char* part : parts)
    EXPECT_NE(c.error().message.find(part), std::string::npos) << c.error().message;
}

TEST(Config, LlamaWithItsDefaults) {
  const base::Result<Config> c =
      Read(kLlama, R"({"torch_dtype":"bfloat16"})", R"({"eos_token_id":[3,7]})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->family, "llama");
  EXPECT_EQ(c->head_dim, 16);
  EXPECT_EQ(c->num_kv_heads, 2);
  EXPECT_EQ(c->rope.type, "default");
  EXPECT_EQ(c->rope.theta, 10000);
  EXPECT_EQ(c->hidden_act, "silu");
  EXPECT_EQ(c->tie_word_embeddings, std::nullopt);
  EXPECT_EQ(c->eos_token_ids, (std::vector<int32_t>{2, 3, 7}));
  EXPECT_EQ(c->bos_token_id, 1);
  EXPECT_EQ(c->dtype, vt::ir::DType::kBF16);
  EXPECT_EQ(c->query_pre_attn_scalar, 16);
  EXPECT_EQ(c->WindowOf(3), 0);
  EXPECT_FALSE(c->rope_interleaved);
}

TEST(Config, RopeScalingInBothSpellings) {
  const char* old_style =
      R"({"rope_theta":500000.0,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
    "original_max_position_embeddings":8192,"rope_type":"llama3"}})";
  const char* new_style =
      R"({"rope_parameters":{"rope_theta":500000.0,"factor":32.0,"high_freq_factor":4.0,
    "low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}})";
  for (const char* text : {old_style, new_style}) {
    const base::Result<Config> c = Read(kLlama, text);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->rope.type, "llama3");
    EXPECT_EQ(c->rope.theta, 500000);
    EXPECT_EQ(c->rope.factor, 32);
    EXPECT_EQ(c->rope.original_max_position_embeddings, 8192);
  }
  const base::Result<Config> yarn = Read(
      kLlama,
      R"({"rope_scaling":{"type":"yarn","factor":4,"attention_factor":null,"truncate":false}})");
  ASSERT_TRUE(yarn) << yarn.error().message;
  EXPECT_EQ(yarn->rope.type, "yarn");
  EXPECT_EQ(yarn->rope.original_max_position_embeddings, 512) << "the model's own length";
  EXPECT_EQ(yarn->rope.beta_fast, 32);
  EXPECT_FALSE(yarn->rope.truncate);
}

TEST(Config, RopeSettingsThatAreNotImplementedAreNamed) {
  ExpectRefused(R"({"rope_scaling":{"rope_type":"longrope","factor":4}})", {"longrope"});
  ExpectRefused(R"({"rope_scaling":{"rope_type":"yarn","factor":4,"short_factor":[1,2]}})",
                {"rope_scaling.short_factor"});
  ExpectRefused(R"({"rope_scaling":{"rope_type":"linear","factor":0}})", {"factor is 0"});
  ExpectRefused(R"({"rope_scaling":{"rope_type":"linear","factor":"x"}})",
                {"rope_scaling", "'factor'"});
  ExpectRefused(R"({"rope_scaling":[1]})", {"'rope_scaling'"});
  ExpectRefused(R"({"rope_theta":-1})", {"rope_theta"});
  ExpectRefused(
      R"({"rope_parameters":{"full_attention":{"rope_theta":1},"sliding_attention":{"rope_theta":2}}})",
      {"rope_parameters"});
}

TEST(Config, OptionsThatChangeTheMathematicsAreRefusedByName) {
  ExpectRefused(R"({"hidden_act":"xielu"})", {"hidden_act 'xielu'"});
  ExpectRefused(R"({"embedding_multiplier":12.0})", {"embedding_multiplier = 1.2E1"});
  ExpectRefused(R"({"num_local_experts":8})", {"num_local_experts"});
  ExpectRefused(R"({"attn_logit_softcapping":50.0})", {"attn_logit_softcapping"});
  ExpectRefused(R"({"sliding_window":128})", {"sliding_window"});
  ExpectRefused(R"({"qk_layernorm":true})", {"qk_layernorm"});
  ExpectRefused(R"({"use_bidirectional_attention":true})", {"use_bidirectional_attention"});
  ExpectRefused(R"({"quantization_config":{"quant_method":"bitsandbytes"}})",
                {"quantization_config", "'bitsandbytes'"});
  ExpectRefused(
      R"({"layer_types":["full_attention","linear_attention","full_attention","full_attention"]})",
      {"layer_types[1]"});
  ExpectRefused(R"({"torch_dtype":"float8_e4m3fn"})", {"float8_e4m3fn"});
  EXPECT_FALSE(Read(kLlama, R"({"architectures":["MistralForCausalLM"],"attention_bias":true})"));
}

TEST(Config, HarmlessAndUnknownOptionsAreTaken) {
  const base::Result<Config> c = Read(
      kLlama,
      R"({"rope_scaling":null,"attention_dropout":0.0,"initializer_range":0.02,"pretraining_tp":1,
    "use_cache":true,"transformers_version":"4.40","rope_interleaved":false,"sliding_window":null,"unheard_of":[1,2],
    "attention_bias":true,"mlp_bias":true,"embedding_multiplier":null})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_TRUE(c->attention_bias);
  EXPECT_TRUE(c->mlp_bias);
}

TEST(Config, SizesOutOfRangeAreRefusedByName) {
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "vocab_size", "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "9223372036854775807", "\"8\"", "1.5", "[1]", "{}"}) {
      ExpectRefused(std::string("{\"") + field + "\":" + value + "}", {field});
    }
  }
  ExpectRefused(R"({"num_key_value_heads":3})", {"num_key_value_heads"});
  ExpectRefused(R"({"rms_norm_eps":-1})", {"rms_norm_eps", "must be"});
  ExpectRefused(R"({"num_hidden_layers":5000})", {"num_hidden_layers", "from 1 to 4096"});
  ExpectRefused(R"({"num_attention_heads":3})", {"hidden_size 64"});
  ExpectRefused(R"({"architectures":[]})", {"architectures"});
  ExpectRefused(R"({"architectures":["GPT2LMHeadModel"]})",
                {"GPT2LMHeadModel", "LlamaForCausalLM"});
  ExpectRefused(R"({"eos_token_id":"</s>"})", {"eos_token_id"});
  EXPECT_FALSE(Read(R"({"model_type":"llama"})"));
  EXPECT_FALSE(Read("{}"));
}

TEST(Config, MistralSlidesOnEveryLayer) {
  const base::Result<Config> c =
      Read(kLlama, R"({"architectures":["MistralForCausalLM"],"sliding_window":8})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->WindowOf(0), 8);
  EXPECT_EQ(c->WindowOf(3), 8);
  const base::Result<Config> none =
      Read(kLlama, R"({"architectures":["MistralForCausalLM"],"sliding_window":null})");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->WindowOf(0), 0);
}

TEST(Config, QwenSlidesOnlyWhenToldAndOnlyOnUpperLayers) {
  const base::Result<Config> off = Read(
      kLlama, R"({"architectures":["Qwen2ForCausalLM"],"sliding_window":8,"max_window_layers":2})");
  ASSERT_TRUE(off) << off.error().message;
  EXPECT_EQ(off->WindowOf(3), 0);
  const base::Result<Config> on = Read(
      kLlama, R"({"architectures":["Qwen3ForCausalLM"],"sliding_window":8,"max_window_layers":2,
    "use_sliding_window":true})");
  ASSERT_TRUE(on) << on.error().message;
  EXPECT_EQ(on->head_dim, 128) << "Qwen 3's default";
  EXPECT_EQ(on->WindowOf(1), 0);
  EXPECT_EQ(on->WindowOf(2), 8);
}

TEST(Config, GemmaTwoAlternatesAndCaps) {
  const base::Result<Config> c = Read(kLlama, Of("Gemma2ForCausalLM"));
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->WindowOf(0), 4096);
  EXPECT_EQ(c->WindowOf(1), 0);
  EXPECT_EQ(c->attn_logit_softcapping, 50);
  EXPECT_EQ(c->final_logit_softcapping, 30);
  EXPECT_EQ(c->norm_weight_offset, 1);
  EXPECT_EQ(c->hidden_act, "gelu_pytorch_tanh");
  const base::Result<Config> uncapped =
      Read(kLlama, R"({"architectures":["Gemma2ForCausalLM"],"final_logit_softcapping":null})");
  ASSERT_TRUE(uncapped);
  EXPECT_EQ(uncapped->final_logit_softcapping, 0);
}

TEST(Config, GemmaThreeHasTwoRopesInEverySpelling) {
  const std::string flat =
      R"({"architectures":["Gemma3ForCausalLM"],"rope_theta":1000000.0,"rope_local_base_freq":20000.0,
    "rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":16,"sliding_window_pattern":3})";
  const std::string keyed = R"({"architectures":["Gemma3ForCausalLM"],"sliding_window":16,
    "layer_types":["sliding_attention","sliding_attention","full_attention","sliding_attention"],
    "rope_parameters":{"full_attention":{"rope_theta":1000000.0,"factor":8.0,"rope_type":"linear"},
    "sliding_attention":{"rope_theta":20000.0,"rope_type":"default"}}})";
  for (const std::string& text : {flat, keyed}) {
    const base::Result<Config> c = Read(kLlama, text);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->family, "gemma3");
    EXPECT_EQ(c->rope.theta, 1e6);
    EXPECT_EQ(c->rope.type, "linear");
    EXPECT_EQ(c->rope.factor, 8);
    EXPECT_EQ(c->rope_local.theta, 20000);
    EXPECT_EQ(c->rope_local.type, "default");
    EXPECT_EQ(c->WindowOf(1), 16);
    EXPECT_EQ(c->WindowOf(2), 0);
    EXPECT_EQ(c->WindowOf(3), 16);
  }
}

TEST(Config, GemmaThreeWithVisionGivesItsTextPart) {
  const base::Result<Config> c = Read(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3","torch_dtype":"bfloat16",
    "eos_token_id":[1,106],"vision_config":{"hidden_size":1152,"hidden_act":"x"},"text_config":{"hidden_size":2560,"intermediate_size":10240,
    "model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024}})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->family, "gemma3");
  EXPECT_EQ(c->num_heads, 8);
  EXPECT_EQ(c->num_kv_heads, 4);
  EXPECT_EQ(c->head_dim, 256);
  EXPECT_EQ(c->vocab_size, 262208);
  EXPECT_EQ(c->eos_token_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(c->WindowOf(5), 0);
  EXPECT_EQ(c->WindowOf(6), 1024);
  EXPECT_EQ(c->rope.factor, 8);
  EXPECT_EQ(c->rope_local.theta, 10000);
}

// Metadata values are views of `file`, which must live as long as the reading.
base::Result<Config> ReadGguf(const std::vector<std::string>& entries,
                              std::vector<int64_t> embedding = {32, 8}) {
  testing::GgufBuilder b;
  b.keys = entries;
  const std::string file = b.Build();
  const base::Result<GgufFile> parsed = ParseGguf(testing::AsBytes(file));
  if (!parsed) return parsed.error();
  return ConfigFromGguf(parsed->metadata, [&](const std::string& name) {
    return name == "token_embd.weight" ? embedding : std::vector<int64_t>{};
  });
}
std::vector<std::string> Keys(const std::string& arch, std::vector<std::string> extra = {}) {
  std::vector<std::string> keys = {
      testing::GgufString("general.architecture", arch),
      testing::GgufU32(arch + ".block_count", 4),
      testing::GgufU32(arch + ".context_length", 64),
      testing::GgufU32(arch + ".embedding_length", 8),
      testing::GgufU32(arch + ".feed_forward_length", 16),
      testing::GgufU32(arch + ".attention.head_count", 2),
      testing::GgufF32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f)};
  keys.insert(keys.end(), extra.begin(), extra.end());
  return keys;
}

TEST(GgufConfig, LlamaIsInterleavedAndGemmaNormsAreWhole) {
  const base::Result<Config> llama = ReadGguf(Keys("llama"));
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_TRUE(llama->rope_interleaved);
  EXPECT_EQ(llama->head_dim, 4);
  EXPECT_EQ(llama->num_kv_heads, 2);
  EXPECT_EQ(llama->vocab_size, 32);
  EXPECT_EQ(llama->tie_word_embeddings, true);
  const base::Result<Config> gemma =
      ReadGguf(Keys("gemma3", {testing::GgufU32("gemma3.attention.sliding_window", 8),
                               testing::GgufU32("gemma3.attention.key_length", 6),
                               testing::GgufU32("gemma3.attention.value_length", 6),
                               testing::GgufF32("gemma3.rope.freq_base", 1e6f),
                               testing::GgufString("gemma3.rope.scaling.type", "linear"),
                               testing::GgufF32("gemma3.rope.scaling.factor", 8)}));
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_FALSE(gemma->rope_interleaved);
  EXPECT_EQ(gemma->norm_weight_offset, 0);
  EXPECT_EQ(gemma->head_dim, 6);
  EXPECT_EQ(gemma->rope.factor, 8);
  EXPECT_EQ(gemma->rope_local.type, "default");
  EXPECT_EQ(gemma->rope_local.theta, 10000);
  EXPECT_EQ(gemma->WindowOf(0), 8);
  const base::Result<Config> two = ReadGguf(Keys("gemma2"));
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->WindowOf(0), 4096);
  EXPECT_EQ(two->WindowOf(1), 0);
  EXPECT_EQ(two->attn_logit_softcapping, 50);
}

TEST(GgufConfig, RefusalsNameTheKey) {
  const auto expect = [](const std::vector<std::string>& keys, const char* part) {
    const base::Result<Config> c = ReadGguf(keys);
    ASSERT_FALSE(c) << part;
    EXPECT_NE(c.error().message.find(part), std::string::npos) << c.error().message;
  };
  expect({testing::GgufString("general.architecture", "mamba")}, "'mamba'");
  expect({testing::GgufString("general.architecture", "llama")}, "llama.embedding_length");
  expect({}, "general.architecture");
  // Experts make it mixtral, which needs more.
  expect(Keys("llama", {testing::GgufU32("llama.expert_count", 8)}), "llama.expert_used_count");
  expect(Keys("qwen2", {testing::GgufU32("qwen2.expert_count", 8)}), "qwen2.expert_count");
  expect(Keys("llama", {testing::GgufString("llama.rope.scaling.type", "longrope")}), "longrope");
  expect(Keys("llama", {testing::GgufU32("llama.attention.value_length", 6)}),
         "llama.attention.value_length");
  expect(Keys("llama", {testing::GgufU32("llama.rope.dimension_count", 5)}),
         "llama.rope.dimension_count");
  expect(Keys("qwen2", {testing::GgufU32("qwen2.attention.sliding_window", 5)}),
         "qwen2.attention.sliding_window");
}

// Anything at all in any field: an answer, never a crash.
TEST(Config, RandomChangesOfTheTextAreHandled) {
  std::mt19937 random(3);
  const std::string good = kLlama;
  int parsed = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (int change = 0; change <= round % 3; ++change) {
      const size_t at = random() % text.size();
      constexpr std::string_view kBytes = "0123456789-.,:[]{}\"enull";
      text[at] = kBytes[random() % kBytes.size()];
    }
    const base::Result<json::value> v = base::ParseJson(text);
    if (!v) continue;
    ++parsed;
    const base::Result<Config> c = ConfigFromJson(*v, nullptr);
    if (c) {
      EXPECT_EQ(c->layer_types.size(), static_cast<size_t>(c->num_hidden_layers));
    }
  }
  EXPECT_GT(parsed, 500);
}

}  // namespace
}  // namespace vllm::weights
