// Requests bent at random, by a seed, sent through the whole of the service to a model that answers
// at once: whatever is asked, there is one answer, of OpenAI's shape, that is no server's fault.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <random>

#include "vllm/server/server_testing.h"
#include "vllm/server/service.h"

namespace vllm::server {
namespace {

namespace json = boost::json;

struct Seed {
  const char* path;
  const char* body;
};

// Every route, and every field that one of them reads.
constexpr Seed kSeeds[] = {
    {"/v1/chat/completions",
     R"({"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[
        {"type":"text","text":"hi"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c",
        "type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool",
        "tool_call_id":"c","content":"t"}],"tools":[{"type":"function","function":{"name":"f",
        "description":"d","parameters":{"type":"object"}}}],"tool_choice":"auto","stream":true,
        "stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":8,
        "chat_template_kwargs":{"x":true},"dry_multiplier":0.8,"dry_sequence_breakers":["\n"," "],
        "bad_words":["x"],"min_tokens":2,"stop":["b","cd"],"seed":5,"n":2})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":"hi"}],"max_completion_tokens":5,"temperature":0.7,
        "top_p":0.9,"top_k":5,"min_p":0.1,"typical_p":0.9,"top_n_sigma":1.0,"logprobs":true,
        "top_logprobs":3,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.1,
        "logit_bias":{"5":-100},"xtc_probability":0.5,"xtc_threshold":0.1,"user":"u","metadata":{},
        "response_format":{"type":"text"},"continue_final_message":false,
        "add_generation_prompt":true,"return_token_ids":true,"request_id":"r"})"},
    {"/v1/completions",
     R"({"model":"m","prompt":["Once ","Twice"],"max_tokens":6,"echo":true,"logprobs":2,"n":2,
        "prompt_logprobs":1,"ignore_eos":true,"skip_special_tokens":false,"stop_token_ids":[65],
        "allowed_token_ids":[65,66,67],"cache_salt":"s","priority":0,"best_of":1,"suffix":"",
        "include_stop_str_in_output":true,"add_special_tokens":false})"},
    {"/v1/completions", R"({"prompt":[1,2,3],"max_tokens":0,"stream":true})"},
    {"/v1/embeddings",
     R"({"model":"m","input":["a",""],"encoding_format":"base64","user":"u","priority":0})"},
    {"/v1/embeddings", R"({"input":[[1,2],[3]],"encoding_format":"float"})"},
    {"/v1/classify", R"({"model":"m","input":["a",[1,2]],"priority":1})"},
    {"/v1/score", R"({"model":"m","text_1":"a","text_2":["b","c"],"priority":0})"},
    {"/v1/rerank", R"({"query":"a","documents":["b","c"],"top_n":1,"user":"u"})"},
    {"/tokenize",
     R"({"prompt":"a b","add_special_tokens":true,"return_token_strs":true,"model":"m"})"},
    {"/tokenize", R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":true})"},
    {"/detokenize", R"({"tokens":[65,66,257],"skip_special_tokens":true,"model":"m"})"},
    {"/v1/models", ""},
    {"/v1/models/m", ""},
    {"/health", ""},
    {"/ping", ""},
    {"/version", ""},
    {"/metrics", ""},
    {"/", ""},
};

class Bender {
 public:
  explicit Bender(uint32_t seed) : random_(seed) {}

  size_t Below(size_t n) { return random_() % n; }
  bool Once(size_t in) { return Below(in) == 0; }

  std::string Body(const char* text) {
    if (*text == 0) return Once(2) ? "" : "{}";
    json::value v = json::parse(text);
    for (size_t i = 1 + Below(3); i > 0 && !Once(6); --i) Bend(v, 0);
    std::string body = json::serialize(v);
    for (size_t i = Once(4) ? 1 + Below(4) : 0; i > 0; --i) BendBytes(body);
    return body;
  }

  void BendBytes(std::string& s) {
    const size_t at = Below(s.size() + 1);
    switch (Below(4)) {
      case 0:
        s.insert(at, 1, static_cast<char>(random_()));
        break;
      case 1:
        s.erase(at, 1 + Below(8));
        break;
      case 2:
        s.insert(at, s.substr(Below(s.size() + 1), Below(20)));
        break;
      default:
        if (at < s.size()) s[at] = static_cast<char>(random_());
    }
  }

 private:
  json::value Any() {
    static const char* const kValues[] = {"null",
                                          "true",
                                          "false",
                                          "0",
                                          "-1",
                                          "1",
                                          "2",
                                          "0.5",
                                          "-0.0",
                                          "1e308",
                                          "1e-320",
                                          "1e10",
                                          "2147483648",
                                          "-2147483649",
                                          "9223372036854775807",
                                          "18446744073709551615",
                                          "257",
                                          "258",
                                          "\"\"",
                                          "\"a\"",
                                          "\"auto\"",
                                          "\"none\"",
                                          "\"\\u0000\"",
                                          "\"\\ud83d\\ude00\"",
                                          "[]",
                                          "{}",
                                          "[null]",
                                          "[[]]",
                                          "[\"\"]",
                                          "[1e99]",
                                          "[-1]",
                                          "[\"a\",1]",
                                          "{\"\":0}",
                                          "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}",
                                          "[[[[[[[[1]]]]]]]]"};
    if (Once(20)) return json::value(std::string(5000, 'a'));
    if (Once(20)) return json::array(3000, "a");
    return json::parse(kValues[Below(std::size(kValues))]);
  }

  // Somewhere in the tree: another value, nothing, one more, or a name that belongs elsewhere.
  void Bend(json::value& v, int depth) {
    json::object* o = v.if_object();
    json::array* a = v.if_array();
    const size_t size = o != nullptr ? o->size() : a != nullptr ? a->size() : 0;
    if (size == 0 || (depth > 0 && Once(3))) {
      v = Any();
      return;
    }
    const size_t at = Below(size);
    if (a != nullptr) {
      if (Once(6)) {
        a->erase(a->begin() + at);
      } else if (Once(6)) {
        a->push_back(Any());
      } else {
        Bend((*a)[at], depth + 1);
      }
      return;
    }
    const auto it = o->begin() + at;
    if (Once(6)) {
      o->erase(it);
    } else if (Once(8)) {
      const json::value other = json::parse(kSeeds[Below(9)].body);
      const auto from = other.get_object().begin() + Below(other.get_object().size());
      (*o)[from->key()] = Once(2) ? from->value() : Any();
    } else {
      Bend(it->value(), depth + 1);
    }
  }

  std::minstd_rand random_;
};

void ExpectAnswer(const FakeExchange& x) {
  const bool good = x.status >= 200 && x.status < 300, bad = x.status >= 400 && x.status < 500;
  ASSERT_TRUE(good || bad) << x.status << " " << x.body;
  if (good) {
    if (x.type == "text/event-stream") (void)x.Chunks();
    if (x.type == "application/json") (void)x.Json();
    return;
  }
  const json::value v = x.Json();
  ASSERT_TRUE(v.is_object()) << x.body;
  const json::object& e = v.at("error").as_object();
  EXPECT_FALSE(e.at("message").as_string().empty());
  EXPECT_TRUE(e.at("type").is_string());
  for (const char* name : {"param", "code"}) {
    EXPECT_TRUE(e.at(name).is_null() || !e.at(name).as_string().empty()) << x.body;
  }
}

TEST(RouteFuzz, EveryBentRequestGetsOneAnswerOfOpenAisShape) {
  const Log log(LogLevel::kNone);
  Service service({.model_names = {"m"}, .log_requests = false}, log);
  service.Ready(std::make_unique<FakeModel>(
      service, [](const engine::Request&, int32_t) { return "abcdef<tool_call>{"; }));
  Bender bender(4);
  const auto pick = [&](auto... words) {
    const char* all[] = {words...};
    return std::string(all[bender.Below(sizeof...(words))]);
  };
  int taken = 0, refused = 0;
  for (int i = 0; i < 6000 && !::testing::Test::HasFailure(); ++i) {
    const Seed& seed = kSeeds[i % std::size(kSeeds)];
    net::HttpRequest r;
    r.path = seed.path;
    if (bender.Once(20)) bender.BendBytes(r.path);
    r.method = *seed.body != 0 ? "POST" : "GET";
    if (bender.Once(20)) r.method = pick("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "x");
    r.body = bender.Body(seed.body);
    r.headers["content-type"] = bender.Once(20)
                                    ? pick("", "text/plain", "application/json; charset=latin1",
                                           ";;", "application/json;charset=\"utf-8\"")
                                    : "application/json";
    if (bender.Once(30)) r.headers["content-encoding"] = pick("gzip", "identity", "");
    if (bender.Once(30)) r.headers["authorization"] = pick("", "Bearer", "Bearer \xff");
    if (bender.Once(30)) r.headers["x-request-id"] = pick("a", "\x01", "\n", "");
    r.peer = "fuzz";
    const std::string request = r.method + " " + r.path + " " + r.body;
    SCOPED_TRACE(request.substr(0, 2000));
    const auto x = std::make_shared<FakeExchange>(std::move(r));
    service.Handle(x);
    x->Wait();
    ExpectAnswer(*x);
    ++(x->status < 300 ? taken : refused);
  }
  // Both sides are tried, and often.
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
  service.Stop();
}

}  // namespace
}  // namespace vllm::server
