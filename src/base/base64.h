// Standard base64 (RFC 4648), with its padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace base {

void AppendBase64(std::string_view bytes, std::string& out);
// Nothing where the text is malformed.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace base
