#include "net/http_client.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "base/os/file.h"
#include "base/strings.h"
#include "net/pieces_body.h"
#include "net/request.h"

namespace net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using base::Code;
using base::Error;
using boost::system::error_code;

// Of a redirect's or interim answer's body: more is not read, the connection is closed.
constexpr size_t kMaxDiscarded = 64 << 10;
constexpr size_t kReadSize = 64 << 10;

std::string Authority(const Url& url) {
  const std::string host =
      url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  const bool usual = url.port == (url.scheme == "https" ? 443 : 80);
  return usual ? host : fmt::format("{}:{}", host, url.port);
}

bool SamePlace(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}

// Where the certificates of well-known authorities are: OpenSSL's own folder is that of the
// distribution it was built on, and a program that holds OpenSSL may run on another one.
void TrustTheSystem(asio::ssl::context& tls) {
  error_code ec;
  tls.set_default_verify_paths(ec);
  if (std::getenv(X509_get_default_cert_file_env()) != nullptr ||
      std::getenv(X509_get_default_cert_dir_env()) != nullptr ||
      base::os::FileExists(X509_get_default_cert_file())) {
    return;
  }
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (!base::os::FileExists(file)) continue;
    tls.load_verify_file(file, ec);
    return;
  }
}

}  // namespace

struct HttpClient::Impl {
  using Plain = beast::tcp_stream;
  using Secure = asio::ssl::stream<beast::tcp_stream&>;

  asio::io_context context{1};
  std::unique_ptr<asio::ssl::context> tls;
  Url place;  // of the kept connection
  std::optional<Plain> plain;
  std::optional<Secure> secure;  // over `plain`
  beast::flat_buffer buffer;

  // What one exchange needs and leaves.
  struct Exchange {
    const ClientOptions& options;
    std::string_view method;
    const Url& url;
    const std::vector<std::pair<std::string, std::string>>& headers;
    bool with_credentials;
    std::string_view body;
    const std::function<bool(const ClientResponse&)>& on_headers;
    const std::function<bool(std::string_view)>& on_body;
    ClientResponse response;
    uint64_t received = 0;      // bytes of the body
    bool answer_began = false;  // a byte of the answer came
    bool redirected = false;    // the answer is a redirect that will be followed
  };

  void Drop() {
    secure.reset();
    plain.reset();
    buffer.clear();
  }

  void Limit(double seconds) {
    if (seconds > 0) {
      plain->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(seconds)));
    } else {
      plain->expires_never();
    }
  }

  base::Status LoadTls(const ClientOptions& options) {
    if (tls) return {};
    auto fresh = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
    SSL_CTX_set_min_proto_version(fresh->native_handle(), TLS1_2_VERSION);
    fresh->set_verify_mode(asio::ssl::verify_peer);
    TrustTheSystem(*fresh);
    if (!options.ca_file.empty()) {
      error_code ec;
      fresh->load_verify_file(options.ca_file, ec);
      if (ec) {
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: holds no readable PEM certificates ({})", options.ca_file,
                                 ec.message())};
      }
    }
    tls = std::move(fresh);
    return {};
  }

  // A kept connection that the server closed meanwhile is noticed before a request is lost on it.
  bool Usable(const Url& url) {
    if (!plain || !SamePlace(place, url) || buffer.size() > 0) return false;
    auto& socket = plain->socket();
    error_code ec;
    socket.non_blocking(true, ec);
    char byte = 0;
    socket.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, ec);
    // Over TLS a byte may also be a session ticket, so what counts is whether the end was seen.
    return ec == asio::error::would_block || (!ec && secure);
  }

  awaitable<base::Status> Connect(const Exchange& x) {
    Drop();
    const std::string name = Authority(x.url);
    error_code ec;
    const auto token = [&] { return asio::redirect_error(asio::use_awaitable, ec); };
    tcp::resolver resolver(context);
    const auto found =
        co_await resolver.async_resolve(x.url.host, std::to_string(x.url.port), token());
    if (ec) {
      co_return Error{Code::kUnavailable,
                      fmt::format("{}: the name cannot be resolved ({}): is there a network?", name,
                                  ec.message())};
    }
    plain.emplace(context);
    Limit(x.options.connect_seconds);
    co_await plain->async_connect(found, token());
    if (ec) {
      co_return Error{Code::kUnavailable,
                      fmt::format("{}: no connection ({})", name, Reason(ec, "connect"))};
    }
    plain->socket().set_option(tcp::no_delay(true), ec);
    place = x.url;
    if (x.url.scheme != "https") co_return base::Status();
    secure.emplace(*plain, *tls);
    error_code not_address;
    asio::ip::make_address(x.url.host, not_address);
    if (not_address) SSL_set_tlsext_host_name(secure->native_handle(), x.url.host.c_str());
    secure->set_verify_callback(asio::ssl::host_name_verification(x.url.host));
    co_await secure->async_handshake(asio::ssl::stream_base::client, token());
    if (!ec) co_return base::Status();
    const long verdict = SSL_get_verify_result(secure->native_handle());
    co_return Error{Code::kUnavailable,
                    verdict != X509_V_OK
                        ? fmt::format("{}: its certificate is not trusted ({}): is the package "
                                      "ca-certificates installed, and the clock right?",
                                      name, X509_verify_cert_error_string(verdict))
                        : fmt::format("{}: no TLS connection ({})", name, Reason(ec, "handshake"))};
  }

  static std::string Reason(const error_code& ec, std::string_view what) {
    if (ec == beast::error::timeout) return fmt::format("the {} took too long", what);
    if (ec == asio::error::eof || ec == http::error::end_of_stream ||
        ec == http::error::partial_message || ec == asio::ssl::error::stream_truncated)
      return "the server closed the connection";
    return ec.message();
  }

  static std::string RequestText(const Exchange& x) {
    std::string text =
        fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", x.method, x.url.path, Authority(x.url));
    bool agent = false, encoding = false;
    for (const auto& [name, value] : x.headers) {
      const std::string lower = LowerCase(name);
      if (!x.with_credentials && (lower == "authorization" || lower == "cookie")) continue;
      agent |= lower == "user-agent";
      encoding |= lower == "accept-encoding";
      text += fmt::format("{}: {}\r\n", name, value);
    }
    if (!agent) text += "User-Agent: vllm.cpp\r\n";
    if (!encoding) text += "Accept-Encoding: identity\r\n";
    if (!x.body.empty() || x.method == "POST" || x.method == "PUT")
      text += fmt::format("Content-Length: {}\r\n", x.body.size());
    text += "\r\n";
    return text.append(x.body);
  }

  template <typename Stream>
  awaitable<base::Status> Talk(Stream& stream, Exchange& x) {
    const std::string name = Authority(x.url);
    error_code ec;
    const auto token = [&] { return asio::redirect_error(asio::use_awaitable, ec); };
    const std::string text = RequestText(x);
    Limit(x.options.read_seconds);
    co_await asio::async_write(stream, asio::buffer(text), token());
    if (ec) {
      co_return Error{Code::kUnavailable,
                      fmt::format("{}: the connection broke while the request was sent ({})", name,
                                  Reason(ec, "sending"))};
    }
    bool too_long = false, cancelled = false;
    std::optional<http::response_parser<PiecesBody>> parser;
    do {  // interim answers come before the real one
      parser.emplace();
      parser->header_limit(64 << 10);
      parser->body_limit(boost::none);
      parser->skip(x.method == "HEAD");
      buffer.reserve(kReadSize);
      while (!parser->is_header_done()) {
        Limit(x.options.read_seconds);
        co_await http::async_read_some(stream, buffer, *parser, token());
        x.answer_began |= parser->got_some();
        if (ec) {
          co_return Error{Code::kUnavailable,
                          fmt::format("{}: gave no valid answer ({})", name, Reason(ec, "answer"))};
        }
      }
    } while (parser->get().result_int() / 100 == 1);
    x.response.status = static_cast<int>(parser->get().result_int());
    for (const auto& field : parser->get()) {
      const auto [it, fresh] = x.response.headers.try_emplace(
          LowerCase(std::string(field.name_string())), std::string(field.value()));
      if (!fresh) it->second.append(", ").append(std::string(field.value()));
    }
    x.redirected = x.options.max_redirects > 0 && IsRedirect(x.response);
    if (!x.redirected && x.on_headers && !x.on_headers(x.response)) cancelled = true;
    parser->get().body() = [&](std::string_view piece) {
      x.received += piece.size();
      if (x.redirected) return x.received <= kMaxDiscarded;
      if (x.on_body) return !(cancelled = !x.on_body(piece));
      if (x.received > x.options.max_body_bytes) return !(too_long = true);
      x.response.body += piece;
      return true;
    };
    const auto length = parser->content_length();
    while (!parser->is_done() && !cancelled) {
      Limit(x.options.read_seconds);
      co_await http::async_read_some(stream, buffer, *parser, token());
      if (!ec) continue;
      // The end of a body without a length is the end of the connection.
      if (parser->is_done()) break;
      if (x.redirected) break;
      if (cancelled) break;
      if (too_long) {
        co_return Error{Code::kResourceExhausted,
                        fmt::format("{}: the answer is longer than the limit of {}", name,
                                    base::HumanBytes(x.options.max_body_bytes))};
      }
      co_return Error{Code::kUnavailable,
                      length ? fmt::format("{}: the connection broke after {} of {} bytes ({})",
                                           name, x.received, *length, Reason(ec, "next byte"))
                             : fmt::format("{}: the connection broke after {} bytes ({})", name,
                                           x.received, Reason(ec, "next byte"))};
    }
    if (cancelled) co_return Error{Code::kCancelled, name + ": the download was broken off"};
    if (!parser->is_done() || !parser->get().keep_alive()) Drop();
    co_return base::Status();
  }

  static bool IsRedirect(const ClientResponse& response) {
    const int s = response.status;
    return (s == 301 || s == 302 || s == 303 || s == 307 || s == 308) &&
           response.headers.contains("location");
  }

  // Runs a coroutine to its end on this thread.
  template <typename Make>
  base::Status Run(Make make) {
    base::Status status = Error{Code::kInternal, "the network library gave up"};
    context.restart();
    asio::co_spawn(context, make(), [&](std::exception_ptr failure, base::Status s) {
      if (!failure) status = std::move(s);
    });
    context.run();
    return status;
  }

  base::Status Once(Exchange& x) {
    const bool kept = Usable(x.url);
    if (!kept) {
      if (auto connected = Run([&] { return Connect(x); }); !connected) {
        Drop();
        return connected;
      }
    }
    auto done = Run([&] { return secure ? Talk(*secure, x) : Talk(*plain, x); });
    if (done) return done;
    Drop();
    // The server may have closed the kept connection just as the request went out.
    if (kept && !x.answer_began && (x.method == "GET" || x.method == "HEAD")) return Once(x);
    return done;
  }
};

HttpClient::HttpClient(ClientOptions options)
    : options_(std::move(options)), impl_(std::make_unique<Impl>()) {}

HttpClient::~HttpClient() = default;

base::Result<ClientResponse> HttpClient::Send(
    std::string_view method, const std::string& url,
    const std::vector<std::pair<std::string, std::string>>& headers, std::string_view body,
    const std::function<bool(const ClientResponse&)>& on_headers,
    const std::function<bool(std::string_view)>& on_body) {
  for (const auto& [name, value] : headers) {
    if ((name + value).find_first_of("\r\n") != std::string::npos || name.empty()) {
      return Error{Code::kInvalidArgument, fmt::format("the header '{}' must not hold a line break",
                                                       base::Printable(name))};
    }
  }
  auto at = ParseUrl(url);
  if (!at) return at.error();
  const Url first = *at;
  std::string verb(method);
  for (int redirects = 0;; ++redirects) {
    if (at->scheme == "https") {
      if (auto loaded = impl_->LoadTls(options_); !loaded) return loaded.error();
    }
    Impl::Exchange x{options_, verb,       *at,     headers, SamePlace(first, *at),
                     body,     on_headers, on_body, {}};
    if (auto done = impl_->Once(x); !done) return done.error();
    if (!x.redirected) return std::move(x.response);
    if (redirects == options_.max_redirects) {
      return Error{Code::kUnavailable, fmt::format("{}: redirects more than {} times",
                                                   base::Printable(url), redirects)};
    }
    auto next = Resolve(*at, x.response.headers["location"]);
    if (!next) return next.error().In(base::Printable(url) + " redirects");
    if (at->scheme == "https" && next->scheme != "https") {
      return Error{Code::kUnavailable,
                   fmt::format("{}: redirects from https to http, where anyone could read along",
                               base::Printable(url))};
    }
    // What browsers do: the answer to a form is fetched with GET.
    if (x.response.status == 303 && verb != "HEAD") verb = "GET";
    if ((x.response.status == 301 || x.response.status == 302) && verb == "POST") verb = "GET";
    if (verb == "GET") body = {};
    at = std::move(next);
  }
}

}  // namespace net
