#include "vllm/server/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace vllm::server {

void AppendJsonEscaped(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
    out.append(text, start, i - start);
    start = i + 1;
    out += '\\';
    switch (c) {
      case '"':
      case '\\':
        out += static_cast<char>(c);
        break;
      case '\n':
        out += 'n';
        break;
      case '\r':
        out += 'r';
        break;
      case '\t':
        out += 't';
        break;
      default:
        out += "u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, start, text.size() - start);
}

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  AppendJsonEscaped(text, out);
  out += '"';
}

void AppendInt(int64_t value, std::string& out) {
  std::array<char, 24> buffer;
  const auto r = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out.append(buffer.data(), r.ptr);
}

void AppendFloat(float value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "-9999.0";
    return;
  }
  std::array<char, 32> buffer;
  const auto r = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  const std::string_view text(buffer.data(), static_cast<size_t>(r.ptr - buffer.data()));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace vllm::server
