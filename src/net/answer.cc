#include "net/answer.h"

#include <ctime>

#include "base/strings.h"

namespace net {
namespace {

// Every answer begins so, whatever its status: probes are taken from it.
constexpr std::string_view kVersion = "HTTP/1.1 ";

std::string HttpDate() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday,
                     kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

// A value that came from a request must not end its line and begin another.
void AppendHeader(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) out += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? ' ' : c;
  out += "\r\n";
}

}  // namespace

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string Answer::Head(int status, const HeaderList& headers) {
  std::string head = fmt::format("{}{} {}\r\n", kVersion, status, Reason(status));
  AppendHeader(head, "Date", HttpDate());
  for (const auto& [name, value] : form_.headers) AppendHeader(head, name, value);
  for (const auto& [name, value] : headers) AppendHeader(head, name, value);
  if (!form_.keep_alive || (streaming_ && form_.http_1_0)) {
    AppendHeader(head, "Connection", "close");
  } else if (form_.http_1_0) {
    AppendHeader(head, "Connection", "keep-alive");
  }
  started_ = true;
  return head.substr(probes_);
}

void Answer::Chunk(std::string_view a, std::string_view b, std::string_view c) {
  const size_t size = a.size() + b.size() + c.size();
  if (size == 0) return;  // an empty chunk would end the body
  if (!form_.http_1_0) fmt::format_to(std::back_inserter(out_), "{:x}\r\n", size);
  out_.append(a).append(b).append(c);
  if (!form_.http_1_0) out_ += "\r\n";
}

// Lets go of the lock, and wakes the connection when it is not awake already. One that waits for
// a stalled reader has to be told, too.
void Answer::Push(std::unique_lock<std::mutex>& lock) {
  const bool wake = !scheduled_ || stalled_;
  scheduled_ = true;
  lock.unlock();
  if (wake) schedule_();
}

// A reader that stalls costs at most this much. What nothing waits before may be larger.
bool Answer::Fits(size_t bytes) {
  const size_t waiting = out_.size() + in_flight_;
  if (waiting == 0 || waiting + bytes <= form_.max_buffered_bytes) return true;
  broken_ = stalled_ = true;
  out_ = {};
  return false;
}

void Answer::Send(int status, std::string_view content_type, std::string body,
                  const HeaderList& headers) {
  std::unique_lock lock(mutex_);
  if (started_ || gone_) return;
  std::string head = Head(status, headers);
  const bool bodiless = status == 204 || status == 304;
  if (!content_type.empty() && !bodiless) AppendHeader(head, "Content-Type", content_type);
  if (!bodiless) AppendHeader(head, "Content-Length", std::to_string(body.size()));
  head += "\r\n";
  out_ += head;
  if (!bodiless && !form_.head) out_ += body;
  ended_ = true;
  Push(lock);
}

void Answer::StartEvents(const HeaderList& headers) {
  std::unique_lock lock(mutex_);
  if (started_ || gone_) return;
  streaming_ = true;
  std::string head = Head(200, headers);
  AppendHeader(head, "Content-Type", "text/event-stream; charset=utf-8");
  AppendHeader(head, "Cache-Control", "no-cache");
  AppendHeader(head, "X-Accel-Buffering", "no");  // asks proxies not to hold events back
  if (!form_.http_1_0) AppendHeader(head, "Transfer-Encoding", "chunked");
  out_ += head + "\r\n";
  Push(lock);
}

void Answer::Event(std::string_view data) {
  std::unique_lock lock(mutex_);
  if (!streaming_ || ended_ || gone_ || broken_ || form_.head) return;
  if (Fits(data.size())) Chunk("data: ", data, "\n\n");
  Push(lock);
}

void Answer::Frames(std::string_view frames) {
  std::unique_lock lock(mutex_);
  if (!streaming_ || ended_ || gone_ || broken_ || form_.head) return;
  if (Fits(frames.size())) Chunk(frames);
  Push(lock);
}

void Answer::EndEvents() {
  std::unique_lock lock(mutex_);
  if (!streaming_ || ended_ || gone_ || broken_) return;
  if (!form_.http_1_0 && !form_.head) out_ += "0\r\n\r\n";
  ended_ = true;
  Push(lock);
}

void Answer::OnGone(std::function<void()> callback,
                    const std::function<void(std::function<void()>)>& run) {
  std::unique_lock lock(mutex_);
  if (gone_) {
    lock.unlock();
    if (callback) run(std::move(callback));
    return;
  }
  if (!ended_) on_gone_.swap(callback);
  lock.unlock();  // the old callback may hold the last reference to much: it goes outside the lock
}

bool Answer::Abandon() {
  std::function<void()> old;
  std::unique_lock lock(mutex_);
  if (ended_ || gone_) return false;
  if (!started_) return true;
  old.swap(on_gone_);  // nobody left but the handler
  broken_ = true;      // without the last chunk, so that the client sees that something is missing
  Push(lock);
  return false;
}

Answer::Next Answer::Take(std::string& out) {
  std::unique_lock lock(mutex_);
  if (broken_ && out_.empty()) return Next::kBroken;
  if (!out_.empty()) {
    out.clear();
    out.swap(out_);
    in_flight_ = out.size();
    scheduled_ = true;
    return Next::kBytes;
  }
  scheduled_ = false;
  return ended_ ? Next::kDone : Next::kNothing;
}

void Answer::Wrote(size_t bytes) {
  std::unique_lock lock(mutex_);
  in_flight_ -= bytes;
}

bool Answer::stalled() const {
  std::unique_lock lock(mutex_);
  return stalled_;
}

bool Answer::Probe() {
  std::unique_lock lock(mutex_);
  if (ended_ || gone_ || broken_) return false;
  if (started_) {
    if (!streaming_ || form_.head) return false;
    Chunk(": keep-alive\n\n");
    return true;
  }
  if (probes_ == kVersion.size()) return false;
  out_ += kVersion[probes_++];
  return true;
}

void Answer::Comment() {
  std::unique_lock lock(mutex_);
  if (streaming_ && !ended_ && !gone_ && !broken_ && !form_.head) Chunk(": keep-alive\n\n");
}

bool Answer::streaming() const {
  std::unique_lock lock(mutex_);
  return streaming_ && !ended_;
}

bool Answer::closes() const {
  std::unique_lock lock(mutex_);
  return !form_.keep_alive || (streaming_ && form_.http_1_0);
}

std::function<void()> Answer::Leave() {
  std::unique_lock lock(mutex_);
  if (gone_) return {};
  gone_ = true;
  out_ = {};
  return std::exchange(on_gone_, {});
}

void Answer::Finish() {
  std::function<void()> old;
  std::unique_lock lock(mutex_);
  old.swap(on_gone_);
  lock.unlock();
}

}  // namespace net
