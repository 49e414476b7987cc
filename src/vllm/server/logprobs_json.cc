#include "vllm/server/logprobs_json.h"

#include <algorithm>

#include "vllm/server/json_text.h"
#include "vllm/text/unicode.h"

namespace vllm::server {
namespace {

using engine::TextLogprob;

void AppendOne(const TextLogprob& t, std::string& out) {
  out += R"({"token":)";
  AppendJsonString(t.token, out);
  out += R"(,"logprob":)";
  AppendFloat(t.logprob, out);
  out += R"(,"bytes":[)";
  for (size_t i = 0; i < t.bytes.size(); ++i) {
    if (i > 0) out += ',';
    AppendInt(static_cast<unsigned char>(t.bytes[i]), out);
  }
  out += ']';
}

// A token that is no text alone is named by its bytes, as OpenAI's completions do.
std::string Name(const TextLogprob& t) {
  if (text::IsValidUtf8(t.bytes)) return t.bytes;
  constexpr char kHex[] = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : t.bytes) {
    const auto b = static_cast<unsigned char>(c);
    name += "\\x";
    name += kHex[b >> 4];
    name += kHex[b & 15];
  }
  return name;
}

// {"token": logprob}: the best ones and the token itself, each name once.
void AppendTop(const TextLogprob& t, std::string& out) {
  out += '{';
  std::vector<std::string> seen;
  const auto add = [&](const TextLogprob& one) {
    std::string name = Name(one);
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return;
    if (!seen.empty()) out += ',';
    AppendJsonString(name, out);
    out += ':';
    AppendFloat(one.logprob, out);
    seen.push_back(std::move(name));
  };
  for (const TextLogprob& one : t.top) add(one);
  add(t);
  out += '}';
}

}  // namespace

void AppendChatLogprobs(const std::vector<Entry>& entries, std::string& out) {
  out += R"({"content":[)";
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    AppendOne(entries[i].logprob, out);
    out += R"(,"top_logprobs":[)";
    const std::vector<TextLogprob>& top = entries[i].logprob.top;
    for (size_t j = 0; j < top.size(); ++j) {
      if (j > 0) out += ',';
      AppendOne(top[j], out);
      out += '}';
    }
    out += "]}";
  }
  out += R"(],"refusal":null})";
}

void AppendCompletionLogprobs(const std::vector<PromptEntry>& echoed,
                              const std::vector<Entry>& entries, std::string& out) {
  const auto list = [&](std::string_view name, auto&& of_prompt, auto&& of_entry) {
    AppendJsonString(name, out);
    out += ":[";
    bool first = true;
    const auto comma = [&] {
      if (!first) out += ',';
      first = false;
    };
    for (const PromptEntry& e : echoed) {
      comma();
      of_prompt(e);
    }
    for (const Entry& e : entries) {
      comma();
      of_entry(e);
    }
    out += ']';
  };
  const auto offset = [&](const auto& e) { AppendInt(e.offset, out); };
  const auto token = [&](const auto& e) { AppendJsonString(Name(e.logprob), out); };
  out += '{';
  list("text_offset", offset, offset);
  out += ',';
  list(
      "token_logprobs",
      [&](const PromptEntry& e) {
        e.rank == 0 ? void(out += "null") : AppendFloat(e.logprob.logprob, out);
      },
      [&](const Entry& e) { AppendFloat(e.logprob.logprob, out); });
  out += ',';
  list("tokens", token, token);
  out += ',';
  list(
      "top_logprobs",
      [&](const PromptEntry& e) { e.rank == 0 ? void(out += "null") : AppendTop(e.logprob, out); },
      [&](const Entry& e) { AppendTop(e.logprob, out); });
  out += '}';
}

void AppendPromptLogprobs(const std::vector<PromptEntry>& entries, std::string& out) {
  if (entries.empty()) {
    out += "null";
    return;
  }
  out += '[';
  for (size_t i = 0; i < entries.size(); ++i) {
    const PromptEntry& e = entries[i];
    if (i > 0) out += ',';
    if (e.rank == 0) {
      out += "null";
      continue;
    }
    out += '{';
    std::vector<int32_t> seen;
    const auto add = [&](const TextLogprob& t, int64_t rank) {
      if (std::find(seen.begin(), seen.end(), t.id) != seen.end()) return;
      if (!seen.empty()) out += ',';
      seen.push_back(t.id);
      out += '"';
      AppendInt(t.id, out);
      out += R"(":{"logprob":)";
      AppendFloat(t.logprob, out);
      out += R"(,"rank":)";
      AppendInt(rank, out);
      out += R"(,"decoded_token":)";
      AppendJsonString(t.token, out);
      out += '}';
    };
    add(e.logprob, e.rank);
    for (size_t j = 0; j < e.logprob.top.size(); ++j) {
      add(e.logprob.top[j], static_cast<int64_t>(j) + 1);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace vllm::server
