// An HTTP/1.1 client, blocking, with TLS: for the model hub and for measuring servers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace net {

struct Url {
  std::string scheme, host,
      path;           // "https", "example.org", "/a?b=c" (with the query; at least "/")
  uint16_t port = 0;  // the scheme's own where none is written
};
base::Result<Url> ParseUrl(std::string_view text);  // http and https alone
// A Location, which may be relative to the page that names it.
base::Result<Url> Resolve(const Url& page, std::string_view location);

struct ClientOptions {
  double connect_seconds = 10;
  double read_seconds = 60;          // without a byte; 0: for ever
  int max_redirects = 5;             // 0: a redirect is an answer; https never goes on to http
  std::string ca_file;               // further trusted certificates (PEM), for tests
  size_t max_body_bytes = 64 << 20;  // when the body is kept
};

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // empty when on_body took it
};

// A connection is kept and used again for the same host. Not thread-safe: one a thread.
class HttpClient {
 public:
  explicit HttpClient(ClientOptions options = {});
  ~HttpClient();

  // `on_headers` (optional) sees the answer before its body, not those of redirects that are
  // followed, and returns false to break off (kCancelled); `on_body` gets the body in pieces as
  // they come and returns false to break off (kCancelled). Credentials in `headers` (authorization)
  // are not sent on to another host after a redirect. Errors: kUnavailable (no connection, broken
  // off: the sentence says after how many bytes), kInvalidArgument (URL, certificate file),
  // kResourceExhausted (a body over max_body_bytes).
  base::Result<ClientResponse> Send(
      std::string_view method, const std::string& url,
      const std::vector<std::pair<std::string, std::string>>& headers = {},
      std::string_view body = {}, const std::function<bool(const ClientResponse&)>& on_headers = {},
      const std::function<bool(std::string_view)>& on_body = {});

 private:
  struct Impl;
  ClientOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace net
