// Loading tokenizer.json (the format of Hugging Face's tokenizers).
#include <filesystem>
#include <limits>

#include "vllm/text/bpe.h"
#include "vllm/text/json_fields.h"
#include "vllm/text/tokenizer_parts.h"
#include "vllm/text/unigram.h"
#include "vllm/text/wordpiece.h"

namespace vllm::text {
namespace {

namespace json = boost::json;

// The largest published file has 35 MB; parsed, a file takes some eight times its size.
constexpr size_t kMaxFileBytes = size_t{192} << 20;

base::Status LoadVocabObject(const json::object& model, Vocab* vocab) {
  const json::value* v = model.if_contains("vocab");
  if (v == nullptr || !v->is_object())
    return Corrupt("model: \"vocab\" is not an object of token to id");
  vocab->Reserve(v->get_object().size(), 0);
  for (const auto& field : v->get_object()) {
    if (!field.value().is_int64()) {
      return Corrupt(fmt::format("model.vocab: the id of \"{}\" is not an integer",
                                 base::Printable(field.key())));
    }
    if (auto s = vocab->Add(field.key(), field.value().get_int64()); !s.ok())
      return s.error().In("model.vocab");
  }
  return {};
}

class Loader {
 public:
  explicit Loader(TokenizerParts* parts) : p_(*parts) {}

  base::Status Load(const json::object& root);

 private:
  base::Status LoadModel(const json::object& root, bool bytes);
  base::Status LoadBpe(const json::object& model, bool bytes);
  base::Status LoadUnigram(const json::object& model);
  base::Status LoadWordPiece(const json::object& model);
  base::Result<int32_t> UnkId(const json::object& model);
  base::Status LoadAddedTokens(const json::object& root);
  base::Status LoadTemplate(const json::value& post);
  struct TemplateItem {
    int32_t id;    // of a token, or one of the texts
    bool segment;  // 1
  };
  static constexpr int32_t kTextA = -1, kTextB = -2;
  base::Result<std::vector<TemplateItem>> ReadTemplate(const json::object& o, const char* key);
  base::Status LoadTemplateProcessing(const json::object& o);
  base::Result<int32_t> PairId(const json::object& o, const char* key);

  TokenizerParts& p_;
};

base::Result<int32_t> Loader::UnkId(const json::object& model) {
  auto token = base::JsonString(model, "unk_token", "");
  if (!token.ok()) return token.error().In("model");
  if (token->empty()) return -1;
  const int32_t id = p_.vocab.Find(*token);
  if (id < 0)
    return Corrupt(
        fmt::format("model: unk_token \"{}\" is not in the vocab", base::Printable(*token)));
  p_.unk = id;
  return id;
}

base::Status Loader::LoadBpe(const json::object& model, bool bytes) {
  BpeSpec spec;
  spec.vocab = &p_.vocab;
  auto dropout = base::JsonNumber(model, "dropout", 0);
  if (!dropout.ok()) return dropout.error().In("model");
  if (*dropout != 0) return Unsupported("model: dropout makes the ids random; set it to null");
  struct Flag {
    const char* name;
    bool* value;
  };
  for (const Flag& f :
       {Flag{"fuse_unk", &spec.fuse_unk}, Flag{"byte_fallback", &spec.byte_fallback},
        Flag{"ignore_merges", &spec.ignore_merges}}) {
    auto v = base::JsonBool(model, f.name, false);
    if (!v.ok()) return v.error().In("model");
    *f.value = *v;
  }
  auto prefix = base::JsonString(model, "continuing_subword_prefix", "");
  if (!prefix.ok()) return prefix.error().In("model");
  auto suffix = base::JsonString(model, "end_of_word_suffix", "");
  if (!suffix.ok()) return suffix.error().In("model");
  spec.prefix = *prefix;
  spec.suffix = *suffix;
  if (auto s = LoadVocabObject(model, &p_.vocab); !s.ok()) return s;
  auto unk = UnkId(model);
  if (!unk.ok()) return unk.error();
  spec.unk_id = *unk;
  auto merges = ArrayField(model, "merges", "model");
  if (!merges.ok()) return merges.error();
  spec.merges.reserve((*merges)->size());
  for (size_t i = 0; i < (*merges)->size(); ++i) {
    const json::value& m = (**merges)[i];
    if (m.is_string()) {
      const std::string_view text = m.get_string();
      const size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
        continue;
      }
    } else if (m.is_array() && m.get_array().size() == 2 && m.get_array()[0].is_string() &&
               m.get_array()[1].is_string()) {
      spec.merges.emplace_back(m.get_array()[0].get_string(), m.get_array()[1].get_string());
      continue;
    }
    return Corrupt(
        fmt::format("model.merges[{}] is neither \"left right\" nor [\"left\", \"right\"]", i));
  }
  spec.byte_level = bytes;
  spec.cut_safely = !bytes;
  auto created = BpeModel::Create(spec);
  if (!created.ok()) return created.error().In("model");
  p_.model = std::move(*created);
  return {};
}

base::Status Loader::LoadUnigram(const json::object& model) {
  auto pieces = ArrayField(model, "vocab", "model");
  if (!pieces.ok()) return pieces.error();
  UnigramSpec spec;
  spec.vocab = &p_.vocab;
  spec.lowest_score = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < (*pieces)->size(); ++i) {
    const json::value& v = (**pieces)[i];
    if (!v.is_array() || v.get_array().size() != 2 || !v.get_array()[0].is_string() ||
        !v.get_array()[1].is_number()) {
      return Corrupt(fmt::format("model.vocab[{}] is not [token, score]", i));
    }
    if (auto s = p_.vocab.Add(v.get_array()[0].get_string(), static_cast<int64_t>(i)); !s.ok())
      return s;
    spec.scores.push_back(v.get_array()[1].to_number<double>());
    spec.lowest_score = std::min(spec.lowest_score, spec.scores.back());
  }
  auto unk = base::JsonInt(model, "unk_id", -1);
  if (!unk.ok()) return unk.error().In("model");
  if (*unk >= p_.vocab.size()) return Corrupt("model: unk_id is outside the vocab");
  spec.unk_id = *unk < 0 ? -1 : static_cast<int32_t>(*unk);
  if (spec.unk_id >= 0) p_.unk = spec.unk_id;
  auto fallback = base::JsonBool(model, "byte_fallback", false);
  if (!fallback.ok()) return fallback.error().In("model");
  spec.byte_fallback = *fallback;
  spec.usable.assign(spec.scores.size(), 1);
  auto created = UnigramModel::Create(std::move(spec));
  if (!created.ok()) return created.error().In("model");
  p_.model = std::move(*created);
  return {};
}

base::Status Loader::LoadWordPiece(const json::object& model) {
  if (auto s = LoadVocabObject(model, &p_.vocab); !s.ok()) return s;
  WordPieceSpec spec;
  spec.vocab = &p_.vocab;
  auto unk = UnkId(model);
  if (!unk.ok()) return unk.error();
  spec.unk_id = *unk;
  auto prefix = base::JsonString(model, "continuing_subword_prefix", "##");
  if (!prefix.ok()) return prefix.error().In("model");
  spec.continuing_prefix = *prefix;
  auto limit = base::JsonInt(model, "max_input_chars_per_word", 100);
  if (!limit.ok()) return limit.error().In("model");
  if (*limit < 1) return Corrupt("model: max_input_chars_per_word is not positive");
  spec.max_characters = static_cast<size_t>(*limit);
  auto created = WordPieceModel::Create(spec);
  if (!created.ok()) return created.error().In("model");
  p_.model = std::move(*created);
  return {};
}

base::Status Loader::LoadModel(const json::object& root, bool bytes) {
  const json::value* v = root.if_contains("model");
  if (v == nullptr) return Corrupt("\"model\" is missing");
  auto model = AsObject(*v, "model");
  if (!model.ok()) return model.error();
  auto type = base::JsonString(**model, "type", "");
  if (!type.ok()) return type.error().In("model");
  // Old files leave the type out.
  if (type->empty() && (*model)->if_contains("merges") != nullptr) *type = "BPE";
  if (*type == "BPE") return LoadBpe(**model, bytes);
  if (*type == "Unigram") return LoadUnigram(**model);
  if (*type == "WordPiece") return LoadWordPiece(**model);
  return Unsupported(fmt::format("model \"{}\" is not implemented", base::Printable(*type)));
}

base::Status Loader::LoadAddedTokens(const json::object& root) {
  if (IsNull(root, "added_tokens")) return {};
  auto tokens = ArrayField(root, "added_tokens", "tokenizer.json");
  if (!tokens.ok()) return tokens.error();
  for (size_t i = 0; i < (*tokens)->size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    auto object = AsObject((**tokens)[i], where);
    if (!object.ok()) return object.error();
    AddedToken t;
    auto content = base::JsonString(**object, "content", "");
    if (!content.ok()) return content.error().In(where);
    t.content = *content;
    auto id = base::JsonInt(**object, "id", -1);
    if (!id.ok()) return id.error().In(where);
    struct Flag {
      const char* name;
      bool* value;
    };
    for (const Flag& f : {Flag{"special", &t.special}, Flag{"single_word", &t.single_word},
                          Flag{"lstrip", &t.lstrip}, Flag{"rstrip", &t.rstrip},
                          Flag{"normalized", &t.normalized}}) {
      auto v = base::JsonBool(**object, f.name, false);
      if (!v.ok()) return v.error().In(where);
      *f.value = *v;
    }
    if (t.content.empty()) continue;
    // A token that the model knows keeps the model's id.
    const int32_t known = p_.vocab.Find(t.content);
    if (known < 0) {
      if (auto s = p_.vocab.Add(t.content, *id); !s.ok()) return s.error().In(where);
    }
    t.id = known >= 0 ? known : static_cast<int32_t>(*id);
    if (auto s = p_.AddToken(t); !s.ok()) return s.error().In(where);
  }
  return {};
}

// BertProcessing and RobertaProcessing name their tokens as ["[SEP]", 102].
base::Result<int32_t> Loader::PairId(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  if (v != nullptr && v->is_array() && v->get_array().size() == 2 && v->get_array()[1].is_int64()) {
    const int64_t id = v->get_array()[1].get_int64();
    if (id >= 0 && id < p_.vocab.size()) return static_cast<int32_t>(id);
  }
  return Corrupt(fmt::format("post_processor: \"{}\" is not [token, id] of the vocab", key));
}

base::Result<std::vector<Loader::TemplateItem>> Loader::ReadTemplate(const json::object& o,
                                                                     const char* key) {
  auto list = ArrayField(o, key, "post_processor");
  if (!list.ok()) return list.error();
  const json::value* specials = o.if_contains("special_tokens");
  const base::Error malformed = Corrupt(fmt::format("post_processor: \"{}\" is malformed", key));
  std::vector<TemplateItem> items;
  for (const json::value& item : **list) {
    if (!item.is_object() || item.get_object().size() != 1) return malformed;
    const auto& field = *item.get_object().begin();
    if (!field.value().is_object()) return malformed;
    auto id = base::JsonString(field.value().get_object(), "id", "");
    if (!id.ok()) return id.error().In("post_processor");
    auto type = base::JsonInt(field.value().get_object(), "type_id", 0);
    if (!type.ok()) return type.error().In("post_processor");
    if (field.key() == "Sequence") {
      if (*id != "A" && *id != "B") return malformed;
      items.push_back({*id == "A" ? kTextA : kTextB, *type != 0});
      continue;
    }
    const json::value* entry = specials != nullptr && specials->is_object()
                                   ? specials->get_object().if_contains(*id)
                                   : nullptr;
    if (field.key() != "SpecialToken" || entry == nullptr || !entry->is_object()) {
      return Corrupt(
          fmt::format("post_processor: special token \"{}\" is not defined", base::Printable(*id)));
    }
    auto ids = ArrayField(entry->get_object(), "ids", "post_processor");
    if (!ids.ok()) return ids.error();
    for (const json::value& v : **ids) {
      if (!v.is_int64() || v.get_int64() < 0 || v.get_int64() >= p_.vocab.size()) {
        return Corrupt(fmt::format("post_processor: the ids of \"{}\" are not in the vocab",
                                   base::Printable(*id)));
      }
      items.push_back({static_cast<int32_t>(v.get_int64()), *type != 0});
    }
  }
  if (items.size() > 1024) return Corrupt("post_processor adds more than 1024 tokens");
  return items;
}

base::Status Loader::LoadTemplateProcessing(const json::object& o) {
  auto single = ReadTemplate(o, "single");
  if (!single.ok()) return single.error();
  std::vector<int32_t> before, after;
  bool seen = false;
  for (const TemplateItem& item : *single) {
    if (item.id == kTextB || (item.id == kTextA && seen))
      return Unsupported("post_processor: \"single\" is more than one sequence A");
    if (item.id == kTextA) {
      seen = true;
    } else {
      (seen ? after : before).push_back(item.id);
    }
  }
  // In a Sequence of post-processors a later one goes around what an earlier one made.
  p_.prefix.insert(p_.prefix.begin(), before.begin(), before.end());
  p_.suffix.insert(p_.suffix.end(), after.begin(), after.end());
  if (p_.prefix.size() + p_.suffix.size() > 1024)
    return Corrupt("post_processor adds more than 1024 tokens");
  if (IsNull(o, "pair")) return {};
  auto pair = ReadTemplate(o, "pair");
  if (!pair.ok()) return pair.error();
  // Text A once, then text B once, and segments in this order; others' pairs are not offered.
  PairTemplate t;
  int texts = 0;
  bool good = true;
  for (const TemplateItem& item : *pair) {
    if (item.id < 0) {
      good &= item.id == (texts == 0 ? kTextA : kTextB) && texts < 2;
      if (++texts == 2) t.segments = item.segment;
    } else {
      (texts == 0 ? t.before : texts == 1 ? t.between : t.after).push_back(item.id);
    }
    good &= item.segment == (texts == 2 && t.segments);
  }
  if (good && texts == 2) p_.pair = std::move(t);
  return {};
}

base::Status Loader::LoadTemplate(const json::value& post) {
  if (post.is_null()) return {};
  auto object = AsObject(post, "post_processor");
  if (!object.ok()) return object.error();
  auto type = base::JsonString(**object, "type", "");
  if (!type.ok()) return type.error().In("post_processor");
  if (*type == "ByteLevel") return {};
  if (*type == "TemplateProcessing") return LoadTemplateProcessing(**object);
  if (*type == "BertProcessing" || *type == "RobertaProcessing") {
    auto cls = PairId(**object, "cls");
    if (!cls.ok()) return cls.error();
    auto sep = PairId(**object, "sep");
    if (!sep.ok()) return sep.error();
    p_.prefix.insert(p_.prefix.begin(), *cls);
    p_.suffix.push_back(*sep);
    const bool bert = *type == "BertProcessing";
    p_.pair = PairTemplate{{*cls}, {*sep}, {*sep}, bert};
    if (!bert) p_.pair->between.push_back(*sep);
    return {};
  }
  if (*type == "Sequence") {
    auto steps = ArrayField(**object, "processors", "post_processor Sequence");
    if (!steps.ok()) return steps.error();
    for (const json::value& step : **steps) {
      if (auto s = LoadTemplate(step); !s.ok()) return s;
    }
    return {};
  }
  return Unsupported(
      fmt::format("post_processor \"{}\" is not implemented", base::Printable(*type)));
}

base::Status Loader::Load(const json::object& root) {
  const auto field = [&root](const char* key) {
    const json::value* v = root.if_contains(key);
    return v == nullptr ? json::value() : *v;
  };
  auto normalizers = ParseNormalizer(field("normalizer"));
  if (!normalizers.ok()) return normalizers.error();
  p_.normalizers = std::move(*normalizers);
  // Only BPE reads words as bytes, and only when no character carries an affix.
  bool allow_bytes = false;
  if (const json::value* m = root.if_contains("model"); m != nullptr && m->is_object()) {
    const auto& o = m->get_object();
    const auto blank = [&o](const char* key) {
      const json::value* v = o.if_contains(key);
      return v == nullptr || v->is_null() || (v->is_string() && v->get_string().empty());
    };
    const json::value* fallback = o.if_contains("byte_fallback");
    allow_bytes = o.if_contains("merges") != nullptr && blank("continuing_subword_prefix") &&
                  blank("end_of_word_suffix") &&
                  (fallback == nullptr || *fallback == json::value(false));
  }
  bool bytes = false;
  auto pre = ParsePreTokenizer(field("pre_tokenizer"), allow_bytes, &bytes);
  if (!pre.ok()) return pre.error();
  p_.pre_tokenizers = std::move(*pre);
  if (auto s = LoadModel(root, bytes); !s.ok()) return s;
  if (auto s = LoadAddedTokens(root); !s.ok()) return s;
  if (auto s = LoadTemplate(field("post_processor")); !s.ok()) return s;
  auto decoder = ParseDecoder(field("decoder"));
  if (!decoder.ok()) return decoder.error();
  p_.decoder = std::move(*decoder);
  return {};
}

// "bos_token": "<s>" or {"content": "<s>", ...} or null.
base::Result<std::string> TokenField(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  if (v != nullptr && v->is_object()) return base::JsonString(v->get_object(), "content", "");
  return base::JsonString(o, key, "");
}

base::Status ReadConfig(const std::string& path, TokenizerOptions* options) {
  base::JsonLimits limits;
  limits.max_bytes = kMaxFileBytes;
  auto config = base::ParseJsonFile(path, limits);
  if (!config.ok()) return config.error();
  auto object = AsObject(*config, "the file");
  if (!object.ok()) return object.error().In(path);
  struct Text {
    const char* key;
    std::string* value;
  };
  for (const Text& t :
       {Text{"bos_token", &options->bos_token}, Text{"eos_token", &options->eos_token},
        Text{"pad_token", &options->pad_token}, Text{"unk_token", &options->unk_token}}) {
    auto text = TokenField(**object, t.key);
    if (!text.ok()) return text.error().In(path);
    if (t.value->empty()) *t.value = *text;
  }
  struct Flag {
    const char* key;
    std::optional<bool>* value;
  };
  for (const Flag& f : {Flag{"add_bos_token", &options->add_bos_token},
                        Flag{"add_eos_token", &options->add_eos_token}}) {
    if (IsNull(**object, f.key)) continue;
    auto v = base::JsonBool(**object, f.key, false);
    if (!v.ok()) return v.error().In(path);
    *f.value = *v;
  }
  return {};
}

}  // namespace

base::Status ApplyOptions(const TokenizerOptions& options, TokenizerParts* p) {
  struct Named {
    const std::string* text;
    std::optional<int32_t>* id;
    const char* name;
  };
  for (const Named& n : {Named{&options.bos_token, &p->bos, "bos_token"},
                         Named{&options.eos_token, &p->eos, "eos_token"},
                         Named{&options.pad_token, &p->pad, "pad_token"},
                         Named{&options.unk_token, &p->unk, "unk_token"}}) {
    if (n.text->empty()) continue;
    if (const int32_t id = p->vocab.Find(*n.text); id >= 0) *n.id = id;
  }
  if (!p->bos && !p->prefix.empty()) p->bos = p->prefix[0];
  if (options.add_bos_token && *options.add_bos_token && !p->bos) {
    return Corrupt("add_bos_token is true, but bos_token is no token of the vocabulary");
  }
  if (options.add_eos_token && *options.add_eos_token && !p->eos) {
    return Corrupt("add_eos_token is true, but eos_token is no token of the vocabulary");
  }
  const bool has_bos = p->bos && !p->prefix.empty() && p->prefix[0] == *p->bos;
  const bool has_eos = p->eos && !p->suffix.empty() && p->suffix.back() == *p->eos;
  if (options.add_bos_token && *options.add_bos_token != has_bos) {
    if (has_bos) {
      p->prefix.erase(p->prefix.begin());
    } else {
      p->prefix.insert(p->prefix.begin(), *p->bos);
    }
  }
  if (options.add_eos_token && *options.add_eos_token != has_eos) {
    if (has_eos) {
      p->suffix.pop_back();
    } else {
      p->suffix.push_back(*p->eos);
    }
  }
  return {};
}

base::Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(const json::value& value,
                                                             const TokenizerOptions& options) {
  return LoadWith<Loader>(value, options);
}

namespace {

// The file of a tokenizer in a directory; empty: there is none. Models that have both files mean
// the same by them.
std::string FileIn(const std::string& path) {
  std::error_code ec;
  for (const char* name : {"tokenizer.json", "tekken.json"}) {
    std::string file = (std::filesystem::path(path) / name).string();
    if (std::filesystem::is_regular_file(file, ec)) return file;
  }
  return {};
}

}  // namespace

bool Tokenizer::InDirectory(const std::string& path) { return !FileIn(path).empty(); }

base::Result<std::unique_ptr<Tokenizer>> Tokenizer::FromDirectory(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const std::string file = FileIn(path);
  if (file.empty()) {
    return base::Error{base::Code::kNotFound,
                       fmt::format("{}: there is no tokenizer.json or tekken.json in this "
                                   "directory; get it with the model",
                                   path)};
  }
  TokenizerOptions options;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string config = (fs::path(path) / name).string();
    if (!fs::is_regular_file(config, ec)) continue;
    if (auto s = ReadConfig(config, &options); !s.ok()) return s.error();
  }
  base::JsonLimits limits;
  limits.max_bytes = kMaxFileBytes;
  auto value = base::ParseJsonFile(file, limits);
  if (!value.ok()) return value.error();
  auto tokenizer = fs::path(file).filename() == "tekken.json" ? FromTekken(*value, options)
                                                              : FromJson(*value, options);
  if (!tokenizer.ok()) return tokenizer.error().In(file);
  return tokenizer;
}

}  // namespace vllm::text
