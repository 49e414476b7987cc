#include "net/http_server.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <thread>

#include "base/os/socket.h"
#include "base/strings.h"
#include "net/connection.h"

namespace net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using base::Code;
using base::Error;
using boost::system::error_code;

// Beyond the limit, connections that are told 503; further ones are closed without a word.
constexpr int64_t kMaxRefused = 128;

base::Result<std::unique_ptr<asio::ssl::context>> LoadTls(const ServerOptions& options) {
  const std::string &key = options.tls_key_file, &certificate = options.tls_certificate_file;
  if (key.empty() && certificate.empty()) return std::unique_ptr<asio::ssl::context>();
  if (key.empty() || certificate.empty()) {
    return Error{Code::kInvalidArgument, "TLS needs both a key file and a certificate file"};
  }
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
  error_code ec;
  // Nobody is there to type a passphrase.
  tls->set_password_callback([](size_t, asio::ssl::context::password_purpose) { return ""; }, ec);
  tls->use_certificate_chain_file(certificate, ec);
  if (ec) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: is no readable PEM certificate ({})", certificate, ec.message())};
  }
  tls->use_private_key_file(key, asio::ssl::context::pem, ec);
  if (ec) {
    // OpenSSL compares them when it reads the second.
    const bool mismatch = ec.message().find("mismatch") != std::string::npos;
    return Error{Code::kInvalidArgument,
                 mismatch
                     ? fmt::format("{}: does not belong to the certificate {}", key, certificate)
                     : fmt::format("{}: is no readable PEM private key without a passphrase "
                                   "({})",
                                   key, ec.message())};
  }
  return tls;
}

base::Result<tcp::acceptor> Bind(asio::io_context& context, const ServerOptions& options) {
  const std::string name = fmt::format("{}:{}", options.host, options.port);
  error_code ec;
  tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       tcp::resolver::passive | tcp::resolver::address_configured, ec);
  if (ec || found.empty()) {
    return Error{Code::kUnavailable,
                 fmt::format("{}: the host is no address of this machine and no name that "
                             "resolves to one ({})",
                             options.host, ec.message())};
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  // "localhost" is both; clients try the older first.
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const tcp::endpoint& e) { return e.address().is_v4(); });
  for (const tcp::endpoint& endpoint : endpoints) {
    tcp::acceptor acceptor(context);
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec && endpoint.address().is_v6()) {
      error_code ignored;  // also clients of IPv4, where the system can
      acceptor.set_option(asio::ip::v6_only(false), ignored);
    }
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) return acceptor;
  }
  return Error{Code::kUnavailable, ec == asio::error::address_in_use
                                       ? name + ": another program listens there already"
                                       : fmt::format("{}: cannot listen ({})", name, ec.message())};
}

// A fraction of the shortest time that matters, so that each is kept within a quarter.
Clock::duration TickPeriod(const ServerOptions& o) {
  double shortest = 1;
  for (const double s :
       {o.header_seconds, o.body_seconds, o.idle_seconds, o.write_seconds, o.comment_seconds}) {
    if (s > 0) shortest = std::min(shortest, s);
  }
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(shortest / 4, 0.005, 0.25)));
}

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(std::shared_ptr<ServerCore> core, tcp::acceptor acceptor, uint16_t port)
      : core_(std::move(core)),
        acceptor_(std::move(acceptor)),
        retry_(acceptor_.get_executor()),
        port_(port) {}

  ~HttpServerImpl() override { Stop(0); }

  uint16_t port() const override { return port_; }
  int64_t connections() const override { return core_->connections; }

  void Start() override {
    std::lock_guard lock(core_->mutex);
    if (started_ || core_->stopped) return;
    started_ = true;
    Accept();
    const Clock::duration period = TickPeriod(core_->options);
    for (size_t i = 0; i < core_->workers.size(); ++i) {
      Worker& worker = *core_->workers[i];
      Tick(worker, period);
      guards_.push_back(asio::make_work_guard(worker.context));
      threads_.emplace_back([&worker, i] {
        base::os::NameThread(fmt::format("net-{}", i).c_str());
        worker.context.run();
      });
    }
  }

  void Stop(double seconds) override {
    std::unique_lock lock(core_->mutex);
    const auto wanted =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)));
    deadline_ = std::min(deadline_, wanted);
    core_->changed.notify_all();
    if (stopping_) {  // another thread is at it, perhaps with more patience
      core_->changed.wait(lock, [this] { return finished_; });
      return;
    }
    stopping_ = true;
    core_->draining = true;
    if (started_) {
      asio::post(acceptor_.get_executor(), [this] { CloseAcceptor(); });
      ForAll([](Connection& c) { c.Drain(); });
      while (core_->connections > 0 && Clock::now() < deadline_) {
        core_->changed.wait_until(lock, deadline_);
      }
    } else {
      CloseAcceptor();
    }
    core_->ending = true;
    ForAll([](Connection& c) { c.Leave(); });
    for (auto& worker : core_->workers)
      asio::post(worker->context, [w = worker.get()] { w->tick.cancel(); });
    core_->stopped = true;
    std::vector<std::thread> threads = std::move(threads_);
    guards_.clear();
    lock.unlock();
    // Everything is closed, so that each thread runs out of work.
    for (std::thread& thread : threads) thread.join();
    lock.lock();
    finished_ = true;
    core_->changed.notify_all();
  }

 private:
  template <typename F>
  void ForAll(F f) {
    for (auto& worker : core_->workers) {
      asio::post(worker->context, [w = worker.get(), f] {
        for (const auto& connection : w->connections) f(*connection);
      });
    }
  }

  void CloseAcceptor() {
    error_code ec;
    acceptor_.close(ec);
    retry_.cancel();
  }

  void Accept() {
    Worker& worker = *core_->workers[next_++ % core_->workers.size()];
    acceptor_.async_accept(worker.context,
                           [this, &worker](const error_code& ec, tcp::socket socket) {
                             if (!acceptor_.is_open()) return;
                             if (ec) {
                               // Out of descriptors, as a rule: trying again at once would only
                               // burn the processor.
                               retry_.expires_after(std::chrono::milliseconds(50));
                               retry_.async_wait([this](const error_code&) {
                                 if (acceptor_.is_open()) Accept();
                               });
                               return;
                             }
                             Take(worker, std::move(socket));
                             Accept();
                           });
  }

  void Take(Worker& worker, tcp::socket socket) {
    const auto limit = static_cast<int64_t>(core_->options.max_connections);
    const bool refuse = core_->connections >= limit;
    if (refuse && core_->refused >= kMaxRefused) return;
    ++(refuse ? core_->refused : core_->connections);
    auto connection = std::make_shared<Connection>(core_, worker, std::move(socket));
    asio::post(worker.context, [connection, refuse] { connection->Start(refuse); });
  }

  void Tick(Worker& worker, Clock::duration period) {
    worker.tick.expires_after(period);
    worker.tick.async_wait([this, &worker, period](const error_code&) {
      const auto now = Clock::now();
      for (const auto& connection : worker.connections) connection->Tick(now);
      if (!core_->ending) Tick(worker, period);
    });
  }

  const std::shared_ptr<ServerCore> core_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  const uint16_t port_;
  size_t next_ = 0;
  // Guarded by core_->mutex:
  bool started_ = false, stopping_ = false, finished_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards_;
  std::vector<std::thread> threads_;
};

}  // namespace

base::Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const ServerOptions& options,
                                                             Handler handler,
                                                             ErrorBody error_body) {
  auto tls = LoadTls(options);
  if (!tls) return tls.error();
  auto core = std::make_shared<ServerCore>();
  core->options = options;
  core->handler = std::move(handler);
  core->error_body = std::move(error_body);
  core->tls = std::move(*tls);
  for (int i = 0; i < std::max(1, options.threads); ++i)
    core->workers.push_back(std::make_unique<Worker>());
  base::os::AllowConnections(options.max_connections);
  auto acceptor = Bind(core->workers[0]->context, options);
  if (!acceptor) return acceptor.error();
  error_code ec;
  const uint16_t port = acceptor->local_endpoint(ec).port();
  return std::unique_ptr<HttpServer>(
      std::make_unique<HttpServerImpl>(std::move(core), std::move(*acceptor), port));
}

}  // namespace net
