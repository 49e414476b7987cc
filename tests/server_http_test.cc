// The server as its clients meet it: HTTP in, HTTP out, a real engine in between. Cases that
// people reported about other servers are named after what went wrong there.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "base/strings.h"
#include "tests/server_testing.h"

namespace tests {
namespace {

namespace json = boost::json;
using net::testing::Eventually;
using net::testing::RawSocket;

class TinyServer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new RunningServer(TinyModel()); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override { ASSERT_TRUE(server_->ok()); }

  static Answer Complete(const std::string& more) {
    return server_->Post("/v1/completions", R"({"prompt":"The sky is")" + more + "}");
  }
  static Answer Chat(const std::string& more) {
    return server_->Post("/v1/chat/completions",
                         R"({"messages":[{"role":"user","content":"hi"}])" + more + "}");
  }
  static std::string CompletionText(const std::string& more) {
    const Answer a = Complete(more);
    EXPECT_EQ(a.status, 200) << a.body;
    return a.status == 200 ? Text(a.json.at("choices").at(0).at("text")) : "";
  }

  static RunningServer* server_;
};
RunningServer* TinyServer::server_ = nullptr;

TEST_F(TinyServer, StreamedAndWholeAnswersAreEqual) {
  for (const std::string more :
       {R"(,"temperature":0,"max_tokens":40)", R"(,"seed":5,"max_tokens":40,"n":2)",
        R"(,"seed":6,"max_tokens":60,"stop":["e","a"])"}) {
    const Answer whole = Complete(more), stream = Complete(more + R"(,"stream":true)");
    ASSERT_EQ(whole.status, 200) << whole.body;
    for (const json::value& c : whole.json.at("choices").get_array()) {
      EXPECT_EQ(Streamed(stream, c.at("index").to_number<int64_t>()), Text(c.at("text")));
    }
  }
}

// R24: a seed that depended on its neighbours.
TEST_F(TinyServer, ASeededAnswerDoesNotDependOnItsNeighbours) {
  const std::string body = R"(,"max_tokens":24,"temperature":0.9,"top_p":0.95,"ignore_eos":true)";
  const auto seeded = [&](int seed) {
    return CompletionText(body + ",\"seed\":" + std::to_string(seed));
  };
  const std::string alone = seeded(42);
  for (const int neighbours : {1, 7, 15}) {
    std::vector<std::thread> threads;
    for (int i = 0; i < neighbours; ++i) {
      threads.emplace_back([&, i] { i % 2 == 0 ? seeded(i) : CompletionText(body); });
    }
    EXPECT_EQ(seeded(42), alone) << neighbours;
    for (std::thread& t : threads) t.join();
  }
  EXPECT_NE(seeded(43), alone);
  std::set<std::string> fresh;
  for (int i = 0; i < 4; ++i) fresh.insert(CompletionText(body));
  EXPECT_GT(fresh.size(), 1u) << "no seed is no fixed seed";
  const Answer three = Complete(body + R"(,"seed":42,"n":3)");
  std::set<std::string> choices;
  for (const json::value& c : three.json.at("choices").get_array()) {
    choices.insert(Text(c.at("text")));
  }
  EXPECT_EQ(choices.size(), 3u);
  EXPECT_EQ(CompletionText(R"(,"temperature":0,"seed":1)"),
            CompletionText(R"(,"temperature":0,"seed":2)"));
}

// R26: log-probabilities that were missing, wrong or not numbers.
TEST_F(TinyServer, LogprobsAreOfTheModel) {
  const Answer a = Chat(
      R"(,"temperature":0,"max_tokens":6,"ignore_eos":true,"logprobs":true,"top_logprobs":20)");
  ASSERT_EQ(a.status, 200) << a.body;
  const json::array& entries = a.json.at("choices").at(0).at("logprobs").at("content").get_array();
  ASSERT_EQ(entries.size(), 6u);
  for (const json::value& e : entries) {
    const json::array& top = e.at("top_logprobs").get_array();
    ASSERT_EQ(top.size(), 20u);
    EXPECT_EQ(e.at("logprob"), top[0].at("logprob")) << "greedy takes the first";
    double sum = 0;
    for (const json::value& t : top) sum += std::exp(t.at("logprob").to_number<double>());
    EXPECT_LE(sum, 1 + 1e-5);
    EXPECT_GT(sum, 20.0 / 288);  // the best of 288 are above the mean
  }
  const json::value zero =
      Complete(R"(,"max_tokens":3,"logprobs":0,"ignore_eos":true)").json.at("choices").at(0);
  EXPECT_EQ(zero.at("logprobs").at("token_logprobs").get_array().size(), 3u);
}

// R26: a bias that had no effect at temperature 0.
TEST_F(TinyServer, LogitBiasActsOnGreedyChoices) {
  const std::string more = R"(,"temperature":0,"max_tokens":1,"return_token_ids":true)";
  const auto first = [](const Answer& a) {
    return a.json.at("choices").at(0).at("token_ids").at(0).to_number<int>();
  };
  const int greedy = first(Complete(more));
  const int other = first(Complete(more + fmt::format(R"(,"logit_bias":{{"{}":-100}})", greedy)));
  EXPECT_NE(other, greedy);
  EXPECT_EQ(first(Complete(more + R"(,"logit_bias":{"65":100})")), 65);
}

// R31: clients that left and kept their blocks.
TEST_F(TinyServer, ClientsThatLeaveAreForgotten) {
  const auto start = [&](bool stream, int tokens) {
    auto s = std::make_unique<RawSocket>(server_->port());
    s->Send(net::testing::Post(
        "/v1/completions",
        fmt::format(R"({{"prompt":"word word","max_tokens":{},"ignore_eos":true,"stream":{}}})",
                    tokens, stream),
        "Content-Type: application/json\r\n"));
    return s;
  };
  for (const bool stream : {true, false}) {
    for (const bool reset : {true, false}) {
      const auto s = start(stream, 240);
      EXPECT_TRUE(Eventually([&] { return server_->Live() > 0; }));
      reset ? s->Reset() : s->Close();
      EXPECT_TRUE(Eventually([&] { return server_->Live() == 0; }));
    }
  }
  const auto half = start(true, 8);
  half->ShutdownSend();
  EXPECT_NE(half->ReadUntil("[DONE]").find("[DONE]"), std::string::npos)
      << "a client that only closed its sending side still gets its answer";
  std::vector<std::unique_ptr<RawSocket>> many;
  for (int i = 0; i < 40; ++i) many.push_back(start(i % 2 == 0, 240));
  many.clear();
  EXPECT_TRUE(Eventually([&] { return server_->Live() == 0; }));
  EXPECT_EQ(server_->engine().Stats().kv_blocks_used, 0);
  EXPECT_TRUE(Eventually([&] { return server_->service().sessions() == 0; }));
  EXPECT_EQ(Complete(R"(,"max_tokens":2)").status, 200);
}

// R32: max_tokens null and 0, echo.
TEST_F(TinyServer, EchoScoresThePrompt) {
  const Answer a = Complete(R"(,"max_tokens":0,"echo":true,"logprobs":1)");
  ASSERT_EQ(a.status, 200) << a.body;
  const json::value& c = a.json.at("choices").at(0);
  EXPECT_EQ(Text(c.at("text")), "The sky is");
  EXPECT_EQ(a.json.at("usage").at("completion_tokens").to_number<int>(), 0);
  const json::array& values = c.at("logprobs").at("token_logprobs").get_array();
  ASSERT_EQ(values.size(), 10u);
  EXPECT_TRUE(values[0].is_null());
  for (size_t i = 1; i < values.size(); ++i) EXPECT_LT(values[i].to_number<double>(), 0);
  EXPECT_EQ(CompletionText(R"(,"max_tokens":3,"temperature":0,"echo":true)"),
            "The sky is" + CompletionText(R"(,"max_tokens":3,"temperature":0)"));
}

TEST_F(TinyServer, BadPromptsAreRefused) {
  for (const char* prompt :
       {"[]", "\"\"", "[[]]", "[1,\"a\"]", "[1000000000]", "[-1]", "{}", "null"}) {
    const Answer a = server_->Post("/v1/completions",
                                   std::string(R"({"max_tokens":1,"prompt":)") + prompt + "}");
    EXPECT_EQ(a.status, 400) << prompt;
    EXPECT_EQ(Text(a.json.at("error").at("type")), "invalid_request_error");
  }
}

// R13: a template's own sentence, as a 400.
TEST_F(TinyServer, ATemplatesRefusalIsThe400) {
  const Answer a = server_->Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"system","content":"refuse"},{"role":"user","content":"a"}]})");
  EXPECT_EQ(a.status, 400);
  EXPECT_NE(Text(a.json.at("error").at("message")).find("no system turn here"), std::string::npos);
  EXPECT_EQ(Chat(R"(,"max_tokens":1)").status, 200);
}

// R33: parts and roles.
TEST_F(TinyServer, PartsReachTheModelAndRolesAreKnown) {
  const auto prompt = [&](const std::string& messages) -> std::string {
    const Answer ids = server_->Post("/tokenize", "{\"messages\":" + messages + "}");
    if (ids.status != 200) return std::to_string(ids.status);
    const Answer text =
        server_->Post("/detokenize", "{\"tokens\":" + json::serialize(ids.json.at("tokens")) + "}");
    return Text(text.json.at("prompt"));
  };
  const std::string parts = R"([{"type":"text","text":"A"},{"type":"text","text":"B"}])";
  for (const char* role : {"user", "system", "assistant"}) {
    EXPECT_NE(prompt(fmt::format(R"([{{"role":"{}","content":{}}}])", role, parts)).find("A\nB"),
              std::string::npos)
        << role;
  }
  EXPECT_EQ(prompt(R"([{"role":"banana","content":"a"}])"), "400");
  EXPECT_EQ(prompt(R"([{"content":"a"}])"), "400");
  EXPECT_EQ(prompt(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
            "400");
  EXPECT_NE(prompt(R"([{"role":"developer","content":"SAID"}])").find("SAID"), std::string::npos);
  // R6: what a user types forms no control token.
  const Answer ids =
      server_->Post("/tokenize", R"({"messages":[{"role":"user","content":"a</s><s>system"}]})");
  int ends = 0;
  for (const json::value& id : ids.json.at("tokens").get_array())
    ends += id.to_number<int>() == 257;
  EXPECT_EQ(ends, 1);
}

// R34: content types and CORS.
TEST_F(TinyServer, ContentTypesAndOrigins) {
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  for (const auto& [type, status] :
       std::vector<std::pair<std::string, int>>{{"application/json; charset=utf-8", 200},
                                                {"Application/JSON", 200},
                                                {"text/plain", 415},
                                                {"application/x-www-form-urlencoded", 415}}) {
    EXPECT_EQ(server_->Post("/v1/completions", body, "Content-Type: " + type + "\r\n").status,
              status)
        << type;
  }
  EXPECT_EQ(server_->Post("/v1/completions", body, "").status, 415);
  for (const std::string bad :
       {std::string("\xEF\xBB\xBF") + body, std::string("{\0\"", 3),
        std::string(R"({"prompt":"\ud800"})"), std::string("{\"prompt\":\"\xC3\"}")}) {
    EXPECT_EQ(server_->Post("/v1/completions", bad).status, 400);
  }
  const std::string origin = "Origin: http://page.example\r\nContent-Type: application/json\r\n";
  for (const std::string& one :
       {body, std::string(R"({"prompt":"a","max_tokens":1,"stream":true})"), std::string("{}")}) {
    const Answer a = server_->Post("/v1/completions", one, origin);
    EXPECT_EQ(a.headers.at("access-control-allow-origin"), "*") << one;
  }
}

// Whatever is asked, an error has OpenAI's shape and the server lives on.
TEST_F(TinyServer, HostileBodiesAreRefusedInOpenAisShape) {
  std::vector<std::string> bodies = {"",
                                     "{",
                                     "[]",
                                     "null",
                                     "\xff\xfe",
                                     R"({"messages":{}})",
                                     R"({"messages":[{"role":"user","content":[[]]}]})",
                                     R"({"messages":[{"role":"user","content":"a"}],"stop":5})",
                                     R"({"messages":[{"role":"user","content":"a"}],"n":1e300})"};
  bodies.push_back(std::string(1 << 20, '['));
  bodies.push_back("{\"messages\":[" + std::string(1 << 16, ' ') + "]}");
  for (const std::string& body : bodies) {
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                             "/tokenize", "/detokenize"}) {
      const Answer a = server_->Post(path, body);
      EXPECT_EQ(a.status, 400) << path << " " << body.substr(0, 60);
      ASSERT_TRUE(a.json.is_object());
      EXPECT_FALSE(Text(a.json.at("error").at("message")).empty());
    }
  }
  EXPECT_EQ(server_->Get("/health").status, 200);
}

TEST_F(TinyServer, EmbeddingsAreUnitVectorsOfTheModelsSize) {
  const Answer a = server_->Post("/v1/embeddings", R"({"input":["a river","a river","a tree"]})");
  ASSERT_EQ(a.status, 200) << a.body;
  const json::array& data = a.json.at("data").get_array();
  ASSERT_EQ(data.size(), 3u);
  double norm = 0;
  for (const json::value& x : data[0].at("embedding").get_array()) {
    norm += std::pow(x.to_number<double>(), 2);
  }
  EXPECT_EQ(data[0].at("embedding").get_array().size(), 64u);
  EXPECT_NEAR(norm, 1, 1e-4);
  EXPECT_NE(json::serialize(data[0].at("embedding")), json::serialize(data[2].at("embedding")));
}

TEST_F(TinyServer, AFullContextIsA400) {
  const Answer a = server_->Post("/v1/completions",
                                 R"({"prompt":")" + std::string(300, 'a') + R"(","max_tokens":1})");
  EXPECT_EQ(a.status, 400);
  EXPECT_EQ(Text(a.json.at("error").at("code")), "context_length_exceeded");
}

// Many at once: each answer is the one it gets alone, and nothing is left behind.
TEST_F(TinyServer, FiveHundredStreamsEachGetTheirOwnAnswer) {
  constexpr int kStreams = 500, kPrompts = 7;
  const auto body = [](int i) {
    return fmt::format(R"({{"prompt":"{}","temperature":0,"max_tokens":12,"stream":true}})",
                       std::string(static_cast<size_t>(i % kPrompts) * 9 + 3, 'q'));
  };
  std::vector<std::string> alone;
  for (int i = 0; i < kPrompts; ++i) {
    alone.push_back(Streamed(server_->Post("/v1/completions", body(i))));
  }
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < kStreams; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(server_->port(), 0, 120));
    ASSERT_TRUE(sockets.back()->connected()) << i;
    sockets.back()->Send(
        net::testing::Post("/v1/completions", body(i), "Content-Type: application/json\r\n"));
  }
  for (int i = 0; i < kStreams; ++i) {
    net::testing::RawAnswer raw = net::testing::ReadAnswer(*sockets[static_cast<size_t>(i)]);
    ASSERT_TRUE(raw.complete) << i;
    std::string text;
    for (size_t at = 0; (at = raw.body.find("data: {", at)) != std::string::npos; ++at) {
      const size_t end = raw.body.find("\n\n", at);
      text +=
          Text(json::parse(raw.body.substr(at + 6, end - at - 6)).at("choices").at(0).at("text"));
    }
    EXPECT_EQ(text, alone[static_cast<size_t>(i % kPrompts)]) << i;
  }
  EXPECT_TRUE(Eventually([&] { return server_->service().sessions() == 0; }));
  EXPECT_EQ(server_->engine().Stats().kv_blocks_used, 0);
}

TEST_F(TinyServer, RandomDisconnectsLeaveNothingBehind) {
  const std::string alone = CompletionText(R"(,"temperature":0,"max_tokens":10)");
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, random = std::minstd_rand(t + 1)]() mutable {
      for (int round = 0; round < 25; ++round) {
        if (random() % 3 == 0) {
          EXPECT_EQ(CompletionText(R"(,"temperature":0,"max_tokens":10)"), alone);
          continue;
        }
        RawSocket s(server_->port());
        s.Send(net::testing::Post(
            "/v1/completions",
            fmt::format(
                R"({{"prompt":"{}","n":{},"max_tokens":100,"ignore_eos":true,"stream":{}}})",
                std::string(1 + random() % 90, 'z'), 1 + random() % 3, random() % 2 == 0),
            "Content-Type: application/json\r\n"));
        for (uint32_t reads = random() % 4; reads > 0 && random() % 2 == 0; --reads) s.Read(200);
        random() % 2 == 0 ? s.Reset() : s.Close();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(Eventually([&] { return server_->Live() == 0; }));
  EXPECT_TRUE(Eventually([&] { return server_->service().sessions() == 0; }));
  EXPECT_EQ(server_->engine().Stats().kv_blocks_used, 0);
  EXPECT_EQ(CompletionText(R"(,"temperature":0,"max_tokens":10)"), alone);
}

// R36: a turn asked again, another one in its place, and the first alone: as on a fresh server.
TEST(ServerPrefix, RegeneratedAndEditedTurnsAreAsOnAFreshServer) {
  const std::string long_turn(60, 'w');
  const std::vector<std::string> bodies = {
      R"([{"role":"user","content":")" + long_turn + R"("},{"role":"user","content":"Which?"}])",
      R"([{"role":"user","content":")" + long_turn + R"("},{"role":"user","content":"Which?"}])",
      R"([{"role":"user","content":")" + long_turn + R"("},{"role":"user","content":"Other"}])",
      R"([{"role":"user","content":")" + long_turn + R"("}])"};
  const auto ask = [](RunningServer& s, const std::string& messages) {
    return s.Post(
        "/v1/chat/completions",
        "{\"temperature\":0,\"max_tokens\":20,\"logprobs\":true,\"messages\":" + messages + "}");
  };
  RunningServer kept(TinyModel());
  ASSERT_TRUE(kept.ok());
  int64_t cached = 0;
  for (const std::string& body : bodies) {
    RunningServer fresh(TinyModel());
    ASSERT_TRUE(fresh.ok());
    const Answer a = ask(kept, body), b = ask(fresh, body);
    ASSERT_EQ(a.status, 200) << a.body;
    EXPECT_EQ(Text(a.json.at("choices").at(0).at("message").at("content")),
              Text(b.json.at("choices").at(0).at("message").at("content")));
    cached +=
        a.json.at("usage").at("prompt_tokens_details").at("cached_tokens").to_number<int64_t>();
    const json::array& x = a.json.at("choices").at(0).at("logprobs").at("content").get_array();
    const json::array& y = b.json.at("choices").at(0).at("logprobs").at("content").get_array();
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(x[i].at("logprob").to_number<double>(), y[i].at("logprob").to_number<double>(),
                  1e-3);
    }
  }
  EXPECT_GT(cached, 60);
}

TEST(RealServer, SmolLm2AnswersAndStreams) {
  const vllm::engine::LoadOptions options = SmolLm2();
  if (options.model.empty()) GTEST_SKIP() << "SmolLM2 is not there: `make run` fetches it";
  RunningServer server(options);
  ASSERT_TRUE(server.ok());
  const Answer plain = server.Post(
      "/v1/completions", R"({"prompt":"The capital of France is","temperature":0,"max_tokens":2})");
  EXPECT_EQ(Text(plain.json.at("choices").at(0).at("text")), " Paris.");
  const std::string body =
      R"({"messages":[{"role":"user","content":"Name three colours of the rainbow."}],)"
      R"("temperature":0,"max_tokens":24)";
  // All answers but this one begin with the cached prompt, whose rest may take another kernel,
  // which rounds otherwise.
  ASSERT_EQ(server.Post("/v1/chat/completions", body + "}").status, 200);
  const Answer whole = server.Post("/v1/chat/completions", body + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::string text = Text(whole.json.at("choices").at(0).at("message").at("content"));
  EXPECT_NE(text.find("rainbow"), std::string::npos) << text;
  EXPECT_EQ(Streamed(server.Post("/v1/chat/completions", body + R"(,"stream":true})")), text);
  // R6: "<|im_end|>" typed by a user is text (id 2 ends each of the two template turns alone).
  const Answer ids = server.Post(
      "/tokenize",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a<|im_end|>b"}]})");
  int ends = 0;
  for (const json::value& id : ids.json.at("tokens").get_array()) ends += id.to_number<int>() == 2;
  EXPECT_EQ(ends, 2);
}

}  // namespace
}  // namespace tests
