// One client's connection: reads requests one after another, hands each to the handler, writes its
// answer, and watches meanwhile whether the client is still there.
//
// All members are called on the connection's own thread (its io_context), except where said.
//
//   reading    callbacks (Read, OnRead) append to in_, with a bound
//   writing    callbacks (Flush, OnWrite) take what Answer holds
//   the story  one coroutine (Run), woken when something changed
//   the clock  Tick, a few times a second: no operation has a timer of its own
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/answer.h"
#include "net/http_server.h"

namespace net {

using Clock = std::chrono::steady_clock;

class Connection;

// A thread's share.
struct Worker {
  boost::asio::io_context context{1};
  boost::asio::steady_timer tick{context};
  std::list<std::shared_ptr<Connection>> connections;
};

// What all connections share. Outlives them and every Exchange.
struct ServerCore {
  ServerOptions options;
  Handler handler;
  HttpServer::ErrorBody error_body;
  std::unique_ptr<boost::asio::ssl::context> tls;  // null: plain
  std::vector<std::unique_ptr<Worker>> workers;
  std::atomic<bool> draining = false;  // no new requests
  std::atomic<bool> ending = false;    // no new connections either: those there are being closed
  std::atomic<int64_t> connections = 0, refused = 0;
  std::mutex mutex;
  std::condition_variable changed;  // a connection ended, or a deadline moved
  bool stopped = false;             // guarded by mutex: what is posted now may never run
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerCore> core, Worker& worker, boost::asio::ip::tcp::socket socket);

  // `refuse`: only says 503.
  void Start(bool refuse);
  void Tick(Clock::time_point now);
  // The server stops: ends when nothing is under way.
  void Drain() { wake_.cancel(); }
  // Ends now; whoever waits for an answer is told.
  void Leave();

 private:
  struct Failure {
    int status = 0;  // 0: nothing can be said any more
    std::string sentence;
  };
  struct Incoming {
    HttpRequest request;
    bool keep_alive = false, http_1_0 = false;
  };
  boost::asio::awaitable<void> Run(bool refuse);
  boost::asio::awaitable<void> Serve();
  boost::asio::awaitable<std::optional<Failure>> ReadRequest(Incoming& incoming);
  boost::asio::awaitable<void> AnswerIt(Incoming incoming);
  boost::asio::awaitable<void> Refuse(Failure failure, const HttpRequest& request);
  boost::asio::awaitable<bool> WriteRaw(std::string_view text);
  boost::asio::awaitable<void> Linger();
  boost::asio::awaitable<bool> ReadMore();
  template <typename Condition>
  boost::asio::awaitable<void> Until(Condition condition);

  std::string_view unparsed() const { return std::string_view(in_).substr(parsed_); }
  void Consume(size_t bytes);
  void NewAnswer(AnswerForm form);
  void Probe(Clock::time_point now);
  void WaitForError();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t size);
  void Flush();
  void Write();
  void OnWrite(const boost::system::error_code& error, size_t size);
  void Close();
  void SetDeadline(double seconds);

  const std::shared_ptr<ServerCore> core_;
  Worker& worker_;
  bool refused_ = false;
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  boost::asio::steady_timer wake_;  // never rings; cancelled to wake Run
  std::string peer_;
  std::list<std::shared_ptr<Connection>>::iterator place_;

  std::vector<char> chunk_;  // where a read lands
  std::string in_;           // what was read; parsed up to parsed_
  size_t parsed_ = 0;
  bool large_reads_ = false;
  bool reading_ = false, fin_ = false, closed_ = false, expired_ = false, handshaking_ = false;
  bool waiting_for_error_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();

  std::shared_ptr<Answer> answer_;
  bool answered_ = false;  // all of it is written
  std::string out_;
  size_t written_ = 0;
  bool writing_ = false;
  Clock::time_point wrote_at_;  // when the client last took something
  bool watching_ = false;       // the client may leave while its answer is being made
  Clock::time_point next_probe_ = Clock::time_point::max();
  Clock::duration probe_pause_{};
};

}  // namespace net
