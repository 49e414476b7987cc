// Tokenizer and chat template of a model: from tokenizer.json (or tekken.json) and
// tokenizer_config.json, or from GGUF metadata.
#include <filesystem>

#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/text/mistral_template.h"
#include "vllm/weights/gguf.h"

namespace vllm::engine {
namespace {

namespace json = boost::json;

// A token in tokenizer_config.json is a string or an object with "content".
std::string TokenText(const json::object& config, std::string_view key) {
  const json::value* v = config.if_contains(key);
  if (v == nullptr) return "";
  if (v->is_string()) return std::string(v->get_string());
  if (v->is_object()) {
    const json::value* content = v->get_object().if_contains("content");
    if (content != nullptr && content->is_string()) return std::string(content->get_string());
  }
  return "";
}

// The template in "chat_template": a string, or a list of named ones of which "default" is meant.
std::string TemplateText(const json::object& config) {
  const json::value* v = config.if_contains("chat_template");
  if (v == nullptr) return "";
  if (v->is_string()) return std::string(v->get_string());
  if (!v->is_array()) return "";
  for (const json::value& entry : v->get_array()) {
    if (!entry.is_object()) continue;
    const json::object& o = entry.get_object();
    const json::value* name = o.if_contains("name");
    const json::value* text = o.if_contains("template");
    if (name != nullptr && text != nullptr && text->is_string() && name->is_string() &&
        name->get_string() == "default") {
      return std::string(text->get_string());
    }
  }
  return "";
}

struct Source {
  std::string text, name;
  text::TemplateOptions options;
};

// What `LoadText` was given.
struct Templates {
  const std::string& file;
  std::string_view own;
};

base::Result<TextParts> Assemble(std::unique_ptr<text::Tokenizer> tokenizer, Source source,
                                 const Templates& templates) {
  const std::string& template_file = templates.file;
  TextParts parts;
  parts.tokenizer = std::move(tokenizer);
  if (!template_file.empty()) {
    base::Result<std::string> text = base::os::ReadFile(template_file, size_t{16} << 20);
    if (!text) return text.error();
    source.text = *std::move(text);
    source.name = template_file;
  }
  if (source.text.empty() && parts.tokenizer != nullptr &&
      !parts.tokenizer->instruct_format().version.empty()) {
    base::Result<std::string> text = text::MistralTemplate(*parts.tokenizer, &source.options);
    if (text) {
      source.text = *std::move(text);
      source.name = "of " + parts.tokenizer->instruct_format().version;
    } else {
      parts.why_no_template = text.error().message;
    }
  }
  if (source.text.empty()) {
    source.text = templates.own;
    source.name = "the family's chat template";
  }
  if (source.text.empty()) return parts;
  const auto fill = [&](std::string& token, std::optional<int32_t> id) {
    if (token.empty() && id && parts.tokenizer != nullptr)
      token = std::string(parts.tokenizer->TokenText(*id));
  };
  if (parts.tokenizer != nullptr) {
    fill(source.options.bos_token, parts.tokenizer->bos_id());
    fill(source.options.eos_token, parts.tokenizer->eos_id());
  }
  base::Result<std::unique_ptr<text::ChatTemplate>> t =
      text::ChatTemplate::Parse(std::move(source.text), source.name, std::move(source.options));
  if (!t) return t.error();
  parts.chat_template = *std::move(t);
  return parts;
}

base::Result<TextParts> FromFolder(const std::string& folder, const Templates& templates) {
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (text::Tokenizer::InDirectory(folder)) {
    base::Result<std::unique_ptr<text::Tokenizer>> t = text::Tokenizer::FromDirectory(folder);
    if (!t) return t.error();
    tokenizer = *std::move(t);
  }
  Source source;
  const std::string config_path = folder + "/tokenizer_config.json";
  if (base::os::FileExists(config_path)) {
    base::Result<json::value> v = base::ParseJsonFile(config_path, {.max_bytes = size_t{64} << 20});
    if (!v) return v.error();
    if (!v->is_object())
      return base::Error{base::Code::kCorrupt, config_path + ": must hold an object"};
    const json::object& config = v->get_object();
    source.text = TemplateText(config);
    source.name = config_path + ": chat_template";
    source.options.bos_token = TokenText(config, "bos_token");
    source.options.eos_token = TokenText(config, "eos_token");
    for (const char* key : {"pad_token", "unk_token", "sep_token", "cls_token", "mask_token"}) {
      const std::string token = TokenText(config, key);
      if (!token.empty()) source.options.special_tokens[key] = token;
    }
  }
  const std::string jinja = folder + "/chat_template.jinja";
  if (base::os::FileExists(jinja)) {
    base::Result<std::string> text = base::os::ReadFile(jinja, size_t{16} << 20);
    if (!text) return text.error();
    source.text = *std::move(text);
    source.name = jinja;
  }
  return Assemble(std::move(tokenizer), std::move(source), templates);
}

base::Result<text::GgufVocab> VocabOf(const weights::GgufMetadata& m) {
  text::GgufVocab v;
  base::Status first;  // the first error, by key
  const auto take = [&](auto result, auto store) {
    if (result) {
      store(*std::move(result));
    } else if (first) {
      first = result.error();
    }
  };
  const std::string p = "tokenizer.ggml.";
  take(m.String(p + "model"), [&](std::string_view s) { v.model = s; });
  take(m.String(p + "pre", ""), [&](std::string_view s) { v.pre = s; });
  take(m.String("general.architecture", ""), [&](std::string_view s) { v.architecture = s; });
  take(m.String("general.name", ""), [&](std::string_view s) { v.name = s; });
  take(m.Strings(p + "tokens"), [&](std::vector<std::string_view> s) { v.tokens = std::move(s); });
  if (m.Has(p + "scores"))
    take(m.Floats(p + "scores"), [&](std::vector<float> s) { v.scores = std::move(s); });
  if (m.Has(p + "token_type")) {
    take(m.Ints(p + "token_type"),
         [&](const std::vector<int64_t>& s) { v.token_types.assign(s.begin(), s.end()); });
  }
  if (m.Has(p + "merges")) {
    take(m.Strings(p + "merges"),
         [&](std::vector<std::string_view> s) { v.merges = std::move(s); });
  }
  const auto id = [&](const char* key, std::optional<int32_t>& out) {
    if (m.Has(p + key)) take(m.Int(p + key), [&](int64_t n) { out = static_cast<int32_t>(n); });
  };
  id("bos_token_id", v.bos_id);
  id("eos_token_id", v.eos_id);
  id("unknown_token_id", v.unk_id);
  id("padding_token_id", v.pad_id);
  id("seperator_token_id", v.sep_id);  // spelt so in the format
  id("cls_token_id", v.cls_id);
  id("mask_token_id", v.mask_id);
  const auto flag = [&](const char* key, auto& out) {
    if (m.Has(p + key)) take(m.Bool(p + key, false), [&](bool b) { out = b; });
  };
  flag("add_bos_token", v.add_bos);
  flag("add_eos_token", v.add_eos);
  flag("add_sep_token", v.add_sep);
  flag("add_space_prefix", v.add_space_prefix);
  flag("remove_extra_whitespaces", v.remove_extra_whitespaces);
  flag("treat_whitespace_as_suffix", v.treat_whitespace_as_suffix);
  flag("normalizer.lowercase", v.lowercase);
  flag("normalizer.strip_accents", v.strip_accents);
  if (const weights::GgufValue* map = m.Find(p + "precompiled_charsmap"); map != nullptr) {
    v.precompiled_charsmap = {reinterpret_cast<const char*>(map->bytes.data()), map->bytes.size()};
  }
  if (!first) return first.error();
  return v;
}

base::Result<TextParts> FromGguf(const weights::GgufMetadata& m, const std::string& file,
                                 const Templates& templates) {
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (m.Has("tokenizer.ggml.model") && m.Has("tokenizer.ggml.tokens")) {
    const base::Result<text::GgufVocab> vocab = VocabOf(m);
    if (!vocab) return vocab.error().In(file);
    base::Result<std::unique_ptr<text::Tokenizer>> t = text::Tokenizer::FromGguf(*vocab);
    if (!t) return t.error().In(file);
    tokenizer = *std::move(t);
  }
  Source source;
  const base::Result<std::string_view> text = m.String("tokenizer.chat_template", "");
  if (!text) return text.error().In(file);
  source.text = *text;
  source.name = file + ": tokenizer.chat_template";
  return Assemble(std::move(tokenizer), std::move(source), templates);
}

}  // namespace

base::Result<TextParts> LoadText(const std::string& path, const std::string& template_file,
                                 std::string_view own_template) {
  const Templates templates = {template_file, own_template};
  const bool folder = base::os::IsDirectory(path);
  if (folder &&
      (text::Tokenizer::InDirectory(path) || base::os::FileExists(path + "/config.json"))) {
    return FromFolder(path, templates);
  }
  if (base::EndsWith(path, ".json")) {
    const std::string parent = std::filesystem::path(path).parent_path().string();
    return FromFolder(parent.empty() ? "." : parent, templates);
  }
  const base::Result<std::vector<std::string>> parts = weights::FindGgufParts(path);
  if (!parts) return parts.error();
  const base::Result<base::os::MappedFile> map = base::os::MappedFile::Open(parts->front());
  if (!map) return map.error();
  const base::Result<weights::GgufFile> file = weights::ParseGguf(map->bytes());
  if (!file) return file.error().In(parts->front());
  return FromGguf(file->metadata, parts->front(), templates);
}

}  // namespace vllm::engine
