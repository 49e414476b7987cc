// A model that says what a test tells it to, and a client without a network.
#pragma once

#include <boost/json/value.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/http_server.h"
#include "vllm/server/served_model.h"

namespace vllm::server {

inline constexpr int32_t kEnd = 257;  // of ByteTokenizer: a control token

// Ids 0..255 are bytes, 257 is the control token "<end>".
std::unique_ptr<text::Tokenizer> ByteTokenizer();

class FakeModel : public ServedModel {
 public:
  // `script`: the text of a choice; then it ends. `sink` gets a token of each choice a step, from
  // a thread of this object.
  using Script = std::function<std::string(const engine::Request&, int32_t choice)>;
  FakeModel(engine::OutputSink& sink, Script script);
  ~FakeModel() override;

  base::Status Submit(engine::Request request,
                      const std::function<void(engine::RequestId)>& taken) override;
  void Cancel(engine::RequestId request, int32_t choice) override;
  engine::EngineStats Stats() const override;
  const text::Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const text::ChatTemplate* chat_template() const override { return template_.get(); }
  int64_t max_model_len() const override { return 1000; }
  int64_t vocabulary() const override { return 258; }
  std::string description() const override { return "fake"; }
  engine::Pooling pooling() const override { return engine::Pooling::kLast; }
  const engine::Audio& audio() const override { return hears; }
  engine::Audio hears;  // nothing
  int64_t classes() const override { return static_cast<int64_t>(head.labels.size()); }
  const engine::ClassHead& class_head() const override { return head; }
  engine::ClassHead head;  // none
  base::Result<std::vector<int32_t>> EncodePrompt(std::string_view text, bool) const override;
  base::Result<std::vector<int32_t>> EncodeChat(const text::ChatInput& chat) const override;

  int live() const;      // choices that still run
  void Hold(bool hold);  // no steps while true
  // Checks of requests last until it is false.
  void HoldChecks(bool hold);
  int checking() const;  // requests whose checks wait
  // Each choice fails behind so many tokens, with this sentence.
  void FailAfter(int64_t tokens, std::string why);
  void RefuseWith(base::Code code, std::string message);

 private:
  struct Live {
    engine::RequestId id;
    int32_t choice;
    std::string text;
    int64_t given = 0;
    engine::Request request;
  };
  void Run();
  bool Next(Live& live, engine::Output& out) const;

  engine::OutputSink& sink_;
  Script script_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Live> live_;
  engine::RequestId last_ = 0;
  bool stop_ = false, hold_ = false, hold_checks_ = false;
  int checking_ = 0;
  std::optional<base::Error> refusal_;
  int64_t fail_after_ = INT64_MAX;
  std::string failure_;
  std::thread thread_;
};

class FakeExchange : public net::Exchange {
 public:
  explicit FakeExchange(net::HttpRequest request) : request_(std::move(request)) {}

  const net::HttpRequest& request() const override { return request_; }
  void Send(int status, std::string_view content_type, std::string body,
            std::vector<std::pair<std::string, std::string>> headers) override;
  void StartEvents(std::vector<std::pair<std::string, std::string>> headers) override;
  void Event(std::string_view data) override;
  void Frames(std::string frames) override;
  void EndEvents() override;
  void OnGone(std::function<void()> callback) override;

  void Leave();  // the client goes
  void Wait();   // until the answer is complete
  bool ended() const;
  int status = 0;
  std::string type, body;  // of a stream: all of its frames
  std::map<std::string, std::string> headers;

  boost::json::value Json() const;
  std::vector<boost::json::value> Chunks() const;  // checked: one [DONE], at the end

 private:
  net::HttpRequest request_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::function<void()> gone_;
  bool ended_ = false;
};

}  // namespace vllm::server
