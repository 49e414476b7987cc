// Unicode text as Python's str sees it: code points, case, character classes. Strings are valid
// UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vllm::text::jinja {

bool ValidUtf8(std::string_view s);
bool IsAscii(std::string_view s);
// The code point at byte `i`, which is moved past it.
char32_t NextChar(std::string_view s, size_t& i);
// The byte where the code point that ends before byte `i` begins. REQUIRES: i > 0.
size_t PreviousChar(std::string_view s, size_t i);
void AppendUtf8(char32_t c, std::string& out);
int64_t CountChars(std::string_view s);
// The byte offset of code point `n`, or the size where there are fewer.
size_t ByteOffset(std::string_view s, int64_t n, bool ascii);

bool IsSpace(char32_t c);      // str.isspace
bool IsPrintable(char32_t c);  // str.isprintable
bool IsAlpha(char32_t c);
bool IsDigit(char32_t c);
bool IsDecimal(char32_t c);
bool IsNumeric(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsCased(char32_t c);

std::string Upper(std::string_view s);
std::string Lower(std::string_view s);
std::string Title(std::string_view s);       // str.title
std::string Capitalize(std::string_view s);  // first upper, others lower

}  // namespace vllm::text::jinja
