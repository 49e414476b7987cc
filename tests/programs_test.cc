// The programs as their users meet them: output, exit codes, one sentence for each thing that is
// wrong.
#include <sys/resource.h>

#include <csignal>

#include "base/json.h"
#include "tests/programs_testing.h"

namespace tests {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const std::string kModels = VLLM_SOURCE_DIR "/tests/goldens/models/";

using Programs = ProgramsTest;

TEST_F(Programs, UsageErrorsEndWithTwo) {
  Refused("vllm-cli --model x --no-such-flag", 2, "--no-such-flag");
  Refused("vllm-cli", 2, "--model");
  Refused("vllm-cli --model x --temperature nan --prompt a", 2, "--temperature");
  Refused("vllm-cli --model x --top-p 0 --prompt a", 2, "--top-p");
  Refused("vllm-cli --model x --max-tokens 0 --prompt a", 2, "--max-tokens");
  Refused("vllm-cli --model x --prompt ''", 2, "--prompt is empty");
  Refused("vllm-inspect", 2, "subcommand");
  Refused("vllm-inspect logits --model x", 2, "--ids");
  Refused("vllm-inspect logits --model x --ids ''", 2, "--ids");
  Refused("vllm-inspect logits --model x --ids 1 --at-ids ''", 2, "--at-ids");
  Refused("vllm-inspect logits --model x --ids 1,,2", 2, "--ids: '' is no token id");
  Refused("vllm-inspect logits --model x --ids 1 --at-ids 2,", 2, "--at-ids: '' is no token id");
  Refused("vllm-inspect detokenize --model x --ids 1,,2", 2, "--ids: '' is no token id");
  Refused("vllm-inspect detokenize --model x --ids 1,two", 2, "--ids: 'two' is no token id");
  Refused("vllm-inspect detokenize --model x --ids 4294967297", 2, "'4294967297' is no token id");
  Refused("vllm-cli --model " + kModels + "qwen3 --quantization Q4_K_M --prompt a", 2,
          "--quantization");
}

TEST_F(Programs, HelpExplainsEveryFlag) {
  const Ended e = Run("vllm-cli --help");
  EXPECT_EQ(e.code, 0);
  for (const char* flag : {"--model", "--prompt", "--system", "--max-tokens", "--temperature",
                           "--top-p", "--top-k", "--min-p", "--seed", "--stream", "--chat-template",
                           "--device", "--threads", "--load-format"}) {
    EXPECT_NE(e.out.find(flag), std::string::npos) << flag;
  }
}

TEST_F(Programs, BrokenModelsAreRefusedByName) {
  Refused("vllm-cli --prompt a --model " + Path("nothing.gguf"), 1, "nothing.gguf");
  // Neither a path that exists nor a name: a wrong argument.
  Refused("vllm-cli --prompt a --model " + Path("nothing"), 2, "nothing");
  Refused("vllm-cli --prompt a --model " + Write("empty.gguf", ""), 1, "empty.gguf");
  Refused("vllm-cli --prompt a --model " + Write("text.gguf", "this is not a model file at all"), 1,
          "text.gguf");
  Write("no_config/model.safetensors", "");
  Refused("vllm-cli --prompt a --model " + Path("no_config"), 1, "no_config");
  Write("json/config.json", "{\"architectures\": [");
  Refused("vllm-cli --prompt a --model " + Path("json"), 1, "config.json");
  Write("family/config.json",
        R"({"architectures": ["PerceptronForCausalLM"], "model_type": "perceptron"})");
  Refused("vllm-cli --prompt a --load-format dummy --model " + Path("family"), 1, "Perceptron");
}

TEST_F(Programs, AMissingShardIsNamed) {
  fs::copy(kModels + "qwen3", folder_ / "shards");
  fs::remove(folder_ / "shards/model.safetensors");
  Write(
      "shards/model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
  Refused("vllm-cli --prompt a --model " + Path("shards"), 1, "model-00001-of-00002.safetensors");
}

TEST_F(Programs, LogitsAreJsonWithTheIdsAskedFor) {
  const Ended e =
      Run("vllm-inspect logits --json --dtype float32 --top 3 --at-ids 7,8 --ids 1,2,3 --model " +
          kModels + "qwen3");
  ASSERT_EQ(e.code, 0) << e.err;
  const base::Result<json::value> v = base::ParseJson(e.out);
  ASSERT_TRUE(v) << e.out;
  const json::array& positions = v->at("positions").as_array();
  ASSERT_EQ(positions.size(), 3u);
  for (const json::value& p : positions) {
    const json::array& ids = p.at("ids").as_array();
    const json::array& values = p.at("logprobs").as_array();
    ASSERT_EQ(ids.size(), 5u);
    ASSERT_EQ(values.size(), 5u);
    EXPECT_EQ(ids[3].to_number<int>(), 7);
    EXPECT_EQ(ids[4].to_number<int>(), 8);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_GE(values[i].to_number<double>(), values[i + 1].to_number<double>());
    for (const json::value& x : values) EXPECT_LE(x.to_number<double>(), 0.0);
  }
}

TEST_F(Programs, IdsOutsideTheVocabularyAreRefused) {
  Refused("vllm-inspect logits --ids 1,99999999 --model " + kModels + "qwen3", 2, "99999999");
  Refused("vllm-inspect logits --ids 1 --at-ids=-3 --model " + kModels + "qwen3", 2, "-3");
}

TEST_F(Programs, APromptOverTheContextIsRefused) {
  std::string ids = "1";
  for (int i = 0; i < 40; ++i) ids += ",2";
  Refused("vllm-inspect logits --max-model-len 32 --ids " + ids + " --model " + kModels + "qwen3",
          2, "41 tokens");
}

TEST_F(Programs, ThePlanOfDummyWeightsNeedsAConfigurationAlone) {
  Write("dummy/config.json",
        R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 320, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": false, "torch_dtype": "bfloat16"})");
  for (const char* mix :
       {"", " --quantization Q4_K_M", " --quantization Q8_0", " --quantization Q2_K"}) {
    const std::string model = "--load-format dummy --model " + Path("dummy") + mix;
    const Ended e = Run("vllm-inspect plan --json --measure --context 8 " + model);
    ASSERT_EQ(e.code, 0) << e.err;
    const base::Result<json::value> v = base::ParseJson(e.out);
    ASSERT_TRUE(v) << e.out;
    // A node is a launch unless it only looks at another's values.
    size_t launches = 0;
    for (const json::value& node : v->at("nodes").as_array()) {
      const auto& op = node.at("op").as_string();
      launches += op != "slice" && op != "reshape";
    }
    EXPECT_EQ(v->at("launches_per_token").to_number<size_t>(), launches);
    EXPECT_GT(v->at("measured_ms_per_token").to_number<double>(), 0);
    EXPECT_GT(v->at("predicted_ms_per_token").to_number<double>(), 0);
  }
  // A card that is not there, by a module of GPUs: here the emulated one.
  const Ended card =
      Run("vllm-inspect plan --json --device rx9060xt --batch 1 --load-format dummy "
          "--model " +
          Path("dummy"));
  if (card.code == 0) {
    const base::Result<json::value> v = base::ParseJson(card.out);
    ASSERT_TRUE(v) << card.out;
    // Six launches a layer, and what a step has once.
    EXPECT_LE(v->at("launches_per_token").to_number<int>(), 2 * 8 + 10);
    EXPECT_GE(v->at("launches_per_token").to_number<int>(), 2 * 5);
    EXPECT_GT(v->at("predicted_ms_per_token").to_number<double>(),
              0.0039 * v->at("launches_per_token").to_number<double>());
  } else {
    EXPECT_NE(card.err.find("no such device"), std::string::npos) << card.err;
  }
  Refused("vllm-inspect plan --load-format dummy --quantization Q9_Z --model " + Path("dummy"), 2,
          "Q9_Z");
}

TEST_F(Programs, TheGraphIsShownAfterEachPass) {
  const Ended e = Run("vllm-inspect graph --json --model " + kModels + "gemma3");
  ASSERT_EQ(e.code, 0) << e.err;
  const base::Result<json::value> v = base::ParseJson(e.out);
  ASSERT_TRUE(v) << e.out;
  std::string passes;
  for (const json::value& p : v->at("passes").as_array())
    passes += std::string(p.at("pass").as_string()) + " ";
  EXPECT_EQ(passes.find("built "), 0u) << passes;
  EXPECT_NE(passes.find("fuse"), std::string::npos) << passes;
}

TEST_F(Programs, TheCpuIsListedAsADevice) {
  const Ended e = Run("vllm-inspect devices --json");
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("\"cpu\""), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("scalar"), std::string::npos) << e.out;  // with its instruction sets
  Refused("vllm-cli --prompt a --device cuda:1 --model " + kModels + "qwen3", 1, "cuda:1");
}

TEST_F(Programs, OutputThatCannotBeWrittenEndsWithOneSentence) {
  // A file that has all the bytes that the process may write stands for a full disk.
  constexpr rlim_t kMost = 4096;
  const std::string full = " >>" + Write("full", std::string(kMost, ' '));
  const std::string words = "the output cannot be written: File too large";
  const std::string model = " --model " + kModels + "llama_tied";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{kMost, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Refused("vllm-inspect devices" + full, 1, words);
  Refused("vllm-inspect info" + model + full, 1, words);
  Refused("vllm-inspect graph" + model + full, 1, words);  // more than a buffer holds
  Refused("vllm-inspect detokenize --ids 1,2" + model + full, 1, words);
  Refused("vllm-cli --help" + full, 1, words);
  Refused("vllm-cli --raw --prompt a --max-tokens 8" + model + full, 1, words);
  Refused("vllm-bench micro -p 8 -n 2 -r 1" + model + full, 1, words);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace tests
