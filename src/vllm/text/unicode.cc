#include "vllm/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace vllm::text {

uint8_t NonAsciiClass(uint32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpace;
    default:
      return c == 0x85 ? kOther | kSpace : kOther;
  }
}

bool IsNonspacingMark(uint32_t c) {
  return c >= 0x300 && utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
}

bool IsWordChar(uint32_t c) {
  if (c < 128) return (kAsciiClass[c] & (kLetter | kNumber)) || c == '_';
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (NonAsciiClass(c) & (kLetter | kMark)) return true;
  // Other_Alphabetic beyond letters and marks: circled and squared Latin letters.
  const bool other_alphabetic = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || other_alphabetic;
}

bool IsCjkIdeograph(uint32_t c) {
  // The published range starts at 2B820; the widely used implementation has 2B920, and its ids are
  // the reference.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

std::vector<uint32_t> ToCodePoints(std::string_view valid) {
  std::vector<uint32_t> out;
  out.reserve(valid.size());
  for (size_t i = 0; i < valid.size();) {
    uint32_t c;
    i += DecodeValid(valid.data() + i, &c);
    out.push_back(c);
  }
  return out;
}

bool IsAscii(std::string_view s) {
  uint64_t any = 0;
  size_t i = 0;
  for (; i + 8 <= s.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, s.data() + i, 8);
    any |= word;
  }
  for (; i < s.size(); ++i) any |= static_cast<uint64_t>(static_cast<uint8_t>(s[i])) << 56;
  return (any & 0x8080808080808080ull) == 0;
}

size_t ValidPrefix(std::string_view s, size_t* bad, bool* incomplete) {
  *bad = 0;
  *incomplete = false;
  size_t i = 0;
  const size_t n = s.size();
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(s[k]); };
  while (i < n) {
    if (i + 8 <= n) {  // eight ASCII bytes at once
      uint64_t word;
      std::memcpy(&word, s.data() + i, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        i += 8;
        continue;
      }
    }
    const uint8_t lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // Bounds of the second byte exclude overlong forms, surrogates and values over 10FFFF.
    int length = 0;
    uint8_t low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      *bad = 1;
      return i;
    }
    for (int k = 1; k < length; ++k) {
      if (i + k >= n) {
        *bad = k;
        *incomplete = true;
        return i;
      }
      if (byte(i + k) < low || byte(i + k) > high) {
        *bad = k;
        return i;
      }
      low = 0x80;
      high = 0xBF;
    }
    i += length;
  }
  return i;
}

void AppendLossy(std::string_view s, std::string* out) {
  while (!s.empty()) {
    size_t bad;
    bool incomplete;
    const size_t good = ValidPrefix(s, &bad, &incomplete);
    out->append(s.substr(0, good));
    if (bad > 0) out->append("\xEF\xBF\xBD");
    s.remove_prefix(good + bad);
  }
}

void AppendLower(uint32_t c, std::string* out) {
  if (c == 0x130) {  // the one character whose lower case has two
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool QuickCheck(NormalForm form, std::string_view s) {
  if (IsAscii(s)) return true;
  if (form != NormalForm::kNfc) return false;
  // Below U+0300 there's no combining mark and nothing that NFC changes; CJK ideographs of the main
  // block and kana without voiced marks neither compose nor decompose.
  for (size_t i = 0; i < s.size();) {
    uint32_t c;
    i += DecodeValid(s.data() + i, &c);
    const bool stable = c < 0x300 || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x2010 && c <= 0x2027) ||
                        (c >= 0x3000 && c <= 0x3020) || (c >= 0x3041 && c <= 0x3096) ||
                        (c >= 0x30A0 && c <= 0x30FF) || (c >= 0x400 && c <= 0x482) ||
                        (c >= 0xFF00 && c <= 0xFFEF) || (c >= 0x1F300 && c <= 0x1FAFF);
    if (!stable) return false;
  }
  return true;
}

std::string Normalized(NormalForm form, std::string_view s) {
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const int options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(s.size() + 1);
  for (size_t i = 0; i < s.size();) {
    uint32_t c;
    i += DecodeValid(s.data() + i, &c);
    if (c < 0x80) {
      chars.push_back(static_cast<utf8proc_int32_t>(c));
      continue;
    }
    utf8proc_int32_t parts[32];  // the longest decomposition, U+FDFA's, has 18 characters
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                                           static_cast<utf8proc_option_t>(options), nullptr);
    if (n <= 0 || n > 32) {
      chars.push_back(static_cast<utf8proc_int32_t>(c));
    } else {
      chars.insert(chars.end(), parts, parts + n);
    }
  }
  // Canonical order. utf8proc's own pass is quadratic in the length of a run of marks, which a text
  // may choose.
  const auto combining = [](utf8proc_int32_t c) {
    return c < 0x300 ? 0 : static_cast<int>(utf8proc_get_property(c)->combining_class);
  };
  for (size_t i = 0; i < chars.size();) {
    if (combining(chars[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < chars.size() && combining(chars[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(chars.begin() + static_cast<ptrdiff_t>(i),
                       chars.begin() + static_cast<ptrdiff_t>(end),
                       [&](auto a, auto b) { return combining(a) < combining(b); });
    }
    i = end;
  }
  size_t n = chars.size();
  if (compose) {
    const auto composed = utf8proc_normalize_utf32(
        chars.data(), static_cast<utf8proc_ssize_t>(n),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (composed >= 0) n = static_cast<size_t>(composed);
  }
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < n; ++i) AppendUtf8(static_cast<uint32_t>(chars[i]), &out);
  return out;
}

// The printable Latin-1 bytes stand for themselves; the 68 others, in order, are 256, 257, ...
uint32_t ByteToStandIn(uint8_t byte) {
  if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE) return byte;
  if (byte <= 0x20) return 256u + byte;
  if (byte <= 0xA0) return 256u + 33 + (byte - 0x7F);
  return 256u + 67;  // 0xAD
}

int StandInToByte(uint32_t c) {
  if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF))
    return static_cast<int>(c);
  if (c < 256 || c > 256 + 67) return -1;
  const int k = static_cast<int>(c) - 256;
  return k <= 32 ? k : k < 67 ? 0x7F + k - 33 : 0xAD;
}

bool StandInsToBytes(std::string_view token, std::string* bytes) {
  bytes->clear();
  if (!IsValidUtf8(token)) return false;
  for (size_t i = 0; i < token.size();) {
    uint32_t c;
    i += DecodeValid(token.data() + i, &c);
    const int byte = StandInToByte(c);
    if (byte < 0) return false;
    bytes->push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace vllm::text
