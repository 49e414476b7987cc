#include "vllm/text/added_tokens.h"

#include <algorithm>

#include "base/strings.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

// The character in front of `at`. REQUIRES: at > 0.
uint32_t CharacterBefore(std::string_view text, size_t at, size_t* start) {
  *start = at - 1;
  while (*start > 0 && (static_cast<uint8_t>(text[*start]) & 0xC0) == 0x80) --*start;
  uint32_t c;
  DecodeValid(text.data() + *start, &c);
  return c;
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  size_t start;
  if (begin > 0 && IsWordChar(CharacterBefore(text, begin, &start))) return true;
  uint32_t c;
  if (end < text.size()) {
    DecodeValid(text.data() + end, &c);
    return IsWordChar(c);
  }
  return false;
}

bool Inside(const std::vector<Span>& ranges, size_t begin, size_t end) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                   [](size_t at, const Span& s) { return at < s.begin; });
  return it != ranges.begin() && end <= std::prev(it)->end;
}

}  // namespace

base::Status AddedTokens::Add(const AddedToken& token, std::string_view match) {
  if (match.empty()) return {};
  if (match.size() > kMaxBytes) {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("added token {} is longer than {} bytes", token.id, kMaxBytes)};
  }
  if (!trie_.Insert(match, static_cast<int32_t>(tokens_.size()))) {
    return base::Error{base::Code::kCorrupt,
                       "the added tokens are too many or made to collide; the file is refused"};
  }
  tokens_.push_back(token);
  first_[static_cast<uint8_t>(match[0])] = true;
  return {};
}

// The index of the longest token at `at` that counts there, or -1. *skip is how far to go on when
// none does.
int32_t AddedTokens::Match(std::string_view text, size_t at, const std::vector<Span>& ranges,
                           size_t* length, size_t* skip) const {
  int32_t best = -1;
  *skip = 1;
  int32_t node = Trie::kRoot;
  for (size_t i = at; i < text.size(); ++i) {
    node = trie_.Next(node, text[i]);
    if (node == Trie::kNone) break;
    const int32_t index = trie_.Value(node);
    if (index == Trie::kNone) continue;
    const size_t end = i + 1;
    if (tokens_[index].special && !Inside(ranges, at, end)) {
      // Text that merely looks like a control token isn't searched for tokens within it, unless a
      // range begins there.
      const bool apart = std::none_of(ranges.begin(), ranges.end(),
                                      [&](const Span& s) { return s.begin < end && s.end > at; });
      if (apart) *skip = end - at;
      continue;
    }
    best = index;
    *length = end - at;
  }
  return best;
}

void AddedTokens::Cut(std::string_view text, const std::vector<Span>& special_ranges,
                      std::vector<Section>* out) const {
  size_t done = 0;
  const auto push_text = [&](size_t end) {
    if (done < end) out->push_back({{static_cast<uint32_t>(done), static_cast<uint32_t>(end)}, -1});
  };
  for (size_t at = 0; at < text.size();) {
    if (!first_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    size_t length = 0, skip = 1;
    const int32_t index = Match(text, at, special_ranges, &length, &skip);
    if (index < 0) {
      at += skip;
      continue;
    }
    const AddedToken& t = tokens_[index];
    size_t begin = at;
    size_t end = at + length;
    at = end;
    if (t.single_word && TouchesWord(text, begin, end)) continue;
    if (t.lstrip) {
      size_t start;
      while (begin > done && IsSpace(CharacterBefore(text, begin, &start)))
        begin = std::max(start, done);
    }
    if (t.rstrip) {
      while (end < text.size()) {
        uint32_t c;
        const int n = DecodeValid(text.data() + end, &c);
        if (!IsSpace(c)) break;
        end += static_cast<size_t>(n);
      }
    }
    push_text(begin);
    out->push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, t.id});
    done = end;
    at = std::max(at, end);
  }
  push_text(text.size());
}

}  // namespace vllm::text
