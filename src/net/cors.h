// What pages of other origins may do with this server, in header lines.
#pragma once

#include <string>

#include "net/answer.h"
#include "net/http_server.h"

namespace net {

// Headers of every answer. `origin`: the request's, or empty.
HeaderList CorsHeaders(const ServerOptions& options, const std::string& origin);

// Is it a browser asking first? Such a request carries no key and is answered by the server.
bool IsPreflight(const HttpRequest& request);

// Headers of its answer, beside CorsHeaders: 204 when the origin may ask, else 403.
bool OriginAllowed(const ServerOptions& options, const std::string& origin);
HeaderList PreflightHeaders(const ServerOptions& options, const HttpRequest& request);

}  // namespace net
