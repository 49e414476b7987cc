// The server against raw sockets: framing, limits, and what is no HTTP.
#include <gtest/gtest.h>

#include <atomic>
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

// ---- framing

TEST(HttpServer, AnswersPipelinedRequestsInOrderOnOneConnection) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send("\r\n" + Get("/echo?1") + Post("/echo?2", "body") + Get("/events?3") +
                          Get("/echo?4")));
  EXPECT_EQ(ReadAnswer(client).body, "GET 1 ");
  EXPECT_EQ(ReadAnswer(client).body, "POST 2 body");
  EXPECT_EQ(ReadAnswer(client).body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  EXPECT_EQ(ReadAnswer(client).body, "GET 4 ");
}

TEST(HttpServer, PipelinedAnswersKeepTheirOrderWhenTheFirstIsLate) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold") + Get("/echo?2")));
  auto first = server.Take();
  ASSERT_NE(first, nullptr);
  std::thread late([&] { first->Send(200, "text/plain", "first"); });
  EXPECT_EQ(ReadAnswer(client).body, "first");
  EXPECT_EQ(ReadAnswer(client).body, "GET 2 ");
  late.join();
}

TEST(HttpServer, TakesRequestsBytewise) {
  TestServer server;
  RawSocket client(server.port());
  for (const char c :
       Post("/echo?x", "abc") +
           "POST /echo HTTP/1.1\r\nhost: x\r\n"
           "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nT: u\r\n\r\n")
    ASSERT_TRUE(client.Send({&c, 1}));
  EXPECT_EQ(ReadAnswer(client).body, "POST x abc");
  EXPECT_EQ(ReadAnswer(client).body, "POST  abcd");
}

TEST(HttpServer, GivesTheHandlerDecodedPathsAndJoinedHeaders) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(
      client.Send("GET http://h/%68old?a=%20b HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n\r\n"));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(e->request().path, "/hold");
  EXPECT_EQ(e->request().query, "a=%20b");
  EXPECT_EQ(e->request().headers.at("x-a"), "1, 2");
  EXPECT_EQ(e->request().peer.substr(0, 10), "127.0.0.1:");
  e->Send(200, "text/plain", "");
  EXPECT_EQ(ReadAnswer(client).status, 200);
}

TEST(HttpServer, ClosesWhenAsked) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/echo", "Connection: close\r\n")));
  const RawAnswer answer = ReadAnswer(client);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(client.Read(), "");
  EXPECT_FALSE(client.timed_out());
}

TEST(HttpServer, SpeaksHttp10WithoutChunks) {
  TestServer server;
  RawSocket once(server.port());
  ASSERT_TRUE(once.Send("GET /events?2 HTTP/1.0\r\n\r\n"));
  const RawAnswer stream = ReadAnswer(once);
  EXPECT_EQ(stream.body, "data: 0\n\ndata: 1\n\n");
  EXPECT_FALSE(stream.headers.contains("transfer-encoding"));
  EXPECT_FALSE(once.timed_out());

  RawSocket kept(server.port());
  const std::string ask = "GET /echo?1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  ASSERT_TRUE(kept.Send(ask));
  EXPECT_EQ(ReadAnswer(kept).headers.at("connection"), "keep-alive");
  ASSERT_TRUE(kept.Send(ask));
  EXPECT_EQ(ReadAnswer(kept).body, "GET 1 ");
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/echo?2")));
  EXPECT_EQ(ReadAnswer(client, true).headers.at("content-length"), "6");
  EXPECT_EQ(ReadAnswer(client).body, "GET 2 ");
}

TEST(HttpServer, AsksForABodyThatWaitsForLeave) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                  "Expect: 100-continue\r\n\r\n"));
  EXPECT_EQ(ReadAnswer(client).status, 100);
  ASSERT_TRUE(client.Send("abc"));
  EXPECT_EQ(ReadAnswer(client).body, "POST  abc");
  // No leave where the answer is known already.
  EXPECT_EQ(Ask(server,
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n"
                "Expect: 100-continue\r\n\r\n")
                .status,
            413);
  EXPECT_EQ(Ask(server, Get("/echo", "Expect: tea\r\n")).status, 417);
}

TEST(HttpServer, HeaderValuesCannotEndTheirLine) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  e->Send(200, "text/plain", "x", {{"X-Id", "a\r\nX-Evil: b"}});
  const RawAnswer answer = ReadAnswer(client);
  EXPECT_EQ(answer.headers.at("x-id"), "a  X-Evil: b");
  EXPECT_FALSE(answer.headers.contains("x-evil"));
}

TEST(HttpServer, FramesLeaveAsTheyAre) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  e->StartEvents({{"X-Id", "7"}});
  e->Frames("data: 1\n\ndata: 2\n\n");
  e->Frames("");
  e->Event("3");
  e->EndEvents();
  e->Event("late");
  e->Send(200, "text/plain", "late");
  const RawAnswer answer = ReadAnswer(client);
  EXPECT_EQ(answer.body, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
  EXPECT_EQ(answer.headers.at("x-id"), "7");
  EXPECT_EQ(answer.headers.at("content-type").substr(0, 17), "text/event-stream");
  ASSERT_TRUE(client.Send(Get("/echo?next")));
  EXPECT_EQ(ReadAnswer(client).body, "GET next ");
}

TEST(HttpServer, AnswersInTheHandlersPlaceWhenItDoesNot) {
  TestServer server;
  const RawAnswer forgotten = Ask(server, Get("/nothing"));
  EXPECT_EQ(forgotten.status, 500);
  EXPECT_NE(forgotten.body.find("\"code\":500"), std::string::npos);
  EXPECT_EQ(Ask(server, Get("/throw")).status, 500);
}

TEST(HttpServer, AStreamThatItsHandlerDropsHasNoEnd) {
  TestServer server;
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  auto e = server.Take();
  ASSERT_NE(e, nullptr);
  e->StartEvents();
  e->Event("1");
  e.reset();
  const RawAnswer answer = ReadAnswer(client);
  EXPECT_EQ(answer.body, "data: 1\n\n");
  EXPECT_FALSE(answer.complete);
  EXPECT_FALSE(client.timed_out());
}

// ---- limits

TEST(HttpServer, RefusesMalformedRequests) {
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  struct Case {
    std::string request;
    int status;
  };
  const Case cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET /echo HTTP/2.0\r\nHost: x\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\n\r\n", 400},                        // no Host
      {"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},  // two
      {"GET echo HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /a%2 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"CONNECT h:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      // Where a body ends must not be a matter of opinion.
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
       400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 501},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
      {"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {chunked + "zz\r\n", 400},
      {chunked + "-1\r\n", 400},
      {chunked + "\r\n", 400},
      {chunked + "1\r\nab\r\n0\r\n\r\n", 400},   // more than it said
      {chunked + "11111111111111111\r\n", 400},  // 17 digits
      {chunked + "ffffffffffffffff\r\n", 413},
      {chunked + "0\r\nContent-Length: 5\r\n\r\n", 400},  // no matter of trailers
  };
  TestServer server;
  for (const Case& c : cases) {
    RawAnswer answer = Ask(server, c.request);
    EXPECT_EQ(answer.status, c.status) << c.request;
    EXPECT_NE(answer.body.find("\"message\""), std::string::npos) << c.request;
    EXPECT_EQ(answer.headers["connection"], "close") << c.request;
  }
  EXPECT_EQ(server.seen(), 0u);
  EXPECT_EQ(Ask(server, Get("/echo")).status, 200);
}

TEST(HttpServer, RefusesBodiesOverTheLimitBeforeReadingThem) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  TestServer server(options);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://page\r\n";
  for (const std::string length : {"1001", "1000000000000000000", "18446744073709551615"}) {
    const RawAnswer answer = Ask(server, head + "Content-Length: " + length + "\r\n\r\n");
    EXPECT_EQ(answer.status, 413) << length;
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  }
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(Ask(server, chunked + "3e9\r\n").status, 413);  // 1001
  EXPECT_EQ(Ask(server, chunked + "3e8\r\n" + std::string(1000, 'x') + "\r\n1\r\n").status, 413);
  EXPECT_EQ(Ask(server, chunked + "3e8\r\n" + std::string(1000, 'x') + "\r\n0\r\n\r\n").status,
            200);
  EXPECT_EQ(Ask(server, Post("/echo", std::string(1000, 'x'))).status, 200);
}

TEST(HttpServer, RefusesHeadersOverTheLimit) {
  ServerOptions options;
  options.max_header_bytes = 2000;
  TestServer server(options);
  EXPECT_EQ(Ask(server, "GET /" + std::string(3000, 'a')).status, 431);
  EXPECT_EQ(Ask(server, "GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(3000, 'a')).status, 431);
  EXPECT_EQ(Ask(server, Get("/echo", "A: " + std::string(3000, 'a') + "\r\n")).status, 431);
  // Each field is small, and comes alone.
  RawSocket client(server.port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\n"));
  while (client.Send("A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")) {
    if (server.server().connections() == 0) break;
  }
  EXPECT_EQ(Ask(server, Get("/echo", "A: " + std::string(1900, 'a') + "\r\n")).status, 200);
}

TEST(HttpServer, RefusesChunksThatHoldMoreFramingThanData) {
  ServerOptions options;
  options.max_header_bytes = 2000;
  TestServer server(options);
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(Ask(server, chunked + "1;" + std::string(5000, 'e')).status, 400);
  EXPECT_EQ(Ask(server, chunked + "0\r\n" + std::string(5000, 't')).status, 400);
  std::string trailers = chunked + "0\r\n";
  for (int i = 0; i < 500; ++i) trailers += "A: aaaaaaaa\r\n";
  EXPECT_EQ(Ask(server, trailers).status, 400);
  std::string extensions = chunked;  // a byte at a time, each with a kilobyte beside it
  for (int i = 0; i < 200; ++i) extensions += "1;a=" + std::string(1000, 'e') + "\r\nx\r\n";
  EXPECT_EQ(Ask(server, extensions).status, 400);
  std::string small = chunked;  // what a poor but honest client sends
  for (int i = 0; i < 20000; ++i) small += "1\r\nx\r\n";
  EXPECT_EQ(Ask(server, small + "0\r\n\r\n").status, 200);
}

TEST(HttpServer, GivesUpOnSlowRequests) {
  ServerOptions options;
  options.header_seconds = 1;  // long enough to send what is sent, on any machine
  options.body_seconds = 1;
  options.idle_seconds = 1;
  TestServer server(options);
  EXPECT_EQ(Ask(server, "GET /echo HT").status, 408);
  EXPECT_EQ(Ask(server, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc").status,
            408);
  RawSocket drip(server.port());  // a byte now and then does not help
  std::atomic<bool> over = false;
  std::thread dripping([&] {
    drip.Send("GET /");
    while (!over && drip.Send("a")) std::this_thread::sleep_for(20ms);
  });
  EXPECT_EQ(ReadAnswer(drip).status, 408);
  over = true;
  dripping.join();
  // Nothing was asked, so nothing is said; the same after an answer.
  RawSocket idle(server.port());
  EXPECT_EQ(idle.Read(), "");
  EXPECT_FALSE(idle.timed_out());
  RawSocket kept(server.port());
  ASSERT_TRUE(kept.Send(Get("/echo")));
  EXPECT_EQ(ReadAnswer(kept).status, 200);
  EXPECT_EQ(kept.Read(), "");
  EXPECT_FALSE(kept.timed_out());
}

TEST(HttpServer, RefusesConnectionsOverTheLimitWith503) {
  ServerOptions options;
  options.max_connections = 2;
  TestServer server(options);
  RawSocket a(server.port()), b(server.port());
  ASSERT_TRUE(Eventually([&] { return server.server().connections() == 2; }));
  RawSocket c(server.port());
  EXPECT_EQ(ReadAnswer(c).status, 503);
  EXPECT_EQ(c.Read(), "");
  ASSERT_TRUE(a.Send(Get("/echo")));
  EXPECT_EQ(ReadAnswer(a).status, 200);
  b.Close();
  ASSERT_TRUE(Eventually([&] { return server.server().connections() == 1; }));
  EXPECT_EQ(Ask(server, Get("/echo")).status, 200);
}

TEST(HttpServer, AThousandSilentConnectionsHinderNobody) {
  TestServer server;
  std::vector<RawSocket> silent;
  for (int i = 0; i < 1000; ++i) silent.emplace_back(server.port());
  ASSERT_TRUE(Eventually([&] { return server.server().connections() == 1000; }));
  EXPECT_EQ(Ask(server, Get("/echo?1")).body, "GET 1 ");
  silent.clear();
  EXPECT_TRUE(Eventually([&] { return server.server().connections() == 0; }));
}
}  // namespace
}  // namespace net
