#include "vllm/text/normalizer.h"

#include "base/base64.h"
#include "vllm/text/json_fields.h"
#include "vllm/text/regex.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

// A replacement may make a text longer; past this the file is taken for a bomb.
constexpr size_t kMaxBytes = size_t{1} << 28;
base::Error TooLong() {
  return {base::Code::kResourceExhausted,
          "the tokenizer's normalizer makes more than 256 MiB of this text"};
}

// Calls `f(c, &out)` for each character and makes what it appends the new text.
template <typename F>
void Rewrite(std::string* text, F f) {
  std::string out;
  out.reserve(text->size() + 16);
  for (size_t i = 0; i < text->size();) {
    uint32_t c;
    i += static_cast<size_t>(DecodeValid(text->data() + i, &c));
    f(c, &out);
  }
  *text = std::move(out);
}

class Form : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  bool Leaves(std::string_view text) const override { return QuickCheck(form_, text); }
  base::Status Apply(std::string* text) const override {
    *text = Normalized(form_, *text);
    return {};
  }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  base::Status Apply(std::string* text) const override {
    Rewrite(text, AppendLower);
    return {};
  }
};

class StripAccents : public Normalizer {
 public:
  bool Leaves(std::string_view text) const override { return IsAscii(text); }
  base::Status Apply(std::string* text) const override {
    Rewrite(text,
            [](uint32_t c,
               std::string* out) {  // every mark; BERT's own rule takes the non-spacing ones only
              if (!(ClassOf(c) & kMark)) AppendUtf8(c, out);
            });
    return {};
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  base::Status Apply(std::string* text) const override {
    size_t begin = 0, first_end = 0;
    size_t end = 0;  // behind the last character that isn't white
    bool seen = false;
    for (size_t i = 0; i < text->size();) {
      uint32_t c;
      const size_t at = i;
      i += static_cast<size_t>(DecodeValid(text->data() + i, &c));
      if (IsSpace(c)) continue;
      if (!seen) first_end = at;
      seen = true;
      end = i;
    }
    if (!seen) {
      if (left_ || right_) text->clear();
      return {};
    }
    if (left_) begin = first_end;
    if (!right_) end = text->size();
    *text = text->substr(begin, end - begin);
    return {};
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  base::Status Apply(std::string* text) const override {
    if (!text->empty()) text->insert(0, prefix_);
    return {};
  }

 private:
  std::string prefix_;
};

class ReplaceLiteral : public Normalizer {
 public:
  ReplaceLiteral(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  bool Leaves(std::string_view text) const override {
    return text.find(from_) == std::string_view::npos;
  }
  base::Status Apply(std::string* text) const override {
    std::string out;
    out.reserve(text->size() + text->size() / 2 + 16);
    size_t done = 0;
    for (size_t at; (at = text->find(from_, done)) != std::string::npos; done = at + from_.size()) {
      out.append(*text, done, at - done);
      out.append(to_);
      if (out.size() > kMaxBytes) return TooLong();
    }
    out.append(*text, done, text->size() - done);
    *text = std::move(out);
    return {};
  }

 private:
  std::string from_, to_;
};

class ReplaceRegex : public Normalizer {
 public:
  ReplaceRegex(std::unique_ptr<Regex> regex, std::string to)
      : regex_(std::move(regex)), to_(std::move(to)) {}
  base::Status Apply(std::string* text) const override {
    Regex::Matcher matcher(*regex_);
    std::string out;
    size_t done = 0;
    for (size_t from = 0; from <= text->size();) {
      std::pair<size_t, size_t> m;
      auto found = matcher.Find(*text, from, &m);
      if (!found.ok()) return found.error();
      if (!*found) break;
      out.append(*text, done, m.first - done);
      out.append(to_);
      if (out.size() > kMaxBytes) return TooLong();
      done = from = m.second;
      if (m.first == m.second) {
        from += from < text->size()
                    ? static_cast<size_t>(Utf8Length(static_cast<uint8_t>((*text)[from])))
                    : 1;
      }
    }
    out.append(*text, done, text->size() - done);
    *text = std::move(out);
    return {};
  }

 private:
  std::unique_ptr<Regex> regex_;
  std::string to_;
};

class Bert : public Normalizer {
 public:
  explicit Bert(const BertOptions& options) : o_(options) {}
  base::Status Apply(std::string* text) const override {
    if (o_.clean_text) {
      Rewrite(text, [](uint32_t c, std::string* out) {
        const bool line = c == '\t' || c == '\n' || c == '\r';
        if (c == 0xFFFD || (!line && (ClassOf(c) & kOther))) return;
        if (line || IsSpace(c)) {
          out->push_back(' ');
        } else {
          AppendUtf8(c, out);
        }
      });
    }
    if (o_.handle_chinese_chars && !IsAscii(*text)) {
      Rewrite(text, [](uint32_t c, std::string* out) {
        const bool apart = IsCjkIdeograph(c);
        if (apart) out->push_back(' ');
        AppendUtf8(c, out);
        if (apart) out->push_back(' ');
      });
    }
    if (o_.strip_accents && !IsAscii(*text)) {
      *text = Normalized(NormalForm::kNfd, *text);
      Rewrite(text, [](uint32_t c, std::string* out) {
        if (!IsNonspacingMark(c)) AppendUtf8(c, out);
      });
    }
    if (o_.lowercase) Rewrite(text, AppendLower);
    return {};
  }

 private:
  BertOptions o_;
};

// SentencePiece's "nmt" rules: some control characters go, others and odd spaces become ' '.
class Nmt : public Normalizer {
 public:
  base::Status Apply(std::string* text) const override {
    Rewrite(text, [](uint32_t c, std::string* out) {
      if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
          c == 0x9F)
        return;
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      AppendUtf8(space ? ' ' : c, out);
    });
    return {};
  }
};

class SqueezeSpaces : public Normalizer {
 public:
  base::Status Apply(std::string* text) const override {
    std::string out;
    out.reserve(text->size());
    for (const char c : *text) {
      if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
    }
    if (!out.empty() && out.back() == ' ') out.pop_back();
    *text = std::move(out);
    return {};
  }
};

class ByteStandIns : public Normalizer {
 public:
  base::Status Apply(std::string* text) const override {
    std::string out;
    for (const char c : *text) AppendUtf8(ByteToStandIn(static_cast<uint8_t>(c)), &out);
    *text = std::move(out);
    return {};
  }
};

base::Status ParseReplace(const boost::json::object& o, Normalizers* out) {
  auto pattern = PatternField(o, "normalizer Replace");
  if (!pattern.ok()) return pattern.error();
  auto content = base::JsonString(o, "content", "");
  if (!content.ok()) return content.error().In("normalizer Replace");
  if (pattern->literal) {
    if (!pattern->text.empty()) out->push_back(MakeReplaceLiteral(pattern->text, *content));
    return {};
  }
  auto regex = Regex::Compile(pattern->text);
  if (!regex.ok()) return regex.error().In("normalizer Replace");
  out->push_back(std::make_unique<ReplaceRegex>(std::move(*regex), *content));
  return {};
}

base::Status ParseBert(const boost::json::object& o, Normalizers* out) {
  BertOptions b;
  struct Flag {
    const char* name;
    bool* value;
  };
  for (const Flag& f :
       {Flag{"clean_text", &b.clean_text}, Flag{"handle_chinese_chars", &b.handle_chinese_chars},
        Flag{"lowercase", &b.lowercase}}) {
    auto v = base::JsonBool(o, f.name, true);
    if (!v.ok()) return v.error().In("BertNormalizer");
    *f.value = *v;
  }
  auto strip = base::JsonBool(o, "strip_accents", b.lowercase);  // null means: as lowercase
  if (!strip.ok()) return strip.error().In("BertNormalizer");
  b.strip_accents = *strip;
  out->push_back(MakeBert(b));
  return {};
}

base::Status Parse(const boost::json::value& json, Normalizers* out) {
  auto object = AsObject(json, "normalizer");
  if (!object.ok()) return object.error();
  const boost::json::object& o = **object;
  auto type = base::JsonString(o, "type", "");
  if (!type.ok()) return type.error();
  const auto form = [out](NormalForm f) { out->push_back(std::make_unique<Form>(f)); };
  if (*type == "Sequence") {
    auto steps = ArrayField(o, "normalizers", "normalizer Sequence");
    if (!steps.ok()) return steps.error();
    for (const auto& step : **steps) {
      if (auto s = Parse(step, out); !s.ok()) return s;
    }
  } else if (*type == "NFC") {
    form(NormalForm::kNfc);
  } else if (*type == "NFD") {
    form(NormalForm::kNfd);
  } else if (*type == "NFKC") {
    form(NormalForm::kNfkc);
  } else if (*type == "NFKD") {
    form(NormalForm::kNfkd);
  } else if (*type == "Lowercase") {
    out->push_back(std::make_unique<Lowercase>());
  } else if (*type == "StripAccents") {
    out->push_back(std::make_unique<StripAccents>());
  } else if (*type == "Nmt") {
    out->push_back(std::make_unique<Nmt>());
  } else if (*type == "ByteLevel") {
    out->push_back(std::make_unique<ByteStandIns>());
  } else if (*type == "Strip") {
    auto left = base::JsonBool(o, "strip_left", true);
    if (!left.ok()) return left.error().In("normalizer Strip");
    auto right = base::JsonBool(o, "strip_right", true);
    if (!right.ok()) return right.error().In("normalizer Strip");
    out->push_back(std::make_unique<Strip>(*left, *right));
  } else if (*type == "Prepend") {
    auto prefix = base::JsonString(o, "prepend", "");
    if (!prefix.ok()) return prefix.error().In("normalizer Prepend");
    out->push_back(MakePrepend(*prefix));
  } else if (*type == "Replace") {
    return ParseReplace(o, out);
  } else if (*type == "BertNormalizer") {
    return ParseBert(o, out);
  } else if (*type == "Precompiled") {
    auto text = base::JsonString(o, "precompiled_charsmap", "");
    if (!text.ok()) return text.error().In("normalizer Precompiled");
    const std::optional<std::string> blob = base::DecodeBase64(*text);
    if (!blob) return Corrupt("precompiled_charsmap is not base64");
    if (blob->empty()) return {};
    auto map = MakeCharsMap(*blob, false);
    if (!map.ok()) return map.error();
    out->push_back(std::move(*map));
  } else {
    return Unsupported(fmt::format("normalizer \"{}\" is not implemented", base::Printable(*type)));
  }
  return {};
}

}  // namespace

base::Result<std::string_view> Normalize(const Normalizers& normalizers, std::string_view text,
                                         std::string* storage) {
  bool copied = false;
  std::string_view current = text;
  for (const auto& n : normalizers) {
    if (n->Leaves(current)) continue;
    if (!copied) storage->assign(text);
    copied = true;
    if (auto s = n->Apply(storage); !s.ok()) return s.error();
    current = *storage;
    if (current.size() > kMaxBytes && current.size() > text.size()) return TooLong();
  }
  return current;
}

std::unique_ptr<Normalizer> MakeNfc() { return std::make_unique<Form>(NormalForm::kNfc); }
std::unique_ptr<Normalizer> MakeReplaceLiteral(std::string from, std::string to) {
  return std::make_unique<ReplaceLiteral>(std::move(from), std::move(to));
}
std::unique_ptr<Normalizer> MakePrepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> MakeSqueezeSpaces() { return std::make_unique<SqueezeSpaces>(); }
std::unique_ptr<Normalizer> MakeBert(const BertOptions& options) {
  return std::make_unique<Bert>(options);
}

base::Result<Normalizers> ParseNormalizer(const boost::json::value& json) {
  Normalizers out;
  if (json.is_null()) return out;
  if (auto s = Parse(json, &out); !s.ok()) return s.error();
  return out;
}

}  // namespace vllm::text
