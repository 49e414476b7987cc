#include "vllm/text/bpe.h"

#include <algorithm>

#include "base/strings.h"
#include "vllm/text/bpe_merge.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Texts of merges that aren't tokens get ids behind the vocabulary's.
class SymbolNames {
 public:
  explicit SymbolNames(const Vocab& vocab) : vocab_(vocab), next_(vocab.size()) {}
  int32_t Find(std::string_view text) const {
    const int32_t id = vocab_.Find(text);
    return id >= 0 ? id : extra_.Find(text);
  }
  base::Result<int32_t> FindOrAdd(std::string_view text) {
    if (const int32_t id = Find(text); id >= 0) return id;
    if (auto s = extra_.Add(text, next_); !s.ok()) return s.error();
    return next_++;
  }

 private:
  const Vocab& vocab_;
  Vocab extra_;
  int32_t next_;
};

}  // namespace

base::Result<std::unique_ptr<BpeModel>> BpeModel::Create(const BpeSpec& spec) {
  std::unique_ptr<BpeModel> m(new BpeModel);
  m->byte_level_ = spec.byte_level;
  m->fuse_unk_ = spec.fuse_unk;
  m->byte_fallback_ = spec.byte_fallback;
  m->ignore_merges_ = spec.ignore_merges;
  m->whole_newlines_ = spec.whole_newlines;
  m->by_id_ = spec.by_id;
  m->unk_id_ = spec.unk_id;
  m->prefix_ = spec.prefix;
  m->suffix_ = spec.suffix;
  m->vocab_size_ = spec.vocab->size();
  const bool affixed = !spec.prefix.empty() || !spec.suffix.empty();
  if (spec.ignore_merges || spec.whole_newlines || spec.by_id || affixed) {
    m->words_ = std::make_unique<Vocab>();
    std::string bytes;
    for (int32_t id = 0; id < spec.vocab->size(); ++id) {
      if (!spec.vocab->Has(id) || (spec.control != nullptr && (*spec.control)[id])) continue;
      if (!spec.byte_level) {
        bytes = spec.vocab->Text(id);
      } else if (!StandInsToBytes(spec.vocab->Text(id), &bytes)) {
        continue;
      }
      if (auto s = m->words_->Add(bytes, id); !s.ok()) return s.error();
      m->longest_ = std::max(m->longest_, static_cast<uint32_t>(bytes.size()));
    }
  }
  m->LoadCharacters(spec);
  if (auto s = m->LoadMerges(spec); !s.ok()) return s.error();
  // Unknown tokens fused across a cut would come out as two.
  bool all_bytes = spec.byte_fallback;
  for (const int32_t id : m->byte_ids_) all_bytes = all_bytes && id >= 0;
  if (spec.cut_safely && !spec.byte_level && !affixed && !spec.ignore_merges &&
      (all_bytes || !spec.fuse_unk)) {
    auto cuts = std::make_unique<SafeCuts>();
    bool valid = true;
    std::string joined;
    for (const auto& [left, right] : spec.merges) {
      joined.assign(left).append(right);
      valid = valid && IsValidUtf8(joined);
      if (valid) cuts->AddToken(joined);
    }
    if (valid) m->cuts_ = std::move(cuts);
  }
  return m;
}

void BpeModel::LoadCharacters(const BpeSpec& spec) {
  byte_ids_.fill(-1);
  ascii_ids_.fill(-1);
  const Vocab& vocab = *spec.vocab;
  for (int b = 0; b < 256; ++b) {
    std::string name;
    if (byte_level_) {
      AppendUtf8(ByteToStandIn(static_cast<uint8_t>(b)), &name);
    } else if (byte_fallback_) {
      name = fmt::format("<0x{:02X}>", b);
    } else {
      continue;
    }
    // A special token of tiktoken's may be called like a byte.
    byte_ids_[b] = by_id_ ? words_->Find(std::string(1, static_cast<char>(b))) : vocab.Find(name);
  }
  if (byte_level_) return;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const std::string_view t = vocab.Text(id);
    if (t.empty() || t.size() > 4 ||
        Utf8Length(static_cast<uint8_t>(t[0])) != static_cast<int>(t.size()))
      continue;
    if (!IsValidUtf8(t) || vocab.Find(t) != id) continue;
    uint32_t c;
    DecodeValid(t.data(), &c);
    if (c < 128) {
      ascii_ids_[c] = id;
    } else {
      char_ids_.Insert(c, static_cast<uint64_t>(id));
    }
  }
}

base::Status BpeModel::LoadMerges(const BpeSpec& spec) {
  merges_.Reserve(spec.merges.size());
  SymbolNames names(*spec.vocab);
  std::string joined;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    // Not a structured binding: older compilers refuse to capture one.
    const std::string_view left = spec.merges[rank].first, right = spec.merges[rank].second;
    const auto missing = [&](std::string_view what) {
      return base::Error{
          base::Code::kCorrupt,
          fmt::format("merge {} (\"{}\" \"{}\") needs \"{}\", which is no token", rank,
                      base::Printable(left), base::Printable(right), base::Printable(what))};
    };
    joined.assign(left);
    joined.append(base::StartsWith(right, prefix_) ? right.substr(prefix_.size()) : right);
    int32_t ids[3];
    const std::string_view texts[3] = {left, right, joined};
    for (int i = 0; i < 3; ++i) {
      ids[i] = names.Find(texts[i]);
      if (ids[i] >= 0) continue;
      if (!spec.lenient) return missing(texts[i]);
      auto added = names.FindOrAdd(texts[i]);
      if (!added.ok()) return added.error();
      ids[i] = *added;
    }
    if (spec.control != nullptr && ids[2] < vocab_size_ && (*spec.control)[ids[2]]) continue;
    // GGUF keeps the first of equal merges, tokenizer.json the last.
    if (spec.lenient && merges_.Find(PairKey(ids[0], ids[1])) != nullptr) continue;
    if (!merges_.Insert(PairKey(ids[0], ids[1]),
                        uint64_t{rank} << 32 | static_cast<uint32_t>(ids[2]))) {
      return base::Error{base::Code::kCorrupt,
                         "the merges are made to collide; the file is refused"};
    }
  }
  // Lenient: a single byte or character that is no token may still be part of a merge.
  if (spec.lenient && byte_level_) {
    for (int b = 0; b < 256; ++b) {
      std::string name;
      AppendUtf8(ByteToStandIn(static_cast<uint8_t>(b)), &name);
      if (byte_ids_[b] < 0) byte_ids_[b] = names.Find(name);
    }
  }
  return {};
}

base::Status BpeModel::Unknown(std::string_view text, uint32_t begin, uint32_t end,
                               std::vector<Symbol>* symbols) const {
  if (byte_fallback_ && !byte_level_) {
    bool all = true;
    for (uint32_t i = begin; i < end; ++i)
      all = all && byte_ids_[static_cast<uint8_t>(text[i])] >= 0;
    if (all) {
      for (uint32_t i = begin; i < end; ++i) {
        symbols->push_back({byte_ids_[static_cast<uint8_t>(text[i])], i, i + 1, -1, -1});
      }
      return {};
    }
  }
  if (unk_id_ < 0) {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("this tokenizer has no token for \"{}\" and no unknown token",
                                   base::Printable(text.substr(begin, end - begin)))};
  }
  if (fuse_unk_ && !symbols->empty() && symbols->back().id == unk_id_) {
    symbols->back().end = end;
  } else {
    symbols->push_back({unk_id_, begin, end, -1, -1});
  }
  return {};
}

base::Status BpeModel::Split(std::string_view text, Span word, std::vector<Symbol>* symbols) const {
  symbols->clear();
  if (!prefix_.empty() || !suffix_.empty()) return SplitAffixed(text, word, symbols);
  if (byte_level_) {
    for (uint32_t i = word.begin; i < word.end; ++i) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(text[i])];
      if (id >= 0) {
        symbols->push_back({id, i, i + 1, -1, -1});
      } else if (auto s = Unknown(text, i, i + 1, symbols); !s.ok()) {
        return s;
      }
    }
    return {};
  }
  for (uint32_t i = word.begin; i < word.end;) {
    uint32_t c;
    const uint32_t end = i + static_cast<uint32_t>(DecodeValid(text.data() + i, &c));
    int32_t id = -1;
    if (c < 128) {
      id = ascii_ids_[c];
    } else if (const uint64_t* found = char_ids_.Find(c)) {
      id = static_cast<int32_t>(*found);
    }
    if (id >= 0) {
      symbols->push_back({id, i, end, -1, -1});
    } else if (auto s = Unknown(text, i, end, symbols); !s.ok()) {
      return s;
    }
    i = end;
  }
  return {};
}

// Every character but the first carries the prefix ("##"), the last one the suffix ("</w>").
base::Status BpeModel::SplitAffixed(std::string_view text, Span word,
                                    std::vector<Symbol>* symbols) const {
  std::string name;
  for (uint32_t i = word.begin; i < word.end;) {
    const uint32_t end = i + static_cast<uint32_t>(Utf8Length(static_cast<uint8_t>(text[i])));
    name.clear();
    if (i > word.begin) name = prefix_;
    name.append(text.substr(i, end - i));
    if (end == word.end) name.append(suffix_);
    const int32_t id = words_->Find(name);
    if (id >= 0) {
      symbols->push_back({id, i, end, -1, -1});
    } else if (auto s = Unknown(text, i, end, symbols); !s.ok()) {
      return s;
    }
    i = end;
  }
  return {};
}

base::Status BpeModel::EncodeWord(std::string_view text, Span word, Scratch* scratch) const {
  scratch->ids.clear();
  if (ignore_merges_ || (whole_newlines_ && text[word.begin] == '\n')) {
    if (const int32_t id = words_->Find(text.substr(word.begin, word.size())); id >= 0) {
      scratch->ids.push_back(id);
      return {};
    }
  }
  if (auto s = Split(text, word, &scratch->symbols); !s.ok()) return s;
  if (by_id_) {
    MergeSymbols(&scratch->symbols, &scratch->heap,
                 [&](const Symbol& a, const Symbol& b, uint32_t* rank, int32_t* result) {
                   if (b.end - a.begin > longest_) return false;
                   *result = words_->Find(text.substr(a.begin, b.end - a.begin));
                   *rank = static_cast<uint32_t>(*result);
                   return *result >= 0;
                 });
  } else {
    MergeSymbols(&scratch->symbols, &scratch->heap,
                 [this](const Symbol& a, const Symbol& b, uint32_t* rank, int32_t* result) {
                   const uint64_t* found = merges_.Find(PairKey(a.id, b.id));
                   if (found == nullptr) return false;
                   *rank = static_cast<uint32_t>(*found >> 32);
                   *result = static_cast<int32_t>(*found & 0xFFFFFFFFu);
                   return true;
                 });
  }
  for (const Symbol& s : scratch->symbols) {
    if (s.id < vocab_size_) {
      scratch->ids.push_back(s.id);
      continue;
    }
    for (uint32_t i = s.begin; i < s.end;
         ++i) {  // merged into a text that is no token: back to its bytes
      const int32_t id = byte_ids_[static_cast<uint8_t>(text[i])];
      if (id >= 0 && id < vocab_size_) scratch->ids.push_back(id);
    }
  }
  return {};
}

base::Status BpeModel::EncodeRun(std::string_view text, std::span<const Span> words,
                                 Scratch* scratch, std::vector<int32_t>* out) const {
  constexpr size_t kBlock = 256;  // words between two looks at the room left in *out
  size_t n = out->size();
  for (size_t block = 0; block < words.size(); block += kBlock) {
    out->resize(n + (kBlock + 1) * WordCache::kMaxIds);
    for (const Span w : words.subspan(block, std::min(kBlock, words.size() - block))) {
      if (w.size() == 0) continue;
      WordCache::Key key{0, 0};
      const bool cached = w.size() <= WordCache::kMaxBytes;
      if (cached) {
        key = WordCache::MakeKey(text.data() + w.begin, w.size(), text.size() - w.begin);
        if (const auto* e = scratch->cache.Find(key)) {
          std::memcpy(out->data() + n, e->ids, sizeof e->ids);
          int used = 1;
          while (used < WordCache::kMaxIds && e->ids[used] >= 0) ++used;
          n += static_cast<size_t>(used);
          continue;
        }
      }
      if (auto s = EncodeWord(text, w, scratch); !s.ok()) return s;
      const auto& ids = scratch->ids;
      if (cached && !ids.empty() && ids.size() <= WordCache::kMaxIds) {
        scratch->cache.Insert(key, ids.data(), static_cast<int>(ids.size()));
      }
      if (out->size() < n + ids.size() + (kBlock + 1) * WordCache::kMaxIds) {
        out->resize(n + ids.size() + (kBlock + 1) * WordCache::kMaxIds);
      }
      std::copy(ids.begin(), ids.end(), out->begin() + static_cast<ptrdiff_t>(n));
      n += ids.size();
    }
    out->resize(n);
  }
  return {};
}

base::Status BpeModel::Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                              std::vector<int32_t>* out) const {
  if (cuts_ == nullptr) return EncodeRun(text, words, scratch, out);
  scratch->cuts.clear();
  for (const Span w : words) {
    if (whole_newlines_ && w.size() > 0 && text[w.begin] == '\n') {
      scratch->cuts.push_back(w);
    } else {
      cuts_->Cut(text, w, &scratch->cuts);
    }
  }
  return EncodeRun(text, scratch->cuts, scratch, out);
}

}  // namespace vllm::text
