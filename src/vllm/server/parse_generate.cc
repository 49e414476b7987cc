#include "vllm/server/parse_generate.h"

#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/server/protocol_fields.h"

namespace vllm::server {
namespace json = boost::json;

namespace {

// {"50256": -100}: keys are token ids.
void ReadLogitBias(Fields& f, engine::SamplingParams* p) {
  const json::object* bias = f.Object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > 1024) {
    return f.Fail("logit_bias",
                  fmt::format("has {} entries; at most 1024 are taken", bias->size()));
  }
  for (const auto& kv : *bias) {
    const std::string_view key(kv.key().data(), kv.key().size());
    int32_t id = -1;
    const auto r = std::from_chars(key.data(), key.data() + key.size(), id);
    if (r.ec != std::errc() || r.ptr != key.data() + key.size() || id < 0) {
      return f.Fail("logit_bias",
                    fmt::format("has the key '{}', which is no token id", base::Printable(key)));
    }
    if (!kv.value().is_number()) {
      return f.Fail("logit_bias", fmt::format("must give token {} a number", id));
    }
    const auto value = kv.value().to_number<double>();
    if (!(value >= -100 && value <= 100)) {
      return f.Fail("logit_bias",
                    fmt::format("must be in [-100, 100], but token {} has {}", id, value));
    }
    p->logit_bias.emplace_back(id, static_cast<float>(value));
  }
}

void ReadStreaming(Fields& f, GenerateFields* g) {
  f.Bool("stream", &g->stream);
  const json::object* options = f.Object("stream_options");
  if (options == nullptr || f.error()) return;
  if (!g->stream) return f.Fail("stream_options", "needs stream to be true");
  Fields o(*options, StreamOptionFields(), "stream_options.");
  o.Bool("include_usage", &g->include_usage);
  o.Bool("continuous_usage_stats", &g->continuous_usage);
  f.Adopt(o);
  g->continuous_usage &= g->include_usage;
}

void CheckParts(Fields& f, const json::array& parts) {
  if (parts.size() > 4096) return f.Fail("content", "has too many parts");
  for (const json::value& part : parts) {
    const json::object* o = part.if_object();
    if (o == nullptr) return f.Fail("content", "must be a string or a list of part objects");
    for (const auto& kv : *o) {
      const std::string_view key(kv.key().data(), kv.key().size());
      const json::value* type = o->if_contains("type");
      const bool text = type != nullptr && type->is_string() &&
                        (type->get_string() == "text" || type->get_string() == "refusal");
      if (text && key != "type" && key != "text" && key != "refusal" && !kv.value().is_null()) {
        return f.Fail("content", fmt::format("has a text part with the unknown field '{}'",
                                             base::Printable(key)));
      }
    }
  }
}

void CheckToolCalls(Fields& f, const json::array& calls) {
  if (calls.size() > 1024) return f.Fail("tool_calls", "has too many calls");
  for (const json::value& call : calls) {
    const json::object* o = call.if_object();
    const json::value* function = o == nullptr ? nullptr : o->if_contains("function");
    const json::object* fn = function == nullptr ? nullptr : function->if_object();
    const json::value* name = fn == nullptr ? nullptr : fn->if_contains("name");
    if (name == nullptr || !name->is_string()) {
      return f.Fail("tool_calls", "must hold objects with function.name");
    }
    const json::value* arguments = fn->if_contains("arguments");
    if (arguments != nullptr && !arguments->is_string() && !arguments->is_object() &&
        !arguments->is_null()) {
      return f.Fail("tool_calls", "has a call whose function.arguments are no JSON text");
    }
  }
}

void CheckMessage(Fields& f, const json::value& message, size_t index) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object()) return f.Fail("messages", fmt::format("[{}] must be an object", index));
  Fields m(message.get_object(), MessageFields(), where + ".");
  std::string text;
  if (m.Find("role") == nullptr) m.Fail("role", "is missing");
  m.String("role", &text, 64);
  for (const char* name : {"name", "tool_call_id"}) m.String(name, &text, 1024);
  for (const char* name : {"reasoning_content", "reasoning"}) {
    m.String(name, &text, size_t{64} << 20);
  }
  if (const json::value* content = m.Find("content")) {
    if (content->is_array()) {
      CheckParts(m, content->get_array());
    } else if (!content->is_string()) {
      m.Fail("content", "must be a string or a list of parts");
    }
  }
  if (const json::array* calls = m.Array("tool_calls")) CheckToolCalls(m, *calls);
  f.Adopt(m);
}

}  // namespace

Parsed<json::object> ParseBody(std::string_view body) {
  base::Result<json::value> v = base::ParseJson(body);
  if (!v) return ApiError{.message = "the body is no valid request: " + v.error().message};
  if (!v->is_object()) return ApiError{.message = "the body must be a JSON object"};
  return std::move(v->get_object());
}

void ReadGenerate(Fields& f, GenerateFields* g) {
  engine::SamplingParams& p = g->sampling;
  f.String("model", &g->model, 1024);
  f.String("request_id", &g->request_id, 128);
  f.Number("temperature", &p.temperature);
  f.Int("top_k", &p.top_k);
  f.Number("top_p", &p.top_p);
  f.Number("min_p", &p.min_p);
  f.Number("typical_p", &p.typical_p);
  f.Number("top_n_sigma", &p.top_n_sigma);
  f.Number("repetition_penalty", &p.repetition_penalty);
  f.Number("presence_penalty", &p.presence_penalty);
  f.Number("frequency_penalty", &p.frequency_penalty);
  f.Number("dry_multiplier", &p.dry_multiplier);
  f.Number("dry_base", &p.dry_base);
  f.Int("dry_allowed_length", &p.dry_allowed_length);
  f.Int("dry_penalty_last_n", &p.dry_penalty_last_n);
  if (f.Has("dry_sequence_breakers")) {
    g->dry_breakers.emplace();
    f.Strings("dry_sequence_breakers", &*g->dry_breakers, 16, 64);
  }
  f.Number("xtc_probability", &p.xtc_probability);
  f.Number("xtc_threshold", &p.xtc_threshold);
  ReadLogitBias(f, &p);
  f.Ids("allowed_token_ids", &p.allowed_token_ids, 1 << 18);
  if (f.Has("allowed_token_ids") && !f.error() && p.allowed_token_ids.empty()) {
    f.Fail("allowed_token_ids", "must not be empty");
  }
  f.Strings("bad_words", &g->bad_words, 256, kMaxStopBytes);
  if (f.Has("max_tokens")) {
    int64_t tokens = 0;
    f.Int("max_tokens", &tokens, 0);
    g->max_tokens = tokens;
  }
  f.Int("min_tokens", &p.min_tokens, 0);
  f.Ids("stop_token_ids", &p.stop_token_ids, 256);
  f.Bool("ignore_eos", &p.ignore_eos);
  if (const json::value* seed = f.Find("seed")) {
    if (seed->is_uint64()) {
      p.seed = seed->get_uint64();
    } else {
      int64_t value = 0;
      f.Int("seed", &value);
      p.seed = static_cast<uint64_t>(value);
    }
  }
  f.Int("n", &p.n, 1, engine::kMaxChoices);
  f.Int("prompt_logprobs", &p.prompt_logprobs, 0, engine::kMaxLogprobs);
  // An empty list, and an empty string alone, mean none.
  const json::value* stop = f.Find("stop");
  if (stop != nullptr && !(stop->is_string() && stop->get_string().empty())) {
    f.Strings("stop", &p.stop, kMaxStops, kMaxStopBytes, true);
  }
  f.Bool("include_stop_str_in_output", &p.include_stop_str_in_output);
  f.Bool("skip_special_tokens", &p.skip_special_tokens);
  f.Bool("return_token_ids", &g->return_token_ids);
  f.Int("priority", &g->priority);
  f.String("cache_salt", &g->cache_salt, 1024);
  if (f.Has("cache_salt") && !f.error() && g->cache_salt.empty()) {
    f.Fail("cache_salt", "must not be empty");
  }
  ReadStreaming(f, g);
  if (g->stream && p.prompt_logprobs >= 0) {
    f.Fail("prompt_logprobs", "is not given with stream: ask for the whole answer");
  }
}

void ReadConversation(Fields& f, text::ChatInput* chat) {
  const json::array* messages = f.Array("messages");
  if (f.error()) return;
  if (messages == nullptr) return f.Fail("messages", "is missing");
  if (messages->empty()) return f.Fail("messages", "must not be empty");
  if (messages->size() > 65536) return f.Fail("messages", "has more than 65536 entries");
  for (size_t i = 0; i < messages->size(); ++i) {
    CheckMessage(f, (*messages)[i], i);
    if (f.error()) return;
  }
  chat->messages = *messages;
  if (const json::array* documents = f.Array("documents")) {
    for (const json::value& d : *documents) {
      if (!d.is_object()) return f.Fail("documents", "must be a list of objects");
    }
    chat->documents = *documents;
  }
  if (const json::object* kwargs = f.Object("chat_template_kwargs")) chat->kwargs = *kwargs;
  f.Bool("continue_final_message", &chat->continue_final_message);
  if (!f.Has("add_generation_prompt")) chat->add_generation_prompt = !chat->continue_final_message;
  f.Bool("add_generation_prompt", &chat->add_generation_prompt);
  if (chat->continue_final_message && chat->add_generation_prompt) {
    f.Fail("continue_final_message", "excludes add_generation_prompt: set one of them to false");
  }
}

void ReadTools(Fields& f, text::ChatInput* chat, std::vector<std::string>* names) {
  const json::array* tools = f.Array("tools");
  if (tools == nullptr || tools->empty()) return;
  if (tools->size() > 1024) return f.Fail("tools", "has more than 1024 entries");
  for (size_t i = 0; i < tools->size(); ++i) {
    const auto bad = [&](std::string_view what) {
      f.Fail("tools", fmt::format("has an entry ({}) {}", i, what));
    };
    const json::object* tool = (*tools)[i].if_object();
    if (tool == nullptr) return bad("that is not an object");
    const json::value* type = tool->if_contains("type");
    if (type == nullptr || !type->is_string() || type->get_string() != "function") {
      return bad("whose type is not \"function\", the only one there is");
    }
    const json::value* function = tool->if_contains("function");
    const json::object* fn = function == nullptr ? nullptr : function->if_object();
    if (fn == nullptr) return bad("without function");
    const json::value* name = fn->if_contains("name");
    if (name == nullptr || !name->is_string() || name->get_string().empty() ||
        name->get_string().size() > 256) {
      return bad("without function.name");
    }
    const json::value* parameters = fn->if_contains("parameters");
    if (parameters != nullptr && !parameters->is_object() && !parameters->is_null()) {
      return bad("whose function.parameters is not an object");
    }
    const json::value* description = fn->if_contains("description");
    if (description != nullptr && !description->is_string() && !description->is_null()) {
      return bad("whose function.description is not a string");
    }
    const json::value* strict = fn->if_contains("strict");
    if (strict != nullptr && strict->is_bool() && strict->get_bool()) {
      return bad("with function.strict, which is not supported: answers are not constrained yet");
    }
    names->emplace_back(name->get_string());
  }
  chat->tools = *tools;
}

void ReadPrompts(Fields& f, std::string_view name, std::vector<Prompt>* prompts) {
  const json::value* v = f.Find(name);
  if (f.error()) return;
  if (v == nullptr) return f.Fail(name, "is missing");
  if (v->is_string()) {
    prompts->push_back({.text = std::string(v->get_string())});
    return;
  }
  constexpr std::string_view kForm = "must be a string, token ids, or a list of either";
  if (!v->is_array()) return f.Fail(name, kForm);
  const json::array& list = v->get_array();
  if (list.empty()) return f.Fail(name, "must not be empty");
  const auto ids = [&](const json::array& from) {
    Prompt prompt;
    prompt.is_text = false;
    prompt.ids.reserve(from.size());
    for (const json::value& id : from) {
      const std::optional<int64_t> i = AsInt(id);
      if (!i) return f.Fail(name, kForm);
      if (*i < 0 || *i > std::numeric_limits<int32_t>::max()) {
        return f.Fail(name, fmt::format("has {}, which is no token id", *i));
      }
      prompt.ids.push_back(static_cast<int32_t>(*i));
    }
    if (prompt.ids.empty()) return f.Fail(name, "has an empty list of token ids");
    prompts->push_back(std::move(prompt));
  };
  if (list.front().is_number()) return ids(list);
  if (list.size() > kMaxPrompts) {
    return f.Fail(name,
                  fmt::format("has {} entries; at most {} are taken", list.size(), kMaxPrompts));
  }
  const bool texts = list.front().is_string();
  for (const json::value& one : list) {
    if (texts ? !one.is_string() : !one.is_array()) return f.Fail(name, kForm);
    if (texts) {
      prompts->push_back({.text = std::string(one.get_string())});
    } else {
      ids(one.get_array());
    }
    if (f.error()) return;
  }
}

}  // namespace vllm::server
