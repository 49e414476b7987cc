// OpenAI-shaped messages into the shape that one template takes.
#include <algorithm>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/text/chat_template_probe.h"

namespace vllm::text {
namespace json = boost::json;
using base::Code;
using base::Error;
using base::Result;

namespace {

using EmptyContent = TemplateTraits::EmptyContent;

json::value TextPart(std::string_view text) {
  json::object part;
  part["type"] = "text";
  part["text"] = text;
  return part;
}

class Shaper {
 public:
  Shaper(const jinja::Template& t, const TemplateOptions& options, const TemplateTraits& traits)
      : template_(t), options_(options), traits_(traits) {}

  Result<json::value> Message(const json::value& given, size_t index) {
    where_ = fmt::format("messages[{}]", index);
    if (!given.is_object()) return Bad("must be an object");
    json::object message;
    for (const auto& kv : given.get_object()) {
      // A null field is one that is not there; content has a meaning of its own.
      if (!kv.value().is_null() || kv.key() == "content") message[kv.key()] = kv.value();
    }
    Result<std::string> role = Role(message);
    if (!role) return role.error();
    message["role"] = *role;
    if (base::Status s = ToolCalls(message); !s) return s.error();
    if (base::Status s = Content(message, *role); !s) return s.error();
    if (options_.json_tool_results && *role == "tool") ToolResult(message["content"]);
    return json::value(std::move(message));
  }

 private:
  Error Bad(std::string_view what) const {
    return {Code::kInvalidArgument, fmt::format("{} {}", where_, what)};
  }

  const TemplateTraits::Role& TraitsOf(std::string_view role) const {
    if (role == "system" || role == "developer") return traits_.system;
    if (role == "assistant") return traits_.assistant;
    if (role == "tool") return traits_.tool;
    return traits_.user;
  }

  Result<std::string> Role(const json::object& message) {
    const json::value* given = message.if_contains("role");
    if (given == nullptr) return Bad("has no 'role'");
    if (!given->is_string()) return Bad("has a 'role' that is not a string");
    std::string role(given->get_string());
    if (role == "developer" && !traits_.own_developer) role = "system";
    if (role == "function") role = "tool";
    const bool known = role == "system" || role == "developer" || role == "user" ||
                       role == "assistant" || role == "tool";
    if (!known) {
      const auto& words = template_.strings;
      const bool said = std::find(words.begin(), words.end(), role) != words.end();
      if (!said || !ShowsRole(template_, options_, role)) {
        return Bad(fmt::format(
            "has the unknown role '{}'; this model's chat template takes system, user, assistant "
            "and tool",
            base::Printable(role)));
      }
    } else if (const TemplateTraits::Role& t = TraitsOf(role); !t.accepted && t.refusal.empty()) {
      return Bad(fmt::format(
          "has role '{}', which this model's chat template does not show to the model", role));
    }
    return role;
  }

  base::Status ToolCalls(json::object& message) {
    json::value* calls = message.if_contains("tool_calls");
    if (calls == nullptr) return {};
    if (!calls->is_array()) return Bad("has 'tool_calls' that are not an array");
    if (calls->get_array().empty()) {
      message.erase("tool_calls");
      return {};
    }
    for (json::value& call : calls->get_array()) {
      if (!call.is_object()) return Bad("has a tool call that is not an object");
      json::object* holder = &call.get_object();
      if (json::value* f = holder->if_contains("function")) {
        if (!f->is_object()) return Bad("has a tool call whose 'function' is not an object");
        holder = &f->get_object();
      }
      json::value* arguments = holder->if_contains("arguments");
      if (arguments == nullptr) continue;
      if (traits_.arguments_as_object && arguments->is_string()) {
        const json::string& text = arguments->get_string();
        Result<json::value> parsed = base::ParseJson({text.data(), text.size()});
        // Text that is no JSON object is shown as it is.
        if (parsed && parsed->is_object()) *arguments = std::move(*parsed);
      } else if (!traits_.arguments_as_object && arguments->is_object()) {
        *arguments = Dump(*arguments);
      }
    }
    return {};
  }

  // As Python's json.dumps, which is how these texts are made elsewhere.
  static std::string Dump(const json::value& v) {
    jinja::Budget budget;
    budget.stack_base = static_cast<const char*>(__builtin_frame_address(0));
    jinja::StrBuilder out(budget);
    jinja::AppendJson(jinja::FromJson(v, false, budget), {}, out);
    return out.text();
  }

  static void ToolResult(json::value& content) {
    if (!content.is_string()) return;
    const json::string& text = content.get_string();
    Result<json::value> parsed = base::ParseJson({text.data(), text.size()});
    if (text.empty()) {
      content = json::object();
    } else if (parsed) {
      content = *std::move(parsed);
    }
  }

  base::Status Content(json::object& message, const std::string& role) {
    const TemplateTraits::Role& t = TraitsOf(role);
    const bool calls = message.contains("tool_calls");
    json::value* content = message.if_contains("content");
    const bool empty = content == nullptr || content->is_null() ||
                       (content->is_string() && content->get_string().empty()) ||
                       (content->is_array() && content->get_array().empty());
    if (empty && calls) {
      switch (traits_.beside_tool_calls) {
        case EmptyContent::kNull:
          message["content"] = nullptr;
          break;
        case EmptyContent::kEmptyString:
          message["content"] = "";
          break;
        case EmptyContent::kAbsent:
          message.erase("content");
          break;
      }
      return {};
    }
    if (empty) {
      message["content"] = "";
      content = message.if_contains("content");
    }
    const bool parts_only = t.takes_parts && !t.takes_text;
    if (content->is_string()) {
      if (parts_only) message["content"] = json::array{TextPart(content->get_string())};
      return {};
    }
    if (!content->is_array())
      return Bad("has 'content' that is neither a string nor an array of parts");
    return Parts(message, content->get_array(), t);
  }

  base::Status Parts(json::object& message, const json::array& given,
                     const TemplateTraits::Role& t) {
    json::array parts;
    bool media = false;
    for (const json::value& p : given) {
      if (!p.is_object()) return Bad("has a content part that is not an object");
      json::object part = p.get_object();
      const json::value* type = part.if_contains("type");
      if (type == nullptr || !type->is_string()) return Bad("has a content part without a 'type'");
      const std::string kind(type->get_string());
      if (kind == "text" || kind == "refusal") {
        const json::value* text = part.if_contains(kind);
        if (text == nullptr || !text->is_string())
          return Bad(fmt::format("has a {} part without '{}'", kind, kind));
        parts.push_back(TextPart(text->get_string()));
        continue;
      }
      const std::string medium =
          kind == "image_url" || kind == "image" || kind == "input_image"   ? "image"
          : kind == "input_audio" || kind == "audio_url" || kind == "audio" ? "audio"
          : kind == "video_url" || kind == "video"                          ? "video"
                                                                            : "";
      if (medium.empty())
        return Bad(fmt::format("has a content part of unknown type '{}'", base::Printable(kind)));
      const bool taken = medium == "image"   ? traits_.takes_images
                         : medium == "audio" ? traits_.takes_audio
                                             : traits_.takes_video;
      if (!taken || !t.takes_parts) {
        return Bad(fmt::format(
            "has a content part of type '{}', but this model's chat template takes no {} there",
            base::Printable(kind), medium));
      }
      media = true;
      part["type"] = medium;
      parts.push_back(std::move(part));
    }
    if (t.takes_parts || media) {
      message["content"] = std::move(parts);
      return {};
    }
    std::string joined;
    for (const json::value& p : parts) {
      if (&p != parts.begin()) joined += options_.between_parts;
      const json::string& text = p.get_object().at("text").get_string();
      joined.append(text.data(), text.size());
    }
    message["content"] = joined;
    return {};
  }

  const jinja::Template& template_;
  const TemplateOptions& options_;
  const TemplateTraits& traits_;
  std::string where_;
};

}  // namespace

Result<json::array> ShapeMessages(const jinja::Template& t, const TemplateOptions& options,
                                  const TemplateTraits& traits, const json::array& messages) {
  Shaper shaper(t, options, traits);
  json::array shaped;
  for (const json::value& m : messages) {
    Result<json::value> message = shaper.Message(m, shaped.size());
    if (!message) return message.error();
    shaped.push_back(std::move(*message));
  }
  return shaped;
}

}  // namespace vllm::text
