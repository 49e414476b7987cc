#include "net/cors.h"

#include <algorithm>

#include "net/request.h"

namespace net {
namespace {

bool Has(const std::vector<std::string>& list, std::string_view entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

std::string Joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& entry : list) out += (out.empty() ? "" : ", ") + entry;
  return out;
}

}  // namespace

bool OriginAllowed(const ServerOptions& options, const std::string& origin) {
  return Has(options.allowed_origins, "*") || Has(options.allowed_origins, origin);
}

HeaderList CorsHeaders(const ServerOptions& options, const std::string& origin) {
  if (options.allowed_origins.empty()) return {};
  // With credentials browsers refuse "*", so the origin that asks is named instead.
  if (Has(options.allowed_origins, "*") && !options.allow_credentials)
    return {{"Access-Control-Allow-Origin", "*"}};
  HeaderList out = {{"Vary", "Origin"}};  // on all answers, or a cache would mix up origins
  if (origin.empty() || !OriginAllowed(options, origin)) return out;
  out.emplace_back("Access-Control-Allow-Origin", origin);
  if (options.allow_credentials) out.emplace_back("Access-Control-Allow-Credentials", "true");
  return out;
}

bool IsPreflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.headers.contains("origin");
}

HeaderList PreflightHeaders(const ServerOptions& options, const HttpRequest& request) {
  HeaderList out;
  std::string methods = Joined(options.allowed_methods);
  if (Has(options.allowed_methods, "*")) {
    // "*" itself means nothing in an answer with credentials.
    methods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    const std::string asked = HeaderOf(request, "access-control-request-method");
    if (!asked.empty() && methods.find(asked) == std::string::npos) methods += ", " + asked;
  }
  out.emplace_back("Access-Control-Allow-Methods", methods);
  std::string headers = Joined(options.allowed_headers);
  if (Has(options.allowed_headers, "*"))
    headers = HeaderOf(request, "access-control-request-headers");
  if (!headers.empty()) out.emplace_back("Access-Control-Allow-Headers", headers);
  out.emplace_back("Access-Control-Max-Age", "600");
  return out;
}

}  // namespace net
