// The server against raw sockets: what well-behaved clients get, and what the others cost.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "base/strings.h"
#include "net/http_server.h"
#include "net/net_testing.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::Eventually;
using testing::Get;
using testing::Post;
using testing::RawAnswer;
using testing::RawSocket;
using testing::ReadAnswer;

std::string ErrorBody(int status, std::string_view sentence) {
  return fmt::format("{{\"error\":{{\"code\":{},\"message\":\"{}\"}}}}", status, sentence);
}

// A server on a free port. "/echo" answers at once; "/hold" keeps the exchange for the test;
// "/events" streams as many events as the query says; "/none" forgets to answer.
class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}) {
    options.port = 0;
    auto server = HttpServer::Listen(
        options, [this](std::shared_ptr<Exchange> e) { Handle(std::move(e)); }, ErrorBody);
    EXPECT_TRUE(server.ok()) << (server.ok() ? "" : server.error().message);
    server_ = std::move(*server);
    server_->Start();
  }
  ~TestServer() {
    server_->Stop(0);
    held_.clear();
  }

  uint16_t port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  int gone() const { return gone_; }
  size_t alive() const { return alive_; }  // exchanges that were not freed yet

  // The next exchange of "/hold".
  std::shared_ptr<Exchange> Take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, 60s, [this] { return !held_.empty(); })) return nullptr;
    auto exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }

 private:
  void Handle(std::shared_ptr<Exchange> e) {
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

  std::unique_ptr<HttpServer> server_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Exchange>> held_;
  std::atomic<int> gone_ = 0;
  std::atomic<size_t> alive_ = 0;
};

TEST(HttpServer, AnswersPipelinedRequestsInOrderOnOneConnection) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(
      client.Send(Get("/echo?1") + Post("/echo?2", "body") + Get("/events?3") + Get("/echo?4")));
  EXPECT_EQ(ReadAnswer(client).body, "GET 1 ");
  EXPECT_EQ(ReadAnswer(client).body, "POST 2 body");
  EXPECT_EQ(ReadAnswer(client).body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  EXPECT_EQ(ReadAnswer(client).body, "GET 4 ");
}

}  // namespace
}  // namespace net
