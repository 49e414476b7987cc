#include "vllm/server/tool_parser.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace vllm::server {
namespace {

// Content and calls, as one line: "content|name(arguments)|...".
std::string Fold(ToolParser& parser, const std::vector<std::string>& pieces) {
  std::string content;
  std::vector<std::string> names, arguments;
  const auto take = [&](const ToolOutput& out) {
    content += out.content;
    for (const ToolDelta& d : out.calls) {
      const auto i = static_cast<size_t>(d.index);
      if (i == names.size()) {
        EXPECT_FALSE(d.name.empty());
        names.push_back(d.name);
        arguments.emplace_back();
      } else {
        EXPECT_TRUE(d.name.empty()) << "a name comes once";
      }
      arguments.at(i) += d.arguments;
    }
  };
  for (const std::string& p : pieces) take(parser.Push(p));
  take(parser.Finish());
  EXPECT_EQ(parser.calls(), static_cast<int>(names.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    content += "|" + names[i] + "(" + arguments[i] + ")";
  }
  return content;
}

// The same at every cut in two, and character by character.
std::string Parse(ToolFormat format, const std::string& text) {
  const std::vector<std::string> names = {"f", "get_weather"};
  const std::string whole = Fold(*MakeToolParser(format, names), {text});
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size(); ++i) {
    characters.push_back(text.substr(i, 1));
    EXPECT_EQ(Fold(*MakeToolParser(format, names), {text.substr(0, i), text.substr(i)}), whole)
        << "cut at " << i;
  }
  EXPECT_EQ(Fold(*MakeToolParser(format, names), characters), whole);
  return whole;
}

std::string Hermes(const std::string& text) { return Parse(ToolFormat::kHermes, text); }
std::string Llama(const std::string& text) { return Parse(ToolFormat::kLlama3Json, text); }

std::string Mistral(const std::string& text) { return Parse(ToolFormat::kMistral, text); }

std::string Harmony(const std::string& text) { return Parse(ToolFormat::kHarmony, text); }

TEST(ToolParser, HarmonyGivesTheFinalChannelAndCalls) {
  EXPECT_EQ(Harmony("<|channel|>analysis<|message|>a < b <| c<|end|><|start|>assistant"
                    "<|channel|>final<|message|>Yes: a < b <| c <|x|>"),
            "Yes: a < b <| c <|x|>");
  EXPECT_EQ(
      Harmony("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
              "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"X\"}"),
      "|get_weather({\"city\": \"X\"})");
  // The recipient may stand with the role; what is said beside calls is content.
  EXPECT_EQ(Harmony("<|channel|>commentary<|message|>I look. <|end|><|start|>assistant "
                    "to=functions.f<|channel|>commentary<|message|>{}<|call|><|start|>assistant"
                    "<|channel|>commentary to=functions.f<|message|>{\"a\":1}<|call|>"),
            "I look. |f({})|f({\"a\":1})");
  EXPECT_EQ(Harmony("<|channel|>commentary to=functions.unknown<|message|>{}"), "{}");
  EXPECT_EQ(Harmony("<|channel|>analysis<|message|>cut off"), "");
  EXPECT_EQ(Harmony("plain <text"), "plain <text");
}

TEST(ToolParser, HarmonysThoughtsAreReasoning) {
  const auto parser = MakeToolParser(ToolFormat::kHarmony, {});
  const ToolOutput out = parser->Push(
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant"
      "<|channel|>final<|message|>b");
  EXPECT_EQ(out.reasoning, "a");
  EXPECT_EQ(out.content, "b");
}

TEST(ToolParser, PlainTextIsContentAsItIs) {
  EXPECT_EQ(Hermes("  a < b <tool> <tool_cal x \n"), "  a < b <tool> <tool_cal x \n");
  EXPECT_EQ(Llama("  a {\"name\": 1} \n"), "  a {\"name\": 1} \n");
  EXPECT_EQ(Hermes(""), "");
  EXPECT_EQ(Hermes(" \n"), " \n");
}

TEST(ToolParser, HermesCallsBetweenText) {
  EXPECT_EQ(
      Hermes(
          "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}</tool_call>\"}}"
          "\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"),
      "Let me see.|f({\"a\": \"}</tool_call>\"})|g({})");
}

TEST(ToolParser, HermesWithoutItsClosingMark) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":[1,2]}}"), "|f({\"x\":[1,2]})");
}

TEST(ToolParser, AnAnswerThatEndsInAMarkShowsNothingOfIt) {
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}";
  for (const char* end : {"\n", "<", "\n</tool", "</tool_call", "</tool_call>\n"}) {
    EXPECT_EQ(Hermes(call + end), "|f({\"x\":1})") << end;
  }
  for (const char* end : {";", "; ", " "}) {
    EXPECT_EQ(Llama(std::string("{\"name\":\"f\",\"parameters\":{}}") + end), "|f({})") << end;
  }
}

TEST(ToolParser, KnowsACallThatWasCut) {
  const auto parser = MakeToolParser(ToolFormat::kHermes, {});
  parser->Push("<tool_call>{\"name\":\"f\",\"argum");
  EXPECT_FALSE(parser->cut());  // not announced: it is text
  parser->Push("ents\":{\"x\":");
  EXPECT_TRUE(parser->cut());
  parser->Push("1}}");
  EXPECT_FALSE(parser->cut());
}

TEST(ToolParser, HermesArgumentsMayComeFirstOrAsTextOrNotAtAll) {
  EXPECT_EQ(Hermes("<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>"),
            "|f({\"a\": 1})");
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>"),
            "|f({\"a\": 1})");
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\"}</tool_call>"), "|f({})");
}

TEST(ToolParser, BrokenCallsAreContent) {
  for (const char* text : {"<tool_call>f(1)</tool_call>", "<tool_call>{\"name\": f}</tool_call>",
                           "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
                           "<tool_call>{\"tool\": \"f\"}</tool_call>",
                           "a <tool_call>{\"name\": \"f\"", "<tool_call>"}) {
    EXPECT_EQ(Hermes(text), text);
  }
}

TEST(ToolParser, ArgumentsStreamAsTheyCome) {
  const auto parser = MakeToolParser(ToolFormat::kHermes, {});
  ToolOutput a = parser->Push("<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Par");
  ASSERT_EQ(a.calls.size(), 1u);
  EXPECT_EQ(a.calls[0].name, "f");
  EXPECT_EQ(a.calls[0].arguments, "{\"city\": \"Par");
  ToolOutput b = parser->Push("is\"}}");
  ASSERT_EQ(b.calls.size(), 1u);
  EXPECT_EQ(b.calls[0].name, "");
  EXPECT_EQ(b.calls[0].arguments, "is\"}");
}

TEST(ToolParser, TextBehindACallIsContent) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\":\"f\"}</tool_call> done"), " done|f({})");
}

TEST(ToolParser, LlamaCallsAreTheWholeAnswer) {
  EXPECT_EQ(Llama("{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), "|f({\"a\": 1})");
  EXPECT_EQ(Llama("<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": {\"b\": []}}}"),
            "|f({\"a\": {\"b\": []}})");
  EXPECT_EQ(Llama("{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": "
                  "\"get_weather\", \"parameters\": {\"c\": \"x\"}}"),
            "|f({})|get_weather({\"c\": \"x\"})");
}

TEST(ToolParser, LlamaJsonThatIsNoCallIsContent) {
  EXPECT_EQ(Llama("{\"answer\": 42}"), "{\"answer\": 42}");
  EXPECT_EQ(Llama("{\"name\": \"Bob\", \"parameters\": {}}"),
            "{\"name\": \"Bob\", \"parameters\": {}}");
  EXPECT_EQ(Llama("Sure: {\"name\": \"f\", \"parameters\": {}}"),
            "Sure: {\"name\": \"f\", \"parameters\": {}}");
  EXPECT_EQ(Llama("<|python_tag|>f.call(1)"), "<|python_tag|>f.call(1)");
}

TEST(ToolParser, MistralsListsOfCalls) {
  EXPECT_EQ(Mistral("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]}\"}, \"id\": "
                    "\"abcd12345\"}, {\"name\": \"any\", \"arguments\": {}}]"),
            "|f({\"a\": \"]}\"})|any({})");
  EXPECT_EQ(Mistral("I look. [TOOL_CALLS] [{\"arguments\": {\"a\":1}, \"name\": \"f\"}]\n"),
            "I look.|f({\"a\":1})");
  EXPECT_EQ(Mistral("[TOOL_CALLS][{\"name\": \"f\"}] done"), " done|f({})");
}

TEST(ToolParser, MistralsCallsByName) {
  EXPECT_EQ(Mistral("[TOOL_CALLS]f[ARGS]{\"a\": \"[TOOL_CALLS]}\"}"),
            "|f({\"a\": \"[TOOL_CALLS]}\"})");
  EXPECT_EQ(Mistral("I look.\n[TOOL_CALLS]get-weather.x_1[CALL_ID]abcd12345[ARGS] {\"a\": [1, {}]}"
                    "[TOOL_CALLS]f[ARGS]{}"),
            "I look.|get-weather.x_1({\"a\": [1, {}]})|f({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS]f[ARGS]{} done"), " done|f({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS]f[ARGS]{}[TOOL_CA"), "|f({})");
}

TEST(ToolParser, MistralsCallsBehindABrokenOne) {
  EXPECT_EQ(Mistral("[TOOL_CALLS][TOOL_CALLS]f[ARGS]{}"), "[TOOL_CALLS]|f({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS]f[TOOL_CALLS]any[ARGS]{}"), "[TOOL_CALLS]f|any({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS][{\"name\": \"f\"}[TOOL_CALLS][{\"name\": \"any\"}]"),
            "|f({})|any({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS]f[ARGS][TOOL_CALLS]f[CALL_ID]x[TOOL_CALLS]any[ARGS]{}"),
            "[TOOL_CALLS]f[ARGS][TOOL_CALLS]f[CALL_ID]x|any({})");
}

// Nobody checks what a client calls its functions.
TEST(ToolParser, MistralsNamesMayBeUnusual) {
  EXPECT_EQ(Mistral("[TOOL_CALLS]ns:wetter/größe[ARGS]{}[TOOL_CALLS]天气@1[CALL_ID]a[ARGS]{}"),
            "|ns:wetter/größe({})|天气@1({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS]a\"b[ARGS]{}"), "[TOOL_CALLS]a\"b[ARGS]{}");
}

TEST(ToolParser, WhatIsNoCallOfMistralsIsContent) {
  for (const char* text :
       {"[TOOL_CALLS]", "[TOOL_CALL", " [TOOL] x ", "[TOOL_CALLS][]", "[TOOL_CALLS][1]",
        "[TOOL_CALLS][{\"tool\": 1}]", "[TOOL_CALLS]f", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[AR",
        "[TOOL_CALLS]f(1)", "[TOOL_CALLS]f[ARGS]1", "[TOOL_CALLS][ARGS]{}",
        "[TOOL_CALLS]f g[ARGS]{}", "[TOOL_CALLS]f[CALL_ID]a[CALL_ID]b[ARGS]{}",
        "[TOOL_CALLS][{\"name\": \"f\"", "a [b] c"}) {
    EXPECT_EQ(Mistral(text), text);
  }
  EXPECT_EQ(Mistral("[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g(1)"), "[TOOL_CALLS]g(1)|f({})");
  EXPECT_EQ(Mistral("[TOOL_CALLS][{\"name\": \"f\"}, 1]"), ", 1]|f({})");
}

TEST(ToolParser, MistralsArgumentsStreamAndMayBeCut) {
  const auto parser = MakeToolParser(ToolFormat::kMistral, {});
  EXPECT_TRUE(parser->Push("[TOOL_CALLS]f[ARGS]").calls.empty());
  const ToolOutput a = parser->Push("{\"city\": \"Par");
  ASSERT_EQ(a.calls.size(), 1u);
  EXPECT_EQ(a.calls[0].name, "f");
  EXPECT_EQ(a.calls[0].arguments, "{\"city\": \"Par");
  EXPECT_TRUE(parser->cut());
  const ToolOutput b = parser->Push("is\"}");
  ASSERT_EQ(b.calls.size(), 1u);
  EXPECT_EQ(b.calls[0].arguments, "is\"}");
  EXPECT_FALSE(parser->cut());
}

TEST(ToolParser, FormatsAreFoundInTemplates) {
  EXPECT_EQ(ToolFormatOf("... <tool_call>\\n{\"name\": <name>, \"arguments\": <args>}"),
            ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatOf("<|start_header_id|> tools {\"name\": .., \"parameters\": ..}"),
            ToolFormat::kLlama3Json);
  EXPECT_EQ(ToolFormatOf("{{ '[TOOL_CALLS]' + call.function.name }}"), ToolFormat::kMistral);
  EXPECT_EQ(ToolFormatNamed("mistral"), ToolFormat::kMistral);
  EXPECT_EQ(ToolFormatOf("{{ messages }}"), std::nullopt);
  EXPECT_EQ(ToolFormatNamed("hermes"), ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatNamed("x"), std::nullopt);
}

}  // namespace
}  // namespace vllm::server
