// What the tests of this room share: raw sockets that can misbehave, and a server to try them on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

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

// A self-signed certificate for "localhost" and 127.0.0.1, made with OpenSSL, in a fresh folder.
struct TestCertificate {
  TestCertificate();
  ~TestCertificate();
  std::string folder, key_file, certificate_file, other_key_file;
};

}  // namespace net::testing
