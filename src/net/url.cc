#include <algorithm>
#include <charconv>

#include "base/strings.h"
#include "net/http_client.h"
#include "net/request.h"

namespace net {

using base::Code;
using base::Error;

base::Result<Url> ParseUrl(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no URL to fetch: {}", base::Printable(text), why)};
  };
  Url url;
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos) return wrong("it must begin with http:// or https://");
  url.scheme = LowerCase(text.substr(0, colon));
  if (url.scheme != "http" && url.scheme != "https")
    return wrong("it must begin with http:// or https://");
  std::string_view rest = text.substr(colon + 3);
  rest = rest.substr(0, rest.find('#'));
  const size_t path = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, path);
  url.path = std::string(rest.substr(path));
  if (!base::StartsWith(url.path, "/")) url.path.insert(0, "/");
  for (const char c : url.path) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return wrong("spaces and control characters must be written as %XX");
  }
  if (authority.find('@') != std::string_view::npos) return wrong("it must not hold a password");
  std::string_view port;
  if (base::StartsWith(authority, "[")) {  // an IPv6 address
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong("the address lacks its closing bracket");
    url.host = LowerCase(authority.substr(1, close - 1));
    port = authority.substr(close + 1);
  } else {
    const size_t at = std::min(authority.find(':'), authority.size());
    url.host = LowerCase(authority.substr(0, at));
    port = authority.substr(at);
  }
  const bool plain = std::all_of(url.host.begin(), url.host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_' ||
           c == ':' || c == '%';
  });
  if (url.host.empty() || !plain) return wrong("the host is missing or malformed");
  url.port = url.scheme == "https" ? 443 : 80;
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto [stop, ec] = std::from_chars(port.data() + 1, end, url.port);
    if (port[0] != ':' || ec != std::errc() || stop != end || url.port == 0)
      return wrong("the port must be a number from 1 to 65535");
  }
  return url;
}

base::Result<Url> Resolve(const Url& page, std::string_view location) {
  if (location.find("://") != std::string_view::npos &&
      location.find("://") < location.find_first_of("/?#")) {
    return ParseUrl(location);
  }
  const std::string host =
      page.host.find(':') == std::string::npos ? page.host : "[" + page.host + "]";
  if (base::StartsWith(location, "//")) return ParseUrl(page.scheme + ":" + std::string(location));
  const std::string place = fmt::format("{}://{}:{}", page.scheme, host, page.port);
  if (base::StartsWith(location, "/")) return ParseUrl(place + std::string(location));
  // Beside the page that redirects.
  const std::string path = page.path.substr(0, page.path.find('?'));
  return ParseUrl(place + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

}  // namespace net
