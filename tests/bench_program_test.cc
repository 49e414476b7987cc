// vllm-bench as its users meet it, on a tiny model with the CPU and with the device that computes
// nothing.
#include "base/json.h"
#include "tests/bench_testing.h"
#include "tests/programs_testing.h"

namespace apps::bench {
namespace {

namespace json = boost::json;
using tests::Ended;

const std::string kModel = " --model " VLLM_SOURCE_DIR "/tests/goldens/models/qwen3";
const std::string kSmall = " --num-prompts 6 --input-len 5 --output-len 4 --threads 1";

class BenchProgram : public tests::ProgramsTest {
 protected:
  Ended Run(const std::string& arguments) const {
    return ProgramsTest::Run("vllm-bench " + arguments);
  }
  void Refused(const std::string& arguments, const std::string& words) const {
    ProgramsTest::Refused("vllm-bench " + arguments, 2, words);
  }
  json::value Json(const std::string& name) const {
    const base::Result<json::value> v = base::ParseJsonFile(Path(name));
    EXPECT_TRUE(v) << name;
    return v ? *v : json::value();
  }
};

TEST_F(BenchProgram, FlagsThatContradictOrDoNothingAreRefused) {
  Refused("--no-such-flag", "--no-such-flag");
  Refused("", "--model is missing");
  Refused("--model x --input-len 9..4", "--input-len");
  Refused("--model x --request-rate 0", "--request-rate");
  Refused("--model x --temperature nan", "--temperature");
  Refused("--model x --sweep 1,2 --concurrency 4", "--concurrency has no effect");
  Refused("--model x --sweep 1,0", "--sweep");
  Refused("--model x --api-key k", "--api-key has no effect without --url");
  Refused("--url http://127.0.0.1:1 --threads 2", "--threads has no effect with --url");
  Refused("--model x --dataset-path y --prefix-len 3", "--prefix-len has no effect");
  Refused("--model x --batch 4", "--batch has no effect without --profile");
  Refused("--model x --profile --report r", "--report has no effect with --profile");
  Refused("--model x --profile --max-num-seqs 4", "--max-num-seqs has no effect with --profile");
  Refused("--model x --profile --profile-lengths 9,4", "--profile-lengths");
  Refused("--model x --save-detailed", "--save-detailed");
  Refused("--url http://127.0.0.1:1 --prompt-form text", "--model is missing");
  Refused("--threads 2 micro -m x", "--threads");
  Refused("micro" + kModel + " -p 0 -n 0", "-p and -n");
  Refused(kModel + " --input-len 1000000 --output-len 5", "--input-len and --output-len");
}

TEST_F(BenchProgram, TheSameSeedGivesTheSameTokensAtAnyConcurrency) {
  for (const std::string device : {" --device cpu --dtype float32", " --device null"}) {
    for (const std::string at_once : {"1", "4"}) {
      const Ended e = Run(kModel + kSmall + device + " --concurrency " + at_once +
                          " --repeat 2 --output-token-ids " + Path(at_once) + " --output-json " +
                          Path("json" + at_once) + " --save-detailed");
      ASSERT_EQ(e.code, 0) << e.err;
      EXPECT_NE(e.out.find("Median (min .. max) of 2 runs"), std::string::npos) << e.out;
      EXPECT_EQ(e.err, "");
    }
    const json::array one = Json("1").at("runs").as_array(), four = Json("4").at("runs").as_array();
    ASSERT_EQ(one.size(), 2u);
    for (size_t r = 0; r < 2; ++r) {
      const json::array& ids = one[r].at("output_token_ids").as_array();
      ASSERT_EQ(ids.size(), 6u);
      for (const json::value& request : ids) EXPECT_EQ(request.as_array().size(), 4u);
      EXPECT_EQ(ids, four[r].at("output_token_ids").as_array());
    }
    EXPECT_NE(one[0], one[1]);  // each run has prompts of its own
    const json::value result = Json("json4");
    for (const json::value& run : result.at("points").at(0).at("runs").as_array()) {
      EXPECT_EQ(run.at("completed"), 6);
      EXPECT_EQ(run.at("total_input_tokens"), 30);
      EXPECT_EQ(run.at("total_output_tokens"), 24);
      EXPECT_EQ(run.at("cached_input_tokens"), 0);
      EXPECT_LE(run.at("max_concurrent_requests").to_number<int>(), 4);
      EXPECT_EQ(run.at("itls").at(0).as_array().size(), 3u);
      EXPECT_GT(run.at("output_throughput").to_number<double>(), 0);
    }
  }
}

TEST_F(BenchProgram, ASweepIsOneTableAndOnePage) {
  const Ended e = Run(kModel + kSmall + " --device null --sweep 1,2,4 --output-json " +
                      Path("json") + " --report " + Path("page.html"));
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(std::count(e.out.begin(), e.out.end(), '\n'), 5) << e.out;  // two lines of heading
  const json::value result = Json("json");
  const json::array& points = result.at("points").as_array();
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[2].at("max_concurrency"), 4);
  EXPECT_EQ(points[0].at("runs").at(0).at("max_concurrent_requests"), 1);
  const std::string page = *base::os::ReadFile(Path("page.html"));
  EXPECT_NE(page.find("--sweep 1,2,4"), std::string::npos);
  EXPECT_NE(page.find("Latency a token by throughput"), std::string::npos);
}

TEST_F(BenchProgram, PrefixesAreSharedInsideARunAlone) {
  const Ended e = Run(kModel +
                      " --device null --threads 1 --num-prompts 4 --input-len 5 "
                      "--output-len 2 --prefix-len 32 --concurrency 1 --repeat 2 --output-json " +
                      Path("json"));
  ASSERT_EQ(e.code, 0) << e.err;
  const json::value result = Json("json");
  for (const json::value& run : result.at("points").at(0).at("runs").as_array()) {
    EXPECT_EQ(run.at("total_input_tokens"), 4 * 37);
    EXPECT_EQ(run.at("cached_input_tokens"), 3 * 32);
  }
}

TEST_F(BenchProgram, AConversationFileGivesTextsAndLengths) {
  std::ofstream(Path("chat.json"))
      << R"([{"conversations":[{"from":"human","value":"What is the colour of the sky today?"},)"
      << R"({"from":"gpt","value":"The sky is blue, as far as anybody can see."}]}])";
  const Ended e = Run(kModel +
                      " --device null --threads 1 --num-prompts 3 --max-model-len 128 "
                      "--output-len 7 --ignore-eos --dataset-path " +
                      Path("chat.json") + " --output-json " + Path("json"));
  ASSERT_EQ(e.code, 0) << e.err;
  const json::value result = Json("json");
  EXPECT_EQ(result.at("points").at(0).at("runs").at(0).at("total_output_tokens"), 21);
  std::ofstream(Path("bad.json")) << "[1]";
  const Ended bad = Run(kModel + " --device null --dataset-path " + Path("bad.json"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("bad.json: entry 0"), std::string::npos) << bad.err;
}

TEST_F(BenchProgram, PathsThatCannotBeWrittenAreRefusedBeforeAnythingRuns) {
  for (const char* flag : {"--report", "--output-json", "--output-token-ids"}) {
    const Ended e = Run("--url http://127.0.0.1:1 --num-prompts 1 " + std::string(flag) + " " +
                        Path("no_folder/file"));
    EXPECT_EQ(e.code, 2) << e.err;  // not the server that is not there, which ends with 1
    EXPECT_NE(e.err.find(flag), std::string::npos) << e.err;
  }
}

TEST_F(BenchProgram, AFailedRequestEndsWithOne) {
  // The device fails in a step after those that warm it up.
  const Ended dead = Run(kModel + " --num-prompts 6 --input-len 5 --threads 1" +
                         " --device null --isa fail=60 --output-len 100 "
                         "--concurrency 1 --num-warmups 0");
  EXPECT_EQ(dead.code, 1) << dead.out;
  EXPECT_NE(dead.err.find("requests failed"), std::string::npos) << dead.err;

  StubServer server(2);
  const Ended half = Run("--url " + server.url() +
                         " --num-prompts 8 --input-len 5 --output-len 3 "
                         "--concurrency 2 --num-warmups 1 --output-json " +
                         Path("json"));
  EXPECT_EQ(half.code, 1);
  EXPECT_NE(half.err.find("4 of the requests failed: HTTP 503: too busy"), std::string::npos)
      << half.err;
  const json::value result = Json("json");
  EXPECT_EQ(result.at("points").at(0).at("runs").at(0).at("completed"), 4);
  StubServer broken(1);
  const Ended all = Run("--base-url " + broken.url() +
                        " --num-prompts 2 --input-len 5 --output-len 3 --num-warmups 0");
  EXPECT_EQ(all.code, 1);
  EXPECT_EQ(all.out, "");  // a table of zeros would say nothing
  const Ended none = Run("--url http://127.0.0.1:1 --num-prompts 1");
  EXPECT_EQ(none.code, 1);
}

TEST_F(BenchProgram, AServerIsMeasuredWithTheSamePrompts) {
  StubServer server(0);
  const Ended e = Run("--url " + server.url() + kModel +
                      " --num-prompts 5 --input-len 3..9 "
                      "--output-len 3 --concurrency 2 --output-token-ids " +
                      Path("ids"));
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("Total generated tokens:"), std::string::npos) << e.out;
  const json::value ids = Json("ids");
  EXPECT_EQ(ids.at("runs").at(0).at("output_token_ids").at(4), (json::array{100, 101, 102}));
}

TEST_F(BenchProgram, MicroTakesSeveralSettings) {
  const Ended e = Run("micro" + kModel + " --device cpu -t 1,2 -p 8,16 -n 5 -b 1,3 -r 2 -o json");
  ASSERT_EQ(e.code, 0) << e.err;
  const base::Result<json::value> v = base::ParseJson(e.out);
  ASSERT_TRUE(v) << e.out;
  ASSERT_EQ(v->as_array().size(), 12u);  // threads x batches x (two of pp, one of tg)
  for (const json::value& line : v->as_array()) {
    EXPECT_EQ(line.at("tokens_per_second").as_array().size(), 2u);
    EXPECT_GT(line.at("mean").to_number<double>(), 0);
  }
  EXPECT_EQ(v->at(11).at("test"), "tg5");
  EXPECT_EQ(v->at(11).at("batch"), 3);
  EXPECT_EQ(v->at(11).at("threads"), 2);
  for (const std::string form : {"md", "csv"}) {
    const Ended table = Run("micro" + kModel + " --device null -p 8 -n 5 -r 1 -o " + form);
    ASSERT_EQ(table.code, 0) << table.err;
    EXPECT_NE(table.out.find("pp8"), std::string::npos) << table.out;
  }
}

TEST_F(BenchProgram, TheProfileListsTheStepsKernels) {
  const Ended e = Run(kModel +
                      " --device cpu --threads 1 --profile --batch 2 --input-len 8 "
                      "--profile-lengths 2,6 --output-json " +
                      Path("json"));
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("sum of kernels"), std::string::npos) << e.out;
  const json::value profile = Json("json");
  double share = 0;
  bool linear = false, attention = false;
  for (const json::value& k : profile.at("kernels").as_array()) {
    share += k.at("share").to_number<double>();
    // Of each kernel a whole number of calls a step: the difference has nothing of the prompt.
    const auto calls = k.at("calls_per_step").to_number<double>();
    EXPECT_EQ(calls, static_cast<int>(calls)) << json::serialize(k);
    const std::string ops(k.at("ops").as_string());
    linear = linear || ops.find("linear") != std::string::npos;
    attention = attention || ops.find("attention") != std::string::npos;
  }
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_TRUE(linear && attention) << e.out;
  const Ended nothing = Run(kModel + " --device null --profile --input-len 8");
  EXPECT_EQ(nothing.code, 0) << nothing.err;
}

}  // namespace
}  // namespace apps::bench
