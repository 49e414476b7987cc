#include "vllm/server/protocol.h"

#include <gtest/gtest.h>

#include "vllm/server/protocol_fields.h"

namespace vllm::server {
namespace {

constexpr const char* kHi = R"("messages":[{"role":"user","content":"hi"}])";

std::string Chat(const std::string& more) { return std::string("{") + kHi + more + "}"; }

template <typename T>
ApiError ErrorOf(const Parsed<T>& parsed) {
  const auto* e = std::get_if<ApiError>(&parsed);
  if (e == nullptr) return ApiError{.status = 200};
  return *e;
}

// The parameter that a chat request is refused for; "" when it is taken.
std::string ChatParam(const std::string& more) {
  const ApiError e = ErrorOf(ParseChat(Chat(more)));
  return e.status == 200 ? "" : e.param + (e.status == 400 ? "" : "?");
}
std::string CompletionParam(const std::string& more) {
  const ApiError e = ErrorOf(ParseCompletion(R"({"prompt":"x")" + more + "}"));
  return e.status == 200 ? "" : e.param;
}

TEST(Protocol, ReadsASmallChat) {
  const auto parsed = ParseChat(
      Chat(R"(,"model":"m","temperature":0.5,"top_p":0.25,"seed":7,"stop":["a","b"],"n":2,)"
           R"("max_completion_tokens":9,"logprobs":true,"top_logprobs":3,"stream":true,)"
           R"("stream_options":{"include_usage":true},"logit_bias":{"5":-100},"top_k":4,)"
           R"("ignore_eos":true,"priority":-2,"cache_salt":"s")"));
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(parsed)) << ErrorOf(parsed).message;
  const ChatRequest& r = std::get<ChatRequest>(parsed);
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.25f);
  EXPECT_EQ(r.sampling.seed, 7u);
  EXPECT_EQ(r.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.sampling.n, 2);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.sampling.logprobs, 3);
  EXPECT_TRUE(r.stream && r.include_usage && !r.continuous_usage);
  EXPECT_EQ(r.sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.0f}}));
  EXPECT_EQ(r.sampling.top_k, 4);
  EXPECT_TRUE(r.sampling.ignore_eos);
  EXPECT_EQ(r.priority, -2);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_TRUE(r.chat.add_generation_prompt);
}

TEST(Protocol, NullIsAbsent) {
  for (const Field& f : ChatFields()) {
    if (f.name == "messages") continue;
    EXPECT_EQ(ChatParam(",\"" + std::string(f.name) + "\":null"), "") << f.name;
  }
}

// Every field of OpenAI's schemas (of September 2026), and vLLM's that clients send.
TEST(Protocol, KnowsEveryFieldOfTheSchemas) {
  const auto known = [](std::span<const Field> table, std::string_view name) {
    return std::any_of(table.begin(), table.end(), [&](const Field& f) { return f.name == name; });
  };
  for (const char* name : {"messages",
                           "model",
                           "audio",
                           "frequency_penalty",
                           "function_call",
                           "functions",
                           "logit_bias",
                           "logprobs",
                           "max_completion_tokens",
                           "max_tokens",
                           "metadata",
                           "modalities",
                           "n",
                           "parallel_tool_calls",
                           "prediction",
                           "presence_penalty",
                           "prompt_cache_key",
                           "prompt_cache_retention",
                           "reasoning_effort",
                           "response_format",
                           "safety_identifier",
                           "seed",
                           "service_tier",
                           "stop",
                           "store",
                           "stream",
                           "stream_options",
                           "temperature",
                           "tool_choice",
                           "tools",
                           "top_logprobs",
                           "top_p",
                           "user",
                           "verbosity",
                           "web_search_options"}) {
    EXPECT_TRUE(known(ChatFields(), name)) << name;
  }
  for (const char* name : {"model", "prompt", "best_of", "echo", "frequency_penalty", "logit_bias",
                           "logprobs", "max_tokens", "n", "presence_penalty", "seed", "stop",
                           "stream", "stream_options", "suffix", "temperature", "top_p", "user"}) {
    EXPECT_TRUE(known(CompletionFields(), name)) << name;
  }
  for (const char* name : {"input", "model", "dimensions", "encoding_format", "user"}) {
    EXPECT_TRUE(known(EmbeddingFields(), name)) << name;
  }
}

TEST(Protocol, TakesFieldsWithoutMeaningHere) {
  EXPECT_EQ(ChatParam(R"(,"user":"u","metadata":{"a":"b"},"store":false,"service_tier":"auto")"
                      R"(,"safety_identifier":"s","prompt_cache_key":"k")"
                      R"(,"parallel_tool_calls":true,"modalities":["text"])"
                      R"(,"response_format":{"type":"text"},"function_call":"none")"),
            "");
  EXPECT_EQ(CompletionParam(R"(,"best_of":1,"suffix":"","length_penalty":1.0)"), "");
}

TEST(Protocol, RefusesByName) {
  for (const auto& [more, param] : std::vector<std::pair<std::string, std::string>>{
           {R"(,"response_format":{"type":"json_object"})", "response_format"},
           {R"(,"store":true)", "store"},
           {R"(,"modalities":["text","audio"])", "modalities"},
           {R"(,"functions":[{"name":"f"}])", "functions"},
           {R"(,"user":5)", "user"},
           {R"(,"parallel_tool_calls":false)", "parallel_tool_calls"},
           {R"(,"guided_json":{})", "guided_json"},
           {R"(,"chat_template":"x")", "chat_template"},
           {R"(,"temperature":"hot")", "temperature"},
           {R"(,"temperature":1e999)", "temperature"},
           {R"(,"temperature":true)", "temperature"},
           {R"(,"max_tokens":-1)", "max_tokens"},
           {R"(,"max_tokens":0)", "max_tokens"},
           {R"(,"max_tokens":1.5)", "max_tokens"},
           {R"(,"max_tokens":"4")", "max_tokens"},
           {R"(,"max_tokens":3,"max_completion_tokens":4)", "max_completion_tokens"},
           {R"(,"n":0)", "n"},
           {R"(,"n":100000)", "n"},
           {R"(,"top_logprobs":21,"logprobs":true)", "top_logprobs"},
           {R"(,"top_logprobs":2)", "top_logprobs"},
           {R"(,"logprobs":1)", "logprobs"},
           {R"(,"logit_bias":{"x":1})", "logit_bias"},
           {R"(,"logit_bias":{"1":101})", "logit_bias"},
           {R"(,"logit_bias":[1])", "logit_bias"},
           {R"(,"stop":[1])", "stop"},
           {R"(,"stop":[""])", "stop"},
           {R"(,"stream_options":{})", "stream_options"},
           {R"(,"stream":true,"stream_options":{"usage":true})", "stream_options.usage"},
           {R"(,"stream":true,"prompt_logprobs":1)", "prompt_logprobs"},
           {R"(,"tool_choice":"required")", "tool_choice"},
           {R"(,"tool_choice":"auto")", "tool_choice"},
           {R"(,"tools":[{"type":"function"}])", "tools"},
           {R"(,"tools":[{"type":"code","function":{"name":"f"}}])", "tools"},
           {R"(,"allowed_token_ids":[])", "allowed_token_ids"},
           {R"(,"cache_salt":"")", "cache_salt"},
           {R"(,"continue_final_message":true,"add_generation_prompt":true)",
            "continue_final_message"},
       }) {
    EXPECT_EQ(ChatParam(more), param) << more;
  }
}

TEST(Protocol, NamesTheNearestFieldOfAnUnknownOne) {
  const ApiError e = ErrorOf(ParseChat(Chat(R"(,"temprature":1)")));
  EXPECT_EQ(e.status, 400);
  EXPECT_EQ(e.param, "temprature");
  EXPECT_NE(e.message.find("did you mean 'temperature'?"), std::string::npos) << e.message;
  EXPECT_EQ(ErrorOf(ParseChat(Chat(R"(,"zzzzzz":1)"))).message,
            "zzzzzz is no field of this request");
}

TEST(Protocol, StopListsAreBounded) {
  std::string many = "[\"a\"";
  for (int i = 0; i < 5000; ++i) many += ",\"a\"";
  EXPECT_EQ(ChatParam(",\"stop\":" + many + "]"), "stop");
  EXPECT_EQ(ChatParam(",\"stop\":\"" + std::string(2000, 'a') + "\""), "stop");
  EXPECT_EQ(ChatParam(R"(,"stop":[])"), "");
  EXPECT_EQ(ChatParam(R"(,"stop":"")"), "");
}

TEST(Protocol, MessagesAreChecked) {
  const auto error = [](const std::string& messages) {
    return ErrorOf(ParseChat("{\"messages\":" + messages + "}"));
  };
  EXPECT_EQ(error("[]").param, "messages");
  EXPECT_EQ(error("null").param, "messages");
  EXPECT_EQ(error("{}").param, "messages");
  EXPECT_EQ(error("[1]").param, "messages");
  EXPECT_EQ(error(R"([{"content":"a"}])").param, "messages[0].role");
  EXPECT_EQ(error(R"([{"role":"user","content":"a"},{"role":"user","content":5}])").param,
            "messages[1].content");
  EXPECT_EQ(error(R"([{"role":"user","contents":"a"}])").param, "messages[0].contents");
  EXPECT_EQ(error(R"([{"role":"assistant","tool_calls":[{"type":"function"}]}])").param,
            "messages[0].tool_calls");
  // What an answer of OpenAI's own client looks like when it is sent back.
  EXPECT_EQ(error(R"([{"role":"assistant","content":null,"refusal":null,"annotations":[],)"
                  R"("audio":null,"function_call":null,"tool_calls":[]}])")
                .status,
            200);
}

TEST(Protocol, BadJsonIsOneSentence) {
  for (const char* body : {"", "{", "[]", "null", "{\"messages\":}", "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\xff\"}", "\xEF\xBB\xBF{}", "{\"a\":NaN}", "{} {}"}) {
    const ApiError e = ErrorOf(ParseChat(body));
    EXPECT_EQ(e.status, 400) << body;
    EXPECT_FALSE(e.message.empty());
  }
  EXPECT_EQ(ErrorOf(ParseChat("{\"messages\":" + std::string(100000, '['))).status, 400);
}

TEST(Protocol, PromptsComeInFourForms) {
  const auto prompts = [](const std::string& json) {
    const auto parsed = ParseCompletion("{\"prompt\":" + json + "}");
    const auto* r = std::get_if<CompletionRequest>(&parsed);
    return r == nullptr ? std::vector<Prompt>{} : r->prompts;
  };
  ASSERT_EQ(prompts("\"a\"").size(), 1u);
  EXPECT_EQ(prompts("[\"a\",\"b\"]")[1].text, "b");
  EXPECT_EQ(prompts("[1,2]")[0].ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompts("[[1,2],[3]]")[1].ids, (std::vector<int32_t>{3}));
  for (const char* bad :
       {"[]", "[[]]", "[1,\"a\"]", "[\"a\",1]", "[-1]", "[1e12]", "5", "{}", "[null]"}) {
    EXPECT_TRUE(prompts(bad).empty()) << bad;
  }
}

TEST(Protocol, CompletionLogprobsIsANumber) {
  EXPECT_EQ(CompletionParam(",\"logprobs\":0"), "");
  EXPECT_EQ(CompletionParam(",\"logprobs\":20"), "");
  EXPECT_EQ(CompletionParam(",\"logprobs\":21"), "logprobs");
  EXPECT_EQ(CompletionParam(",\"logprobs\":true"), "logprobs");
  EXPECT_EQ(CompletionParam(",\"max_tokens\":1000000000000"), "");  // judged with the prompt
  EXPECT_EQ(CompletionParam(",\"max_tokens\":0,\"echo\":true"), "");
}

TEST(Protocol, ToolsCanBeSwitchedOff) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const auto with = [&](const std::string& more) {
    return std::get<ChatRequest>(ParseChat(Chat(tools + more)));
  };
  EXPECT_TRUE(with("").call_tools);
  EXPECT_TRUE(with(R"(,"tool_choice":"auto")").call_tools);
  EXPECT_FALSE(with(R"(,"tool_choice":"none")").call_tools);
  EXPECT_TRUE(with(R"(,"tool_choice":"none")").chat.tools.is_null());
}

TEST(Protocol, OtherRoutes) {
  EXPECT_EQ(ErrorOf(ParseEmbedding(R"({"input":"a","dimensions":5})")).param, "dimensions");
  EXPECT_EQ(ErrorOf(ParseEmbedding(R"({"input":""})")).param, "input");
  EXPECT_EQ(ErrorOf(ParseEmbedding(R"({"input":"a","encoding_format":"x"})")).param,
            "encoding_format");
  EXPECT_EQ(ErrorOf(ParseEmbedding(R"({"input":["a","b"],"encoding_format":"base64"})")).status,
            200);
  EXPECT_EQ(ErrorOf(ParseTokenize("{}")).param, "prompt");
  EXPECT_EQ(ErrorOf(ParseTokenize(R"({"prompt":"a","messages":[]})")).param, "prompt");
  EXPECT_EQ(ErrorOf(ParseTokenize(R"({"prompt":""})")).status, 200);
  EXPECT_EQ(ErrorOf(ParseDetokenize(R"({"tokens":["a"]})")).param, "tokens");
  EXPECT_EQ(ErrorOf(ParseDetokenize(R"({"tokens":[]})")).status, 200);
}

TEST(Protocol, ErrorsHaveOpenAisShape) {
  EXPECT_EQ(
      ErrorBody({.status = 400, .message = "a \"b\"", .param = "n"}),
      R"({"error":{"message":"a \"b\"","type":"invalid_request_error","param":"n","code":null}})");
  const ApiError e = FromError({base::Code::kInvalidArgument, "top_p must be in (0, 1], got 0"});
  EXPECT_EQ(e.status, 400);
  EXPECT_EQ(e.param, "top_p");
  EXPECT_EQ(FromError({base::Code::kResourceExhausted, "full"}).retry_after, 1);
}

}  // namespace
}  // namespace vllm::server
