#include "net/request.h"

#include <algorithm>

#include "base/strings.h"

namespace net {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Empty when malformed: a path begins with a slash, or is the "*" of OPTIONS.
std::string DecodedPath(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      const int high = i + 1 < path.size() ? HexDigit(path[i + 1]) : -1;
      const int low = i + 2 < path.size() ? HexDigit(path[i + 2]) : -1;
      if (high < 0 || low < 0 || (high == 0 && low == 0)) return "";
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    out += c;
  }
  return out;
}

}  // namespace

std::string LowerCase(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

const std::string& HeaderOf(const HttpRequest& request, const std::string& name) {
  static const std::string kNone;
  const auto it = request.headers.find(name);
  return it == request.headers.end() ? kNone : it->second;
}

void SetTarget(HttpRequest& request, std::string_view target) {
  // Sent to proxies, and legal here too: "http://host/path".
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (LowerCase(target.substr(0, scheme.size())) != scheme) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
    break;
  }
  const size_t query = target.find('?');
  if (query != std::string_view::npos) request.query = std::string(target.substr(query + 1));
  request.path = query == 0 ? "/" : DecodedPath(target.substr(0, query));
  if (!base::StartsWith(request.path, "/") && !(request.path == "*" && request.method == "OPTIONS"))
    request.path.clear();
}

void AddHeader(HttpRequest& request, std::string_view name, std::string_view value) {
  const auto [it, fresh] = request.headers.try_emplace(LowerCase(name), value);
  if (!fresh) it->second.append(", ").append(value);
}

std::optional<std::pair<int, std::string>> FaultOf(const HttpRequest& request, bool http_1_0,
                                                   size_t hosts) {
  if (request.path.empty()) return {{400, "The request's target is no path of this server."}};
  if (!http_1_0 && hosts != 1) return {{400, "The request needs exactly one Host header."}};
  // A body whose end two servers see at different places is how requests are smuggled.
  const auto encoding = request.headers.find("transfer-encoding");
  if (encoding != request.headers.end()) {
    if (LowerCase(encoding->second) != "chunked")
      return {{501, "Transfer-Encoding may only be chunked."}};
    if (http_1_0) return {{400, "Transfer-Encoding is not part of HTTP/1.0."}};
  }
  const auto expect = request.headers.find("expect");
  if (expect != request.headers.end() && LowerCase(expect->second) != "100-continue")
    return {{417, "Expect may only be 100-continue."}};
  return std::nullopt;
}

}  // namespace net
