// What the tests of this room share: raw sockets that can misbehave, and a server to try them on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "net/http_server.h"

namespace net::testing {

// A blocking TCP connection to 127.0.0.1 that gives up after `seconds` without a byte.
class RawSocket {
 public:
  // `receive_buffer`: bytes the system takes on our behalf (0: its default).
  explicit RawSocket(uint16_t port, int receive_buffer = 0, double seconds = 20);
  ~RawSocket();
  RawSocket(RawSocket&& other) noexcept;
  RawSocket(const RawSocket&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool Send(std::string_view bytes);      // false: the other side is gone
  std::string Read(size_t most = 65536);  // some bytes; empty at the end, a reset or a timeout
  std::string ReadAll();                  // to the end
  // Until `text` was seen; what came is returned, and what follows `text` is kept for later.
  std::string ReadUntil(std::string_view text);
  void ShutdownSend();
  void Close();
  void Reset();                                  // closes with RST
  bool timed_out() const { return timed_out_; }  // the last read gave up

 private:
  int fd_ = -1;
  bool timed_out_ = false;
  std::string kept_;
};

// One answer: status, headers (names in lower case), body (chunks joined).
struct RawAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;
  bool complete = false;  // its end was seen
};
// `head`: an answer to HEAD, which has no body.
RawAnswer ReadAnswer(RawSocket& socket, bool head = false);

// Waits until `condition` holds (looked at every millisecond); false after a minute.
bool Eventually(const std::function<bool()>& condition);

std::string Get(std::string_view path, std::string_view more_headers = "");
std::string Post(std::string_view path, std::string_view body, std::string_view more_headers = "");

// Answers each connection's first request with whatever bytes `respond` makes of it, then closes:
// for answers that no correct server gives. One connection at a time.
class CannedServer {
 public:
  explicit CannedServer(std::function<std::string(const std::string& request)> respond);
  ~CannedServer();
  uint16_t port() const { return port_; }

 private:
  void Serve();
  std::function<std::string(const std::string&)> respond_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

// A self-signed certificate for "localhost" and 127.0.0.1, made with OpenSSL, in a fresh folder.
struct TestCertificate {
  TestCertificate();
  ~TestCertificate();
  std::string folder, key_file, certificate_file, other_key_file;
};

std::string ErrorBody(int status, std::string_view sentence);

// A server on a free port. "/echo" answers at once; "/hold" keeps the exchange for the test;
// "/events?N" streams N events; every other path forgets to answer.
class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}) {
    options.port = 0;
    auto server = HttpServer::Listen(
        options, [this](std::shared_ptr<Exchange> e) { Handle(std::move(e)); }, ErrorBody);
    server_ = std::move(*server);
    server_->Start();
  }
  ~TestServer() { server_->Stop(0); }

  uint16_t port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  int gone() const { return gone_; }

  // The next exchange of "/hold".
  std::shared_ptr<Exchange> Take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(60), [this] { return !held_.empty(); }))
      return nullptr;
    auto exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }

  // How many exchanges, of all there were, are still in memory.
  size_t alive() {
    std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& e : seen_) count += e.expired() ? 0 : 1;
    return count;
  }
  size_t seen() {
    std::lock_guard lock(mutex_);
    return seen_.size();
  }

 private:
  void Handle(std::shared_ptr<Exchange> e) {
    {
      std::lock_guard lock(mutex_);
      seen_.push_back(e);
    }
    const std::string path = e->request().path;
    if (path == "/echo") {
      e->Send(200, "text/plain",
              e->request().method + " " + e->request().query + " " + e->request().body);
    } else if (path == "/events") {
      e->StartEvents();
      for (int i = 0; i < std::atoi(e->request().query.c_str()); ++i) e->Event(std::to_string(i));
      e->EndEvents();
    } else if (path == "/hold") {
      e->OnGone([this] { ++gone_; });
      std::lock_guard lock(mutex_);
      held_.push_back(std::move(e));
      arrived_.notify_all();
    } else if (path == "/throw") {
      throw std::runtime_error("a handler's fault");
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Exchange>> held_;
  std::vector<std::weak_ptr<Exchange>> seen_;
  std::atomic<int> gone_ = 0;
  std::unique_ptr<HttpServer> server_;  // ends first
};

// What one connection gets for `request`.
RawAnswer Ask(TestServer& server, std::string_view request, bool head = false);

}  // namespace net::testing
