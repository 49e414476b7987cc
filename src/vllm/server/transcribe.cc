// /v1/audio/transcriptions: a form with a file of sound in, its words out.
#include <charconv>

#include "base/strings.h"
#include "net/request.h"
#include "vllm/engine/output_text.h"
#include "vllm/server/json_text.h"
#include "vllm/server/multipart.h"
#include "vllm/server/service.h"
#include "vllm/server/sounds.h"

namespace vllm::server {
namespace {

enum class Format { kJson, kText };

struct TranscriptionRequest {
  std::string_view file;
  std::string model, language;
  Format format = Format::kJson;
  bool stream = false;
  engine::SamplingParams sampling;
};

ApiError Bad(std::string param, std::string message) {
  ApiError e;
  e.message = fmt::format("{} {}", param, message);
  e.param = std::move(param);
  return e;
}

// Every field that OpenAI and vLLM know; others are refused by name, as elsewhere.
std::optional<ApiError> ReadField(const FormField& field, TranscriptionRequest& r, bool& has_file) {
  const std::string_view value = field.data;
  const auto number = [&](auto& out, auto low, auto high) -> std::optional<ApiError> {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error == std::errc() && end == value.data() + value.size() && out >= low && out <= high)
      return {};
    return Bad(field.name, fmt::format("must be a number from {} to {}, got '{}'", low, high,
                                       base::Printable(value)));
  };
  if (field.name == "file") {
    if (has_file) return Bad("file", "is there twice");
    has_file = true;
    r.file = value;
    return {};
  }
  if (value.size() > 1024) return Bad(field.name, "is longer than 1024 bytes");
  if (field.name == "model") {
    r.model = value;
  } else if (field.name == "language") {
    r.language = value;
    if (value.size() > 3 ||
        !std::all_of(value.begin(), value.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
      return Bad("language", "must be a code of two or three small letters, such as en");
  } else if (field.name == "prompt") {
    if (!value.empty()) return Bad("prompt", "is not taken: this model transcribes without one");
  } else if (field.name == "response_format") {
    if (value == "text") r.format = Format::kText;
    if (value == "verbose_json" || value == "srt" || value == "vtt" || value == "diarized_json")
      return Bad("response_format", fmt::format("{} needs times of words, which this model does "
                                                "not give: use json or text",
                                                value));
    if (value != "json" && value != "text")
      return Bad("response_format",
                 fmt::format("must be json or text, got '{}'", base::Printable(value)));
  } else if (field.name == "temperature") {
    return number(r.sampling.temperature, 0.0f, 2.0f);
  } else if (field.name == "top_p") {
    return number(r.sampling.top_p, 0.0f, 1.0f);
  } else if (field.name == "seed") {
    return number(r.sampling.seed.emplace(), uint64_t{0}, UINT64_MAX);
  } else if (field.name == "max_completion_tokens") {
    return number(r.sampling.max_tokens, 1, INT32_MAX);
  } else if (field.name == "stream") {
    if (value != "true" && value != "false") return Bad("stream", "must be true or false");
    r.stream = value == "true";
  } else {
    return Bad(base::Printable(field.name), "is not supported here");
  }
  return {};
}

class TranscriptionSession : public Session {
 public:
  TranscriptionSession(std::shared_ptr<Reply> reply, const TranscriptionRequest& r,
                       const text::Tokenizer* tokenizer, const std::vector<int32_t>& prompt,
                       double seconds)
      : Session(std::move(reply)),
        text_(tokenizer, r.sampling, std::span(prompt).last(std::min<size_t>(prompt.size(), 8))),
        format_(r.format),
        stream_(r.stream),
        seconds_(seconds) {}

  void Begin() override {
    if (stream_) reply().StartEvents();
  }
  bool Take(size_t, engine::Output& output) override {
    if (output.finish == engine::FinishReason::kError) {
      failed_ = true;
      return false;
    }
    if (output.token >= 0)
      fresh_ += text_.Push(output.token, output.finish == engine::FinishReason::kStop).text;
    if (output.finish == engine::FinishReason::kNone) return false;
    over_ = true;
    fresh_ += text_.Finish();
    return false;
  }
  void Flush() override {
    if (ended) return;
    if (failed_) return Fail();
    whole_ += fresh_;
    if (stream_ && !fresh_.empty()) Event("delta", "delta", fresh_);
    fresh_.clear();
    if (!over_) return;
    ended = true;
    if (stream_) {
      Event("done", "text", whole_);
      return reply().EndEvents();
    }
    if (format_ == Format::kText) return reply().Send(200, "text/plain; charset=utf-8", whole_);
    std::string out = R"({"text":)";
    AppendJsonString(whole_, out);
    out += R"(,"usage":{"type":"duration","seconds":)";
    AppendFloat(static_cast<float>(seconds_), out);
    reply().Json(std::move(out += "}}"));
  }

 private:
  // A client that reads events is told in one.
  void Fail() {
    if (!stream_) return FailWith("");
    ended = true;
    ApiError error;
    error.status = 500;
    error.message = "the engine failed";
    reply().exchange().Event(ErrorBody(error));
    reply().EndEvents();
  }
  void Event(std::string_view kind, std::string_view key, std::string_view text) {
    std::string out = fmt::format(R"({{"type":"transcript.text.{}","{}":)", kind, key);
    AppendJsonString(text, out);
    reply().exchange().Event(out += '}');
  }

  engine::OutputText text_;
  Format format_;
  bool stream_, over_ = false, failed_ = false;
  double seconds_;
  std::string fresh_, whole_;
};

}  // namespace

void Service::Transcribe(const std::shared_ptr<Reply>& reply) {
  const net::HttpRequest& request = reply->request();
  const base::Result<std::vector<FormField>> form =
      ParseForm(net::HeaderOf(request, "content-type"), request.body);
  if (!form) return reply->Error(FromError(form.error()));
  TranscriptionRequest r;
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 0;
  bool has_file = false;
  for (const FormField& field : *form) {
    if (const std::optional<ApiError> e = ReadField(field, r, has_file)) return reply->Error(*e);
  }
  if (!has_file) return reply->Error(Bad("file", "is missing"));
  if (const std::optional<ApiError> e = WrongModel(r.model)) return reply->Error(*e);
  const engine::Audio& audio = model_->audio();
  Sounds sounds(audio, model_->tokenizer(), model_->max_model_len());
  const std::variant<std::string, ApiError> place = sounds.Add(r.file);
  if (const auto* e = std::get_if<ApiError>(&place)) {
    ApiError about = *e;
    about.param = "file";
    return reply->Error(about);
  }
  // Whatever is put together here is ours: the language was checked.
  std::string prompt;
  if (const auto bos = model_->tokenizer()->bos_id()) prompt = model_->tokenizer()->TokenText(*bos);
  prompt += fmt::format(fmt::runtime(audio.transcription), std::get<std::string>(place),
                        r.language.empty() ? "" : "lang:" + r.language);
  base::Result<std::vector<int32_t>> ids = model_->EncodePrompt(prompt, true);
  if (!ids) return reply->Error(FromError(ids.error()));
  const int64_t room = model_->max_model_len() - static_cast<int64_t>(ids->size());
  if (room < 1) {
    ApiError e =
        Bad("file", fmt::format("has {:.1f} seconds, which take {} tokens, but the context "
                                "holds {}: send it in pieces",
                                sounds.media()->seconds, ids->size(), model_->max_model_len()));
    e.code = "context_length_exceeded";
    return reply->Error(e);
  }
  if (r.sampling.max_tokens == 0 || r.sampling.max_tokens > room) r.sampling.max_tokens = room;
  std::vector<engine::Request> requests(1);
  requests[0].sampling = r.sampling;
  requests[0].media = sounds.media();
  auto session = std::make_shared<TranscriptionSession>(reply, r, model_->tokenizer(), *ids,
                                                        sounds.media()->seconds);
  requests[0].prompt = *std::move(ids);
  Submit(session, std::move(requests), "file");
}

}  // namespace vllm::server
