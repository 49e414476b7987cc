// UTF-8 and the Unicode properties that tokenizers ask for. Everything here is pure and
// thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::text {

// Bits of a character's class. A character has at most one of kLetter, kNumber, kMark,
// kPunctuation, kSymbol.
enum CharClass : uint8_t {
  kLetter = 1,       // \p{L}
  kNumber = 2,       // \p{N}: Nd, Nl and No
  kMark = 4,         // \p{M}
  kPunctuation = 8,  // \p{P}
  kSymbol = 16,      // \p{S}
  kSpace = 32,       // White_Space
  kNewline = 64,     // \r \n
  kOther = 128,      // \p{C}
};

constexpr std::array<uint8_t, 128> MakeAsciiClasses() {
  std::array<uint8_t, 128> t{};
  for (int c = 0; c < 128; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      t[c] = kLetter;
    } else if (c >= '0' && c <= '9') {
      t[c] = kNumber;
    } else if (c == ' ') {
      t[c] = kSpace;
    } else if (c == '\r' || c == '\n') {
      t[c] = kSpace | kNewline | kOther;
    } else if (c >= 9 && c <= 13) {
      t[c] = kSpace | kOther;
    } else if (c < 32 || c == 127) {
      t[c] = kOther;
    } else if (c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' ||
               c == '|' || c == '~') {
      t[c] = kSymbol;
    } else {
      t[c] = kPunctuation;
    }
  }
  return t;
}
inline constexpr std::array<uint8_t, 128> kAsciiClass = MakeAsciiClasses();

uint8_t NonAsciiClass(uint32_t c);
inline uint8_t ClassOf(uint32_t c) { return c < 128 ? kAsciiClass[c] : NonAsciiClass(c); }
inline bool IsSpace(uint32_t c) { return ClassOf(c) & kSpace; }
bool IsNonspacingMark(uint32_t c);  // Mn
bool IsWordChar(uint32_t c);        // \w: alphabetic, mark, decimal digit, connector punctuation
bool IsCjkIdeograph(uint32_t c);    // the ranges that BERT cuts into single characters

// Number of bytes of the character that starts with `lead`; 1 for a byte that starts none.
inline int Utf8Length(uint8_t lead) {
  return lead < 0x80 ? 1 : lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// REQUIRES: valid UTF-8 at p. Returns the character's length.
inline int DecodeValid(const char* p, uint32_t* c) {
  const auto b = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  if (b(0) < 0x80) {
    *c = b(0);
    return 1;
  }
  if (b(0) < 0xE0) {
    *c = (b(0) & 0x1F) << 6 | (b(1) & 0x3F);
    return 2;
  }
  if (b(0) < 0xF0) {
    *c = (b(0) & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F);
    return 3;
  }
  *c = (b(0) & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F);
  return 4;
}

void AppendUtf8(uint32_t c, std::string* out);
std::vector<uint32_t> ToCodePoints(std::string_view valid);

bool IsAscii(std::string_view s);

// Length of the longest valid prefix of `s`; `*bad` is the length of the invalid sequence behind it
// (a maximal subpart, as the Unicode standard recommends to replace), 0 when all is valid. With
// `*incomplete` set, the bad sequence could still become a character if more bytes followed.
size_t ValidPrefix(std::string_view s, size_t* bad, bool* incomplete);
inline bool IsValidUtf8(std::string_view s) {
  size_t bad;
  bool incomplete;
  return ValidPrefix(s, &bad, &incomplete) == s.size();
}
// Appends `s` with U+FFFD for each invalid sequence.
void AppendLossy(std::string_view s, std::string* out);

// Appends the lower-case form, character by character (no final-sigma rule, as tokenizers do it).
void AppendLower(uint32_t c, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// True when a cheap test shows that `s` is in the form already.
bool QuickCheck(NormalForm form, std::string_view s);
// REQUIRES: valid UTF-8. Linear but for the sorting of runs of combining marks.
std::string Normalized(NormalForm form, std::string_view s);

// GPT-2's printable stand-ins for bytes: byte -> code point and back (-1: not one).
uint32_t ByteToStandIn(uint8_t byte);
int StandInToByte(uint32_t c);
// "Ġhi" -> " hi"; false when a character is no stand-in.
bool StandInsToBytes(std::string_view token, std::string* bytes);

}  // namespace vllm::text
