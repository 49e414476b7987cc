#include "apps/quantize_vocab.h"

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/text/gguf_vocab.h"
#include "vllm/text/tokenizer.h"

namespace apps {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Result;
using base::Status;
using vllm::text::GgufVocab;
using vllm::text::Tokenizer;

// Names of tokenizer.ggml.pre, one of each behaviour, the commonest first.
constexpr std::array<std::string_view, 24> kPre = {
    "llama-bpe",      "qwen2",      "smollm",     "gpt-2",     "tekken",      "gpt-4o",
    "qwen35",         "dbrx",       "glm4",       "stablelm2", "deepseek-v3", "deepseek-llm",
    "deepseek-coder", "falcon",     "command-r",  "minicpm5",  "bloom",       "viking",
    "superbpe",       "seed-coder", "exaone-moe", "tiny_aya",  "bailingmoe",  "default"};

// Texts on which kinds of tokenizers differ: digits in runs, contractions in both cases, spaces and
// newlines in rows, punctuation against letters, several scripts, marks that combine, symbols.
constexpr std::string_view kProbe =
    "Hello, World! It's they'LL I'm WE'RE don't 1 12 123 1234 12345 3.14159 v2 x86_64 a1b22c333 "
    "\n\n\n  \t two  spaces   three\n \n\r\n tabs\t\tend \n if (x==1) {return y->z;} // note "
    "--flag=no "
    "\"quoted\" ''single'' (paren) [bracket]... ?! #tag @name $5.00 50% a&b <b>bold</b> "
    "http://a.bc/d "
    "\u00c4pfel caf\u00e9 cafe\u0301 na\u00efve \u00dcBER "
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f\u30ab\u30bf \ud55c\uad6d\uc5b4 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0639\u0631\u0628\u064a \u05e2\u05d1 "
    "\U0001f600\U0001f680 "
    "\u00bd \u2160 \u0663\u0664 \u2026 \u2014 \u201cq\u201d \u3001\u3002 _under_score "
    "CamelCaseWord "
    "  leading\n\n\n    four\n        eight\nEND";

struct Vocab {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;        // of SentencePiece-like ones
  std::vector<std::string> merges;  // of byte-level ones

  GgufVocab View(const std::string& model, std::string_view pre) const {
    GgufVocab v;
    v.model = model;
    v.pre = pre;
    v.tokens.assign(tokens.begin(), tokens.end());
    v.token_types = types;
    v.scores = scores;
    v.merges.assign(merges.begin(), merges.end());
    return v;
  }
};

Error No(std::string why) { return {Code::kUnsupported, std::move(why)}; }

// "left right" of merge `i`, which tokenizer.json writes so or as a pair.
Result<std::pair<std::string, std::string>> MergeOf(const json::value& v, size_t i) {
  if (v.is_array() && v.get_array().size() == 2 && v.get_array()[0].is_string() &&
      v.get_array()[1].is_string()) {
    return std::pair{std::string(v.get_array()[0].get_string()),
                     std::string(v.get_array()[1].get_string())};
  }
  if (v.is_string()) {
    const std::string text(v.get_string());
    const size_t space = text.find(' ', 1);
    if (space != std::string::npos) return std::pair{text.substr(0, space), text.substr(space + 1)};
  }
  return Error{Code::kCorrupt, fmt::format("model.merges[{}] is no pair of tokens", i)};
}

// Tokens and their types: what `tokenizer` has of ids below `size`.
Status FillTokens(const json::object& root, const Tokenizer& tokenizer, int64_t size,
                  bool byte_level, Vocab& out) {
  if (size < 1 || tokenizer.vocab_size() > size) {
    return No(fmt::format("the tokenizer has ids up to {}, and the model's embedding {} rows",
                          tokenizer.vocab_size() - 1, size));
  }
  for (int32_t id = 0; id < static_cast<int32_t>(size); ++id) {
    const bool known = tokenizer.HasToken(id);
    out.tokens.push_back(known ? std::string(tokenizer.TokenText(id)) : fmt::format("[PAD{}]", id));
    int32_t type = known ? GgufVocab::kNormal : GgufVocab::kUnused;
    const std::string& text = out.tokens.back();
    if (known && !byte_level && text.size() == 6 && base::StartsWith(text, "<0x") && text[5] == '>')
      type = GgufVocab::kByte;
    if (known && !byte_level && tokenizer.unk_id() == id) type = GgufVocab::kUnknown;
    out.types.push_back(type);
  }
  const json::value* added = root.if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return {};
  for (const json::value& v : added->get_array()) {
    if (!v.is_object()) continue;
    const Result<std::string> content = base::JsonString(v.get_object(), "content", "");
    if (!content) return content.error();
    const std::optional<int32_t> id = tokenizer.TokenId(*content);
    if (!id || out.types[static_cast<size_t>(*id)] == GgufVocab::kUnknown) continue;
    out.types[static_cast<size_t>(*id)] =
        tokenizer.IsSpecial(*id) ? GgufVocab::kControl : GgufVocab::kUserDefined;
  }
  return {};
}

// Merges as GGUF keeps them: byte-level vocabularies list them, SentencePiece-like ones give each
// token a score, the higher the earlier it is made.
Status FillMerges(const json::object& model, bool byte_level, Vocab& out) {
  const json::value* merges = model.if_contains("merges");
  if (merges == nullptr || !merges->is_array())
    return Error{Code::kCorrupt, "model.merges is no list"};
  std::unordered_map<std::string_view, size_t> ids;
  if (!byte_level) {
    // What no merge makes is made first of all or never.
    out.scores.assign(out.tokens.size(), -1e6f);
    for (size_t i = 0; i < out.tokens.size(); ++i) ids.emplace(out.tokens[i], i);
  }
  const json::array& list = merges->get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    Result<std::pair<std::string, std::string>> pair = MergeOf(list[i], i);
    if (!pair) return pair.error();
    if (byte_level) {
      out.merges.push_back(pair->first + " " + pair->second);
      continue;
    }
    const auto it = ids.find(pair->first + pair->second);
    if (it == ids.end()) continue;
    float& score = out.scores[it->second];
    score = std::max(score, -static_cast<float>(i));
  }
  return {};
}

struct Candidate {
  std::string model, pre;
  std::optional<bool> space_prefix;
};

std::vector<Candidate> Candidates(bool byte_level) {
  std::vector<Candidate> out;
  if (byte_level) {
    for (const std::string_view pre : kPre) out.push_back({"gpt2", std::string(pre), std::nullopt});
  } else {
    for (const bool prefix : {true, false}) out.push_back({"llama", "default", prefix});
  }
  return out;
}

// The first candidate with which a reader of GGUF files gives the tokenizer's own ids.
Result<Candidate> Find(const Tokenizer& tokenizer, const Vocab& vocab, bool byte_level) {
  const Result<std::vector<int32_t>> wanted =
      tokenizer.Encode(kProbe, {.add_special_tokens = false});
  if (!wanted) return wanted.error();
  for (const Candidate& c : Candidates(byte_level)) {
    GgufVocab view = vocab.View(c.model, c.pre);
    view.add_space_prefix = c.space_prefix;
    view.unk_id = tokenizer.unk_id();
    view.add_bos = view.add_eos = false;  // the probe has none
    const Result<std::unique_ptr<Tokenizer>> other = Tokenizer::FromGguf(view);
    if (!other) return other.error();
    const Result<std::vector<int32_t>> got =
        (*other)->Encode(kProbe, {.add_special_tokens = false});
    if (got && *got == *wanted) return c;
  }
  return No("no tokenizer that GGUF has a name for cuts text into the same tokens as this one");
}

void AddIds(const Tokenizer& tokenizer, const vllm::weights::Config& config,
            vllm::weights::GgufKeys& keys) {
  const auto set = [&](const char* name, std::optional<int32_t> id) {
    if (id) keys.U32(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*id));
  };
  set("bos", tokenizer.bos_id() ? tokenizer.bos_id() : config.bos_token_id);
  std::optional<int32_t> eos = tokenizer.eos_id();
  std::vector<int32_t> others = config.eos_token_ids;
  if (!eos && !others.empty()) eos = others.front();
  if (eos) std::erase(others, *eos);
  set("eos", eos);
  // GGUF has three names for tokens that end an answer.
  if (!others.empty()) set("eot", others[0]);
  if (others.size() > 1) set("eom", others[1]);
  set("unknown", tokenizer.unk_id());
  set("padding", tokenizer.pad_id());
  keys.Bool("tokenizer.ggml.add_bos_token", tokenizer.adds_bos());
  const Result<std::vector<int32_t>> empty = tokenizer.Encode("", {});
  keys.Bool("tokenizer.ggml.add_eos_token", empty && eos && !empty->empty() &&
                                                empty->back() == *eos &&
                                                (empty->size() > 1 || !tokenizer.adds_bos()));
}

}  // namespace

Status VocabToGguf(const std::string& folder, const vllm::weights::Config& config,
                   int64_t vocab_size, vllm::weights::GgufKeys& keys) {
  const std::string file = folder + "/tokenizer.json";
  const Result<vllm::engine::TextParts> parts = vllm::engine::LoadText(folder, "");
  if (!parts) return parts.error();
  if (parts->tokenizer == nullptr) {
    return Error{Code::kNotFound,
                 file + ": there is no such file, and a GGUF file holds the tokenizer too"};
  }
  if (!base::os::FileExists(file))
    return No(file + ": there is no such file, and a tekken.json is not converted to GGUF");
  const Tokenizer& tokenizer = *parts->tokenizer;
  const Result<json::value> root = base::ParseJsonFile(file, {.max_bytes = size_t{192} << 20});
  if (!root) return root.error();
  // LoadText has accepted the file, so its model is an object.
  const json::object& model = root->get_object().at("model").get_object();
  const Result<std::string> type = base::JsonString(model, "type", "BPE");
  if (!type) return type.error().In(file);
  if (*type != "BPE")
    return No(fmt::format("{}: a {} tokenizer is not converted to GGUF (BPE is)", file,
                          base::Printable(*type)));
  const Result<bool> fallback = base::JsonBool(model, "byte_fallback", false);
  if (!fallback) return fallback.error().In(file);
  const bool byte_level = !*fallback;

  Vocab vocab;
  Status status = FillTokens(root->get_object(), tokenizer, vocab_size, byte_level, vocab);
  if (!status) return status.error().In(file);
  status = FillMerges(model, byte_level, vocab);
  if (!status) return status.error().In(file);
  const Result<Candidate> kind = Find(tokenizer, vocab, byte_level);
  if (!kind) return kind.error().In(file);

  keys.String("tokenizer.ggml.model", kind->model);
  keys.String("tokenizer.ggml.pre", kind->pre);
  const GgufVocab view = vocab.View(kind->model, kind->pre);
  keys.Strings("tokenizer.ggml.tokens", view.tokens);
  if (!vocab.scores.empty()) keys.F32s("tokenizer.ggml.scores", vocab.scores);
  keys.I32s("tokenizer.ggml.token_type", vocab.types);
  if (byte_level) keys.Strings("tokenizer.ggml.merges", view.merges);
  if (kind->space_prefix) keys.Bool("tokenizer.ggml.add_space_prefix", *kind->space_prefix);
  AddIds(tokenizer, config, keys);
  if (parts->chat_template != nullptr)
    keys.String("tokenizer.chat_template", parts->chat_template->source());
  return {};
}

}  // namespace apps
