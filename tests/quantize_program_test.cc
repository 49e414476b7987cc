// vllm-quantize and vllm-inspect perplexity as their users meet them.
#include <cmath>

#include "base/json.h"
#include "tests/programs_testing.h"

namespace tests {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const std::string kModels = VLLM_SOURCE_DIR "/tests/goldens/models/";
const std::string kText = VLLM_SOURCE_DIR "/tests/data/alice_in_wonderland.txt";

class QuantizeProgram : public ProgramsTest {
 protected:
  json::value Json(const std::string& command) const {
    const Ended e = Run(command);
    EXPECT_EQ(e.code, 0) << command << "\n" << e.err;
    const base::Result<json::value> v = base::ParseJson(e.out);
    EXPECT_TRUE(v) << e.out;
    return v ? *v : json::value();
  }
  // Log-probabilities of a few ids after a few tokens.
  std::vector<double> LogProbabilities(const std::string& model) const {
    std::vector<double> out;
    const json::value v = Json(
        "vllm-inspect logits --json --dtype float32 --top 0 --at-ids 3,50,100,200 --ids "
        "5,80,3,120,77,9,31,200,14,6,101,42 --model " +
        model);
    for (const json::value& p : v.at("positions").as_array()) {
      for (const json::value& x : p.at("logprobs").as_array()) out.push_back(x.to_number<double>());
    }
    return out;
  }
};

TEST_F(QuantizeProgram, UsageErrorsEndWithTwo) {
  const std::string model = "vllm-quantize --model " + kModels + "qwen3 ";
  Refused("vllm-quantize", 2, "--model");
  Refused(model, 2, "--out");
  Refused(model + "--out " + Path("q.gguf") + " --type Q9_K", 2, "Q4_K_M");
  Refused(model + "--out " + Path("q.gguf") + " --threads -1", 2, "--threads");
  Refused(model + "--out " + Path("q.gguf") + " --no-such-flag", 2, "--no-such-flag");
  Refused(model + "--out " + folder_.string(), 2, "folder");
  Refused(model + "--out /dev/null", 2, "/dev/null");
  const Ended help = Run("vllm-quantize --help");
  EXPECT_EQ(help.code, 0);
  for (const char* word : {"--model", "--out", "--type", "--threads", "--allow-requantize",
                           "--dry-run", "--revision", "Q3_K_L", "IQ4_XS"})
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
}

TEST_F(QuantizeProgram, BadInputsEndWithOneAndLeaveNothing) {
  const std::string out = " --out " + Path("made.gguf");
  Refused("vllm-quantize --model " + Path("nothing.gguf") + out, 1, "nothing.gguf");
  Refused("vllm-quantize --model " + Write("text.gguf", "this is not a model") + out, 1,
          "text.gguf");
  Write("empty/config.json", "{}");
  Refused("vllm-quantize --model " + Path("empty") + out, 1, "empty");
  Refused("vllm-quantize --model " + kModels + "llama_dynamic" + out, 1, "dynamic");
  Refused("vllm-quantize --model " + kModels + "qwen3 --out " + Path("no/folder/q.gguf"), 1,
          "no/folder");
  fs::copy(kModels + "qwen3", folder_ / "no_words");
  fs::remove(folder_ / "no_words/tokenizer.json");
  Refused("vllm-quantize --model " + Path("no_words") + out, 1, "tokenizer.json");
  EXPECT_FALSE(fs::exists(Path("made.gguf")));
}

TEST_F(QuantizeProgram, TheInputIsNeverOverwritten) {
  const std::string input = Path("in.gguf");
  fs::copy(kModels + "gguf/qwen3.gguf", input);
  const std::string before = *base::os::ReadFile(input);
  Refused("vllm-quantize --model " + input + " --out " + input, 2, "the input itself");
  fs::create_symlink(input, Path("link.gguf"));
  Refused("vllm-quantize --model " + input + " --out " + Path("link.gguf"), 2, "the input itself");
  EXPECT_EQ(*base::os::ReadFile(input), before);
}

// A limit on files' sizes fails a write like a full disk does.
TEST_F(QuantizeProgram, ADiskThatIsFullLeavesNothing) {
  const std::string limited =
      "vllm-quantize --help >/dev/null; ulimit -f 100; " VLLM_BINARY_DIR "/examples/";
  Refused(limited + "vllm-quantize --type Q8_0 --model " + kModels + "gguf/gemma3.gguf --out " +
              Path("q.gguf"),
          1, "nothing is left behind");
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("q.gguf"), std::string::npos) << entry.path();
}

TEST_F(QuantizeProgram, ADryRunPrintsTypesAndSizes) {
  const Ended e =
      Run("vllm-quantize --dry-run --type Q4_K_M --model " + kModels + "gguf/qwen3.gguf");
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("blk.0.attn_norm.weight"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("bits a weight"), std::string::npos) << e.out;
}

// Hugging Face's folder and the GGUF file made of it compute the same.
TEST_F(QuantizeProgram, AModelFromSafetensorsSaysTheSame) {
  for (const std::string model : {"llama_rope3", "llama_bias", "llama_linear", "llama_yarn_nested",
                                  "qwen2", "qwen3", "qwen3_tied", "gemma3_linear"}) {
    const Ended e =
        Run("vllm-quantize --type F32 --model " + kModels + model + " --out " + Path("m.gguf"));
    ASSERT_EQ(e.code, 0) << e.err;
    const std::vector<double> a = LogProbabilities(kModels + model),
                              b = LogProbabilities(Path("m.gguf"));
    ASSERT_EQ(a.size(), 48u);
    ASSERT_EQ(a.size(), b.size());
    // Both in f32; frequencies and norms are rounded once on the way.
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-4) << model << " " << i;
    const std::string text = " --json --text 'The th thing: 1234 \xc3\xa4' --model ";
    EXPECT_EQ(Json("vllm-inspect tokenize" + text + kModels + model),
              Json("vllm-inspect tokenize" + text + Path("m.gguf")))
        << model;
  }
}

TEST_F(QuantizeProgram, EveryMixLoadsAndForetellsAlmostAsWell) {
  const std::string score =
      "vllm-inspect perplexity --json --tokens 256 --context 64 --file " + kText + " --model ";
  const double exact =
      Json(score + kModels + "gguf/llama_linear.gguf").at("perplexity").to_number<double>();
  for (const std::string mix : {"F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS"}) {
    const Ended e = Run("vllm-quantize -t 2 --type " + mix + " --model " + kModels +
                        "gguf/llama_linear.gguf --out " + Path("q.gguf"));
    ASSERT_EQ(e.code, 0) << e.err;
    EXPECT_EQ(std::count(e.out.begin(), e.out.end(), '\n'), 1) << e.out;
    const double got = Json(score + Path("q.gguf")).at("perplexity").to_number<double>();
    // Random weights foretell nothing; four bits move that by a few percent.
    EXPECT_NEAR(got / exact, 1, mix == "F16" || mix == "Q8_0" ? 0.02 : 0.15) << mix;
  }
}

// Of a window of C tokens those from C / 2 + 1 on are scored: C - 1 - C / 2 of them.
TEST_F(QuantizeProgram, PerplexityIsTheMeanOfWhatLogitsSays) {
  const std::string model = kModels + "qwen3";
  Write("short.txt", "The thing that they thought about was this.");
  const json::value v =
      Json("vllm-inspect perplexity --json --dtype float32 --context 8 --tokens 20 --file " +
           Path("short.txt") + " --model " + model);
  EXPECT_EQ(v.at("windows").to_number<int>(), 2);
  EXPECT_EQ(v.at("tokens").to_number<int>(), 16);
  EXPECT_EQ(v.at("scored_tokens").to_number<int>(), 2 * 3);

  const json::value ids = Json("vllm-inspect tokenize --json --no-add-special-tokens --file " +
                               Path("short.txt") + " --model " + model);
  std::vector<int> tokens;
  for (const json::value& id : ids.at("ids").as_array()) tokens.push_back(id.to_number<int>());
  ASSERT_GE(tokens.size(), 16u);
  double sum = 0;
  for (int window = 0; window < 2; ++window) {
    std::string list, wanted;
    for (int i = 0; i < 8; ++i) {
      const std::string id = std::to_string(tokens[static_cast<size_t>(8 * window + i)]);
      list += (i > 0 ? "," : "") + id;
      if (i > 4) wanted += (i > 5 ? "," : "") + id;
    }
    const json::value scores = Json("vllm-inspect logits --json --dtype float32 --top 0 --ids " +
                                    list + " --at-ids " + wanted + " --model " + model);
    for (size_t i = 5; i < 8; ++i) {
      sum -= scores.at("positions")
                 .as_array()[i - 1]
                 .at("logprobs")
                 .as_array()[i - 5]
                 .to_number<double>();
    }
  }
  EXPECT_NEAR(v.at("negative_log_likelihood").to_number<double>(), sum / 6, 1e-4);
  EXPECT_NEAR(v.at("perplexity").to_number<double>(), std::exp(sum / 6), 1e-3 * std::exp(sum / 6));
}

TEST_F(QuantizeProgram, TextsThatCannotBeScoredAreRefused) {
  const std::string score = "vllm-inspect perplexity --model " + kModels + "qwen3 --file ";
  const std::string window = " --context 64";  // the model takes 256
  Refused(score + Path("nothing.txt") + window, 1, "nothing.txt");
  Refused(score + Write("short.txt", "a few words") + window, 2, "fewer than a window");
  Refused(score + kText + " --context 2", 2, "--context");
  Refused("vllm-inspect perplexity --model " + kModels + "qwen3", 2, "--file");
}

}  // namespace
}  // namespace tests
