#include "net/connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <utility>

#include "base/os/socket.h"
#include "base/strings.h"
#include "net/cors.h"
#include "net/pieces_body.h"
#include "net/request.h"

namespace net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using boost::system::error_code;

constexpr size_t kSmallRead = 4 << 10, kLargeRead = 16 << 10;
// Of requests that wait while an answer is being made, and of what a parser may still need.
constexpr size_t kReadAhead = 64 << 10;
// A client that gets an error may still be sending: hearing it out keeps the system from throwing
// away our answer with a reset.
constexpr double kLingerSeconds = 2;

using Parser = http::request_parser<PiecesBody>;

class ExchangeImpl final : public Exchange {
 public:
  ExchangeImpl(std::shared_ptr<ServerCore> core, Worker& worker, std::shared_ptr<Answer> answer,
               HttpRequest request)
      : core_(std::move(core)),
        worker_(worker),
        answer_(std::move(answer)),
        request_(std::move(request)) {}

  ~ExchangeImpl() override {
    if (!answer_->Abandon()) return;
    answer_->Send(500, "application/json",
                  core_->error_body(500, "The server gave no answer to this request."), {});
  }

  const HttpRequest& request() const override { return request_; }
  void Send(int status, std::string_view content_type, std::string body,
            HeaderList headers) override {
    answer_->Send(status, content_type, std::move(body), headers);
  }
  void StartEvents(HeaderList headers) override { answer_->StartEvents(headers); }
  void Event(std::string_view data) override { answer_->Event(data); }
  void Frames(std::string frames) override { answer_->Frames(frames); }
  void EndEvents() override { answer_->EndEvents(); }
  void OnGone(std::function<void()> callback) override {
    answer_->OnGone(std::move(callback), [this](std::function<void()> f) {
      {
        std::lock_guard lock(core_->mutex);
        if (!core_->stopped) {
          asio::post(worker_.context, std::move(f));
          return;
        }
      }
      f();
    });
  }

 private:
  const std::shared_ptr<ServerCore> core_;
  Worker& worker_;  // core_'s
  const std::shared_ptr<Answer> answer_;
  const HttpRequest request_;
};

std::string PeerName(const asio::ip::tcp::socket& socket) {
  error_code ec;
  const auto peer = socket.remote_endpoint(ec);
  if (ec) return "";
  const std::string address = peer.address().to_string();
  return fmt::format(fmt::runtime(peer.address().is_v6() ? "[{}]:{}" : "{}:{}"), address,
                     peer.port());
}

void TakeHeader(const Parser::value_type& header, HttpRequest& request) {
  request.method = std::string(header.method_string());
  SetTarget(request, header.target());
  for (const auto& field : header) AddHeader(request, field.name_string(), field.value());
}

int StatusOf(const error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

std::string SentenceOf(const error_code& error, const ServerOptions& options) {
  if (error == http::error::header_limit) {
    return fmt::format("The request's header is longer than the {} that this server takes.",
                       base::HumanBytes(options.max_header_bytes));
  }
  if (error == http::error::body_limit) {
    return fmt::format("The request's body is longer than the {} that this server takes.",
                       base::HumanBytes(options.max_body_bytes));
  }
  return fmt::format("The request is not valid HTTP/1.1 ({}).", error.message());
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerCore> core, Worker& worker,
                       asio::ip::tcp::socket socket)
    : core_(std::move(core)),
      worker_(worker),
      socket_(std::move(socket)),
      wake_(worker.context, Clock::time_point::max()) {
  peer_ = PeerName(socket_);
  base::os::TuneConnection(socket_.native_handle(), core_->options.write_seconds);
  if (core_->tls) tls_.emplace(socket_, *core_->tls);
}

void Connection::Start(bool refuse) {
  refused_ = refuse;
  place_ = worker_.connections.insert(worker_.connections.end(), shared_from_this());
  asio::co_spawn(worker_.context, Run(refuse), asio::detached);
}

awaitable<void> Connection::Run(bool refuse) {
  const auto self = shared_from_this();
  try {
    if (core_->ending) {
      Close();
    } else if (tls_ && refuse) {
      Close();  // a handshake costs more than the client's knowing why
    } else if (tls_) {
      SetDeadline(core_->options.header_seconds);
      handshaking_ = true;
      error_code ec;
      co_await tls_->async_handshake(asio::ssl::stream_base::server,
                                     asio::redirect_error(asio::use_awaitable, ec));
      handshaking_ = false;
      if (ec) Close();
    }
    if (!closed_ && refuse) {
      // Named, because GCC 12 destroys braced temporaries of an awaited call twice.
      Failure full{503, "The server has too many connections: try again later."};
      const HttpRequest unread;
      co_await Refuse(std::move(full), unread);
    } else if (!closed_) {
      co_await Serve();
    }
  } catch (const std::exception&) {  // out of memory: this connection's end, not the server's
  }
  Leave();
  const auto core = core_;
  worker_.connections.erase(place_);
  std::lock_guard lock(core->mutex);
  --(refused_ ? core->refused : core->connections);
  core->changed.notify_all();
}

awaitable<void> Connection::Serve() {
  while (!closed_) {
    Incoming incoming;
    if (auto failure = co_await ReadRequest(incoming)) {
      if (failure->status != 0) co_await Refuse(std::move(*failure), incoming.request);
      co_return;
    }
    co_await AnswerIt(std::move(incoming));
    const bool ends = answer_->closes();
    answer_.reset();
    if (ends) {
      co_await Linger();
      co_return;
    }
  }
}

// A request, or why there is none.
awaitable<std::optional<Connection::Failure>> Connection::ReadRequest(Incoming& incoming) {
  const ServerOptions& options = core_->options;
  const Failure nothing;  // the client is gone, or waits for nothing
  SetDeadline(options.idle_seconds);
  while (true) {
    // Empty lines between requests are allowed by the standard (RFC 9112, 2.2).
    while (base::StartsWith(unparsed(), "\r\n")) Consume(2);
    if (!unparsed().empty() && unparsed() != "\r") break;
    Read();
    const size_t had = unparsed().size();
    co_await Until(
        [&] { return unparsed().size() > had || fin_ || closed_ || expired_ || core_->draining; });
    if (unparsed().size() == had) co_return nothing;
  }

  SetDeadline(options.header_seconds);
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);
  HttpRequest& request = incoming.request;
  parser.get().body() = [&request](std::string_view piece) {
    request.body += piece;
    return true;
  };
  size_t header_bytes = 0;
  while (!parser.is_header_done()) {
    error_code ec;
    const size_t used = parser.put(asio::buffer(unparsed()), ec);
    Consume(used);
    header_bytes += used;
    if (ec && ec != http::error::need_more) {
      // The body's limit is looked at when the header's end is reached: its fields are there.
      if (ec == http::error::body_limit) TakeHeader(parser.get(), request);
      co_return Failure{StatusOf(ec), SentenceOf(ec, options)};
    }
    if (header_bytes + (parser.is_header_done() ? 0 : unparsed().size()) >
        options.max_header_bytes) {
      co_return Failure{431, SentenceOf(http::error::header_limit, options)};
    }
    if (parser.is_header_done()) break;
    if (!co_await ReadMore()) {
      if (expired_) co_return Failure{408, "The request's header did not arrive in time."};
      co_return nothing;
    }
  }
  request.peer = peer_;
  TakeHeader(parser.get(), request);
  incoming.http_1_0 = parser.get().version() < 11;
  incoming.keep_alive = parser.get().keep_alive();
  const size_t hosts = parser.get().count(http::field::host);
  if (auto fault = FaultOf(request, incoming.http_1_0, hosts))
    co_return Failure{fault->first, fault->second};

  SetDeadline(options.body_seconds);
  if (!parser.is_done()) {
    if (!HeaderOf(request, "expect").empty() && !incoming.http_1_0 && unparsed().empty()) {
      if (!co_await WriteRaw("HTTP/1.1 100 Continue\r\n\r\n")) co_return nothing;
    }
    parser.eager(true);
    large_reads_ = true;
  }
  size_t body_bytes = 0;
  while (!parser.is_done()) {
    if (!unparsed().empty()) {
      error_code ec;
      const size_t used = parser.put(asio::buffer(unparsed()), ec);
      Consume(used);
      body_bytes += used;
      if (ec && ec != http::error::need_more)
        co_return Failure{StatusOf(ec), SentenceOf(ec, options)};
      // Chunks of a few bytes with long extensions, and trailers without an end.
      if (unparsed().size() > options.max_header_bytes && !parser.is_done())
        co_return Failure{400, "A chunk's header or trailer is too long."};
      if (body_bytes > kReadAhead + 16 * request.body.size())
        co_return Failure{400, "The body's chunks hold more framing than data: send larger ones."};
      if (parser.is_done()) break;
    }
    if (!co_await ReadMore()) {
      if (expired_) co_return Failure{408, "The request's body did not arrive in time."};
      co_return nothing;
    }
  }
  large_reads_ = false;
  co_return std::nullopt;
}

awaitable<void> Connection::AnswerIt(Incoming incoming) {
  HttpRequest& request = incoming.request;
  NewAnswer({.head = request.method == "HEAD",
             .http_1_0 = incoming.http_1_0,
             .keep_alive = incoming.keep_alive && !core_->draining,
             .headers = CorsHeaders(core_->options, HeaderOf(request, "origin")),
             .max_buffered_bytes = core_->options.max_buffered_bytes});
  if (IsPreflight(request)) {
    const bool allowed = OriginAllowed(core_->options, HeaderOf(request, "origin"));
    if (allowed) {
      answer_->Send(204, "", "", PreflightHeaders(core_->options, request));
    } else {
      answer_->Send(403, "application/json",
                    core_->error_body(403, "Pages of this origin may not use this server."), {});
    }
  } else {
    auto exchange =
        std::make_shared<ExchangeImpl>(core_, worker_, answer_, std::move(incoming.request));
    try {
      core_->handler(std::move(exchange));
    } catch (...) {  // dropped without an answer: 500
    }
  }
  watching_ = true;
  next_probe_ = Clock::now();
  probe_pause_ = std::chrono::seconds(1);
  Read();
  Probe(next_probe_);
  co_await Until([this] { return answered_ || closed_; });
  watching_ = false;
  answer_->Finish();
}

// The answer to a request that the handler never sees; the connection ends with it.
awaitable<void> Connection::Refuse(Failure failure, const HttpRequest& request) {
  NewAnswer({.head = request.method == "HEAD",
             .keep_alive = false,
             .headers = CorsHeaders(core_->options, HeaderOf(request, "origin"))});
  answer_->Send(failure.status, "application/json",
                core_->error_body(failure.status, failure.sentence), {});
  co_await Until([this] { return answered_ || closed_; });
  answer_.reset();
  co_await Linger();
}

awaitable<bool> Connection::WriteRaw(std::string_view text) {
  out_ = text;
  Write();
  co_await Until([this] { return !writing_ || closed_; });
  co_return !closed_;
}

// Says that nothing more will come, and hears the client out for a moment.
awaitable<void> Connection::Linger() {
  if (closed_) co_return;
  SetDeadline(kLingerSeconds);
  if (tls_) {
    tls_->async_shutdown([self = shared_from_this()](const error_code&) {});
  } else {
    error_code ec;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  }
  do {
    Consume(unparsed().size());
  } while (co_await ReadMore());
}

awaitable<bool> Connection::ReadMore() {
  const size_t had = unparsed().size();
  Read();
  co_await Until([&] { return unparsed().size() > had || fin_ || closed_ || expired_; });
  co_return unparsed().size() > had && !expired_;
}

template <typename Condition>
awaitable<void> Connection::Until(Condition condition) {
  while (!condition()) {
    error_code ec;
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

void Connection::NewAnswer(AnswerForm form) {
  answered_ = false;
  wrote_at_ = Clock::now();
  deadline_ = Clock::time_point::max();
  answer_ = std::make_shared<Answer>(std::move(form), [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      auto& context = self->worker_.context;
      asio::post(context, [self = std::move(self)] { self->Flush(); });
    }
  });
}

void Connection::Consume(size_t bytes) {
  parsed_ += bytes;
  if (parsed_ == in_.size()) {
    in_.clear();
    parsed_ = 0;
  } else if (parsed_ > kReadAhead / 2) {
    in_.erase(0, parsed_);
    parsed_ = 0;
  }
}

void Connection::Read() {
  const size_t limit = kReadAhead + core_->options.max_header_bytes;
  if (reading_ || fin_ || closed_) return;
  if (unparsed().size() >= limit) {
    if (watching_) WaitForError();
    return;
  }
  reading_ = true;
  const size_t size = large_reads_ ? kLargeRead : kSmallRead;
  if (chunk_.size() != size) chunk_ = std::vector<char>(size);
  auto done = [self = shared_from_this()](const error_code& ec, size_t n) { self->OnRead(ec, n); };
  if (tls_) {
    tls_->async_read_some(asio::buffer(chunk_), std::move(done));
  } else {
    socket_.async_read_some(asio::buffer(chunk_), std::move(done));
  }
}

void Connection::OnRead(const error_code& error, size_t size) {
  reading_ = false;
  if (closed_) return;
  in_.append(chunk_.data(), size);
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) {
    fin_ = true;
    Probe(Clock::now());
  } else if (error) {
    Leave();
  } else if (watching_) {
    Read();
  }
  wake_.cancel();
}

// A client that closed its sending side may wait for its answer, or have left: both look the same
// until something is written, which one that left answers with a reset. So a little of what would
// be written anyway goes ahead, at once and then ever less often.
void Connection::Probe(Clock::time_point now) {
  if (!fin_ || !watching_ || closed_) return;
  WaitForError();
  if (writing_ || now < next_probe_) return;
  if (answer_->streaming()) {
    probe_pause_ = std::chrono::seconds(1);
    next_probe_ = now + probe_pause_;
  } else {
    next_probe_ = now + probe_pause_;
    probe_pause_ *= 2;
  }
  if (answer_->Probe()) Flush();
}

void Connection::WaitForError() {
  if (waiting_for_error_) return;
  waiting_for_error_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_error,
                     [self = shared_from_this()](const error_code& ec) {
                       self->waiting_for_error_ = false;
                       if (!ec) self->Leave();
                     });
}

void Connection::Flush() {
  if (closed_ || !answer_ || answered_) return;
  if (answer_->stalled()) return Leave();
  if (writing_) return;
  switch (answer_->Take(out_)) {
    case Answer::Next::kNothing:
      return;
    case Answer::Next::kBytes:
      return Write();
    case Answer::Next::kBroken:
      return Leave();
    case Answer::Next::kDone:
      answered_ = true;
      wake_.cancel();
  }
}

void Connection::Write() {
  writing_ = true;
  written_ = 0;
  wrote_at_ = Clock::now();
  OnWrite({}, 0);
}

void Connection::OnWrite(const error_code& error, size_t size) {
  if (closed_) return;
  if (error) return Leave();
  written_ += size;
  if (size > 0) {
    wrote_at_ = Clock::now();
    if (answer_) answer_->Wrote(size);
  }
  if (written_ == out_.size()) {
    writing_ = false;
    if (out_.capacity() > kReadAhead) out_ = {};
    if (!answer_) wake_.cancel();  // WriteRaw waits; an answer's end is seen by Flush
    return Flush();
  }
  const auto rest = asio::buffer(out_) + written_;
  auto done = [self = shared_from_this()](const error_code& ec, size_t n) { self->OnWrite(ec, n); };
  if (tls_) {
    tls_->async_write_some(rest, std::move(done));
  } else {
    socket_.async_write_some(rest, std::move(done));
  }
}

void Connection::SetDeadline(double seconds) {
  expired_ = false;
  deadline_ = seconds > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(seconds))
                          : Clock::time_point::max();
}

void Connection::Tick(Clock::time_point now) {
  if (closed_) return;
  const std::chrono::duration<double> silent = now - wrote_at_;
  if (writing_ && silent.count() > core_->options.write_seconds) return Leave();
  if (now > deadline_) {
    deadline_ = Clock::time_point::max();
    if (handshaking_) return Close();
    expired_ = true;
    wake_.cancel();
  }
  if (!answer_ || !watching_ || writing_) return;
  if (silent.count() >= core_->options.comment_seconds && answer_->streaming()) {
    answer_->Comment();
    Flush();
  }
  Probe(now);
}

void Connection::Leave() {
  std::function<void()> gone;
  if (answer_ && !answered_) gone = answer_->Leave();
  Close();
  if (gone) gone();
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  error_code ec;
  socket_.close(ec);
  wake_.cancel();
}

}  // namespace net
