// The bytes of one answer: made by the handler's side on any thread, taken by the connection's
// thread. Knows framing (lengths, chunks, events), not sockets.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http_server.h"

namespace net {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

// What the request decides about the form of its answer.
struct AnswerForm {
  bool head = false;       // HEAD: headers alone
  bool http_1_0 = false;   // no chunks: a stream ends with the connection
  bool keep_alive = true;  // says so; the connection acts on it
  HeaderList headers;      // on every answer: CORS
  size_t max_buffered_bytes = 1 << 20;
};

class Answer {
 public:
  // `schedule` asks the connection's thread to call Take soon. It is called again only after Take
  // said kNothing, so a busy stream costs its producer no more than a lock.
  Answer(AnswerForm form, std::function<void()> schedule)
      : form_(std::move(form)), schedule_(std::move(schedule)) {}

  // From any thread: what Exchange promises.
  void Send(int status, std::string_view content_type, std::string body, const HeaderList& headers);
  void StartEvents(const HeaderList& headers);
  void Event(std::string_view data);
  void Frames(std::string_view frames);
  void EndEvents();
  void OnGone(std::function<void()> callback,
              const std::function<void(std::function<void()>)>& run);
  // The handler's last reference went: a stream without an end is broken off. True when nothing
  // was said yet, so that the caller may.
  bool Abandon();

  // From the connection's thread.
  enum class Next { kNothing, kBytes, kDone, kBroken };
  // Bytes to write, in place of `out`'s. kDone: all were taken; kBroken: close without an end.
  // REQUIRES: what was taken before is written.
  Next Take(std::string& out);
  void Wrote(size_t bytes);
  // Too much waits for a reader that does not take it: it is to be dropped at once.
  bool stalled() const;
  // Something harmless to write, to see whether the client still takes it: the next character of
  // the status line, or a comment between events. False when there is none left.
  bool Probe();
  void Comment();
  bool streaming() const;
  // Must the connection close after this answer?
  bool closes() const;
  // The client left. Returns the callback to call, if any.
  std::function<void()> Leave();
  // Everything was written: lets go of what the callback holds.
  void Finish();

 private:
  std::string Head(int status, const HeaderList& headers);
  void Chunk(std::string_view a, std::string_view b = {}, std::string_view c = {});
  void Push(std::unique_lock<std::mutex>& lock);
  bool Fits(size_t bytes);

  const AnswerForm form_;
  const std::function<void()> schedule_;
  mutable std::mutex mutex_;
  std::string out_;
  size_t in_flight_ = 0;    // taken, not yet written
  size_t probes_ = 0;       // characters of the status line that went ahead
  bool scheduled_ = false;  // Take will be called without being asked
  bool started_ = false, streaming_ = false, ended_ = false, gone_ = false;
  bool broken_ = false, stalled_ = false;
  std::function<void()> on_gone_;
};

// The text of a status ("Not Found").
std::string_view Reason(int status);

}  // namespace net
