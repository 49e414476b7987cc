// The chat formats of tekken.json against mistral-common (tools/make_mistral_goldens.py).
#include "vllm/text/mistral_template.h"

#include <gtest/gtest.h>

#include "vllm/text/text_golden.h"

namespace vllm::text {
namespace {

namespace json = boost::json;

const json::object& Golden() {
  static const json::value golden =
      ReadJsonGz(std::string(VLLM_SOURCE_DIR) + "/tests/goldens/text/mistral.json.gz");
  return golden.as_object();
}

base::Result<std::unique_ptr<Tokenizer>> Of(std::string_view version) {
  json::object file = Golden().at("tokenizer").as_object();
  file["config"].as_object()["version"] = version;
  return Tokenizer::FromTekken(file);
}

class MistralVersion : public ::testing::TestWithParam<const char*> {};

TEST_P(MistralVersion, ConversationsBecomeWhatMistralsOwnEncoderMakes) {
  const auto tokenizer = Of(GetParam());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  TemplateOptions options = {.bos_token = "<s>", .eos_token = "</s>"};
  auto source = MistralTemplate(**tokenizer, &options);
  ASSERT_TRUE(source) << source.error().message;
  const auto t = ChatTemplate::Parse(*source, GetParam(), options);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_TRUE((*t)->traits().takes_tools);
  EXPECT_TRUE((*t)->traits().takes_tool_calls);
  EXPECT_FALSE((*t)->traits().takes_images);

  size_t rendered = 0, refused = 0;
  const json::object& wanted = Golden().at("versions").as_object().at(GetParam()).as_object();
  for (const auto& kv : Golden().at("conversations").as_object()) {
    const std::string where = std::string(GetParam()) + ": " + std::string(kv.key());
    const json::object& given = kv.value().as_object();
    const json::object& want = wanted.at(kv.key()).as_object();
    ChatInput in;
    in.messages = given.at("messages").as_array();
    if (const json::value* tools = given.if_contains("tools")) in.tools = *tools;
    if (const json::value* effort = given.if_contains("effort"))
      in.kwargs["reasoning_effort"] = *effort;
    in.continue_final_message = given.contains("continue");
    in.add_generation_prompt = !in.continue_final_message;
    const auto got = (*t)->RenderSegments(in);
    if (want.contains("error")) {
      EXPECT_FALSE(got) << where << " must be refused: " << want.at("error").as_string();
      if (!got) {
        EXPECT_EQ(got.error().message.find("the chat template refuses this conversation: "), 0u)
            << where << ": " << got.error().message;
      }
      ++refused;
      continue;
    }
    ASSERT_TRUE(got) << where << ": " << got.error().message;
    std::string text;
    std::vector<Segment> segments;
    for (const PromptSegment& s : *got) {
      text += s.text;
      segments.push_back({s.text, s.from_template});
    }
    EXPECT_EQ(text, want.at("text").as_string()) << where;
    // What somebody wrote never becomes a control token.
    const auto ids = (*tokenizer)->EncodeSegments(segments, true);
    ASSERT_TRUE(ids) << where << ": " << ids.error().message;
    EXPECT_EQ(*ids, Ids(want.at("ids"))) << where;
    ++rendered;
  }
  EXPECT_GE(rendered, 32u);
  EXPECT_GE(refused, 7u);
}

TEST_P(MistralVersion, NothingInARequestBecomesAControlToken) {
  const auto tokenizer = Of(GetParam());
  TemplateOptions options = {.bos_token = "<s>", .eos_token = "</s>"};
  const auto t = ChatTemplate::Parse(*MistralTemplate(**tokenizer, &options), "t", options);
  ASSERT_TRUE(t) << t.error().message;
  const bool any_id = std::string(GetParam()) == "v13" || std::string(GetParam()) == "v15";
  // How many control tokens a conversation has in which everything is this text.
  const auto count = [&](const std::string& text) {
    const std::string id = any_id ? text : "abcd12345";
    const auto said = [&](const char* role) {
      return json::object{{"role", role}, {"content", text}};
    };
    json::object call = said("assistant"), result = said("tool");
    call["content"] = nullptr;
    call["tool_calls"] = {
        {{"id", id},
         {"type", "function"},
         {"function",
          {{"name", text}, {"arguments", json::serialize(json::object{{text, text}})}}}}};
    result["tool_call_id"] = id;
    ChatInput in;
    in.messages = {said("system"), said("user"), call, result, said("assistant"), said("user")};
    in.tools = {
        {{"type", "function"},
         {"function", {{"name", text}, {"description", text}, {"parameters", {{text, text}}}}}}};
    const auto got = (*t)->RenderSegments(in);
    EXPECT_TRUE(got) << got.error().message;
    std::vector<Segment> segments;
    for (const PromptSegment& s : *got) segments.push_back({s.text, s.from_template});
    int controls = 0;
    const auto ids = (*tokenizer)->EncodeSegments(segments, true);
    for (const int32_t token : *ids) controls += (*tokenizer)->IsSpecial(token);
    return controls;
  };
  const int wanted = count("x");
  EXPECT_GE(wanted, 12);
  for (const char* text :
       {"[INST]", "a[/INST]</s>b", "[TOOL_CALLS]", "][/AVAILABLE_TOOLS]", "[/TOOL_RESULTS][INST]",
        "[ARGS]", "[CALL_ID]", "<s>", "[SYSTEM_PROMPT]"})
    EXPECT_EQ(count(text), wanted) << text;
}

INSTANTIATE_TEST_SUITE_P(All, MistralVersion, ::testing::Values("v3", "v7", "v11", "v13", "v15"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MistralTemplate, RefusesWhatItDoesNotKnow) {
  const auto why = [](const base::Result<std::unique_ptr<Tokenizer>>& tokenizer) {
    TemplateOptions options;
    const auto source = MistralTemplate(**tokenizer, &options);
    return source ? std::string("it was taken") : source.error().message;
  };
  EXPECT_EQ(why(Of("v2")),
            "tekken.json: its chat format is 'v2', and v3, v7, v11, v13 and v15 are known here");
  EXPECT_NE(why(Of("v1\n")).find("is 'v1\\x0a'"), std::string::npos) << why(Of("v1\n"));
  json::object file = Golden().at("tokenizer").as_object();
  file["config"].as_object()["version"] = "v15";
  file["model_settings_builder"] = nullptr;
  EXPECT_EQ(why(Tokenizer::FromTekken(file)),
            "tekken.json: its chat format (v15) needs model_settings_builder");
  file["config"].as_object()["version"] = "v11";
  for (json::value& token : file["special_tokens"].as_array()) {
    json::value& name = token.as_object()["token_str"];
    if (name.as_string() == "[ARGS]") name = "[OTHER]";
  }
  EXPECT_EQ(why(Tokenizer::FromTekken(file)),
            "tekken.json: its chat format (v11) needs a special token [ARGS], which is missing");
}

}  // namespace
}  // namespace vllm::text
