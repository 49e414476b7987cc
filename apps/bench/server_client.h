// Requests to a server that speaks OpenAI's API, streamed.
//
// Tokens are counted by the server's own usage (stream_options.include_usage), never by the text.
// Times are those of chunks with text or token ids; a chunk may hold several tokens.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/client.h"

namespace apps::bench {

struct ServerOptions {
  std::string url;                           // "http://host:port"
  std::string endpoint = "/v1/completions";  // or one that ends in /chat/completions
  std::string model = {};                    // empty: the first that /v1/models lists
  std::string api_key = {};
  bool send_text = false;          // prompts as text, not as ids
  boost::json::object extra_body;  // further fields of every request
};

class ServerClient : public Client {
 public:
  // Asks the server for its model where none is named. Errors: kUnavailable, kInvalidArgument.
  static base::Result<std::unique_ptr<ServerClient>> Connect(ServerOptions options);

  const std::string& model() const { return options_.model; }
  RunRecord Run(const Work& work, const OnDone& on_done) override;

  // The JSON of request `index`.
  std::string Body(const Work& work, size_t index) const;

 private:
  explicit ServerClient(ServerOptions options);
  bool chat() const;

  ServerOptions options_;
  std::vector<std::pair<std::string, std::string>> headers_;
};

// What a streamed answer says, event by event.
class AnswerReader {
 public:
  // `now`: seconds since the run began, when the event came.
  void Event(std::string_view data, double now, RequestRecord& record);
  // After the body's end: what is missing, or what went wrong.
  std::string Problem() const;

 private:
  std::string error_;
  bool usage_ = false, finished_ = false;
};

}  // namespace apps::bench
