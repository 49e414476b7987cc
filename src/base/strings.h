// Formatting (fmt) and the few string helpers that everything shares.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace base {

// "1.5 GiB", "98 MiB", "512 B".
std::string HumanBytes(uint64_t bytes);

// Without spaces, tabs and line ends at both ends.
std::string_view Trimmed(std::string_view text);

std::vector<std::string> Split(std::string_view text, char separator);

inline bool StartsWith(std::string_view s, std::string_view p) {
  return s.substr(0, p.size()) == p;
}
inline bool EndsWith(std::string_view s, std::string_view p) {
  return s.size() >= p.size() && s.substr(s.size() - p.size()) == p;
}

// Untrusted bytes for an error message: at most 80 characters, control and non-ASCII bytes as \xNN.
std::string Printable(std::string_view bytes);

}  // namespace base
