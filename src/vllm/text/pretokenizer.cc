#include "vllm/text/pretokenizer.h"

#include <algorithm>
#include <optional>

#include "base/strings.h"
#include "vllm/text/regex.h"
#include "vllm/text/scanners.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

struct Piece {
  Span span;
  bool match;
};

// Appends the words that `behavior` makes of matches and gaps, in place of one word.
void Arrange(const std::vector<Piece>& pieces, SplitBehavior behavior, std::vector<Span>* out) {
  const size_t first = out->size();
  const auto push = [out](Span s) {
    if (s.size() > 0) out->push_back(s);
  };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Piece& p : pieces) push(p.span);
      return;
    case SplitBehavior::kRemoved:
      for (const Piece& p : pieces) {
        if (!p.match) push(p.span);
      }
      return;
    case SplitBehavior::kContiguous:
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (i > 0 && pieces[i].match == pieces[i - 1].match) {
          out->back().end = pieces[i].span.end;
        } else {
          out->push_back(pieces[i].span);
        }
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (pieces[i].match && i > 0 && !pieces[i - 1].match) {
          out->back().end = pieces[i].span.end;
        } else {
          out->push_back(pieces[i].span);
        }
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (!pieces[i].match && i > 0 && pieces[i - 1].match) {
          out->back().end = pieces[i].span.end;
        } else {
          out->push_back(pieces[i].span);
        }
      }
      break;
  }
  out->erase(std::remove_if(out->begin() + static_cast<ptrdiff_t>(first), out->end(),
                            [](Span s) { return s.size() == 0; }),
             out->end());
}

class ScanSplit : public PreTokenizer {
 public:
  explicit ScanSplit(Scan scan) : scan_(scan) {}
  base::Status Apply(PreTokens* t) const override {
    t->spare.clear();
    for (const Span w : t->words) RunScan(scan_, t->text, w, &t->spare);
    t->words.swap(t->spare);
    return {};
  }

 private:
  Scan scan_;
};

// Cuts every word at what `Find` finds; subclasses say what that is.
class MatchSplit : public PreTokenizer {
 public:
  MatchSplit(SplitBehavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}

 protected:
  // `find(word, from, &match)` gives the next match at or after `from`, offsets within the word.
  template <typename Find>
  base::Status Cut(PreTokens* t, Find find) const {
    t->spare.clear();
    std::vector<Piece> pieces;
    for (const Span w : t->words) {
      const std::string_view word = t->text.substr(w.begin, w.size());
      pieces.clear();
      size_t done = 0;
      const auto add = [&](size_t begin, size_t end, bool match) {
        pieces.push_back(
            {{w.begin + static_cast<uint32_t>(begin), w.begin + static_cast<uint32_t>(end)},
             match != invert_});
      };
      for (size_t from = 0; from <= word.size();) {
        std::pair<size_t, size_t> m;
        base::Result<bool> found = find(word, from, &m);
        if (!found.ok()) return found.error();
        if (!*found) break;
        const bool empty = m.first == m.second;
        if (!(empty && m.first == done &&
              done > 0)) {  // an empty match right behind a match doesn't count
          if (done < m.first) add(done, m.first, false);
          add(m.first, m.second, true);
          done = m.second;
        }
        from = m.second;
        if (empty) from += from < word.size() ? Utf8Length(static_cast<uint8_t>(word[from])) : 1;
      }
      if (done < word.size()) add(done, word.size(), false);
      Arrange(pieces, behavior_, &t->spare);
    }
    t->words.swap(t->spare);
    return {};
  }

 private:
  SplitBehavior behavior_;
  bool invert_;
};

class RegexSplit : public MatchSplit {
 public:
  RegexSplit(std::unique_ptr<Regex> regex, SplitBehavior behavior, bool invert)
      : MatchSplit(behavior, invert), regex_(std::move(regex)) {}
  base::Status Apply(PreTokens* t) const override {
    if (t->words.empty()) return {};
    Regex::Matcher matcher(*regex_);
    return Cut(t, [&](std::string_view word, size_t from, auto* m) {
      return matcher.Find(word, from, m);
    });
  }

 private:
  std::unique_ptr<Regex> regex_;
};

class LiteralSplit : public MatchSplit {
 public:
  LiteralSplit(std::string literal, SplitBehavior behavior, bool invert)
      : MatchSplit(behavior, invert), literal_(std::move(literal)) {}
  base::Status Apply(PreTokens* t) const override {
    return Cut(t,
               [this](std::string_view word, size_t from,
                      std::pair<size_t, size_t>* m) -> base::Result<bool> {
                 const size_t at = word.find(literal_, from);
                 *m = {at, at + literal_.size()};
                 return at != std::string_view::npos;
               });
  }

 private:
  std::string literal_;
};

using Predicate = bool (*)(uint32_t);

// Each character that the predicate accepts is a match.
class CharSplit : public MatchSplit {
 public:
  CharSplit(Predicate in, SplitBehavior behavior) : MatchSplit(behavior, false), in_(in) {}
  base::Status Apply(PreTokens* t) const override {
    return Cut(t,
               [this](std::string_view word, size_t from,
                      std::pair<size_t, size_t>* m) -> base::Result<bool> {
                 while (from < word.size()) {
                   uint32_t c;
                   const size_t length = static_cast<size_t>(DecodeValid(word.data() + from, &c));
                   if (in_(c)) {
                     *m = {from, from + length};
                     return true;
                   }
                   from += length;
                 }
                 return false;
               });
  }

 private:
  Predicate in_;
};

bool IsDigit(uint32_t c) { return ClassOf(c) & kNumber; }
bool IsPunctuation(uint32_t c) {
  return (ClassOf(c) & kPunctuation) || (c < 128 && (kAsciiClass[c] & kSymbol));
}
bool IsWhite(uint32_t c) { return IsSpace(c); }

// \w+|[^\w\s]+, the rest dropped.
class WordSplit : public PreTokenizer {
 public:
  base::Status Apply(PreTokens* t) const override {
    t->spare.clear();
    for (const Span w : t->words) {
      int previous = 0;
      for (uint32_t i = w.begin; i < w.end;) {
        uint32_t c;
        const auto length = static_cast<uint32_t>(DecodeValid(t->text.data() + i, &c));
        const int kind = IsWordChar(c) ? 1 : IsSpace(c) ? 0 : 2;
        if (kind != 0) {
          if (kind == previous) {
            t->spare.back().end = i + length;
          } else {
            t->spare.push_back({i, i + length});
          }
        }
        previous = kind;
        i += length;
      }
    }
    t->words.swap(t->spare);
    return {};
  }
};

// Writes each word anew through `write(word, index, &text)`.
template <typename Write>
void Rewrite(PreTokens* t, Write write) {
  std::string text;
  text.reserve(t->text.size() + t->text.size() / 4 + 16);
  bool first = true;
  for (Span& w : t->words) {
    const auto begin = static_cast<uint32_t>(text.size());
    write(t->text.substr(w.begin, w.size()), first && t->at_start && w.begin == 0, &text);
    w = {begin, static_cast<uint32_t>(text.size())};
    first = false;
  }
  t->storage = std::move(text);
  t->text = t->storage;
}

class PrefixWords : public PreTokenizer {
 public:
  PrefixWords(std::string prefix, bool only_at_start)
      : prefix_(std::move(prefix)), only_at_start_(only_at_start) {}
  base::Status Apply(PreTokens* t) const override {
    Rewrite(t, [this](std::string_view word, bool at_start, std::string* out) {
      if ((at_start || !only_at_start_) && !base::StartsWith(word, prefix_)) out->append(prefix_);
      out->append(word);
    });
    return {};
  }

 private:
  std::string prefix_;
  bool only_at_start_;
};

class ByteStandIns : public PreTokenizer {
 public:
  base::Status Apply(PreTokens* t) const override {
    Rewrite(t, [](std::string_view word, bool, std::string* out) {
      for (const char c : word) AppendUtf8(ByteToStandIn(static_cast<uint8_t>(c)), out);
    });
    return {};
  }
};

class SpaceToMark : public PreTokenizer {
 public:
  explicit SpaceToMark(std::string mark) : mark_(std::move(mark)) {}
  base::Status Apply(PreTokens* t) const override {
    Rewrite(t, [this](std::string_view word, bool, std::string* out) {
      for (const char c : word) {
        if (c == ' ') {
          out->append(mark_);
        } else {
          out->push_back(c);
        }
      }
    });
    return {};
  }

 private:
  std::string mark_;
};

class Chain : public PreTokenizer {
 public:
  explicit Chain(PreTokenizers steps) : steps_(std::move(steps)) {}
  base::Status Apply(PreTokens* t) const override {
    for (const auto& s : steps_) {
      if (auto r = s->Apply(t); !r.ok()) return r;
    }
    return {};
  }

 private:
  PreTokenizers steps_;
};

}  // namespace

base::Result<std::unique_ptr<PreTokenizer>> MakeSplit(std::string_view pattern, bool literal,
                                                      SplitBehavior behavior, bool invert) {
  if (literal) {
    if (pattern.empty())
      return base::Error{base::Code::kUnsupported, "a Split by an empty string means nothing"};
    return std::unique_ptr<PreTokenizer>(new LiteralSplit(std::string(pattern), behavior, invert));
  }
  if (behavior == SplitBehavior::kIsolated) {
    if (const auto scan = RecognisePattern(pattern))
      return std::unique_ptr<PreTokenizer>(new ScanSplit(*scan));
  }
  auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return regex.error();
  return std::unique_ptr<PreTokenizer>(new RegexSplit(std::move(*regex), behavior, invert));
}

std::unique_ptr<PreTokenizer> MakeByteStandIns() { return std::make_unique<ByteStandIns>(); }

std::unique_ptr<PreTokenizer> MakePrefix(std::string prefix, bool only_at_start) {
  return std::make_unique<PrefixWords>(std::move(prefix), only_at_start);
}

std::unique_ptr<PreTokenizer> MakeBertSplit() {
  PreTokenizers steps;
  steps.push_back(std::make_unique<CharSplit>(IsWhite, SplitBehavior::kRemoved));
  steps.push_back(std::make_unique<CharSplit>(IsPunctuation, SplitBehavior::kIsolated));
  return std::make_unique<Chain>(std::move(steps));
}

std::unique_ptr<PreTokenizer> MakeCharSplit(CharSet set, SplitBehavior behavior) {
  const Predicate in = set == CharSet::kDigits        ? IsDigit
                       : set == CharSet::kPunctuation ? IsPunctuation
                                                      : IsWhite;
  return std::make_unique<CharSplit>(in, behavior);
}

std::unique_ptr<PreTokenizer> MakeWordSplit() { return std::make_unique<WordSplit>(); }

std::unique_ptr<PreTokenizer> MakeSpaceToMark(std::string mark) {
  return std::make_unique<SpaceToMark>(std::move(mark));
}

}  // namespace vllm::text
