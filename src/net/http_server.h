// An HTTP/1.1 server with bounded memory: Boost.Beast with coroutines on a few threads.
//
// The handler gets each complete request on one of the server's threads and answers through the
// Exchange, now or later, from any thread: once (Send), or as server-sent events (StartEvents,
// Event..., EndEvents). The server owns framing, keep-alive, limits, timeouts, TLS, CORS and
// the pace of slow readers; it knows nothing of what is served.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace net {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name that resolves to one
  uint16_t port = 8000;            // 0: any free one (see port())
  int threads = 1;
  std::string tls_key_file, tls_certificate_file;  // both or none; PEM
  std::vector<std::string> allowed_origins = {"*"};
  std::vector<std::string> allowed_methods = {"*"}, allowed_headers = {"*"};
  bool allow_credentials = false;  // then the asking origin is named, never "*"

  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 64 << 20;
  size_t max_connections = 4096;  // more are refused with 503
  size_t max_buffered_bytes =
      8 << 20;                  // of one stream that its reader does not take: then it is dropped
  double header_seconds = 10;   // from the first byte of a request to the end of its header
  double body_seconds = 60;     // and to the end of its body
  double idle_seconds = 75;     // of a kept connection between requests, or before the first
  double write_seconds = 60;    // without the reader taking a byte
  double comment_seconds = 15;  // a stream that is silent so long gets a comment line
};

struct HttpRequest {
  std::string method, path;  // path: without the query, percent-decoded
  std::string query;         // as sent
  std::map<std::string, std::string>
      headers;       // names in lower case; repeated ones joined with ", "
  std::string body;  // chunked transfer decoded
  std::string peer;  // "127.0.0.1:51234"
};

// One request's answer. All methods are thread-safe and never block; calls after the end, or after
// the client left, do nothing. The last reference may be dropped without an answer: then a 500 is
// sent.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;

  virtual void Send(int status, std::string_view content_type, std::string body,
                    std::vector<std::pair<std::string, std::string>> headers = {}) = 0;

  // "200 text/event-stream". Each Event becomes one "data: ...\n\n"; `data` must not hold a
  // newline.
  virtual void StartEvents(std::vector<std::pair<std::string, std::string>> headers = {}) = 0;
  virtual void Event(std::string_view data) = 0;
  // Several events in one write: `frames` is already framed.
  virtual void Frames(std::string frames) = 0;
  virtual void EndEvents() = 0;

  // Called once, on a server thread, when the client left (or was dropped for not reading) before
  // the answer was complete. A client that only closes its sending side has not left. Set it before
  // the first long wait; when the client is already gone it is called at once.
  virtual void OnGone(std::function<void()> callback) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

class HttpServer {
 public:
  // Binds and listens. Errors: kUnavailable (address in use, not ours), kInvalidArgument (TLS
  // files). `error_body` makes the body (JSON) of errors that the server itself gives: 400
  // malformed, 408, 413, 431, 500, 503.
  using ErrorBody = std::function<std::string(int status, std::string_view sentence)>;
  static base::Result<std::unique_ptr<HttpServer>> Listen(const ServerOptions& options,
                                                          Handler handler, ErrorBody error_body);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  virtual void Start() = 0;  // serves on threads of its own
  // Takes no new connections; answers under way go on, kept connections close after theirs. Returns
  // when all are closed or `seconds` have passed; then closes the rest.
  virtual void Stop(double seconds) = 0;
  virtual int64_t connections() const = 0;
};

}  // namespace net
