// Loading the vocabulary of a GGUF file.
#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "vllm/text/bpe.h"
#include "vllm/text/gguf_pre.h"
#include "vllm/text/spm.h"
#include "vllm/text/tokenizer_parts.h"
#include "vllm/text/unicode.h"
#include "vllm/text/unigram.h"
#include "vllm/text/wordpiece.h"

namespace vllm::text {
namespace {

constexpr std::string_view kMark = "\u2581";

base::Error Corrupt(std::string message) { return {base::Code::kCorrupt, std::move(message)}; }

DecoderStep Step(DecoderStep::Kind kind, std::string_view from = "", std::string_view to = "") {
  DecoderStep s;
  s.kind = kind;
  s.from = from;
  s.to = to;
  return s;
}

class Loader {
 public:
  Loader(const GgufVocab& vocab, TokenizerParts* parts) : v_(vocab), p_(*parts) {}
  base::Status Load();

 private:
  base::Status LoadTokens();
  base::Status LoadSpecialIds();
  base::Status LoadBpe(const GgufPre& pre);
  base::Status LoadSpm();
  base::Status LoadBert();
  base::Status LoadT5();
  base::Status LoadAddedTokens();
  base::Result<std::vector<float>> Scores() const;
  // Ids by default where the file gives none; out of range means none.
  void Default(std::optional<int32_t>* id, int32_t value) const {
    if (!*id && value < p_.vocab.size()) *id = value;
  }
  base::Status Around(bool bos, bool eos);
  int32_t Type(int32_t id) const {
    return v_.token_types.empty() ? GgufVocab::kNormal : v_.token_types[static_cast<size_t>(id)];
  }

  const GgufVocab& v_;
  TokenizerParts& p_;
  std::vector<uint8_t> control_;  // ids that plain text never becomes
  std::optional<int32_t> sep_, cls_;
};

base::Status Loader::LoadTokens() {
  const size_t n = v_.tokens.size();
  if (n == 0) return Corrupt("tokenizer.ggml.tokens is empty");
  if (!v_.token_types.empty() && v_.token_types.size() != n) {
    return Corrupt(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens",
                               v_.token_types.size(), n));
  }
  if (!v_.scores.empty() && v_.scores.size() != n) {
    return Corrupt(
        fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", v_.scores.size(), n));
  }
  size_t bytes = 0;
  for (const auto t : v_.tokens) bytes += t.size();
  p_.vocab.Reserve(n, bytes);
  control_.assign(n, 0);
  p_.special.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string empty =
        fmt::format("[EMPTY_{}]", i);  // never matches text, but the id must have a name
    if (auto s = p_.vocab.Add(v_.tokens[i].empty() ? std::string_view(empty) : v_.tokens[i], id);
        !s.ok()) {
      return s.error().In("tokenizer.ggml.tokens");
    }
    const int32_t type = Type(id);
    control_[i] =
        type == GgufVocab::kControl || type == GgufVocab::kUnknown || v_.tokens[i].empty();
    p_.special[i] = type == GgufVocab::kControl || type == GgufVocab::kUnknown;
  }
  return {};
}

base::Status Loader::LoadSpecialIds() {
  struct Named {
    const std::optional<int32_t>* from;
    std::optional<int32_t>* to;
    const char* key;
  };
  for (const Named& n :
       {Named{&v_.bos_id, &p_.bos, "bos_token_id"}, Named{&v_.eos_id, &p_.eos, "eos_token_id"},
        Named{&v_.unk_id, &p_.unk, "unknown_token_id"},
        Named{&v_.pad_id, &p_.pad, "padding_token_id"},
        Named{&v_.sep_id, &sep_, "seperator_token_id"}, Named{&v_.cls_id, &cls_, "cls_token_id"}}) {
    if (!*n.from) continue;
    if (**n.from < 0 || **n.from >= p_.vocab.size()) {
      return Corrupt(fmt::format("tokenizer.ggml.{} is {}, outside the {} tokens", n.key, **n.from,
                                 p_.vocab.size()));
    }
    *n.to = **n.from;
  }
  return {};
}

base::Status Loader::LoadAddedTokens() {
  for (int32_t id = 0; id < p_.vocab.size(); ++id) {
    const int32_t type = Type(id);
    if (type != GgufVocab::kControl && type != GgufVocab::kUserDefined &&
        type != GgufVocab::kUnknown)
      continue;
    if (v_.tokens[static_cast<size_t>(id)].empty()) continue;
    AddedToken t;
    t.content = v_.tokens[static_cast<size_t>(id)];
    t.id = id;
    t.special = type != GgufVocab::kUserDefined;
    if (t.content.size() > AddedTokens::kMaxBytes)
      continue;  // some files mark long junk as unused control tokens
    if (auto s = p_.AddToken(t); !s.ok()) return s.error().In("tokenizer.ggml.tokens");
  }
  return {};
}

base::Status Loader::Around(bool bos, bool eos) {
  if (bos) {
    if (!p_.bos)
      return Corrupt("tokenizer.ggml.add_bos_token is set, but there is no bos_token_id");
    p_.prefix.push_back(*p_.bos);
  }
  if (eos) {
    if (!p_.eos)
      return Corrupt("tokenizer.ggml.add_eos_token is set, but there is no eos_token_id");
    p_.suffix.push_back(*p_.eos);
  }
  return {};
}

base::Result<std::vector<float>> Loader::Scores() const {
  if (v_.scores.empty())
    return Corrupt("tokenizer.ggml.scores is missing; this kind of vocabulary needs it");
  return v_.scores;
}

base::Status Loader::LoadBpe(const GgufPre& pre) {
  BpeSpec spec;
  spec.vocab = &p_.vocab;
  spec.byte_level = pre.byte_level;
  spec.byte_fallback = !pre.byte_level;
  spec.cut_safely = !pre.byte_level;
  spec.ignore_merges = pre.ignore_merges;
  spec.whole_newlines = pre.whole_newlines;
  spec.lenient = true;
  spec.control = &control_;
  spec.unk_id = p_.unk.value_or(-1);
  if (v_.merges.empty())
    return Corrupt("tokenizer.ggml.merges is missing; this kind of vocabulary needs it");
  spec.merges.reserve(v_.merges.size());
  for (size_t i = 0; i < v_.merges.size(); ++i) {
    const std::string_view m = v_.merges[i];
    const size_t space = m.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == m.size()) {
      return Corrupt(
          fmt::format("tokenizer.ggml.merges[{}], \"{}\", is not two texts with a space between", i,
                      base::Printable(m)));
    }
    spec.merges.emplace_back(m.substr(0, space), m.substr(space + 1));
  }
  auto model = BpeModel::Create(spec);
  if (!model.ok()) return model.error().In("tokenizer.ggml.merges");
  p_.model = std::move(*model);
  if (pre.nfc) p_.normalizers.push_back(MakeNfc());
  using Kind = DecoderStep::Kind;
  if (pre.byte_level) {
    if (v_.add_space_prefix.value_or(false)) p_.normalizers.push_back(MakePrepend(" "));
    p_.decoder = {Step(Kind::kByteLevel)};
  } else {
    p_.normalizers.push_back(MakeReplaceLiteral(" ", std::string(kMark)));
    p_.decoder = {Step(Kind::kReplace, kMark, " "), Step(Kind::kByteFallback), Step(Kind::kFuse)};
  }
  for (const std::string_view pattern : pre.patterns) {
    auto split = MakeSplit(pattern, false, SplitBehavior::kIsolated, false);
    if (!split.ok()) return split.error();
    p_.pre_tokenizers.push_back(std::move(*split));
  }
  const bool bos = v_.add_bos.value_or(pre.add_bos) || (pre.whole_newlines && p_.bos);
  if (pre.add_sep && v_.add_sep.value_or(true) && p_.bos && sep_) {
    p_.prefix.push_back(*p_.bos);
    p_.suffix.push_back(*sep_);
    return {};
  }
  return Around(bos, v_.add_eos.value_or(false));
}

base::Status Loader::LoadSpm() {
  Default(&p_.bos, 1);
  Default(&p_.eos, 2);
  Default(&p_.unk, 0);
  auto scores = Scores();
  if (!scores.ok()) return scores.error();
  auto model = SpmModel::Create(p_.vocab, *scores, control_, p_.unk.value_or(-1));
  if (!model.ok()) return model.error();
  p_.model = std::move(*model);
  const bool prefix = v_.add_space_prefix.value_or(true);
  if (prefix) p_.normalizers.push_back(MakePrepend(" "));
  p_.normalizers.push_back(MakeReplaceLiteral(" ", std::string(kMark)));
  using Kind = DecoderStep::Kind;
  p_.decoder = {Step(Kind::kReplace, kMark, " "), Step(Kind::kByteFallback), Step(Kind::kFuse)};
  if (prefix) {
    DecoderStep strip = Step(Kind::kStrip, " ");
    strip.start = 1;
    p_.decoder.push_back(strip);
  }
  return Around(v_.add_bos.value_or(true), v_.add_eos.value_or(false));
}

base::Status Loader::LoadBert() {
  Default(&p_.unk, 100);
  Default(&p_.pad, 0);
  if (!sep_ && 102 < p_.vocab.size()) sep_ = 102;
  if (!cls_) cls_ = p_.bos;
  if (!cls_ && 101 < p_.vocab.size()) cls_ = 101;
  WordPieceSpec spec;
  spec.vocab = &p_.vocab;
  spec.word_prefix = kMark;
  spec.max_characters = 0;
  spec.unk_id = p_.unk.value_or(-1);
  spec.control = &control_;
  auto model = WordPieceModel::Create(spec);
  if (!model.ok()) return model.error();
  p_.model = std::move(*model);
  BertOptions bert;
  bert.lowercase = v_.lowercase.value_or(true);
  bert.strip_accents = v_.strip_accents.value_or(bert.lowercase);
  p_.normalizers.push_back(MakeBert(bert));
  p_.pre_tokenizers.push_back(MakeBertSplit());
  using Kind = DecoderStep::Kind;
  DecoderStep strip = Step(Kind::kStrip, " ");
  strip.start = 1;
  p_.decoder = {Step(Kind::kReplace, kMark, " "), Step(Kind::kFuse), strip};
  if (!cls_ || !sep_) return Corrupt("this vocabulary needs cls_token_id and seperator_token_id");
  p_.prefix = {*cls_};
  p_.suffix = {*sep_};
  return {};
}

base::Status Loader::LoadT5() {
  Default(&p_.eos, 1);
  Default(&p_.unk, 2);
  Default(&p_.pad, 0);
  auto scores = Scores();
  if (!scores.ok()) return scores.error();
  UnigramSpec spec;
  spec.vocab = &p_.vocab;
  spec.unk_id = p_.unk.value_or(-1);
  spec.lowest_score = std::numeric_limits<double>::infinity();
  for (int32_t id = 0; id < p_.vocab.size(); ++id) {
    const int32_t type = Type(id);
    if (type == GgufVocab::kNormal)
      spec.lowest_score = std::min<double>(spec.lowest_score, (*scores)[id]);
    spec.usable.push_back(type == GgufVocab::kNormal || type == GgufVocab::kUserDefined ||
                          type == GgufVocab::kUnused);
    spec.scores.push_back(type == GgufVocab::kUserDefined ? 0.0 : (*scores)[id]);
  }
  if (spec.lowest_score == std::numeric_limits<double>::infinity())
    return Corrupt("no token is of the normal type");
  auto model = UnigramModel::Create(std::move(spec));
  if (!model.ok()) return model.error();
  p_.model = std::move(*model);
  if (!v_.precompiled_charsmap.empty()) {
    auto map = MakeCharsMap(v_.precompiled_charsmap, true);
    if (!map.ok()) return map.error();
    p_.normalizers.push_back(std::move(*map));
  }
  const bool prefix = v_.add_space_prefix.value_or(true);
  if (v_.remove_extra_whitespaces) p_.normalizers.push_back(MakeSqueezeSpaces());
  if (prefix) p_.normalizers.push_back(MakePrepend(" "));
  p_.normalizers.push_back(MakeReplaceLiteral(" ", std::string(kMark)));
  DecoderStep meta = Step(DecoderStep::Kind::kMetaspace, kMark);
  meta.flag = prefix;
  p_.decoder = {meta};
  return Around(v_.add_bos.value_or(false), v_.add_eos.value_or(true));
}

base::Status Loader::Load() {
  if (v_.treat_whitespace_as_suffix) {
    return {base::Error{base::Code::kUnsupported, "treat_whitespace_as_suffix is not implemented"}};
  }
  if (auto s = LoadTokens(); !s.ok()) return s;
  if (auto s = LoadSpecialIds(); !s.ok()) return s;
  base::Status status;
  if (v_.model == "gpt2" || v_.model == "gemma4") {
    GgufPre pre;
    const std::string_view name =
        v_.model == "gemma4" ? std::string_view("gemma4") : std::string_view(v_.pre);
    if (!FindGgufPre(name, &pre)) {
      return base::Error{
          base::Code::kUnsupported,
          fmt::format("tokenizer.ggml.pre \"{}\" is not implemented", base::Printable(name))};
    }
    status = LoadBpe(pre);
  } else if (v_.model == "llama") {
    status = LoadSpm();
  } else if (v_.model == "bert") {
    status = LoadBert();
  } else if (v_.model == "t5") {
    status = LoadT5();
  } else {
    return base::Error{
        base::Code::kUnsupported,
        fmt::format("tokenizer.ggml.model \"{}\" is not implemented", base::Printable(v_.model))};
  }
  if (!status.ok()) return status;
  return LoadAddedTokens();
}

}  // namespace

base::Result<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufVocab& vocab) {
  auto parts = std::make_unique<TokenizerParts>();
  Loader loader(vocab, parts.get());
  if (auto s = loader.Load(); !s.ok()) return s.error();
  return TokenizerParts::Wrap(std::move(parts));
}

}  // namespace vllm::text
