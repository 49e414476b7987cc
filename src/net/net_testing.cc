#include "net/net_testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/strings.h"

namespace net::testing {

RawSocket::RawSocket(uint16_t port, int receive_buffer, double seconds) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0)
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(limit.tv_sec)) * 1e6);
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Close();
}

RawSocket::RawSocket(RawSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), kept_(std::move(other.kept_)) {}

RawSocket::~RawSocket() { Close(); }

bool RawSocket::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string RawSocket::Read(size_t most) {
  timed_out_ = false;
  if (!kept_.empty()) {
    std::string out = kept_.substr(0, most);
    kept_.erase(0, out.size());
    return out;
  }
  std::string out(most, '\0');
  const ssize_t n = ::recv(fd_, out.data(), out.size(), 0);
  timed_out_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  out.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return out;
}

std::string RawSocket::ReadAll() {
  std::string all;
  while (true) {
    const std::string part = Read();
    if (part.empty()) return all;
    all += part;
  }
}

std::string RawSocket::ReadUntil(std::string_view text) {
  std::string all;
  while (true) {
    const std::string part = Read();
    if (part.empty()) return all;
    all += part;
    const size_t at = all.find(text);
    if (at == std::string::npos) continue;
    kept_ = all.substr(at + text.size()) + kept_;
    return all.substr(0, at + text.size());
  }
}

void RawSocket::ShutdownSend() { ::shutdown(fd_, SHUT_WR); }

void RawSocket::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawSocket::Reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  Close();
}

RawAnswer ReadAnswer(RawSocket& socket, bool head) {
  RawAnswer answer;
  const std::string text = socket.ReadUntil("\r\n\r\n");
  if (!base::StartsWith(text, "HTTP/1.1 ") || !base::EndsWith(text, "\r\n\r\n")) return answer;
  answer.status = std::atoi(text.c_str() + 9);
  for (const std::string& line : base::Split(text, '\n')) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string& value = answer.headers[name];
    value += (value.empty() ? "" : ", ") + line.substr(colon + 2, line.size() - colon - 3);
  }
  answer.complete = true;
  if (head || answer.status == 204 || answer.status / 100 == 1) return answer;
  if (answer.headers.contains("transfer-encoding")) {
    while (true) {
      const std::string size = socket.ReadUntil("\r\n");
      if (!base::EndsWith(size, "\r\n")) break;
      size_t left = std::strtoul(size.c_str(), nullptr, 16) + 2;
      const bool last = left == 2;
      std::string chunk;
      while (chunk.size() < left) {
        const std::string part = socket.Read(left - chunk.size());
        if (part.empty()) break;
        chunk += part;
      }
      answer.complete = chunk.size() == left;
      if (!answer.complete || last) return answer;
      answer.body += chunk.substr(0, left - 2);
    }
    answer.complete = false;
  } else if (answer.headers.contains("content-length")) {
    const size_t left = std::strtoul(answer.headers["content-length"].c_str(), nullptr, 10);
    while (answer.body.size() < left) {
      const std::string part = socket.Read(left - answer.body.size());
      if (part.empty()) break;
      answer.body += part;
    }
    answer.complete = answer.body.size() == left;
  } else {
    answer.body = socket.ReadAll();
  }
  return answer;
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string Get(std::string_view path, std::string_view more_headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, more_headers);
}

std::string Post(std::string_view path, std::string_view body, std::string_view more_headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", path,
                     body.size(), more_headers, body);
}

CannedServer::CannedServer(std::function<std::string(const std::string&)> respond)
    : respond_(std::move(respond)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::listen(listener_, 16);
  socklen_t size = sizeof address;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

CannedServer::~CannedServer() {
  ::shutdown(listener_, SHUT_RDWR);  // wakes accept
  thread_.join();
  ::close(listener_);
}

void CannedServer::Serve() {
  while (true) {
    const int client = ::accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(client, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      request.append(buffer, static_cast<size_t>(n));
    }
    const std::string answer = request.empty() ? "" : respond_(request);
    for (size_t sent = 0; sent < answer.size();) {
      const ssize_t n = ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    ::close(client);
  }
}

std::string ErrorBody(int status, std::string_view sentence) {
  return fmt::format("{{\"error\":{{\"code\":{},\"message\":\"{}\"}}}}", status, sentence);
}

RawAnswer Ask(TestServer& server, std::string_view request, bool head) {
  RawSocket client(server.port());
  return client.Send(request) ? ReadAnswer(client, head) : RawAnswer();
}

namespace {

void WriteKey(const std::string& path, EVP_PKEY* key) {
  FILE* file = std::fopen(path.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
}

}  // namespace

TestCertificate::TestCertificate() {
  std::string pattern = (std::filesystem::temp_directory_path() / "net_test_XXXXXX").string();
  folder = ::mkdtemp(pattern.data());
  key_file = folder + "/key.pem";
  certificate_file = folder + "/certificate.pem";
  other_key_file = folder + "/other_key.pem";
  EVP_PKEY* key = EVP_EC_gen("P-256");
  EVP_PKEY* other = EVP_EC_gen("P-256");
  X509* x = X509_new();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x), 3600);
  X509_set_pubkey(x, key);
  X509_NAME* name = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x, name);
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, x, x, nullptr, nullptr, 0);
  for (const auto& [id, value] : {std::pair{NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1"},
                                  std::pair{NID_basic_constraints, "critical,CA:TRUE"}}) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(x, key, EVP_sha256());
  FILE* file = std::fopen(certificate_file.c_str(), "w");
  PEM_write_X509(file, x);
  std::fclose(file);
  WriteKey(key_file, key);
  WriteKey(other_key_file, other);
  X509_free(x);
  EVP_PKEY_free(key);
  EVP_PKEY_free(other);
}

TestCertificate::~TestCertificate() {
  std::error_code ec;
  std::filesystem::remove_all(folder, ec);
}

}  // namespace net::testing
