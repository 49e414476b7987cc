#include "vllm/text/jinja_text.h"

#include <utf8proc.h>

namespace vllm::text::jinja {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Full case mapping exists for a handful of characters; the one that text meets is the sharp s.
void AppendUpper(char32_t c, std::string& out) {
  if (c == 0xDF) {
    out += "SS";
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string& out) {
  if (c == 0xDF) {
    out += "Ss";
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendLower(char32_t c, std::string& out) {
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// A capital sigma at the end of a word becomes the final form.
void AppendLowerInWord(std::string_view s, size_t begin, size_t end, char32_t c, std::string& out) {
  if (c == 0x3A3 && begin > 0) {
    size_t before = PreviousChar(s, begin);
    const bool follows = IsCased(NextChar(s, before));
    size_t after = end;
    const bool precedes = end < s.size() && IsCased(NextChar(s, after));
    if (follows && !precedes) {
      AppendUtf8(0x3C2, out);
      return;
    }
  }
  AppendLower(c, out);
}

}  // namespace

bool ValidUtf8(std::string_view s) {
  const auto* p = reinterpret_cast<const utf8proc_uint8_t*>(s.data());
  size_t i = 0;
  while (i < s.size()) {
    if (p[i] < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t c;
    const utf8proc_ssize_t n =
        utf8proc_iterate(p + i, static_cast<utf8proc_ssize_t>(s.size() - i), &c);
    if (n <= 0) return false;
    i += static_cast<size_t>(n);
  }
  return true;
}

bool IsAscii(std::string_view s) {
  unsigned char all = 0;
  for (const char c : s) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

char32_t NextChar(std::string_view s, size_t& i) {
  const auto c = static_cast<unsigned char>(s[i++]);
  if (c < 0x80) return c;
  const int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
  char32_t value = c & (0x3F >> more);
  for (int k = 0; k < more && i < s.size(); ++k)
    value = value << 6 | (static_cast<unsigned char>(s[i++]) & 0x3F);
  return value;
}

size_t PreviousChar(std::string_view s, size_t i) {
  --i;
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80) --i;
  return i;
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;  // a lone surrogate has no UTF-8 form
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

int64_t CountChars(std::string_view s) {
  int64_t n = 0;
  for (const char c : s) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

size_t ByteOffset(std::string_view s, int64_t n, bool ascii) {
  if (ascii) return n >= static_cast<int64_t>(s.size()) ? s.size() : static_cast<size_t>(n);
  size_t i = 0;
  for (; n > 0 && i < s.size(); --n) NextChar(s, i);
  return i;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const utf8proc_category_t k = Category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(char32_t c) {
  // Superscripts and circled digits are digits without being decimals.
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t k = Category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool IsUpper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return Category(c) == UTF8PROC_CATEGORY_LU;
}

bool IsLower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || Category(c) == UTF8PROC_CATEGORY_LT; }

std::string Upper(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) AppendUpper(NextChar(s, i), out);
  return out;
}

std::string Lower(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s, i);
    AppendLowerInWord(s, begin, i, c, out);
  }
  return out;
}

std::string Title(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  bool inside = false;
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s, i);
    if (inside) {
      AppendLowerInWord(s, begin, i, c, out);
    } else {
      AppendTitle(c, out);
    }
    inside = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view s) {
  if (s.empty()) return {};
  size_t i = 0;
  std::string out;
  AppendTitle(NextChar(s, i), out);
  while (i < s.size()) {
    const size_t begin = i;
    const char32_t c = NextChar(s, i);
    AppendLowerInWord(s, begin, i, c, out);
  }
  return out;
}

}  // namespace vllm::text::jinja
