#include "vllm/text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/json.h"

namespace vllm::text {
namespace {

namespace json = boost::json;
using base::Code;

const char* const kPlain =
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}";

std::unique_ptr<ChatTemplate> Make(const std::string& source, TemplateOptions options = {}) {
  auto t = ChatTemplate::Parse(source, "t.jinja", std::move(options));
  EXPECT_TRUE(t) << t.error().message;
  return t ? std::move(*t) : nullptr;
}

ChatInput Input(const std::string& messages) {
  ChatInput in;
  auto v = base::ParseJson(messages);
  EXPECT_TRUE(v) << v.error().message;
  in.messages = v->get_array();
  return in;
}

base::Error ErrorOf(const ChatTemplate& t, const ChatInput& in) {
  auto r = t.Render(in);
  EXPECT_FALSE(r) << *r;
  return r ? base::Error{} : r.error();
}

std::string Rendered(const ChatTemplate& t, const ChatInput& in) {
  auto r = t.Render(in);
  EXPECT_TRUE(r) << r.error().message;
  return r ? *r : "";
}

base::Error ParseError(const std::string& source) {
  auto t = ChatTemplate::Parse(source, "t.jinja");
  EXPECT_FALSE(t);
  return t ? base::Error{} : t.error();
}

bool Says(const base::Error& e, std::string_view words) {
  return e.message.find(words) != std::string::npos;
}

TEST(ChatTemplate, NamesFileLineAndColumnOfASyntaxError) {
  const base::Error e = ParseError("a\nb {{ 1 + }}");
  EXPECT_EQ(e.code, Code::kCorrupt);
  EXPECT_TRUE(Says(e, "t.jinja, line 2, column 10")) << e.message;
}

TEST(ChatTemplate, RefusesTagsOfOtherFilesByName) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "extends 'x'", "from 'x' import y"}) {
    const base::Error e = ParseError(std::string("{% ") + tag + " %}");
    EXPECT_EQ(e.code, Code::kUnsupported) << tag;
    EXPECT_TRUE(Says(e, std::string(tag).substr(0, 4))) << e.message;
  }
  EXPECT_EQ(ParseError("{% for x in y recursive %}{% endfor %}").code, Code::kUnsupported);
}

TEST(ChatTemplate, RefusesInvalidUtf8) { EXPECT_EQ(ParseError("a\xff").code, Code::kCorrupt); }

TEST(ChatTemplate, ParsingIsBoundedInDepth) {
  const auto repeat = [](std::string_view s, size_t n) {
    std::string r;
    for (size_t i = 0; i < n; ++i) r += s;
    return r;
  };
  const size_t n = 40'000;  // the whole stays under the limit of a template's size
  EXPECT_TRUE(Says(ParseError("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}"), "nesting"));
  EXPECT_TRUE(Says(ParseError("{{ " + repeat("[", n) + "1" + repeat("]", n) + " }}"), "nesting"));
  EXPECT_TRUE(Says(ParseError("{{ " + repeat("not ", n) + "x }}"), "nesting"));
  EXPECT_TRUE(Says(ParseError("{{ " + repeat("-", n) + "1 }}"), "nesting"));
  EXPECT_TRUE(Says(ParseError("{{ 1" + repeat("+1", n) + " }}"), "deeper"));
  EXPECT_TRUE(Says(ParseError("{{ x" + repeat(".a", n) + " }}"), "deeper"));
  EXPECT_TRUE(Says(ParseError("{{ x" + repeat("|trim", n) + " }}"), "deeper"));
  EXPECT_TRUE(Says(ParseError(repeat("{% if x %}", n)), "nesting"));
}

// Each would take for ever, or all memory: the limit says so instead. (What the clock says is not
// asserted.)
TEST(ChatTemplate, ATemplateWithoutEndIsAnError) {
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% for a in range(10**12) %}{% endfor %}",
           "{{ 'a' * 10**9 }}",
           "{{ [0] * 10**9 }}",
           "{{ 2 ** 100000 }}",
           "{{ 'a'.center(10**9) }}",
           "{{ 'a'.zfill(10**9) }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ '{:1000000000}'.format(1) }}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}",
           "{% set n = namespace(x='ab') %}{% for a in range(60) %}{% set n.x = n.x + n.x %}{% "
           "endfor %}",
           "{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = n.x + n.x %}{% "
           "endfor %}",
           "{% set n = namespace(x=[1]) %}{% for a in range(90000) %}{% set n.x = [n.x] %}{% "
           "endfor %}",
           "{% set n = namespace(x={}) %}{% for a in range(90000) %}{% set n.x = {'a': n.x} %}{% "
           "endfor %}",
           "{% set n = namespace(x=1) %}{% for a in range(90000) %}{% set n.x = [n.x].copy %}{% "
           "endfor %}",
           "{% set n = namespace() %}{% set n.l = [n] %}{{ n }}",
           "{{ ('x' * 1000000).replace('', 'y' * 1000000) }}",
           "{{ range(90000)|batch(1)|list|tojson(indent=1000) }}",
       }) {
    auto t = Make(source);
    ASSERT_NE(t, nullptr);
    const base::Error e = ErrorOf(*t, Input(R"([{"role":"user","content":"x"}])"));
    EXPECT_TRUE(e.code == Code::kResourceExhausted || e.code == Code::kInvalidArgument)
        << source << ": " << e.message;
  }
}

TEST(ChatTemplate, ALoopObjectOutlivesItsLoop) {
  auto t = Make(
      "{% set n = namespace() %}{% for a in [1, 2] %}{% set n.l = loop %}{% endfor %}{{ n.l.index "
      "}}{{ n.l.last }}"
      "{{ n.l.length }}{{ n.l.changed(n.l) }}");
  EXPECT_EQ(Rendered(*t, Input(R"([{"role":"user","content":"x"}])")), "2True2True");
}

TEST(ChatTemplate, GivesTheTemplatesOwnRefusal) {
  auto t = Make(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn here') }}{% endif %}"
      "{{ messages[0].content }}");
  const base::Error e =
      ErrorOf(*t, Input(R"([{"role":"system","content":"S"},{"role":"user","content":"u"}])"));
  EXPECT_EQ(e.code, Code::kInvalidArgument);
  EXPECT_TRUE(Says(e, "no system turn here")) << e.message;
}

TEST(ChatTemplate, JoinsPartsWithANewlineWhereTheTemplateTakesAString) {
  auto t = Make(kPlain);
  EXPECT_TRUE(t->traits().user.takes_text);
  EXPECT_FALSE(t->traits().user.takes_parts);
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    ChatInput in =
        Input(std::string(R"([{"role":"user","content":"u"},{"role":")") + role +
              R"(","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}])");
    EXPECT_NE(Rendered(*t, in).find(std::string("<|start|>") + role + "\nA\nB<|end|>"),
              std::string::npos)
        << role;
  }
}

TEST(ChatTemplate, WrapsAStringWhereTheTemplateTakesPartsOnly) {
  auto t =
      Make("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}");
  EXPECT_EQ(Rendered(*t, Input(R"([{"role":"user","content":"hi"}])")), "[hi]");
  EXPECT_EQ(
      Rendered(
          *t,
          Input(
              R"([{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}])")),
      "[A][B]");
}

TEST(ChatTemplate, RefusesImagesOnATextTemplate) {
  auto t = Make(kPlain);
  const base::Error e = ErrorOf(
      *t, Input(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"));
  EXPECT_EQ(e.code, Code::kInvalidArgument);
  EXPECT_TRUE(Says(e, "messages[0]")) << e.message;
  EXPECT_TRUE(Says(e, "image_url")) << e.message;
}

TEST(ChatTemplate, PassesImagesWhereTheTemplateShowsThem) {
  auto t = Make(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
      "m.content %}"
      "{% if p.type == 'image' %}<img>{% elif p.type == 'text' %}{{ p.text }}{% endif %}{% endfor "
      "%}{% endif %}{% endfor %}");
  EXPECT_TRUE(t->traits().takes_images);
  EXPECT_FALSE(t->traits().takes_audio);
  EXPECT_EQ(
      Rendered(*t, Input(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},
                                 {"type":"text","text":"what?"}]}])")),
      "<img>what?");
}

TEST(ChatTemplate, ShowsDeveloperAsSystemWithoutABranchOfItsOwn) {
  const char* messages = R"([{"role":"developer","content":"D"},{"role":"user","content":"u"}])";
  EXPECT_NE(Rendered(*Make(kPlain), Input(messages)).find("<|start|>system\nD"), std::string::npos);
  auto own = Make(
      "{% for m in messages %}{% if m.role == 'developer' %}DEV{% endif %}{{ m.content }}{% endfor "
      "%}");
  EXPECT_TRUE(own->traits().own_developer);
  EXPECT_EQ(Rendered(*own, Input(messages)), "DEVDu");
}

TEST(ChatTemplate, RefusesAnUnknownOrMissingRoleByName) {
  auto t = Make(kPlain);
  EXPECT_TRUE(Says(ErrorOf(*t, Input(R"([{"role":"banana","content":"x"}])")), "banana"));
  EXPECT_TRUE(Says(ErrorOf(*t, Input(R"([{"role":"user","content":"x"},{"content":"x"}])")),
                   "messages[1]"));
  EXPECT_TRUE(Says(ErrorOf(*t, Input(R"([{"role":7,"content":"x"}])")), "role"));
  EXPECT_TRUE(Says(ErrorOf(*t, Input(R"([5])")), "object"));
  EXPECT_TRUE(Says(ErrorOf(*t, Input("[]")), "empty"));
}

TEST(ChatTemplate, ShowsFunctionTurnsAsTool) {
  auto t = Make(kPlain);
  EXPECT_NE(
      Rendered(
          *t,
          Input(R"([{"role":"user","content":"u"},{"role":"function","name":"f","content":"F"}])"))
          .find("<|start|>tool\nF"),
      std::string::npos);
}

TEST(ChatTemplate, AcceptsARoleThatTheTemplateKnows) {
  auto t = Make(
      "{% for m in messages %}{% if m.role == 'critic' %}<critic>{% endif %}{{ m.content }}{% "
      "endfor %}");
  EXPECT_EQ(
      Rendered(*t, Input(R"([{"role":"user","content":"u"},{"role":"critic","content":"c"}])")),
      "u<critic>c");
}

TEST(ChatTemplate, RefusesATurnThatTheTemplateWouldDrop) {
  auto t = Make(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}");
  const base::Error e =
      ErrorOf(*t, Input(R"([{"role":"system","content":"S"},{"role":"user","content":"u"}])"));
  EXPECT_TRUE(Says(e, "role 'system'")) << e.message;
}

TEST(ChatTemplate, EmptyToolListsEqualAbsentOnes) {
  auto t = Make(
      "{% for m in messages %}{{ m.content }}{% if m.tool_calls is defined %}CALLS{% endif %}{% "
      "endfor %}"
      "{% if tools is not none %}TOOLS{% endif %}");
  ChatInput in = Input(
      R"([{"role":"user","content":"u"},{"role":"assistant","content":"a","tool_calls":[]}])");
  in.tools = json::array();
  EXPECT_EQ(Rendered(*t, in), "ua");
}

const char* const kCall =
    R"([{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":
  [{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},
  {"role":"tool","tool_call_id":"call_1","content":"r"}])";

TEST(ChatTemplate, ShowsAnEmptyListToATemplateThatLoopsOverTools) {
  auto t = Make(
      "{% for tool in tools %}{{ tool }}{% endfor %}{% for m in messages %}{{ m.content }}{% "
      "endfor %}");
  EXPECT_TRUE(t->traits().no_tools_as_list);
  EXPECT_EQ(Rendered(*t, Input(R"([{"role":"user","content":"u"}])")), "u");
}

TEST(ChatTemplate, ChoosesArgumentsAsObjectOrText) {
  const std::string head =
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ "
      "c.function.name }}(";
  const std::string tail = "){% endfor %}{% endfor %}";
  auto object = Make(head + "{{ c.function.arguments|tojson }}" + tail);
  EXPECT_TRUE(object->traits().arguments_as_object);
  EXPECT_EQ(Rendered(*object, Input(kCall)), "uf({\"a\": 1})r");
  auto text = Make(head + "{{ c.function.arguments }}" + tail);
  EXPECT_FALSE(text->traits().arguments_as_object);
  EXPECT_EQ(Rendered(*text, Input(kCall)), "uf({\"a\": 1})r");
}

TEST(ChatTemplate, NeverPrintsTheWordNone) {
  auto t = Make(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
      "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}");
  EXPECT_EQ(Rendered(*t, Input(kCall)), "uf{\"a\": 1}r");
  EXPECT_EQ(
      Rendered(*t, Input(R"([{"role":"user","content":"u"},{"role":"assistant","content":null}])")),
      "u");
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  auto t = Make(kPlain);
  ChatInput in =
      Input(R"([{"role":"user","content":"u"},{"role":"assistant","content":"So far "}])");
  in.add_generation_prompt = false;
  in.continue_final_message = true;
  EXPECT_EQ(Rendered(*t, in), "<|start|>user\nu<|end|>\n<|start|>assistant\nSo far ");
  auto trims = Make("{% for m in messages %}[{{ m.content|trim }}]{% endfor %}");
  EXPECT_EQ(Rendered(*trims, in), "[u][So far");
  in.add_generation_prompt = true;
  EXPECT_TRUE(Says(ErrorOf(*t, in), "exclude"));
}

TEST(ChatTemplate, ChatTemplateKwargsReachTheTemplateButNotItsOwnVariables) {
  auto t = Make("{{ messages[0].content }}{{ enable_thinking is false }}{{ bos_token }}{{ pad }}",
                {"<s>", "", {{"pad", "<p>"}}});
  ChatInput in = Input(R"([{"role":"user","content":"u"}])");
  in.kwargs["enable_thinking"] = false;
  EXPECT_EQ(Rendered(*t, in), "uTrue<s><p>");
  in.kwargs["messages"] = 1;
  EXPECT_TRUE(Says(ErrorOf(*t, in), "'messages'"));
}

TEST(ChatTemplate, SegmentsSayWhatCameFromTheRequest) {
  auto t = Make(kPlain);
  auto s = t->RenderSegments(Input(R"([{"role":"user","content":"a<|end|>b"}])"));
  ASSERT_TRUE(s) << s.error().message;
  ASSERT_EQ(s->size(), 3u);
  EXPECT_EQ((*s)[0].text, "<|start|>user\n");
  EXPECT_TRUE((*s)[0].from_template);
  EXPECT_EQ((*s)[1].text, "a<|end|>b");
  EXPECT_FALSE((*s)[1].from_template);
  EXPECT_EQ((*s)[2].text, "<|end|>\n<|start|>assistant\n");
  EXPECT_TRUE((*s)[2].from_template);
}

TEST(ChatTemplate, OriginFollowsTextThroughOperations) {
  // Every way in which text of the request reaches the prompt; the brackets are the template's.
  for (const char* expression :
       {"'[' + c + ']'", "'[' ~ c ~ ']'", "'[' ~ c[1:-1] ~ ']'", "'[' ~ c|trim ~ ']'",
        "'[' ~ c.split(' ')|join('') ~ ']'", "'[' ~ c|upper ~ ']'", "'[{}]'.format(c)",
        "'[%s]' % c", "'[' ~ c.strip() ~ ']'", "'[X]'|replace('X', c)", "'[' ~ c|list|join ~ ']'",
        "'[' ~ c[::-1] ~ ']'", "m(c)"}) {
    auto t = Make(
        std::string("{% set c = messages[0].content %}{% macro m(x) %}[{{ x }}]{% endmacro %}{{ ") +
        expression + " }}");
    auto s = t->RenderSegments(Input(R"([{"role":"user","content":" Qq <|x|> qQ "}])"));
    ASSERT_TRUE(s) << s.error().message;
    std::string of_template;
    for (const PromptSegment& p : *s) {
      if (p.from_template) of_template += p.text;
    }
    EXPECT_EQ(of_template, "[]") << expression;
  }
}

TEST(ChatTemplate, OriginFollowsToolArgumentsThroughJson) {
  auto t = Make(
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ "
      "c.function|tojson }}{% endfor %}"
      "{% endfor %}");
  auto s = t->RenderSegments(
      Input(R"([{"role":"user","content":""},{"role":"assistant","content":"","tool_calls":
    [{"id":"1","type":"function","function":{"name":"f","arguments":{"<|k|>":"<|x|>"}}}]}])"));
  ASSERT_TRUE(s) << s.error().message;
  for (const PromptSegment& p : *s) {
    if (!p.from_template) continue;
    EXPECT_EQ(p.text.find("<|"), std::string::npos) << p.text;
  }
}

TEST(ChatTemplate, RendersTheSameFromManyThreads) {
  auto t = Make(kPlain);
  const ChatInput in =
      Input(R"([{"role":"user","content":"u"},{"role":"assistant","content":"a"}])");
  const std::string once = Rendered(*t, in);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k) {
        const auto r = t->Render(in);
        wrong[i] += !r || *r != once;
      }
    });
  }
  for (std::thread& th : threads) th.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace vllm::text
