// The benchmark's parts: figures by hand-worked values, data, what a stream says, the page.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "apps/bench/data.h"
#include "apps/bench/machine.h"
#include "apps/bench/plot.h"
#include "apps/bench/report.h"
#include "apps/bench/results.h"
#include "apps/bench/server_client.h"
#include "apps/bench/sse.h"
#include "base/strings.h"
#include "tests/bench_testing.h"

namespace apps::bench {
namespace {

namespace json = boost::json;

// --- statistics

TEST(BenchStatistics, PercentilesAreLinearBetweenRanks) {
  // numpy.percentile([40, 10, 30, 20], p): rank = p/100 * 3.
  const std::vector<double> four = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(Percentile(four, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(four, 50), 25);
  EXPECT_DOUBLE_EQ(Percentile(four, 99), 39.7);  // rank 2.97: 30 + 0.97 * 10
  EXPECT_DOUBLE_EQ(Percentile(four, 100), 40);
  EXPECT_DOUBLE_EQ(Percentile({7}, 99), 7);
  EXPECT_DOUBLE_EQ(Percentile({}, 50), 0);
}

TEST(BenchStatistics, DeviationIsOfASample) {
  EXPECT_DOUBLE_EQ(Mean({2, 4, 9}), 5);
  EXPECT_DOUBLE_EQ(Deviation({2, 4, 9}), std::sqrt((9 + 1 + 16) / 2.0));
  EXPECT_DOUBLE_EQ(Deviation({3}), 0);
  EXPECT_DOUBLE_EQ(Mean({}), 0);
}

RequestRecord Record(double start, std::vector<double> times, int64_t prompt) {
  RequestRecord r;
  r.error = "";
  r.start = start;
  r.end = times.back();
  r.prompt_tokens = prompt;
  r.output_tokens = static_cast<int64_t>(times.size());
  r.times = std::move(times);
  return r;
}

RunRecord TwoAndAFailure() {
  RequestRecord failed;
  failed.start = 0.5;
  failed.end = 1.0;
  failed.error = "refused";
  return {{Record(0, {1, 1.5, 3}, 10), Record(1, {3, 4}, 20), failed}};
}

TEST(BenchStatistics, ARunIsMeasured) {
  const Metrics m = Measure(TwoAndAFailure());
  EXPECT_EQ(m.completed, 2);
  EXPECT_EQ(m.failed, 1);
  EXPECT_EQ(m.input_tokens, 30);
  EXPECT_EQ(m.output_tokens, 5);
  EXPECT_EQ(m.chunks, 5);
  EXPECT_EQ(m.peak_concurrency, 2);
  EXPECT_DOUBLE_EQ(m.seconds, 4);
  EXPECT_DOUBLE_EQ(m.request_rate, 0.5);
  EXPECT_DOUBLE_EQ(m.output_rate, 1.25);
  EXPECT_DOUBLE_EQ(m.total_rate, 8.75);
  EXPECT_DOUBLE_EQ(m.peak_output_rate, 2);  // seconds 1 and 3 have two tokens each
  EXPECT_EQ(m.ttft, (std::vector<double>{1, 2}));
  EXPECT_EQ(m.tpot, (std::vector<double>{1, 1}));  // (3 - 1) / 2 and (4 - 3) / 1
  EXPECT_EQ(m.itl, (std::vector<double>{0.5, 1.5, 1}));
  EXPECT_EQ(m.e2el, (std::vector<double>{3, 3}));
  EXPECT_EQ(m.prefill_rates, (std::vector<double>{10, 10}));
  EXPECT_EQ(m.decode_rates, (std::vector<double>{1, 1}));
}

TEST(BenchStatistics, RequestsThatFollowEachOtherAreNotAtOnce) {
  EXPECT_EQ(Measure({{Record(0, {1}, 1), Record(1, {2}, 1), Record(2, {3}, 1)}}).peak_concurrency,
            1);
}

TEST(BenchStatistics, ChunksOfSeveralTokensCountTheTokensTheUsageSays) {
  RequestRecord r = Record(0, {1, 2}, 4);
  r.output_tokens = 9;
  const Metrics m = Measure({{r}});
  EXPECT_EQ(m.output_tokens, 9);
  EXPECT_EQ(m.chunks, 2);
  EXPECT_EQ(m.itl, (std::vector<double>{1}));
  EXPECT_EQ(m.tpot, (std::vector<double>{0.125}));
  const auto rates = OutputOverTime({{r}}, 2);  // two bins of a second
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_EQ(rates[1], (std::pair<double, double>(1.5, 9.0)));  // both, at 1 and 2
}

TEST(BenchStatistics, NothingMeasuredIsNoDivisionByZero) {
  const Metrics m = Measure({});
  EXPECT_EQ(m.output_rate, 0);
  EXPECT_TRUE(OutputOverTime({}, 10).empty());
  EXPECT_EQ(DistributionOf({}).p99, 0);
}

// --- data

TEST(BenchData, LengthsAreNumbersOrRanges) {
  const auto is = [](const std::string& text, double ratio, int64_t low, int64_t high) {
    const auto l = ParseLengths("--input-len", text, ratio);
    ASSERT_TRUE(l) << l.error().message;
    EXPECT_EQ(l->low, low) << text;
    EXPECT_EQ(l->high, high) << text;
  };
  is("512", 0, 512, 512);
  is("100..1024", 0, 100, 1024);
  is("100", 0.25, 75, 125);
  is("1", 0.5, 1, 2);  // never below one
  for (const char* bad : {"", "0", "-4", "4x", "9..", "..9", "9..4", "1e3", "99999999999"}) {
    const auto l = ParseLengths("--input-len", bad, 0);
    ASSERT_FALSE(l) << bad;
    EXPECT_NE(l.error().message.find("--input-len"), std::string::npos);
  }
  EXPECT_FALSE(ParseLengths("--input-len", "1..9", 0.5));
}

TEST(BenchData, RandomPromptsFollowTheSeedAndStayInRange) {
  const RandomData data = {
      .count = 200, .input = {3, 9}, .output = {2, 5}, .prefix = 4, .vocabulary = 50};
  const std::vector<Prompt> a = RandomPrompts(data, 1), b = RandomPrompts(data, 1),
                            c = RandomPrompts(data, 2);
  ASSERT_EQ(a.size(), 200u);
  std::set<size_t> inputs;
  std::set<int64_t> outputs;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ids, b[i].ids);
    EXPECT_EQ(a[i].output_tokens, b[i].output_tokens);
    inputs.insert(a[i].ids.size());
    outputs.insert(a[i].output_tokens);
    for (const int32_t id : a[i].ids) EXPECT_TRUE(id >= 0 && id < 50) << id;
    EXPECT_TRUE(std::equal(a[i].ids.begin(), a[i].ids.begin() + 4, a[0].ids.begin()));
  }
  EXPECT_EQ(inputs, (std::set<size_t>{7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(outputs, (std::set<int64_t>{2, 3, 4, 5}));
  EXPECT_NE(a[0].ids, c[0].ids);
  EXPECT_NE(a[0].ids, a[1].ids);
}

TEST(BenchData, ArrivalsArePoisson) {
  const std::vector<double> times = Arrivals(20000, 4, 3);
  EXPECT_EQ(times[0], 0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  // Mean and deviation of an exponential are both 1/4; their errors are about 0.25 / sqrt(20000).
  EXPECT_NEAR(Mean(gaps), 0.25, 0.01);
  EXPECT_NEAR(Deviation(gaps), 0.25, 0.01);
  EXPECT_EQ(Arrivals(3, INFINITY, 0), (std::vector<double>{0, 0, 0}));
}

class ShareGpt : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string Write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string Refusal(const std::string& text) {
    const auto c = Conversations::Read(Write(text));
    return c ? "" : c.error().message;
  }
  // A token a character.
  static base::Result<std::vector<int32_t>> Letters(std::string_view text, bool special) {
    std::vector<int32_t> ids(text.begin(), text.end());
    if (special) ids.insert(ids.begin(), 1);
    return ids;
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("sharegpt_" + std::to_string(::getpid())))
          .string();
};

std::string Turns(const std::string& prompt, const std::string& answer) {
  return R"({"id":"x","conversations":[{"from":"human","value":")" + prompt +
         R"("},{"from":"gpt","value":")" + answer + R"("}]})";
}

TEST_F(ShareGpt, TakesFirstTurnsAndTheLengthOfTheSecond) {
  const auto c = Conversations::Read(
      Write("[" + Turns("abcdef", "12345678") + "," + Turns("tiny prompt", "no") +
            R"(,{"conversations":[]},)" + Turns(std::string(1100, 'x'), "too long") + "]"));
  ASSERT_TRUE(c) << c.error().message;
  const auto prompts = c->Sample(3, 0, 0, 5, Letters);
  ASSERT_TRUE(prompts) << prompts.error().message;
  ASSERT_EQ(prompts->size(), 3u);  // one fits, and is taken again
  for (const Prompt& p : *prompts) {
    EXPECT_EQ(p.text, "abcdef");
    EXPECT_EQ(p.ids.size(), 7u);
    EXPECT_EQ(p.output_tokens, 8);
  }
  // Of a given length, "tiny prompt" fits too.
  const auto given = c->Sample(8, 33, 0, 5, Letters);
  ASSERT_TRUE(given);
  std::set<std::string> texts;
  for (const Prompt& p : *given) {
    texts.insert(p.text);
    EXPECT_EQ(p.output_tokens, 33);
  }
  EXPECT_EQ(texts, (std::set<std::string>{"abcdef", "tiny prompt"}));
  const auto none = c->Sample(1, 33, 20, 5, Letters);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find(path_), std::string::npos);
}

TEST_F(ShareGpt, BadFilesAreRefusedByName) {
  EXPECT_NE(Refusal("{}").find("expected an array"), std::string::npos);
  EXPECT_NE(Refusal("[3]").find("entry 0 is no object"), std::string::npos);
  EXPECT_NE(Refusal("[" + Turns("a", "b") + R"(,{"text":"a"}])").find("entry 1 has no array"),
            std::string::npos);
  EXPECT_NE(
      Refusal(R"([{"conversations":[{"value":"a"},{"value":3}]}])").find("entry 0 has a turn 1"),
      std::string::npos);
  EXPECT_NE(Refusal("[]").find("no conversation"), std::string::npos);
  EXPECT_NE(Refusal("[").find(path_), std::string::npos);
  EXPECT_NE(Conversations::Read("/no/such/file").error().message.find("/no/such/file"),
            std::string::npos);
}

// --- HTTP

TEST(BenchHttp, EventsComeOutOfAnyPieces) {
  const std::string stream =
      ": a comment\r\n\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: lines\n\ndata: [DONE]\n\n";
  const std::vector<std::string> expected = {"one", "two\nlines", "[DONE]"};
  for (size_t size = 1; size <= stream.size(); ++size) {
    SseReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += size) {
      reader.Push(std::string_view(stream).substr(at, size),
                  [&](std::string_view data) { events.emplace_back(data); });
    }
    EXPECT_EQ(events, expected) << size;
  }
}

TEST(BenchHttp, TokensAreCountedByUsageAlone) {
  RequestRecord r;
  AnswerReader reader;
  reader.Event(R"({"choices":[{"text":"several words here","finish_reason":null}]})", 1, r);
  reader.Event(R"({"choices":[{"text":"","finish_reason":"length"}]})", 2, r);
  EXPECT_NE(reader.Problem().find("usage"), std::string::npos);
  reader.Event(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,
    "prompt_tokens_details":{"cached_tokens":3}}})",
               3, r);
  reader.Event("[DONE]", 3, r);
  EXPECT_EQ(reader.Problem(), "");
  EXPECT_EQ(r.output_tokens, 5);
  EXPECT_EQ(r.prompt_tokens, 7);
  EXPECT_EQ(r.cached_tokens, 3);
  EXPECT_EQ(r.times, (std::vector<double>{1}));  // the end without text is no token
  EXPECT_EQ(r.end, 2);                           // usage is no part of the answer
}

TEST(BenchHttp, BrokenStreamsAreProblems) {
  const auto problem = [](std::vector<std::string> events) {
    RequestRecord r;
    AnswerReader reader;
    for (const std::string& e : events) reader.Event(e, 0, r);
    return reader.Problem();
  };
  EXPECT_NE(problem({}).find("ended early"), std::string::npos);
  EXPECT_NE(problem({"{"}).find("no JSON"), std::string::npos);
  EXPECT_EQ(problem({R"({"error":{"message":"out of memory"}})"}), "out of memory");
  EXPECT_EQ(
      problem({R"({"choices":3})", R"({"choices":[4]})", "[DONE]"}).find("the server gave no"), 0u);
}

Work WorkOf(int count, int64_t output) {
  Work work;
  work.prompts = RandomPrompts(
      {.count = count, .input = {5, 5}, .output = {output, output}, .prefix = 0, .vocabulary = 99},
      1);
  work.arrivals.assign(work.prompts.size(), 0.0);
  work.concurrency = 3;
  work.ids = true;
  return work;
}

TEST(BenchHttp, AServerIsMeasured) {
  StubServer server(0);
  const auto client = ServerClient::Connect({.url = server.url(), .extra_body = {{"top_k", 5}}});
  ASSERT_TRUE(client) << client.error().message;
  EXPECT_EQ((*client)->model(), "stub");
  int done = 0;
  const RunRecord run = (*client)->Run(WorkOf(10, 4), [&](const RequestRecord&) { ++done; });
  EXPECT_EQ(done, 10);
  const Metrics m = Measure(run);
  EXPECT_EQ(m.completed, 10) << run.requests[0].error;
  EXPECT_EQ(m.output_tokens, 40);
  EXPECT_EQ(m.input_tokens, 50);
  EXPECT_EQ(m.chunks, 40);
  EXPECT_LE(m.peak_concurrency, 3);
  EXPECT_EQ(run.requests[7].ids, (std::vector<int32_t>{100, 101, 102, 103}));
  const json::value body = json::parse(server.last_body());
  EXPECT_EQ(body.at("model").as_string(), "stub");
  EXPECT_EQ(body.at("temperature").to_number<double>(), 0);
  EXPECT_TRUE(body.at("ignore_eos").as_bool());
  EXPECT_TRUE(body.at("stream_options").at("include_usage").as_bool());
  EXPECT_EQ(body.at("top_k").to_number<int>(), 5);
}

TEST(BenchHttp, FailuresAreCountedAndTold) {
  StubServer server(2);
  const auto client = ServerClient::Connect({.url = server.url(), .extra_body = {}});
  ASSERT_TRUE(client) << client.error().message;
  Results results;
  results.points.push_back(Point::Of(3, {(*client)->Run(WorkOf(8, 2), {})}));
  EXPECT_EQ(results.failed(), 4);
  EXPECT_EQ(results.Errors(),
            (std::vector<std::string>{"4 of the requests failed: HTTP 503: too busy"}));
}

TEST(BenchHttp, AServerThatIsNotThereIsAnError) {
  const auto client = ServerClient::Connect({.url = "http://127.0.0.1:1", .extra_body = {}});
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message.find("--url"), std::string::npos);
}

// --- results

Results Sample() {
  Results r;
  r.command = "vllm-bench --model '<b>'";
  r.model = "a <model> & more";
  r.machine = "a machine";
  r.target = "cpu";
  r.request_rate = INFINITY;
  RunRecord slow = TwoAndAFailure(), fast = TwoAndAFailure(), middle = TwoAndAFailure();
  slow.requests[1] = Record(1, {3, 8}, 20);
  fast.requests[1] = Record(1, {2, 2.5}, 20);
  r.points.push_back(Point::Of(2, {fast, slow, middle}));
  return r;
}

TEST(BenchResults, TheMiddleRunIsShownAndTheSpreadBeside) {
  const Results r = Sample();
  EXPECT_EQ(r.points[0].middle, 2u);
  const Spread s = r.points[0].Over(&Metrics::output_rate);
  EXPECT_DOUBLE_EQ(s.median, 1.25);
  EXPECT_DOUBLE_EQ(s.min, 0.625);
  EXPECT_DOUBLE_EQ(s.max, 5.0 / 3);
  const std::string table = Table(r);
  const auto row = [](const char* name, const char* value) {
    return fmt::format("{:<44}{:>14}\n", name, value);
  };
  for (const std::string& words :
       {row("Successful requests:", "2"), row("Failed requests:", "1"),
        row("Mean TTFT (ms):", "1500.00"), row("Mean E2EL (ms):", "3000.00"),
        std::string("1.25 (0.62 .. 1.67)")}) {
    EXPECT_NE(table.find(words), std::string::npos) << words << "\n" << table;
  }
}

TEST(BenchResults, JsonHasVllmsNamesAndTheRequestsOnDemand) {
  const Results r = Sample();
  const json::object brief = ToJson(r, false);
  const json::object& run = brief.at("points").at(0).at("runs").at(2).as_object();
  EXPECT_EQ(run.at("completed"), 2);
  EXPECT_EQ(run.at("failed"), 1);
  EXPECT_EQ(run.at("output_throughput"), 1.25);
  EXPECT_EQ(run.at("median_ttft_ms"), 1500.0);
  EXPECT_EQ(run.at("mean_itl_ms"), 1000.0);
  EXPECT_FALSE(run.contains("ttfts"));
  EXPECT_EQ(brief.at("points").at(0).at("output_throughput").at("min"), 0.625);
  const json::object detailed = ToJson(r, true);
  const json::object& full = detailed.at("points").at(0).at("runs").at(2).as_object();
  EXPECT_EQ(full.at("ttfts").as_array().size(), 3u);
  EXPECT_EQ(full.at("itls").at(0), (json::array{0.5, 1.5}));
  EXPECT_EQ(full.at("errors").at(2), "refused");
}

// --- the page

TEST(BenchReport, IsOnePageThatAsksForNothing) {
  Results r = Sample();
  r.points.push_back(Point::Of(4, {TwoAndAFailure()}));
  const std::string page = Report(r);
  EXPECT_NE(page.find("a &lt;model&gt; &amp; more"), std::string::npos);
  EXPECT_EQ(page.find("<model>"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "href=", "<script", "url(", "@import"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (size_t at = 0; (at = page.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("<svg"), 8);  // over time, three of the sweep, four latencies
  EXPECT_EQ(count("<svg"), count("</svg>"));
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf "), std::string::npos);
}

TEST(BenchReport, StandsWithoutASuccess) {
  Results r;
  r.points.push_back(Point::Of(0, {RunRecord{{RequestRecord()}}}));
  const std::string page = Report(r);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_NE(page.find("0 of 1"), std::string::npos);
}

TEST(BenchReport, AxesHaveRoundNumbers) {
  EXPECT_EQ(Ticks(100), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(Ticks(3.7), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Ticks(0), (std::vector<double>{0, 1}));
  for (double max = 1e-6; max < 1e9; max *= 1.37) {
    const std::vector<double> t = Ticks(max);
    EXPECT_GE(t.size(), 3u) << max;
    EXPECT_LE(t.size(), 8u) << max;
    EXPECT_GE(t.back(), max * 0.999);
  }
}

TEST(BenchReport, CumulativeSharesEndAtOne) {
  EXPECT_EQ(Cumulative({2, 1}, 10),
            (std::vector<std::pair<double, double>>{{1, 0}, {1, 0}, {1, 0.5}, {2, 0.5}, {2, 1}}));
  std::vector<double> many;
  for (int i = 1; i <= 1000; ++i) many.push_back(i);
  const auto few = Cumulative(many, 10);
  ASSERT_EQ(few.size(), 11u);
  EXPECT_EQ(few[5], (std::pair<double, double>(500, 0.5)));
  EXPECT_EQ(few.back(), (std::pair<double, double>(1000, 1.0)));
}

TEST(BenchReport, TheCommandKeepsNoKey) {
  std::string words[] = {"vllm-bench", "--api-key", "secret", "--model", "a b", "--api-key=hidden"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  EXPECT_EQ(CommandText(static_cast<int>(argv.size()), argv.data()),
            "vllm-bench --api-key ... --model 'a b' --api-key=...");
}

}  // namespace
}  // namespace apps::bench
