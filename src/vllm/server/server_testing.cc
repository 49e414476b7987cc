#include "vllm/server/server_testing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "base/strings.h"

namespace vllm::server {
namespace json = boost::json;

std::unique_ptr<text::Tokenizer> ByteTokenizer() {
  json::object vocab;
  int moved = 0;
  for (int b = 0; b < 256; ++b) {
    const bool shown =
        (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    const int code = shown ? b : 256 + moved++;  // as GPT-2 writes bytes
    std::string s;
    if (code < 0x80) {
      s += static_cast<char>(code);
    } else {
      s += static_cast<char>(0xC0 | code >> 6);
      s += static_cast<char>(0x80 | (code & 0x3F));
    }
    vocab[s] = b;
  }
  const json::value file = {
      {"added_tokens", json::array{{{"id", kEnd},
                                    {"content", "<end>"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}}}};
  auto made = text::Tokenizer::FromJson(file);
  if (!made) {
    ADD_FAILURE() << made.error().message;
    return nullptr;
  }
  return *std::move(made);
}

FakeModel::FakeModel(engine::OutputSink& sink, Script script)
    : sink_(sink), script_(std::move(script)), tokenizer_(ByteTokenizer()) {
  auto parsed = text::ChatTemplate::Parse(
      "{% if tools %}{{ tools | tojson }}<tool_call>\"arguments\"</tool_call>{% endif %}"
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
      "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "fake");
  if (parsed) {
    template_ = *std::move(parsed);
  } else {
    ADD_FAILURE() << parsed.error().message;
  }
  thread_ = std::thread([this] { Run(); });
}

FakeModel::~FakeModel() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

base::Status FakeModel::Submit(engine::Request request,
                               const std::function<void(engine::RequestId)>& taken) {
  base::Status valid = engine::Validate(request.sampling, vocabulary());
  if (!valid) return valid;
  for (const int32_t id : request.prompt) {
    if (id >= vocabulary()) {
      return base::Error{base::Code::kInvalidArgument, "prompt: that id is no token"};
    }
  }
  std::unique_lock lock(mutex_);
  ++checking_;
  wake_.wait(lock, [this] { return stop_ || !hold_checks_; });
  --checking_;
  if (refusal_) return *refusal_;
  taken(++last_);
  const int32_t n = request.choices();
  for (int32_t choice = 0; choice < n; ++choice) {
    live_.push_back({last_, choice, script_(request, choice), 0, request});
  }
  wake_.notify_all();
  return {};
}

void FakeModel::HoldChecks(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_checks_ = hold;
  wake_.notify_all();
}

int FakeModel::checking() const {
  const std::lock_guard lock(mutex_);
  return checking_;
}

void FakeModel::Cancel(engine::RequestId request, int32_t choice) {
  const std::lock_guard lock(mutex_);
  std::erase_if(
      live_, [&](const Live& l) { return l.id == request && (choice < 0 || l.choice == choice); });
}

engine::EngineStats FakeModel::Stats() const {
  engine::EngineStats s;
  s.running = live();
  return s;
}

base::Result<std::vector<int32_t>> FakeModel::EncodePrompt(std::string_view text, bool) const {
  return tokenizer_->Encode(text, {});
}

base::Result<std::vector<int32_t>> FakeModel::EncodeChat(const text::ChatInput& chat) const {
  const base::Result<std::string> text = template_->Render(chat);
  if (!text) return text.error();
  return tokenizer_->Encode(*text, {});
}

int FakeModel::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(live_.size());
}

void FakeModel::Hold(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_ = hold;
  wake_.notify_all();
}

void FakeModel::RefuseWith(base::Code code, std::string message) {
  const std::lock_guard lock(mutex_);
  refusal_ = base::Error{code, std::move(message)};
}

void FakeModel::FailAfter(int64_t tokens, std::string why) {
  const std::lock_guard lock(mutex_);
  fail_after_ = tokens;
  failure_ = std::move(why);
}

// The log-probabilities of id i are -i / 100 everywhere, and "z" is always second.
bool FakeModel::Next(Live& live, engine::Output& out) const {
  out.request = live.id;
  out.choice = live.choice;
  const engine::SamplingParams& p = live.request.sampling;
  const auto scored = [](int32_t token, int32_t top) {
    engine::TokenLogprobs l;
    l.token = token;
    l.logprob = -static_cast<float>(token) / 100;
    if (top > 0) l.top.emplace_back(token, l.logprob);
    if (top > 1) l.top.emplace_back('z', -9.0f);
    return l;
  };
  const auto extra = [&]() -> engine::OutputExtra& {
    if (out.extra == nullptr) out.extra = std::make_unique<engine::OutputExtra>();
    return *out.extra;
  };
  if (live.given >= fail_after_) {
    out.finish = engine::FinishReason::kError;
    extra().error = failure_;
    return true;
  }
  if (live.request.kind == engine::Request::Kind::kEmbed) {
    // Texts that begin with "r" stand at a right angle to the others.
    const std::vector<int32_t>& prompt = live.request.prompt;
    const bool right = !prompt.empty() && prompt[0] == 'r';
    extra().embedding = right ? std::vector<float>{0, 5, 0} : std::vector<float>{3, 0, 4};
    out.finish = engine::FinishReason::kStop;
    return true;
  }
  if (live.given == 0 && live.choice == 0 && p.prompt_logprobs >= 0) {
    for (size_t i = 1; i < live.request.prompt.size(); ++i) {
      extra().prompt_logprobs.push_back(scored(live.request.prompt[i], p.prompt_logprobs));
    }
  }
  if (p.max_tokens == 0) {
    out.finish = engine::FinishReason::kLength;
    return true;
  }
  const auto at = static_cast<size_t>(live.given++);
  out.token = at < live.text.size() ? static_cast<unsigned char>(live.text[at]) : kEnd;
  const auto& ids = p.stop_token_ids;
  if (out.token == kEnd || std::find(ids.begin(), ids.end(), out.token) != ids.end()) {
    out.finish = engine::FinishReason::kStop;
  } else if (live.given >= p.max_tokens) {
    out.finish = engine::FinishReason::kLength;
  }
  if (p.logprobs >= 0) extra().logprobs = scored(out.token, p.logprobs);
  return out.finish != engine::FinishReason::kNone;
}

void FakeModel::Run() {
  while (true) {
    std::vector<engine::Output> outputs;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || (!hold_ && !live_.empty()); });
      if (stop_) return;
      std::vector<Live> left;
      for (Live& l : live_) {
        outputs.emplace_back();
        if (!Next(l, outputs.back())) left.push_back(std::move(l));
      }
      live_ = std::move(left);
    }
    sink_.Deliver(outputs);
  }
}

void FakeExchange::Send(int s, std::string_view content_type, std::string text,
                        std::vector<std::pair<std::string, std::string>> given) {
  const std::lock_guard lock(mutex_);
  EXPECT_FALSE(ended_) << "answered twice";
  status = s;
  type = content_type;
  body = std::move(text);
  for (auto& [name, value] : given) headers[name] = value;
  ended_ = true;
  wake_.notify_all();
}

void FakeExchange::StartEvents(std::vector<std::pair<std::string, std::string>> given) {
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(status, 0);
  status = 200;
  type = "text/event-stream";
  for (auto& [name, value] : given) headers[name] = value;
}

void FakeExchange::Event(std::string_view data) { Frames("data: " + std::string(data) + "\n\n"); }

void FakeExchange::Frames(std::string frames) {
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(type, "text/event-stream") << "frames before the stream began";
  EXPECT_FALSE(ended_);
  body += frames;
}

void FakeExchange::EndEvents() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  wake_.notify_all();
}

void FakeExchange::OnGone(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  gone_ = std::move(callback);
}

void FakeExchange::Leave() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(gone_);
  }
  if (gone) gone();
}

void FakeExchange::Wait() {
  std::unique_lock lock(mutex_);
  if (!wake_.wait_for(lock, std::chrono::seconds(60), [this] { return ended_; })) {
    ADD_FAILURE() << "no answer in a minute";
  }
}

bool FakeExchange::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

json::value FakeExchange::Json() const {
  base::Result<json::value> v = base::ParseJson(body);
  if (!v) ADD_FAILURE() << v.error().message << "\n" << body;
  return v ? *v : json::value();
}

std::vector<json::value> FakeExchange::Chunks() const {
  std::vector<json::value> chunks;
  bool done = false;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
      ADD_FAILURE() << "not a frame: " << body.substr(at, 80);
      return chunks;
    }
    const std::string data = body.substr(at + 6, end - at - 6);
    at = end + 2;
    EXPECT_FALSE(done) << "data after [DONE]";
    if (data == "[DONE]") {
      done = true;
      continue;
    }
    base::Result<json::value> v = base::ParseJson(data);
    if (!v) {
      ADD_FAILURE() << v.error().message << "\n" << data;
      return chunks;
    }
    chunks.push_back(*std::move(v));
  }
  EXPECT_TRUE(done) << "no [DONE]";
  return chunks;
}

}  // namespace vllm::server
