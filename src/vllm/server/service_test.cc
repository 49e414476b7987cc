#include "vllm/server/service.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <map>

#include "vllm/server/generate_session.h"
#include "vllm/server/protocol_fields.h"
#include "vllm/server/server_testing.h"

namespace vllm::server {
namespace {

namespace json = boost::json;

class ServiceTest : public ::testing::Test {
 protected:
  explicit ServiceTest(ServiceOptions options = {.model_names = {"m", "alias"}})
      : log_(LogLevel::kNone) {
    options.log_requests = false;
    service_ = std::make_unique<Service>(std::move(options), log_);
  }
  ~ServiceTest() override {
    service_->Stop();
    fake_ = nullptr;
  }

  void Serve(FakeModel::Script script) {
    auto fake = std::make_unique<FakeModel>(*service_, std::move(script));
    fake_ = fake.get();
    service_->Ready(std::move(fake));
  }
  void Serve(const std::string& text) {
    Serve([text](const engine::Request&, int32_t) { return text; });
  }

  std::shared_ptr<FakeExchange> Start(const std::string& path, const std::string& body,
                                      const std::string& method = "POST",
                                      std::map<std::string, std::string> headers = {
                                          {"content-type", "application/json"}}) {
    net::HttpRequest r;
    r.method = method;
    r.path = path;
    r.body = body;
    r.headers = std::move(headers);
    r.peer = "test";
    auto x = std::make_shared<FakeExchange>(std::move(r));
    service_->Handle(x);
    return x;
  }
  std::shared_ptr<FakeExchange> Post(const std::string& path, const std::string& body) {
    auto x = Start(path, body);
    x->Wait();
    return x;
  }
  // A session goes right behind its answer.
  void Forgotten() {
    for (int i = 0; i < 60000 && service_->sessions() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(service_->sessions(), 0u);
    EXPECT_EQ(fake_->live(), 0);
  }
  std::shared_ptr<FakeExchange> Chat(const std::string& more) {
    return Post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hi"}])" + more + "}");
  }
  std::shared_ptr<FakeExchange> Complete(const std::string& more) {
    return Post("/v1/completions", R"({"prompt":"Once ")" + more + "}");
  }

  Log log_;
  std::unique_ptr<Service> service_;
  FakeModel* fake_ = nullptr;  // of the service
};

std::string Text(const json::value& v) { return std::string(v.get_string()); }

TEST_F(ServiceTest, AWholeChatAnswer) {
  Serve("Hé!");
  const auto x = Chat(R"(,"model":"alias","request_id":"r1")");
  ASSERT_EQ(x->status, 200) << x->body;
  const json::value v = x->Json();
  EXPECT_EQ(Text(v.at("id")), "chatcmpl-r1");
  EXPECT_EQ(Text(v.at("object")), "chat.completion");
  EXPECT_EQ(Text(v.at("model")), "alias");
  const json::value& c = v.at("choices").at(0);
  EXPECT_EQ(Text(c.at("message").at("role")), "assistant");
  EXPECT_EQ(Text(c.at("message").at("content")), "Hé!");
  EXPECT_EQ(Text(c.at("finish_reason")), "stop");
  EXPECT_TRUE(c.at("logprobs").is_null());
  // "[user]hi[assistant]" has 19 bytes; the answer 4 and an end token.
  EXPECT_EQ(json::serialize(v.at("usage")),
            R"({"prompt_tokens":19,"completion_tokens":5,"total_tokens":24,)"
            R"("prompt_tokens_details":{"cached_tokens":0}})");
  Forgotten();
}

// R27: role once, finish once, usage on request alone.
TEST_F(ServiceTest, StreamsAreFramedAsOpenAiDoes) {
  Serve([](const engine::Request&, int32_t choice) { return choice == 0 ? "ab" : "xyz"; });
  for (const auto& [options, usages] :
       std::vector<std::pair<std::string, int>>{{R"(,"stream_options":{"include_usage":true})", 1},
                                                {R"(,"stream_options":{"include_usage":false})", 0},
                                                {R"(,"stream_options":{})", 0},
                                                {R"(,"stream_options":null)", 0}}) {
    const auto x = Chat(R"(,"stream":true,"n":2)" + options);
    std::map<int64_t, std::string> texts, reasons;
    std::map<int64_t, int> roles;
    int seen_usages = 0;
    const std::vector<json::value> chunks = x->Chunks();
    for (const json::value& chunk : chunks) {
      EXPECT_EQ(Text(chunk.at("id")), Text(chunks[0].at("id")));
      EXPECT_EQ(Text(chunk.at("object")), "chat.completion.chunk");
      const json::value* usage = chunk.get_object().if_contains("usage");
      if (usage != nullptr && usage->is_object()) {
        ++seen_usages;
        EXPECT_EQ(&chunk, &chunks.back());
        EXPECT_TRUE(chunk.at("choices").get_array().empty());
        EXPECT_EQ(usage->at("completion_tokens").to_number<int>(), 3 + 4);
        EXPECT_EQ(usage->at("prompt_tokens").to_number<int>(), 19);
      }
      for (const json::value& c : chunk.at("choices").get_array()) {
        const auto i = c.at("index").to_number<int64_t>();
        EXPECT_EQ(reasons.count(i), 0u) << "nothing comes behind the finish";
        const json::object& delta = c.at("delta").get_object();
        if (delta.contains("role")) ++roles[i];
        EXPECT_EQ(roles[i], 1) << "the role comes first, and once";
        if (delta.contains("content")) texts[i] += Text(delta.at("content"));
        if (!c.at("finish_reason").is_null()) reasons[i] = Text(c.at("finish_reason"));
      }
    }
    EXPECT_EQ(seen_usages, usages) << options;
    EXPECT_EQ(texts, (std::map<int64_t, std::string>{{0, "ab"}, {1, "xyz"}}));
    EXPECT_EQ(reasons, (std::map<int64_t, std::string>{{0, "stop"}, {1, "stop"}}));
  }
  EXPECT_EQ(Chat(R"(,"stream_options":{"include_usage":true})")->status, 400);
}

// The content and finish reason of choice 0, whole and streamed; they must be equal.
TEST_F(ServiceTest, StreamedAndWholeAnswersAreEqual) {
  for (const std::string script : {"plain", "stop it now", "caf\xC3\xA9 \xF0\x9F\x98\x80!",
                                   "\xE2\x82", "aaab", "", "x\ny\"\\\t\x01"}) {
    Serve(script);
    for (const std::string more :
         {"", R"(,"stop":["it","aab"])", R"(,"max_tokens":3)", R"(,"stop":["now"],"n":2)",
          R"(,"stop":"it","include_stop_str_in_output":true)"}) {
      const json::value whole = Complete(more + R"(,"logprobs":1)")->Json().at("choices").at(0);
      std::string text, reason, tokens;
      for (const json::value& chunk : Complete(more + R"(,"logprobs":1,"stream":true)")->Chunks()) {
        for (const json::value& c : chunk.at("choices").get_array()) {
          if (c.at("index").to_number<int>() != 0) continue;
          text += Text(c.at("text"));
          if (!c.at("finish_reason").is_null()) reason = Text(c.at("finish_reason"));
          if (!c.at("logprobs").is_object()) continue;
          for (const json::value& t : c.at("logprobs").at("tokens").get_array()) tokens += Text(t);
        }
      }
      EXPECT_EQ(text, Text(whole.at("text"))) << script << more;
      EXPECT_EQ(reason, Text(whole.at("finish_reason"))) << script << more;
      std::string whole_tokens;
      for (const json::value& t : whole.at("logprobs").at("tokens").get_array()) {
        whole_tokens += Text(t);
      }
      EXPECT_EQ(tokens, whole_tokens) << script << more;
    }
    fake_ = nullptr;
    service_->Stop();
    service_ = std::make_unique<Service>(
        ServiceOptions{.model_names = {"m"}, .log_requests = false}, log_);
  }
}

TEST_F(ServiceTest, AStopStringEndsTheChoiceInTheEngine) {
  Serve("one STOP two" + std::string(500, '.'));
  const auto x = Complete(R"(,"stop":"STOP","max_tokens":500)");
  const json::value c = x->Json().at("choices").at(0);
  EXPECT_EQ(Text(c.at("text")), "one ");
  EXPECT_EQ(Text(c.at("finish_reason")), "stop");
  EXPECT_EQ(Text(c.at("stop_reason")), "STOP");
  Forgotten();
}

TEST_F(ServiceTest, AStopIdIsNamed) {
  Serve("ab!cd");
  const json::value c = Complete(R"(,"stop_token_ids":[33])")->Json().at("choices").at(0);
  EXPECT_EQ(Text(c.at("text")), "ab");
  EXPECT_EQ(c.at("stop_reason").to_number<int>(), 33);
}

// R31
TEST_F(ServiceTest, ClientsThatLeaveFreeTheirChoices) {
  Serve(std::string(2000, 'x'));
  fake_->Hold(true);
  for (const char* stream : {"true", "false"}) {
    const auto x = Start(
        "/v1/completions",
        std::string(R"({"prompt":["a","b"],"n":3,"max_tokens":900,"stream":)") + stream + "}");
    while (fake_->live() < 6) std::this_thread::yield();
    x->Leave();
    Forgotten();
  }
  fake_->Hold(false);
  EXPECT_EQ(Complete(R"(,"max_tokens":2)")->status, 200);
}

// A long check of one request must not hold the tokens of others.
TEST_F(ServiceTest, AnswersGoOnWhileARequestIsChecked) {
  Serve("abc");
  fake_->HoldChecks(true);
  const auto slow = Start("/v1/completions", R"({"prompt":"a"})");
  while (fake_->checking() < 1) std::this_thread::yield();
  EXPECT_EQ(service_->sessions(), 0u);  // looks under the lock that outputs need
  fake_->HoldChecks(false);
  slow->Wait();
  EXPECT_EQ(slow->status, 200);
  Forgotten();
}

TEST_F(ServiceTest, ErrorsNameTheFieldThatTheRequestUsed) {
  Serve("x");
  const auto param = [](const std::shared_ptr<FakeExchange>& x) {
    EXPECT_EQ(x->status, 400) << x->body;
    return Text(x->Json().at("error").at("param"));
  };
  EXPECT_EQ(param(Chat(R"(,"max_completion_tokens":5000)")), "max_completion_tokens");
  EXPECT_EQ(param(Chat(R"(,"max_tokens":5000)")), "max_tokens");
  EXPECT_EQ(param(Post("/v1/embeddings", R"({"input":[5000]})")), "input");
  EXPECT_EQ(param(Post("/v1/completions", R"({"prompt":[5000]})")), "prompt");
}

TEST_F(ServiceTest, EncodedBodiesAreRefusedByName) {
  Serve("x");
  const auto with = [&](const std::string& encoding) {
    auto x = Start("/tokenize", R"({"prompt":"a"})", "POST",
                   {{"content-type", "application/json"}, {"content-encoding", encoding}});
    x->Wait();
    return x;
  };
  EXPECT_EQ(with("Identity")->status, 200);
  const auto gzip = with("gzip");
  EXPECT_EQ(gzip->status, 415);
  EXPECT_EQ(Text(gzip->Json().at("error").at("param")), "Content-Encoding");
}

class NarrowServiceTest : public ServiceTest {
 protected:
  NarrowServiceTest()
      : ServiceTest({.model_names = {"m"}, .prepare_threads = 1, .max_waiting_bytes = 1000}) {}
};

TEST_F(NarrowServiceTest, BodiesThatWaitToBeReadAreBounded) {
  Serve("x");
  fake_->HoldChecks(true);
  std::vector<std::shared_ptr<FakeExchange>> taken = {
      Start("/v1/completions", R"({"prompt":"a"})")};
  while (fake_->checking() < 1) std::this_thread::yield();
  const std::string large = R"({"prompt":")" + std::string(600, 'a') + "\"}";
  taken.push_back(Start("/v1/completions", large));
  const auto refused = Post("/v1/completions", large);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->headers["Retry-After"], "1");
  fake_->HoldChecks(false);
  for (const auto& x : taken) {
    x->Wait();
    EXPECT_EQ(x->status, 200) << x->body;
  }
}

TEST_F(ServiceTest, AStopStringInACallLeavesNoCallToRun) {
  Serve("<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>");
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const auto reason = [&](const std::string& more) {
    return Text(Chat(tools + more)->Json().at("choices").at(0).at("finish_reason"));
  };
  EXPECT_EQ(reason(""), "tool_calls");
  EXPECT_EQ(reason(R"(,"stop":"ari")"), "stop");
  EXPECT_EQ(reason(R"(,"stop":"</tool")"), "tool_calls");
  EXPECT_EQ(reason(R"(,"max_tokens":50)"), "length");
}

// R32
TEST_F(ServiceTest, EchoAndMaxTokens) {
  Serve(std::string(600, 'y'));
  EXPECT_EQ(Complete("")->Json().at("usage").at("completion_tokens").to_number<int>(), 16);
  EXPECT_EQ(Complete(R"(,"max_tokens":null)")
                ->Json()
                .at("usage")
                .at("completion_tokens")
                .to_number<int>(),
            16);
  // 1000 tokens of context: what fits.
  EXPECT_EQ(Chat("")->Json().at("usage").at("completion_tokens").to_number<int>(), 601);
  for (const char* bad : {"-1", "1.5", "\"4\"", "1000000000000"}) {
    const auto x = Complete(std::string(R"(,"max_tokens":)") + bad);
    EXPECT_EQ(x->status, 400);
    EXPECT_EQ(Text(x->Json().at("error").at("param")), "max_tokens");
  }
  const auto scored = Complete(R"(,"max_tokens":0,"echo":true,"logprobs":1)");
  const json::value v = scored->Json();
  EXPECT_EQ(v.at("usage").at("completion_tokens").to_number<int>(), 0);
  const std::string full = "{\"prompt\":\"" + std::string(1000, 'a') + "\",\"max_tokens\":";
  EXPECT_EQ(Post("/v1/completions", full + "0}")->status, 200);  // no token needs a place
  EXPECT_EQ(Post("/v1/completions", full + "1}")->status, 400);
  const json::value& c = v.at("choices").at(0);
  EXPECT_EQ(Text(c.at("text")), "Once ");
  EXPECT_EQ(json::serialize(c.at("logprobs").at("tokens")), R"(["O","n","c","e"," "])");
  EXPECT_EQ(json::serialize(c.at("logprobs").at("text_offset")), "[0,1,2,3,4]");
  EXPECT_TRUE(c.at("logprobs").at("token_logprobs").at(0).is_null());
  EXPECT_NEAR(c.at("logprobs").at("token_logprobs").at(1).to_number<double>(), -1.10, 1e-6);
  EXPECT_TRUE(c.at("logprobs").at("top_logprobs").at(0).is_null());

  const json::value both =
      Complete(R"(,"max_tokens":2,"echo":true,"logprobs":2)")->Json().at("choices").at(0);
  EXPECT_EQ(Text(both.at("text")), "Once yy");
  EXPECT_EQ(json::serialize(both.at("logprobs").at("text_offset")), "[0,1,2,3,4,5,6]");
  EXPECT_EQ(json::serialize(both.at("logprobs").at("top_logprobs").at(6)),
            R"({"y":-1.21E0,"z":-9E0})");
  std::string streamed;
  for (const json::value& chunk :
       Complete(R"(,"max_tokens":2,"echo":true,"stream":true)")->Chunks()) {
    streamed += Text(chunk.at("choices").at(0).at("text"));
  }
  EXPECT_EQ(streamed, "Once yy");
  EXPECT_EQ(Complete(R"(,"logprobs":0,"max_tokens":3)")
                ->Json()
                .at("choices")
                .at(0)
                .at("logprobs")
                .at("token_logprobs")
                .get_array()
                .size(),
            3u);
}

TEST_F(ServiceTest, OffsetsCountCharacters) {
  Serve("\xC3\xA9!");
  const json::value l = Post("/v1/completions", R"({"prompt":"é","echo":true,"logprobs":0})")
                            ->Json()
                            .at("choices")
                            .at(0)
                            .at("logprobs");
  EXPECT_EQ(json::serialize(l.at("text_offset")), "[0,0,1,1,2]");
  EXPECT_EQ(Text(l.at("tokens").at(2)), "bytes:\\xc3");
}

TEST_F(ServiceTest, PromptsComeInOrderWithTheirChoices) {
  Serve([](const engine::Request& r, int32_t choice) {
    return std::string(1, static_cast<char>(r.prompt[0])) + std::to_string(choice);
  });
  const json::value v = Post("/v1/completions", R"({"prompt":["a","b"],"n":2})")->Json();
  std::string all;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(v.at("choices").at(i).at("index").to_number<size_t>(), i);
    all += Text(v.at("choices").at(i).at("text")) + " ";
  }
  EXPECT_EQ(all, "a0 a1 b0 b1 ");
}

// R26
TEST_F(ServiceTest, ChatLogprobs) {
  Serve("a\xC3\xA9");
  const json::value v =
      Chat(R"(,"logprobs":true)")->Json().at("choices").at(0).at("logprobs").at("content");
  ASSERT_EQ(v.get_array().size(), 3u);  // the end token has no entry
  std::string bytes;
  for (const json::value& e : v.get_array()) {
    EXPECT_TRUE(e.at("top_logprobs").get_array().empty());
    for (const json::value& b : e.at("bytes").get_array()) {
      bytes += static_cast<char>(b.to_number<int>());
    }
  }
  EXPECT_EQ(bytes, "a\xC3\xA9");
  EXPECT_EQ(Chat(R"(,"logprobs":true,"top_logprobs":2)")
                ->Json()
                .at("choices")
                .at(0)
                .at("logprobs")
                .at("content")
                .at(0)
                .at("top_logprobs")
                .get_array()
                .size(),
            2u);
  EXPECT_EQ(Chat(R"(,"logit_bias":{"999999":1})")->status, 400);
}

TEST_F(ServiceTest, PromptLogprobsAndTokenIds) {
  Serve("k");
  const json::value v = Complete(R"(,"prompt_logprobs":1,"return_token_ids":true)")->Json();
  const json::value& c = v.at("choices").at(0);
  EXPECT_EQ(json::serialize(c.at("token_ids")), "[107,257]");
  EXPECT_EQ(json::serialize(c.at("prompt_token_ids")), "[79,110,99,101,32]");
  EXPECT_TRUE(c.at("prompt_logprobs").at(0).is_null());
  EXPECT_EQ(Text(c.at("prompt_logprobs").at(1).at("110").at("decoded_token")), "n");
}

TEST_F(ServiceTest, ToolCallsWholeAndStreamed) {
  Serve("Well. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const json::value c = Chat(tools)->Json().at("choices").at(0);
  EXPECT_EQ(Text(c.at("finish_reason")), "tool_calls");
  EXPECT_EQ(Text(c.at("message").at("content")), "Well.");
  const json::value& call = c.at("message").at("tool_calls").at(0);
  EXPECT_EQ(Text(call.at("function").at("name")), "f");
  EXPECT_EQ(Text(call.at("function").at("arguments")), "{\"a\": 1}");
  EXPECT_EQ(Text(call.at("id")).substr(0, 5), "call_");

  std::string names, arguments, content, reason;
  int ids = 0;
  for (const json::value& chunk : Chat(tools + R"(,"stream":true)")->Chunks()) {
    const json::value& one = chunk.at("choices").at(0);
    const json::object& d = one.at("delta").get_object();
    if (d.contains("content")) content += Text(d.at("content"));
    if (!one.at("finish_reason").is_null()) reason = Text(one.at("finish_reason"));
    if (!d.contains("tool_calls")) continue;
    for (const json::value& t : d.at("tool_calls").get_array()) {
      EXPECT_EQ(t.at("index").to_number<int>(), 0);
      ids += t.get_object().contains("id") ? 1 : 0;
      const json::object& f = t.at("function").get_object();
      if (f.contains("name")) names += Text(f.at("name"));
      arguments += Text(f.at("arguments"));
    }
  }
  EXPECT_EQ(content, "Well.");
  EXPECT_EQ(names, "f");
  EXPECT_EQ(ids, 1);
  EXPECT_EQ(arguments, "{\"a\": 1}");
  EXPECT_EQ(reason, "tool_calls");
  // Templates of Mistral's models take no other ids back.
  EXPECT_EQ(
      NewCallId(ToolFormat::kMistral)
          .find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
      std::string::npos);
  EXPECT_EQ(NewCallId(ToolFormat::kMistral).size(), 9u);
  // Without tools the same text is content.
  EXPECT_EQ(Text(Chat(R"(,"tools":[])")->Json().at("choices").at(0).at("finish_reason")), "stop");
}

TEST_F(ServiceTest, Embeddings) {
  Serve("");
  const json::value v = Post("/v1/embeddings", R"({"input":["a","bcd"]})")->Json();
  EXPECT_EQ(json::serialize(v.at("data").at(1).at("embedding")), "[6E-1,0E0,8E-1]");
  EXPECT_EQ(v.at("usage").at("prompt_tokens").to_number<int>(), 4);
  const json::value b =
      Post("/v1/embeddings", R"({"input":"a","encoding_format":"base64"})")->Json();
  // 0.6f, 0.0f, 0.8f in little endian: 9a99193f 00000000 cdcc4c3f.
  EXPECT_EQ(Text(b.at("data").at(0).at("embedding")), "mpkZPwAAAADNzEw/");
}

TEST_F(ServiceTest, ClassifiesTexts) {
  Serve("");
  EXPECT_NE(Post("/v1/classify", R"({"input":"a"})")->body.find("tells no classes apart"),
            std::string::npos);
  fake_->head.labels = {"bad", "so \"so\"", "good"};
  const json::value v = Post("/v1/classify", R"({"input":["ab","r"]})")->Json();
  EXPECT_EQ(Text(v.at("object")), "list");
  EXPECT_EQ(v.at("usage").at("prompt_tokens").to_number<int>(), 3);
  const json::array& data = v.at("data").as_array();
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(Text(data[0].at("label")), "good");
  EXPECT_EQ(data[1].at("index").to_number<int>(), 1);
  EXPECT_EQ(Text(data[1].at("label")), "so \"so\"");
  EXPECT_EQ(data[0].at("num_classes").to_number<int>(), 3);
  const auto probabilities = [](const json::value& entry) {
    std::vector<double> out;
    for (const json::value& p : entry.at("probs").as_array()) out.push_back(p.to_number<double>());
    return out;
  };
  // The softmax of 3, 0 and 4.
  const auto expect = [&](const json::value& entry, const std::vector<double>& want) {
    const std::vector<double> got = probabilities(entry);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  };
  expect(data[0], {0.265388, 0.013213, 0.721399});
  fake_->head.scale = engine::ClassHead::Scale::kSigmoid;
  const json::value each = Post("/classify", R"({"input":"ab"})")->Json();
  expect(each.at("data").at(0), {0.952574, 0.5, 0.982014});
  fake_->head.scale = engine::ClassHead::Scale::kNone;
  const json::value plain = Post("/classify", R"({"input":[[1,2]]})")->Json();
  expect(plain.at("data").at(0), {3, 0, 4});
  // What such a model does not do says so.
  for (const char* path : {"/v1/score", "/v1/rerank", "/v1/embeddings"}) {
    const std::string body = std::string(path) == "/v1/score" ? R"({"text_1":"a","text_2":"b"})"
                             : std::string(path) == "/v1/rerank"
                                 ? R"({"query":"a","documents":["b"]})"
                                 : R"({"input":"a"})";
    const auto refused = Post(path, body);
    EXPECT_EQ(refused->status, 400);
    EXPECT_NE(refused->body.find("/v1/classify"), std::string::npos) << refused->body;
  }
}

TEST_F(ServiceTest, ScoresPairsOfTexts) {
  Serve("");
  const json::value v = Post("/v1/score", R"({"text_1":"a","text_2":["bc","r"]})")->Json();
  EXPECT_EQ(Text(v.at("object")), "list");
  ASSERT_EQ(v.at("data").as_array().size(), 2u);
  EXPECT_FLOAT_EQ(v.at("data").at(0).at("score").to_number<float>(), 1);
  EXPECT_FLOAT_EQ(v.at("data").at(1).at("score").to_number<float>(), 0);
  EXPECT_EQ(v.at("data").at(1).at("index").to_number<int>(), 1);
  EXPECT_EQ(v.at("usage").at("prompt_tokens").to_number<int>(), 4);
  const json::value each = Post("/score", R"({"text_1":["a","r"],"text_2":["r","rr"]})")->Json();
  EXPECT_FLOAT_EQ(each.at("data").at(0).at("score").to_number<float>(), 0);
  EXPECT_FLOAT_EQ(each.at("data").at(1).at("score").to_number<float>(), 1);
  const auto uneven = Post("/v1/score", R"({"text_1":["a","b"],"text_2":["c","d","e"]})");
  EXPECT_EQ(uneven->status, 400);
  EXPECT_EQ(Text(uneven->Json().at("error").at("param")), "text_1");
}

TEST_F(ServiceTest, RerankPutsTheBestDocumentFirst) {
  Serve("");
  const std::string body = R"({"query":"a","documents":["r","b","rr"])";
  const json::value v = Post("/v1/rerank", body + "}")->Json();
  const json::array& all = v.at("results").as_array();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].at("index").to_number<int>(), 1);
  EXPECT_EQ(Text(all[0].at("document").at("text")), "b");
  EXPECT_FLOAT_EQ(all[0].at("relevance_score").to_number<float>(), 1);
  EXPECT_EQ(all[1].at("index").to_number<int>(), 0);  // of equal ones the earlier
  const json::value best = Post("/rerank", body + R"(,"top_n":1})")->Json();
  EXPECT_EQ(best.at("results").as_array().size(), 1u);
  EXPECT_EQ(Post("/v1/rerank", R"({"query":"a"})")->status, 400);
}

TEST_F(ServiceTest, TokenizeAndBack) {
  Serve("");
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"ab"})")->body,
            R"({"count":2,"max_model_len":1000,"tokens":[97,98],"token_strs":null})");
  const json::value chat =
      Post("/tokenize", R"({"messages":[{"role":"user","content":"a"}],"return_token_strs":true})")
          ->Json();
  EXPECT_EQ(chat.at("count").to_number<int>(), 18);
  EXPECT_EQ(Text(chat.at("token_strs").at(1)), "u");
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[97,257,195]})")->body,
            "{\"prompt\":\"a<end>\xEF\xBF\xBD\"}");
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[97,257],"skip_special_tokens":true})")->body,
            R"({"prompt":"a"})");
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[999999]})")->status, 400);
}

TEST_F(ServiceTest, RefusesWithTheRightStatus) {
  EXPECT_EQ(Start("/health", "", "GET")->status, 503);
  EXPECT_EQ(Chat("")->status, 503);
  Serve("x");
  EXPECT_EQ(Start("/health", "", "GET")->status, 200);
  EXPECT_EQ(Start("/nowhere", "", "GET")->status, 404);
  const auto get = Start("/v1/completions", "", "GET");
  EXPECT_EQ(get->status, 405);
  EXPECT_EQ(get->headers["Allow"], "POST");
  const auto other = Chat(R"(,"model":"gpt-5")");
  EXPECT_EQ(other->status, 404);
  EXPECT_EQ(Text(other->Json().at("error").at("code")), "model_not_found");
  for (const auto& [type, status] :
       std::vector<std::pair<std::string, int>>{{"application/json", 200},
                                                {"Application/JSON", 200},
                                                {"application/json; charset=utf-8", 200},
                                                {"application/json; charset=\"UTF-8\"", 200},
                                                {"application/json; charset=utf-16", 415},
                                                {"text/plain", 415},
                                                {"application/x-www-form-urlencoded", 415},
                                                {"", 415}}) {
    const auto x = Start("/v1/completions", R"({"prompt":"a"})", "POST", {{"content-type", type}});
    x->Wait();
    EXPECT_EQ(x->status, status) << type;
  }
  fake_->RefuseWith(base::Code::kResourceExhausted, "the queue is full");
  const auto full = Chat(R"(,"stream":true)");
  EXPECT_EQ(full->status, 429);
  EXPECT_EQ(full->headers["Retry-After"], "1");
  service_->EngineDied("a test");
  EXPECT_EQ(Start("/health", "", "GET")->status, 503);
}

TEST_F(ServiceTest, ARefusalOfSamplingNamesTheField) {
  Serve("x");
  for (const char* field : {"top_p", "temperature", "repetition_penalty", "presence_penalty"}) {
    const auto x = Chat(std::string(",\"") + field + "\":-5");
    EXPECT_EQ(x->status, 400);
    EXPECT_EQ(Text(x->Json().at("error").at("param")), field);
  }
  const auto full = Post("/v1/completions", R"({"prompt":")" + std::string(1000, 'a') + "\"}");
  EXPECT_EQ(full->status, 400);
  EXPECT_EQ(Text(full->Json().at("error").at("code")), "context_length_exceeded");
  EXPECT_EQ(Text(full->Json().at("error").at("param")), "prompt");
}

TEST_F(ServiceTest, ModelsAndMetrics) {
  Serve("x");
  Chat("");
  const json::value models = Start("/v1/models", "", "GET")->Json();
  EXPECT_EQ(Text(models.at("data").at(1).at("id")), "alias");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len").to_number<int>(), 1000);
  EXPECT_EQ(Text(Start("/v1/models/alias", "", "GET")->Json().at("id")), "alias");
  EXPECT_EQ(Start("/v1/models/other", "", "GET")->status, 404);
  const std::string metrics = Start("/metrics", "", "GET")->body;
  for (const char* line :
       {"vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0\n",
        "# TYPE vllm:time_to_first_token_seconds histogram\n",
        "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 0.0\n",
        "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"} "
        "1.0\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics.substr(0, 400);
  }
}

// Whatever stands in a field, the answer is 200 or a 400 with a sentence.
TEST_F(ServiceTest, HostileValuesInEveryField) {
  Serve("ok");
  const std::vector<std::string> values = {
      "null",
      "true",
      "0",
      "-1",
      "1",
      "0.5",
      "1e308",
      "-1e308",
      "1e999",
      "99999999999999999999",
      "\"\"",
      "\"a\"",
      "\"\\u0000\"",
      "[]",
      "[[]]",
      "[null]",
      "[1]",
      "[-1]",
      "[1e30]",
      "[\"a\"]",
      "[[1,2],[\"a\"]]",
      "[{}]",
      "{}",
      "{\"a\":1}",
      "{\"1\":\"x\"}",
      "{\"type\":null}",
      "[{\"type\":\"function\",\"function\":{\"name\":1}}]",
      "[{\"role\":\"user\"}]",
      "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
      "[{\"role\":null,\"content\":null}]",
      "[{\"role\":\"assistant\",\"tool_calls\":[null]}]"};
  const std::vector<std::tuple<std::string, std::string, std::span<const Field>>> routes = {
      {"/v1/chat/completions", R"("messages":[{"role":"user","content":"a"}])", ChatFields()},
      {"/v1/completions", R"("prompt":"a")", CompletionFields()},
      {"/v1/embeddings", R"("input":"a")", EmbeddingFields()},
      {"/v1/classify", R"("input":"a")", ClassifyFields()},
      {"/v1/score", R"("text_1":"a","text_2":["b"])", ScoreFields()},
      {"/v1/rerank", R"("query":"a","documents":["b"])", RerankFields()},
      {"/tokenize", R"("prompt":"a")", TokenizeFields()},
      {"/detokenize", R"("tokens":[1])", DetokenizeFields()}};
  int taken = 0, refused = 0;
  for (const auto& [path, base, fields] : routes) {
    for (const Field& f : fields) {
      for (const std::string& value : values) {
        // The last of two equal names counts.
        const std::string body = "{" + base + ",\"" + std::string(f.name) + "\":" + value + "}";
        const auto x = Post(path, body);
        ++(x->status == 200 ? taken : refused);
        if (x->status == 200) continue;
        EXPECT_TRUE(x->status == 400 || (f.name == "model" && x->status == 404)) << body << x->body;
        EXPECT_FALSE(Text(x->Json().at("error").at("message")).empty()) << body;
      }
    }
  }
  EXPECT_GT(taken, 300);
  EXPECT_GT(refused, 2000);
}

TEST_F(ServiceTest, RequestIdsComeBack) {
  Serve("x");
  EXPECT_EQ(Start("/version", "", "GET", {{"x-request-id", "abc"}})->headers["X-Request-Id"],
            "abc");
  EXPECT_EQ(
      Start("/version", "", "GET", {{"x-request-id", "a\r\nb"}})->headers["X-Request-Id"].size(),
      32u);
}

class KeyedService : public ServiceTest {
 protected:
  KeyedService() : ServiceTest({.model_names = {"m"}, .api_keys = {"one", "two"}}) {}
};

TEST_F(KeyedService, NeedsAKeyButForHealth) {
  Serve("x");
  const auto with = [&](const std::string& header) {
    return Start("/v1/models", "", "GET", {{"authorization", header}})->status;
  };
  EXPECT_EQ(with("Bearer two"), 200);
  EXPECT_EQ(with("bearer one"), 200);
  for (const char* bad :
       {"", "Bearer", "Bearer ", "Bearer on", "Bearer onee", "one", "Basic one"}) {
    EXPECT_EQ(with(bad), 401) << bad;
  }
  for (const char* path : {"/", "/health", "/metrics", "/version"}) {
    EXPECT_EQ(Start(path, "", "GET")->status, 200) << path;
  }
  EXPECT_EQ(Start("/tokenize", "{}")->status, 401);
}

}  // namespace
}  // namespace vllm::server
