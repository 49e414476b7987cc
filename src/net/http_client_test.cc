// The client against our server, plain and over TLS, and against servers that misbehave.
#include "net/http_client.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/strings.h"
#include "net/http_server.h"
#include "net/net_testing.h"

namespace net {
namespace {

using base::Code;
using testing::CannedServer;
using testing::Eventually;
using testing::Get;
using testing::RawSocket;
using testing::ReadAnswer;
using testing::TestCertificate;
using testing::TestServer;

std::string Url(uint16_t port, std::string_view path, std::string_view scheme = "http") {
  return fmt::format("{}://127.0.0.1:{}{}", scheme, port, path);
}

TEST(ParseUrl, TakesUrlsApart) {
  auto url = ParseUrl("HTTPS://Example.org/a/b?c=d#e");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->scheme, "https");
  EXPECT_EQ(url->host, "example.org");
  EXPECT_EQ(url->port, 443);
  EXPECT_EQ(url->path, "/a/b?c=d");
  url = ParseUrl("http://[::1]:8080?x");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->path, "/?x");
  for (const char* bad : {"", "example.org", "ftp://x/", "http://", "http:///a", "http://x:0/",
                          "http://x:65536/", "http://x:1a/", "http://x:/", "http://u:p@x/",
                          "http://x/a b", "http://x/\r\nA: b", "http://[::1/", "http://x y/"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
}

TEST(ParseUrl, FollowsRelativeLocations) {
  const auto page = ParseUrl("https://h:444/a/b?c");
  ASSERT_TRUE(page.ok());
  const auto at = [&](std::string_view location) {
    auto url = Resolve(*page, location);
    return url.ok() ? fmt::format("{}://{}:{}{}", url->scheme, url->host, url->port, url->path)
                    : url.error().message;
  };
  EXPECT_EQ(at("/x?y"), "https://h:444/x?y");
  EXPECT_EQ(at("x"), "https://h:444/a/x");
  EXPECT_EQ(at("//other/x"), "https://other:443/x");
  EXPECT_EQ(at("http://other/x"), "http://other:80/x");
  EXPECT_EQ(at("/x?u=http://y"), "https://h:444/x?u=http://y");
}

TEST(HttpClient, SendsAndReceivesOnAKeptConnection) {
  TestServer server;
  HttpClient client;
  for (int i = 0; i < 3; ++i) {
    auto answer = client.Send("POST", Url(server.port(), "/echo?q"), {{"X-A", "b"}}, "hello");
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->headers.at("content-type"), "text/plain");
    EXPECT_EQ(answer->body, "POST q hello");
    EXPECT_EQ(server.server().connections(), 1);
  }
}

TEST(HttpClient, StreamsAndBreaksOff) {
  TestServer server;
  HttpClient client;
  std::string body;
  int status = 0;
  auto answer = client.Send(
      "GET", Url(server.port(), "/events?3"), {}, {},
      [&](const ClientResponse& r) {
        status = r.status;
        return true;
      },
      [&](std::string_view piece) {
        body += piece;
        return true;
      });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(status, 200);
  EXPECT_EQ(body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  EXPECT_EQ(answer->body, "");

  answer = client.Send("GET", Url(server.port(), "/events?3"), {}, {}, {},
                       [](std::string_view) { return false; });
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kCancelled);
  answer = client.Send("GET", Url(server.port(), "/events?3"), {}, {},
                       [](const ClientResponse&) { return false; });
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kCancelled);
  EXPECT_TRUE(client.Send("GET", Url(server.port(), "/echo")).ok());
}

TEST(HttpClient, AsksAgainWhenAKeptConnectionWasClosed) {
  ServerOptions options;
  options.idle_seconds = 1;  // long enough to ask, on any machine
  TestServer server(options);
  HttpClient client;
  ASSERT_TRUE(client.Send("GET", Url(server.port(), "/echo")).ok());
  ASSERT_TRUE(Eventually([&] { return server.server().connections() == 0; }));
  EXPECT_TRUE(client.Send("POST", Url(server.port(), "/echo"), {}, "x").ok());
}

TEST(HttpClient, SaysAfterHowManyBytesAConnectionBroke) {
  struct Case {
    const char* answer;
    const char* sentence;
  };
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabcd", "broke after 4 of 10 bytes"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "broke after 3 bytes"},
      {"HTTP/1.1 200 OK\r\nContent-", "no valid answer"},
      {"", "no valid answer"},
      {"SSH-2.0-OpenSSH\r\n", "no valid answer"},
  };
  for (const Case& c : cases) {
    CannedServer server([&](const std::string&) { return c.answer; });
    HttpClient client;
    auto answer = client.Send("GET", Url(server.port(), "/"));
    ASSERT_FALSE(answer.ok()) << c.answer;
    EXPECT_EQ(answer.error().code, Code::kUnavailable);
    EXPECT_NE(answer.error().message.find(c.sentence), std::string::npos) << answer.error().message;
  }
}

TEST(HttpClient, UnderstandsBodiesWithoutLengthAndInterimAnswers) {
  CannedServer server([](const std::string& request) {
    return base::StartsWith(request, "HEAD")
               ? "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
               : "HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.0 200 OK\r\nC: d\r\n\r\nto the end";
  });
  HttpClient client;
  auto answer = client.Send("GET", Url(server.port(), "/"));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "to the end");
  EXPECT_FALSE(answer->headers.contains("a"));
  answer = client.Send("HEAD", Url(server.port(), "/"));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->headers.at("content-length"), "99");
}

TEST(HttpClient, BoundsWhatItKeepsAndHowLongItWaits) {
  TestServer server;
  ClientOptions options;
  options.max_body_bytes = 5;
  HttpClient client(options);
  auto answer = client.Send("GET", Url(server.port(), "/echo?12345678"));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kResourceExhausted);

  options.read_seconds = 0.1;
  HttpClient hasty(options);
  answer = hasty.Send("GET", Url(server.port(), "/hold"));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NE(answer.error().message.find("too long"), std::string::npos) << answer.error().message;
}

TEST(HttpClient, FollowsRedirectsAndKeepsItsSecrets) {
  std::vector<std::string> seen;
  CannedServer target([&](const std::string& request) {
    seen.push_back(request);
    return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  });
  CannedServer first([&](const std::string& request) -> std::string {
    if (request.find("/again ") != std::string::npos)
      return "HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n";
    if (request.find("/first ") != std::string::npos)
      return "HTTP/1.1 302 Found\r\nLocation: second\r\nContent-Length: 4\r\n\r\nmoved";
    return fmt::format("HTTP/1.1 307 Temporary Redirect\r\nLocation: {}\r\n\r\nbody",
                       Url(target.port(), "/third?x"));
  });
  HttpClient client;
  auto answer = client.Send("GET", Url(first.port(), "/first"),
                            {{"Authorization", "Bearer secret"}, {"X-Kept", "1"}});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "ok");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].find("secret"), std::string::npos);
  EXPECT_NE(seen[0].find("GET /third?x HTTP/1.1"), std::string::npos);
  EXPECT_NE(seen[0].find("X-Kept: 1"), std::string::npos);

  answer = client.Send("GET", Url(first.port(), "/again"));
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("more than 5 times"), std::string::npos);

  ClientOptions options;
  options.max_redirects = 0;
  HttpClient reader(options);
  answer = reader.Send("GET", Url(first.port(), "/second"));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 307);
  EXPECT_EQ(answer->headers.at("location"), Url(target.port(), "/third?x"));
}

TEST(HttpClient, SaysWhatIsWrongWithTheConnection) {
  HttpClient client;
  uint16_t closed = 0;
  {
    CannedServer server([](const std::string&) { return ""; });
    closed = server.port();
  }
  auto answer = client.Send("GET", Url(closed, "/"));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NE(answer.error().message.find("no connection"), std::string::npos);
  answer = client.Send("GET", "http://host.invalid/");
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("host.invalid"), std::string::npos);
  EXPECT_EQ(client.Send("GET", "gopher://x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.Send("GET", Url(closed, "/"), {{"A", "b\r\nC: d"}}).error().code,
            Code::kInvalidArgument);
}

// ---- TLS

ServerOptions WithTls(const TestCertificate& certificate) {
  ServerOptions options;
  options.tls_key_file = certificate.key_file;
  options.tls_certificate_file = certificate.certificate_file;
  return options;
}

TEST(Tls, ServesAndStreams) {
  TestCertificate certificate;
  TestServer server(WithTls(certificate));
  ClientOptions options;
  options.ca_file = certificate.certificate_file;
  HttpClient client(options);
  const std::string big(3 << 20, 'x');
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const std::string url = fmt::format("https://{}:{}", host, server.port());
    auto answer = client.Send("POST", url + "/echo?", {}, big);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->body, "POST  " + big);
    answer = client.Send("GET", url + "/events?1000");
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->body.substr(answer->body.size() - 11), "data: 999\n\n");
    EXPECT_TRUE(Eventually([&] { return server.server().connections() == 1; }));
  }
}

TEST(Tls, NoticesClientsThatLeaveAndSparesThoseThatStay) {
  TestCertificate certificate;
  TestServer server(WithTls(certificate));
  ClientOptions options;
  options.ca_file = certificate.certificate_file;
  const std::string url = Url(server.port(), "/hold", "https");
  // One breaks off at the head of its answer and closes; the other asked the same and waits.
  std::thread leaving([&] {
    HttpClient client(options);
    auto answer = client.Send("GET", url, {}, {}, [](const ClientResponse&) { return false; });
    EXPECT_FALSE(answer.ok());
  });
  auto left = server.Take();
  std::string body;
  std::thread staying([&] {
    HttpClient client(options);
    auto answer = client.Send("GET", url);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    if (answer.ok()) body = answer->body;
  });
  auto stayed = server.Take();
  if (left) left->StartEvents();
  leaving.join();
  EXPECT_TRUE(Eventually([&] { return server.gone() == 1; }));
  if (stayed) stayed->Send(200, "text/plain", "x");
  staying.join();
  EXPECT_EQ(body, "x");
  EXPECT_EQ(server.gone(), 1);
  EXPECT_TRUE(Eventually([&] { return server.server().connections() == 0; }));
}

TEST(Tls, TheClientTrustsNobodyWithoutProof) {
  TestCertificate certificate, other;
  TestServer server(WithTls(certificate));
  HttpClient client;
  auto answer = client.Send("GET", Url(server.port(), "/echo", "https"));
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("not trusted"), std::string::npos)
      << answer.error().message;
  ClientOptions options;
  options.ca_file = other.certificate_file;
  EXPECT_FALSE(HttpClient(options).Send("GET", Url(server.port(), "/echo", "https")).ok());
  // What the user names in OpenSSL's own variable counts as the system's.
  ::setenv("SSL_CERT_FILE", certificate.certificate_file.c_str(), 1);
  EXPECT_TRUE(HttpClient().Send("GET", Url(server.port(), "/echo", "https")).ok());
  ::unsetenv("SSL_CERT_FILE");
  // The right certificate under another name.
  options.ca_file = certificate.certificate_file;
  answer = HttpClient(options).Send("GET", fmt::format("https://127.0.0.2:{}/", server.port()));
  ASSERT_FALSE(answer.ok());
  options.ca_file = certificate.key_file;
  answer = HttpClient(options).Send("GET", Url(server.port(), "/echo", "https"));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
}

TEST(Tls, AnHttpsPageDoesNotSendItsReadersToHttp) {
  TestCertificate certificate;
  ServerOptions options = WithTls(certificate);
  options.port = 0;
  auto server = HttpServer::Listen(
      options,
      [](std::shared_ptr<Exchange> e) {
        e->Send(302, "", "", {{"Location", "http://127.0.0.1:9/x"}});
      },
      testing::ErrorBody);
  ASSERT_TRUE(server.ok());
  (*server)->Start();
  ClientOptions trust;
  trust.ca_file = certificate.certificate_file;
  auto answer = HttpClient(trust).Send("GET", Url((*server)->port(), "/", "https"));
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("from https to http"), std::string::npos);
}

TEST(Tls, ConnectionsThatDoNotSpeakItEnd) {
  TestCertificate certificate;
  ServerOptions options = WithTls(certificate);
  options.header_seconds = 0.2;
  TestServer server(options);
  RawSocket plain(server.port()), silent(server.port());
  ASSERT_TRUE(plain.Send(Get("/echo")));
  plain.ReadAll();
  EXPECT_FALSE(plain.timed_out());
  silent.ReadAll();
  EXPECT_FALSE(silent.timed_out());
}

TEST(Tls, SaysWhichFileIsWrong) {
  TestCertificate certificate;
  struct Case {
    std::string key, file, sentence;
  };
  const Case cases[] = {
      {certificate.key_file, "", "both"},
      {"", certificate.certificate_file, "both"},
      {certificate.folder + "/none", certificate.certificate_file, "/none"},
      {certificate.key_file, certificate.folder + "/none", "/none"},
      {certificate.certificate_file, certificate.certificate_file, "private key"},
      {certificate.key_file, certificate.key_file, "certificate"},
      {certificate.other_key_file, certificate.certificate_file, "does not belong"},
  };
  for (const Case& c : cases) {
    ServerOptions options;
    options.port = 0;
    options.tls_key_file = c.key;
    options.tls_certificate_file = c.file;
    auto server = HttpServer::Listen(
        options, [](auto) {}, testing::ErrorBody);
    ASSERT_FALSE(server.ok()) << c.sentence;
    EXPECT_EQ(server.error().code, Code::kInvalidArgument);
    EXPECT_NE(server.error().message.find(c.sentence), std::string::npos) << server.error().message;
  }
}

}  // namespace
}  // namespace net
