#include "vllm/text/scanners.h"

#include <utility>

#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

// A position in text: bytes [at, end) are left.
struct Cursor {
  const char* at;
  const char* end;
  bool done() const { return at == end; }
};

inline uint8_t Peek(const char* p, int* length) {
  const auto b = static_cast<uint8_t>(*p);
  if (b < 0x80) {
    *length = 1;
    return kAsciiClass[b];
  }
  uint32_t c;
  *length = DecodeValid(p, &c);
  return NonAsciiClass(c);
}

// Skips characters that have one of `classes`, or, with kNot, none of them.
template <uint8_t kClasses, bool kNot = false>
inline const char* SkipRun(const char* p, const char* end) {
  while (p < end) {
    int length;
    const bool in = (Peek(p, &length) & kClasses) != 0;
    if (in == kNot) break;
    p += length;
  }
  return p;
}

inline const char* SkipNewlines(const char* p, const char* end) {
  while (p < end && (*p == '\r' || *p == '\n')) ++p;
  return p;
}

// 's 't 're 've 'm 'll 'd at p, which points to the apostrophe; null if none.
template <bool kAnyCase>
const char* Contraction(const char* p, const char* end) {
  if (end - p < 2) return nullptr;
  const auto lower = [](char c) {
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = lower(p[1]);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if (end - p < 3) return nullptr;
  const char b = lower(p[2]);
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
  // U+017F, long s, is an s to Unicode case folding.
  if (kAnyCase && static_cast<uint8_t>(p[1]) == 0xC5 && static_cast<uint8_t>(p[2]) == 0xBF)
    return p + 3;
  return nullptr;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ (kNewlines) or \s+(?!\S)|\s+ at white space p.
template <bool kNewlines>
const char* WhiteSpace(const char* p, const char* end) {
  const char* last = p;         // start of the run's last character
  const char* after = nullptr;  // behind the run's last newline
  const char* q = p;
  while (q < end) {
    int length;
    const uint8_t c = Peek(q, &length);
    if (!(c & kSpace)) break;
    last = q;
    q += length;
    if (kNewlines && (c & kNewline)) after = q;
  }
  if (kNewlines && after != nullptr) return after;
  if (q == end || last == p) return q;
  return last;
}

template <uint8_t kLetters, int kMaxDigits, bool kContractions>
const char* NextLlama(const char* p, const char* end) {
  int length;
  const uint8_t c = Peek(p, &length);
  if (c & kLetters) return SkipRun<kLetters>(p + length, end);
  if (c & kNumber) {
    p += length;
    for (int n = 1; (kMaxDigits == 0 || n < kMaxDigits) && p < end && (Peek(p, &length) & kNumber);
         ++n)
      p += length;
    return p;
  }
  if (kContractions && *p == '\'') {
    if (const char* q = Contraction<true>(p, end)) return q;
  }
  const char* next = p + length;
  int next_length = 0;
  const uint8_t n = next < end ? Peek(next, &next_length) : 0;
  if (!(c & kNewline) && (n & kLetters)) return SkipRun<kLetters>(next + next_length, end);
  constexpr uint8_t kWordish = kSpace | kLetters | kNumber;
  if (!(c & kSpace)) return SkipNewlines(SkipRun<kWordish, true>(next, end), end);
  if (*p == ' ' && next < end && !(n & kWordish))
    return SkipNewlines(SkipRun<kWordish, true>(next, end), end);
  return WhiteSpace<true>(p, end);
}

const char* NextGpt2(const char* p, const char* end) {
  if (*p == '\'') {
    if (const char* q = Contraction<false>(p, end)) return q;
  }
  int length;
  uint8_t c = Peek(p, &length);
  const char* q = p;
  if (*p == ' ' && p + 1 < end) {
    q = p + 1;
    c = Peek(q, &length);
  }
  if (c & kLetter) return SkipRun<kLetter>(q, end);
  if (c & kNumber) return SkipRun<kNumber>(q, end);
  if (!(c & kSpace)) return SkipRun<kSpace | kLetter | kNumber, true>(q, end);
  return WhiteSpace<false>(p, end);
}

inline bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// [!-/:-~ without letters and digits][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*| \s*[\r\n]+|\s+(?!\S)|\s+; null where nothing matches (digits, control
// characters).
const char* NextDeepSeek(const char* p, const char* end) {
  constexpr uint8_t kWord = kLetter | kMark;
  constexpr uint8_t kSigns = kPunctuation | kSymbol;
  int length;
  const uint8_t c = Peek(p, &length);
  const char* next = p + length;
  if (length == 1 && (c & kSigns) && next < end && IsAsciiLetter(*next)) {
    while (next < end && IsAsciiLetter(*next)) ++next;
    return next;
  }
  if (c & kWord) return SkipRun<kWord>(next, end);
  int next_length = 0;
  const uint8_t n = next < end ? Peek(next, &next_length) : 0;
  if (!(c & (kNewline | kSigns)) && (n & kWord)) return SkipRun<kWord>(next, end);
  if (c & kSigns) return SkipNewlines(SkipRun<kSigns>(next, end), end);
  if (*p == ' ' && (n & kSigns)) return SkipNewlines(SkipRun<kSigns>(next, end), end);
  if (c & kSpace) return WhiteSpace<true>(p, end);
  return nullptr;
}

template <typename Next>
void Split(std::string_view text, Span span, std::vector<Span>* out, Next next) {
  const char* base = text.data();
  const char* end = base + span.end;
  const char* gap = base + span.begin;  // start of what nothing has matched yet
  const auto offset = [base](const char* p) { return static_cast<uint32_t>(p - base); };
  for (const char* p = gap; p < end;) {
    const char* q = next(p, end);
    if (q == nullptr) {
      p += Utf8Length(static_cast<uint8_t>(*p));
      continue;
    }
    if (gap < p) out->push_back({offset(gap), offset(p)});
    out->push_back({offset(p), offset(q)});
    p = gap = q;
  }
  if (gap < end) out->push_back({offset(gap), span.end});
}

// Runs of at most `limit` (0: any) characters that `in` accepts, and what lies between.
template <typename In>
void SplitRuns(std::string_view text, Span span, std::vector<Span>* out, int limit, In in) {
  Split(text, span, out, [limit, in](const char* p, const char* end) -> const char* {
    const char* q = p;
    for (int n = 0; q < end && (limit == 0 || n < limit); ++n) {
      uint32_t c;
      const int length = DecodeValid(q, &c);
      if (!in(c)) break;
      q += length;
    }
    return q == p ? nullptr : q;
  });
}

bool IsNumber(uint32_t c) { return ClassOf(c) & kNumber; }

constexpr std::string_view kAnyCase = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|";
constexpr std::string_view kSpeltCase =
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|";

}  // namespace

std::optional<Scan> RecognisePattern(std::string_view p) {
  constexpr std::string_view kTail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string word(R"([^\r\n\p{L}\p{N}]?\p{L}+|)");
  const std::string gpt2(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))");
  const std::pair<std::string, Scan> plain[] = {
      {gpt2, Scan::kGpt2},  // a lone space is a gap then, which comes to the same
      {gpt2 + R"(|\s+)", Scan::kGpt2},
      {word + R"(\p{N})" + std::string(kTail), Scan::kPlainQwen2},
      {R"(\p{N})", Scan::kDigit},
      {R"(\p{N}{1})", Scan::kDigit},
      {R"(\p{N}{1,3})", Scan::kDigits3},
      {R"(\p{N}+)", Scan::kDigitRun},
      {"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", Scan::kCjkRun},
      {"[!\"#$%&'()*+,\\-./"
       ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
       "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
       Scan::kDeepSeek3},
  };
  for (const auto& [text, scan] : plain) {
    if (p == text) return scan;
  }
  if (p.starts_with(kAnyCase)) {
    p.remove_prefix(kAnyCase.size());
  } else if (p.starts_with(kSpeltCase)) {
    p.remove_prefix(kSpeltCase.size());
  } else {
    return std::nullopt;
  }
  const std::pair<std::string, Scan> behind_contractions[] = {
      {word + R"(\p{N}{1,3})" + std::string(kTail), Scan::kLlama3},
      {word + R"(\p{N})" + std::string(kTail), Scan::kQwen2},
      {word + R"(\p{N}+)" + std::string(kTail), Scan::kLongDigits},
      {R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       Scan::kQwen35},
  };
  for (const auto& [text, scan] : behind_contractions) {
    if (p == text) return scan;
  }
  return std::nullopt;
}

void RunScan(Scan scan, std::string_view text, Span span, std::vector<Span>* out) {
  switch (scan) {
    case Scan::kGpt2:
      return Split(text, span, out, NextGpt2);
    case Scan::kLlama3:
      return Split(text, span, out, NextLlama<kLetter, 3, true>);
    case Scan::kQwen2:
      return Split(text, span, out, NextLlama<kLetter, 1, true>);
    case Scan::kLongDigits:
      return Split(text, span, out, NextLlama<kLetter, 0, true>);
    case Scan::kQwen35:
      return Split(text, span, out, NextLlama<kLetter | kMark, 1, true>);
    case Scan::kPlainQwen2:
      return Split(text, span, out, NextLlama<kLetter, 1, false>);
    case Scan::kDeepSeek3:
      return Split(text, span, out, NextDeepSeek);
    case Scan::kDigit:
      return SplitRuns(text, span, out, 1, IsNumber);
    case Scan::kDigits3:
      return SplitRuns(text, span, out, 3, IsNumber);
    case Scan::kDigitRun:
      return SplitRuns(text, span, out, 0, IsNumber);
    case Scan::kCjkRun:
      return SplitRuns(text, span, out, 0, [](uint32_t c) {
        return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
      });
  }
}

}  // namespace vllm::text
