// Small conversations with sentinels, to learn what a template makes of each message shape.
#include "vllm/text/chat_template_probe.h"

#include <algorithm>

#include "base/strings.h"

namespace vllm::text {
namespace json = boost::json;

namespace {

// Words that no template says, and that none would change.
constexpr const char* kUser = "probe-user-q7";
constexpr const char* kOther = "probe-other-q7";
constexpr const char* kFirst = "probe-first-q7";
constexpr const char* kSecond = "probe-second-q7";
constexpr const char* kName = "probe_name_q7";
constexpr const char* kKey = "probe_key_q7";
constexpr const char* kArgument = "probe-argument-q7";
constexpr const char* kResult = "probe-result-q7";

bool Has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

size_t Count(std::string_view text, std::string_view word) {
  size_t n = 0;
  for (size_t i = text.find(word); i != std::string_view::npos;
       i = text.find(word, i + word.size()))
    ++n;
  return n;
}

json::object Message(std::string_view role, json::value content) {
  json::object m;
  m["role"] = role;
  m["content"] = std::move(content);
  return m;
}

json::value Part(std::string_view type, std::string_view text = {}) {
  json::object p;
  p["type"] = type;
  if (!text.empty()) p["text"] = text;
  return p;
}

json::value TwoParts() {
  json::array parts;
  parts.push_back(Part("text", kFirst));
  parts.push_back(Part("text", kSecond));
  return parts;
}

json::array Tools() {
  json::object type, properties, parameters, function, tool;
  type["type"] = "string";
  type["description"] = "a word";
  properties[kKey] = type;
  parameters["type"] = "object";
  parameters["properties"] = properties;
  parameters["required"] = json::array{json::value(kKey)};
  function["name"] = kName;
  function["description"] = "a function";
  function["parameters"] = parameters;
  tool["type"] = "function";
  tool["function"] = function;
  return {tool};
}

class Prober {
 public:
  Prober(const jinja::Template& t, const TemplateOptions& options)
      : template_(t), options_(options) {
    // Much less than a request may use: a template without end costs the load little.
    budget_.steps = 200'000;
    budget_.bytes = size_t{16} << 20;
  }

  // Messages: objects one after another.
  template <typename... M>
  bool Try(const json::value& tools, M... messages) {
    out_.clear();
    if (endless_) return false;
    RawInput in;
    (in.messages.push_back(std::move(messages)), ...);
    in.tools = tools;
    in.add_generation_prompt = true;
    in.now = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
    const auto r = RenderRaw(template_, "", options_, in, budget_);
    if (!r) {
      error_ = r.error().message;
      endless_ = r.error().code == base::Code::kResourceExhausted;
      return false;
    }
    out_ = (*r)->text;
    error_.clear();
    return true;
  }

  const std::string& out() const { return out_; }
  const std::string& error() const { return error_; }

  // Both parts arrive, and not as a printed list.
  bool ShowsParts() const {
    return Has(out_, kFirst) && Has(out_, kSecond) && !Has(out_, "'type': 'text'") &&
           !Has(out_, "\"type\": \"text\"") && !Has(out_, "\"type\":\"text\"");
  }

  // `render(content)` renders a conversation with a turn of the role.
  template <typename F>
  TemplateTraits::Role RoleOf(F render) {
    TemplateTraits::Role role;
    role.takes_text = render(json::value(kFirst)) && Has(out_, kFirst);
    if (!role.takes_text) role.refusal = error_;
    role.takes_parts = render(TwoParts()) && ShowsParts();
    role.accepted = role.takes_text || role.takes_parts;
    if (role.accepted) role.refusal.clear();
    return role;
  }

  json::object AssistantCall(TemplateTraits::EmptyContent empty, bool object) const {
    json::object m;
    m["role"] = "assistant";
    if (empty == TemplateTraits::EmptyContent::kNull) m["content"] = nullptr;
    if (empty == TemplateTraits::EmptyContent::kEmptyString) m["content"] = "";
    json::object arguments, function, call;
    arguments[kKey] = kArgument;
    function["name"] = kName;
    if (object) {
      function["arguments"] = arguments;
    } else {
      function["arguments"] = fmt::format("{{\"{}\": \"{}\"}}", kKey, kArgument);
    }
    call["id"] = "probe1234";  // nine characters: some templates insist
    call["type"] = "function";
    call["function"] = function;
    m["tool_calls"] = json::array{call};
    return m;
  }

  static json::object ToolResult(json::value content) {
    json::object m = Message("tool", std::move(content));
    m["tool_call_id"] = "probe1234";
    m["name"] = kName;
    return m;
  }

  // 0: the call is lost; else how well it is shown.
  int CallQuality(TemplateTraits::EmptyContent empty, bool object, size_t usual_none) {
    if (!Try(tools_, Message("user", user_), AssistantCall(empty, object), ToolResult(kResult)))
      return 0;
    // Not every template says the name: Kimi K2 says the call's id.
    if (!Has(out_, kArgument)) return 0;
    if (Count(out_, "None") > usual_none) return 0;
    const bool python = Has(out_, fmt::format("'{}'", kArgument));
    const bool twice = Has(out_, fmt::format("\\\"{}", kArgument));
    return python || twice ? 1 : 2;
  }

  TemplateTraits Run() {
    TemplateTraits t;
    json::value none;
    const auto plain = [&](json::value c) { return Try(none, Message("user", std::move(c))); };
    t.user = RoleOf(plain);
    if (!t.user.accepted) {
      // Templates for use with tools alone loop over them.
      none = json::array();
      t.user = RoleOf(plain);
      t.no_tools_as_list = t.user.accepted;
      if (!t.user.accepted) none = nullptr;
    }
    if (!t.user.accepted) {
      t.user = RoleOf([&](json::value c) {
        return Try(none, Message("system", kOther), Message("user", std::move(c)));
      });
    }
    user_ = t.user.takes_parts && !t.user.takes_text ? json::value(json::array{Part("text", kUser)})
                                                     : json::value(kUser);
    t.system = RoleOf([&](json::value c) {
      return Try(none, Message("system", std::move(c)), Message("user", user_));
    });
    t.assistant = RoleOf([&](json::value c) {
      return Try(none, Message("user", user_), Message("assistant", std::move(c)),
                 Message("user", user_));
    });
    const auto& words = template_.strings;
    t.own_developer = std::find(words.begin(), words.end(), "developer") != words.end() &&
                      Try(none, Message("developer", kFirst), Message("user", user_)) &&
                      Has(out_, kFirst);

    tools_ = Tools();
    t.takes_tools = Try(tools_, Message("user", user_)) && Has(out_, kName);
    ProbeCalls(t);
    t.tool = RoleOf([&](json::value c) {
      return Try(tools_, Message("user", user_),
                 AssistantCall(t.beside_tool_calls, t.arguments_as_object),
                 ToolResult(std::move(c)));
    });
    if (!t.tool.accepted && !t.takes_tool_calls) {
      // Without tool calls of its own the template may still show the turn.
      t.tool = RoleOf([&](json::value c) {
        return Try(none, Message("user", user_), Message("assistant", kOther),
                   ToolResult(std::move(c)));
      });
    }
    ProbeMedia(t);
    return t;
  }

 private:
  void ProbeCalls(TemplateTraits& t) {
    using Empty = TemplateTraits::EmptyContent;
    json::object spoken = AssistantCall(Empty::kEmptyString, true);
    spoken["content"] = kOther;
    const bool ok = Try(tools_, Message("user", user_), spoken, ToolResult(kResult));
    const size_t usual_none = ok ? Count(out_, "None") : 0;
    int best = 0;
    for (const bool object : {true, false}) {
      for (const Empty empty : {Empty::kNull, Empty::kEmptyString, Empty::kAbsent}) {
        const int quality = CallQuality(empty, object, usual_none);
        if (quality <= best) continue;
        best = quality;
        t.arguments_as_object = object;
        t.beside_tool_calls = empty;
      }
    }
    t.takes_tool_calls = best > 0;
  }

  void ProbeMedia(TemplateTraits& t) {
    const auto with = [&](std::string_view type) {
      json::array parts;
      if (!type.empty()) parts.push_back(Part(type));
      parts.push_back(Part("text", kFirst));
      return Try(t.no_tools_as_list ? json::value(json::array()) : json::value(),
                 Message("user", parts)) &&
                     Has(out_, kFirst)
                 ? out_
                 : std::string();
    };
    const std::string plain = with("");
    if (plain.empty() || !t.user.takes_parts) return;
    const auto shown = [&](std::string_view type) {
      const std::string out = with(type);
      // A part printed as it stands is not one that the model is shown.
      const bool printed =
          Has(out, fmt::format("'{}'", type)) || Has(out, fmt::format("\"{}\"", type));
      return !out.empty() && out != plain && !printed;
    };
    t.takes_images = shown("image");
    t.takes_audio = shown("audio");
    t.takes_video = shown("video");
  }

  const jinja::Template& template_;
  const TemplateOptions& options_;
  jinja::Budget budget_;
  json::value tools_, user_;
  std::string out_, error_;
  bool endless_ = false;  // a rendering hit its limits: the others would as well
};

}  // namespace

TemplateTraits ProbeTemplate(const jinja::Template& t, const TemplateOptions& options) {
  TemplateTraits traits = Prober(t, options).Run();
  if (!traits.user.accepted) {
    // Nothing could be learned, say of a template that needs variables of its own: pass plain
    // messages on.
    for (TemplateTraits::Role* r :
         {&traits.system, &traits.user, &traits.assistant, &traits.tool}) {
      r->accepted = r->takes_text = true;
    }
  }
  return traits;
}

bool ShowsRole(const jinja::Template& t, const TemplateOptions& options, const std::string& role) {
  Prober p(t, options);
  return (p.Try(json::value(), Message("user", kUser), Message(role, kFirst)) &&
          Has(p.out(), kFirst)) ||
         (p.Try(json::value(), Message(role, kFirst), Message("user", kUser)) &&
          Has(p.out(), kFirst));
}

}  // namespace vllm::text
