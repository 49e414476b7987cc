// The server and its clients: those that read slowly, leave, come from other pages, or come by the
// hundred.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "base/strings.h"
#include "net/http_server.h"
#include "net/net_testing.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::Ask;
using testing::ErrorBody;
using testing::Eventually;
using testing::Get;
using testing::Post;
using testing::RawAnswer;
using testing::RawSocket;
using testing::ReadAnswer;
using testing::TestServer;

// ---- slow readers

TEST(HttpServer, DropsAReaderThatStallsAndSparesTheOthers) {
  ServerOptions options;
  options.max_buffered_bytes = 256 << 10;
  TestServer server(options);
  RawSocket stalled(server.port(), 4096), lively(server.port());
  ASSERT_TRUE(stalled.Send(Get("/hold")));
  auto a = server.Take();
  ASSERT_TRUE(lively.Send(Get("/hold")));
  auto b = server.Take();
  ASSERT_TRUE(a && b);
  a->StartEvents();
  b->StartEvents();
  // Two thousand events of 32 KiB are more than the system and the server hold together.
  const std::string event(32 << 10, 'x');
  int sent = 0;
  while (sent < 2000 && server.gone() == 0) {
    a->Event(event);
    ++sent;
  }
  EXPECT_TRUE(Eventually([&] { return server.gone() == 1; }));
  b->Event("still here");
  b->EndEvents();
  EXPECT_EQ(ReadAnswer(lively).body, "data: still here\n\n");
  EXPECT_EQ(server.gone(), 1);
  EXPECT_FALSE(ReadAnswer(stalled).complete);
}

TEST(HttpServer, DropsAReaderThatTakesNothingForTooLong) {
  ServerOptions options;
  options.write_seconds = 0.3;
  options.max_buffered_bytes = 1 << 30;
  TestServer server(options);
  RawSocket stalled(server.port(), 4096);
  ASSERT_TRUE(stalled.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  e->Send(200, "text/plain", std::string(32 << 20, 'x'));
  EXPECT_TRUE(Eventually([&] { return server.gone() == 1; }));
}

TEST(HttpServer, ALargeAnswerReachesASlowReader) {
  TestServer server;
  RawSocket client(server.port(), 4096);
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  e->Send(200, "text/plain", std::string(4 << 20, 'x'));
  EXPECT_EQ(ReadAnswer(client).body.size(), size_t{4} << 20);
  EXPECT_EQ(server.gone(), 0);
}

TEST(HttpServer, SilentStreamsGetComments) {
  ServerOptions options;
  options.comment_seconds = 0.05;
  TestServer server(options);
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  e->StartEvents();
  const std::string comment = ": keep-alive\n\n";
  EXPECT_TRUE(base::EndsWith(client.ReadUntil(comment), comment));
  EXPECT_TRUE(base::EndsWith(client.ReadUntil(comment), comment));
  e->EndEvents();
  EXPECT_TRUE(base::EndsWith(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n"));
}

// ---- clients that leave, and those that only seem to

enum class Leaving { kClose, kReset };

void LeaveWhile(TestServer& server, bool streaming, Leaving how) {
  const int before = server.gone();
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  if (streaming) {
    e->StartEvents();
    e->Event("1");
    client.ReadUntil("data: 1\n\n\r\n");
  }
  how == Leaving::kClose ? client.Close() : client.Reset();
  EXPECT_TRUE(Eventually([&] { return server.gone() == before + 1; }))
      << "streaming " << streaming << ", reset " << (how == Leaving::kReset);
  int at_once = 0;
  std::mutex mutex;
  e->OnGone([&] {
    std::lock_guard lock(mutex);
    ++at_once;
  });
  EXPECT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return at_once == 1;
  }));
  e->Event("2");  // to nobody
  e->EndEvents();
  e->Send(200, "text/plain", "x");
}

TEST(HttpServer, NoticesClientsThatLeave) {
  TestServer server;
  for (const bool streaming : {false, true})
    for (const Leaving how : {Leaving::kClose, Leaving::kReset}) LeaveWhile(server, streaming, how);
  EXPECT_TRUE(Eventually([&] { return server.server().connections() == 0; }));
  EXPECT_TRUE(Eventually([&] { return server.alive() == 0; }));
}

TEST(HttpServer, AClientThatStopsSendingStillGetsItsAnswer) {
  TestServer server;
  for (const bool streaming : {false, true}) {
    for (const char* version : {"1.1", "1.0"}) {
      RawSocket client(server.port());
      ASSERT_TRUE(client.Send(fmt::format("GET /hold HTTP/{}\r\nHost: x\r\n\r\n", version)));
      client.ShutdownSend();
      auto e = server.Take();
      ASSERT_NE(e, nullptr);
      // Until the server has seen the end, and begun to find out what it means.
      const std::string first = client.Read(1);
      EXPECT_EQ(first, "H");
      RawAnswer answer;
      if (streaming) {
        e->StartEvents();
        e->Event("1");
        e->EndEvents();
      } else {
        e->Send(200, "text/plain", "x");
      }
      const std::string rest = client.ReadAll();
      EXPECT_EQ(rest.substr(0, 14), "TTP/1.1 200 OK") << rest;
      EXPECT_NE(rest.find(streaming ? "data: 1\n\n" : "\r\n\r\nx"), std::string::npos) << rest;
    }
  }
  EXPECT_EQ(server.gone(), 0);
  // All that was asked before is answered, too.
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/echo?1") + Get("/events?1") + Get("/echo?2")));
  client.ShutdownSend();
  EXPECT_EQ(ReadAnswer(client).body, "GET 1 ");
  EXPECT_EQ(ReadAnswer(client).body, "data: 0\n\n");
  EXPECT_EQ(ReadAnswer(client).body, "GET 2 ");
  EXPECT_EQ(client.Read(), "");
}

TEST(HttpServer, NoticesThatAHalfClosedClientLeavesLater) {
  TestServer server;
  for (const bool streaming : {false, true}) {
    const int before = server.gone();
    RawSocket client(server.port());
    ASSERT_TRUE(client.Send(Get("/hold")));
    client.ShutdownSend();
    auto e = server.Take();
    ASSERT_NE(e, nullptr);
    if (streaming) {
      e->StartEvents();
      client.ReadUntil("\r\n\r\n");
    } else {
      EXPECT_EQ(client.Read(1), "H");
    }
    EXPECT_EQ(server.gone(), before);
    client.Close();
    EXPECT_TRUE(Eventually([&] { return server.gone() == before + 1; }));
  }
}

// ---- pages of other origins

std::string Preflight(const std::string& origin) {
  return "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: " + origin +
         "\r\nAccess-Control-Request-Method: POST\r\n"
         "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n\r\n";
}

TEST(HttpServer, AnswersPreflightsItself) {
  TestServer server;
  RawAnswer answer = Ask(server, Preflight("http://page"));
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers["access-control-allow-origin"], "*");
  EXPECT_EQ(answer.headers["access-control-allow-headers"],
            "authorization,content-type,x-stainless-os");
  EXPECT_NE(answer.headers["access-control-allow-methods"].find("POST"), std::string::npos);
  EXPECT_EQ(answer.headers.count("access-control-allow-credentials"), 0u);
  EXPECT_EQ(server.seen(), 0u);
}

TEST(HttpServer, NamesTheOriginOnEveryAnswer) {
  ServerOptions options;
  options.allow_credentials = true;
  TestServer server(options);
  const std::string origin = "Origin: http://page\r\n";
  for (const std::string& request :
       {Get("/echo", origin), Get("/events?1", origin), Get("/nothing", origin),
        Preflight("http://page"), Get("/%zz", origin), Get("/echo", origin + "Expect: x\r\n")}) {
    RawAnswer answer = Ask(server, request);
    EXPECT_EQ(answer.headers["access-control-allow-origin"], "http://page") << request;
    EXPECT_EQ(answer.headers["access-control-allow-credentials"], "true") << request;
    EXPECT_EQ(answer.headers["vary"], "Origin") << request;
  }
  EXPECT_EQ(Ask(server, Get("/echo")).headers.count("access-control-allow-origin"), 0u);
}

TEST(HttpServer, KeepsOtherOriginsOut) {
  ServerOptions options;
  options.allowed_origins = {"http://a", "http://b"};
  options.allowed_headers = {"content-type"};
  options.allowed_methods = {"GET"};
  TestServer server(options);
  RawAnswer good = Ask(server, Preflight("http://b"));
  EXPECT_EQ(good.status, 204);
  EXPECT_EQ(good.headers["access-control-allow-origin"], "http://b");
  EXPECT_EQ(good.headers["access-control-allow-headers"], "content-type");
  EXPECT_EQ(good.headers["access-control-allow-methods"], "GET");
  RawAnswer bad = Ask(server, Preflight("http://c"));
  EXPECT_EQ(bad.status, 403);
  EXPECT_EQ(bad.headers.count("access-control-allow-origin"), 0u);
  RawAnswer plain = Ask(server, Get("/echo", "Origin: http://c\r\n"));
  EXPECT_EQ(plain.status, 200);  // other programs send what they like: browsers do the keeping out
  EXPECT_EQ(plain.headers.count("access-control-allow-origin"), 0u);
  EXPECT_EQ(plain.headers["vary"], "Origin");
}

// ---- the end

TEST(HttpServer, StopLetsAnswersFinishAndClosesIdleConnections) {
  TestServer server;
  RawSocket busy(server.port()), idle(server.port());
  ASSERT_TRUE(idle.Send(Get("/echo")));
  EXPECT_EQ(ReadAnswer(idle).status, 200);
  ASSERT_TRUE(busy.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  std::thread stopping([&] { server.server().Stop(60); });
  EXPECT_EQ(idle.Read(), "");
  EXPECT_FALSE(idle.timed_out());
  e->Send(200, "text/plain", "done");
  EXPECT_EQ(ReadAnswer(busy).body, "done");
  EXPECT_EQ(busy.Read(), "");
  stopping.join();
  EXPECT_EQ(server.server().connections(), 0);
  EXPECT_FALSE(RawSocket(server.port()).connected());
  EXPECT_EQ(server.gone(), 0);
}

TEST(HttpServer, ASecondStopIsNotPatient) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  std::thread patient([&] { server.server().Stop(3600); });
  ASSERT_TRUE(Eventually([&] { return !RawSocket(server.port()).connected(); }));
  server.server().Stop(0);
  patient.join();
  EXPECT_EQ(server.gone(), 1);
  e->Send(200, "text/plain", "to nobody");
  bool called = false;
  e->OnGone([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(HttpServer, AnExchangeMayOutliveItsServer) {
  std::shared_ptr<Exchange> e;
  {
    TestServer server;
    RawSocket client(server.port());
    ASSERT_TRUE(client.Send(Get("/hold")));
    e = server.Take();
    ASSERT_NE(e, nullptr);
  }
  EXPECT_EQ(e->request().path, "/hold");
  e->StartEvents();
  e->Event("x");
}

TEST(HttpServer, SaysWhyItCannotListen) {
  TestServer server;
  ServerOptions options;
  options.port = server.port();
  auto taken = HttpServer::Listen(
      options, [](auto) {}, ErrorBody);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, base::Code::kUnavailable);
  EXPECT_NE(taken.error().message.find("another program"), std::string::npos);
  options.host = "host.invalid";
  auto unknown = HttpServer::Listen(
      options, [](auto) {}, ErrorBody);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("host.invalid"), std::string::npos);
}

// ---- many at once

TEST(HttpServer, StreamsFiveHundredAtOnce) {
  ServerOptions options;
  options.threads = 2;
  TestServer server(options);
  constexpr int kStreams = 500, kEvents = 20;
  std::vector<RawSocket> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().Send(Get(fmt::format("/hold?{}", i))));
  }
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (int i = 0; i < kStreams; ++i) {
    exchanges.push_back(server.Take());
    ASSERT_NE(exchanges.back(), nullptr);
    exchanges.back()->StartEvents();
  }
  std::thread producer([&] {
    for (int n = 0; n < kEvents; ++n)
      for (auto& e : exchanges) e->Event(e->request().query + ":" + std::to_string(n));
    for (auto& e : exchanges) e->EndEvents();
  });
  for (int i = 0; i < kStreams; ++i) {
    std::string want;
    for (int n = 0; n < kEvents; ++n) want += fmt::format("data: {}:{}\n\n", i, n);
    const RawAnswer answer = ReadAnswer(clients[i]);
    EXPECT_EQ(answer.body, want);
    EXPECT_TRUE(answer.complete);
  }
  producer.join();
  exchanges.clear();
  EXPECT_TRUE(Eventually([&] { return server.alive() == 0; }));
  EXPECT_EQ(server.gone(), 0);
}

// Clients that leave at any moment, in any way: every exchange ends, and none is kept.
TEST(HttpServer, EveryExchangeEndsWhenClientsLeaveAtRandom) {
  std::atomic<int> started = 0, ended = 0;
  std::mutex mutex;
  std::deque<std::shared_ptr<Exchange>> work;
  std::vector<std::weak_ptr<Exchange>> all;
  bool over = false;
  ServerOptions options;
  options.port = 0;
  options.threads = 2;
  options.header_seconds = 0.2;  // some send half a request and wait
  auto server = HttpServer::Listen(
      options,
      [&](std::shared_ptr<Exchange> e) {
        ++started;
        auto once = std::make_shared<std::atomic<bool>>(false);
        e->OnGone([&, once] { ended += once->exchange(true) ? 0 : 1; });
        std::lock_guard lock(mutex);
        all.push_back(e);
        work.push_back(std::move(e));
      },
      ErrorBody);
  ASSERT_TRUE(server.ok());
  (*server)->Start();
  std::atomic<int> finished = 0;
  std::thread producer([&] {
    std::mt19937 random(1);
    std::vector<std::pair<std::shared_ptr<Exchange>, int>> running;
    while (true) {
      {
        std::lock_guard lock(mutex);
        for (; !work.empty(); work.pop_front()) running.emplace_back(std::move(work.front()), 0);
        if (over && running.empty()) return;
      }
      for (auto& [e, step] : running) {
        if (step == 0 && random() % 4 != 0) e->StartEvents();
        if (++step == 20) {
          e->EndEvents();
          e->Send(200, "text/plain", "plain");  // does nothing on a stream
          ++finished;
          e.reset();
        } else {
          e->Event("some text");
        }
      }
      std::erase_if(running, [](const auto& r) { return r.first == nullptr; });
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  std::atomic<int> whole = 0;
  for (unsigned t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 60; ++i) {
        RawSocket client((*server)->port());
        if (!client.connected()) continue;
        const std::string request = Get("/x");
        const auto cut = random() % 8 == 0 ? random() % request.size() : request.size();
        client.Send(std::string_view(request).substr(0, cut));
        switch (random() % 5) {
          case 0:
            client.Close();
            break;
          case 1:
            client.Reset();
            break;
          case 2:
            client.Read(1 + random() % 300);
            client.Close();
            break;
          case 3:
            client.Read(1 + random() % 300);
            client.Reset();
            break;
          default:
            client.ShutdownSend();
            if (cut == request.size()) whole += ReadAnswer(client).complete ? 1 : -1000000;
        }
      }
    });
  }
  for (auto& c : clients) c.join();
  {
    std::lock_guard lock(mutex);
    over = true;
  }
  producer.join();
  EXPECT_GT(whole, 0);  // who stayed got all of it
  EXPECT_EQ(finished, started);
  EXPECT_TRUE(Eventually([&] { return (*server)->connections() == 0; }));
  EXPECT_LE(ended, started);
  for (const auto& e : all) EXPECT_TRUE(e.expired());
  (*server)->Stop(0);
}

}  // namespace
}  // namespace net
