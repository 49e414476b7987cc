// /v1/audio/transcriptions: a form with a file of sound in, its words out. Formats with times take
// the sound apart and hear each piece for itself, as the model does not say when it heard what.
#include <charconv>

#include "base/strings.h"
#include "net/request.h"
#include "vllm/engine/output_text.h"
#include "vllm/server/json_text.h"
#include "vllm/server/multipart.h"
#include "vllm/server/service.h"
#include "vllm/server/sounds.h"
#include "vllm/server/transcript.h"

namespace vllm::server {
namespace {

enum class Format { kJson, kText, kVerboseJson, kSrt, kVtt };

constexpr std::pair<std::string_view, Format> kFormats[] = {{"json", Format::kJson},
                                                            {"text", Format::kText},
                                                            {"verbose_json", Format::kVerboseJson},
                                                            {"srt", Format::kSrt},
                                                            {"vtt", Format::kVtt}};

struct TranscriptionRequest {
  std::string_view file;
  std::string model, language;
  Format format = Format::kJson;
  bool stream = false, granularity = false;  // timestamp_granularities was there
  engine::SamplingParams sampling;
};

ApiError Bad(std::string param, std::string message) {
  ApiError e;
  e.message = fmt::format("{} {}", param, message);
  e.param = std::move(param);
  return e;
}

ApiError OfFile(ApiError e) {
  e.param = "file";
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
    for (const auto& [name, format] : kFormats) {
      if (value != name) continue;
      r.format = format;
      return {};
    }
    return Bad("response_format", fmt::format("must be json, text, verbose_json, srt or vtt, got "
                                              "'{}'",
                                              base::Printable(value)));
  } else if (field.name == "timestamp_granularities[]" || field.name == "timestamp_granularities") {
    if (value != "segment")
      return Bad("timestamp_granularities",
                 "must be segment: this model does not say when it heard a word");
    r.granularity = true;
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
  // `segments`: with their times; a request each, whose prompts end in `tail`.
  TranscriptionSession(std::shared_ptr<Reply> reply, const TranscriptionRequest& r,
                       const text::Tokenizer* tokenizer, std::span<const int32_t> tail,
                       std::vector<Segment> segments)
      : Session(std::move(reply)),
        format_(r.format),
        stream_(r.stream),
        head_{.language = r.language,
              .seconds = segments.back().end,
              .temperature = r.sampling.temperature},
        segments_(std::move(segments)),
        open_(segments_.size()) {
    for (size_t i = 0; i < segments_.size(); ++i) texts_.emplace_back(tokenizer, r.sampling, tail);
  }

  void Begin() override {
    if (stream_) reply().StartEvents();
  }
  bool Take(size_t part, engine::Output& output) override {
    using engine::FinishReason;
    // Words that were cut off by time would pass for all of them.
    if (output.finish == FinishReason::kError || output.finish == FinishReason::kAbort ||
        output.finish == FinishReason::kTimeout) {
      failure_ = output.extra != nullptr ? output.extra->error : "";
      if (failure_.empty())
        failure_ = output.finish == FinishReason::kError
                       ? "the engine failed"
                       : "the request was ended before all words were there";
      return false;
    }
    Segment& segment = segments_[part];
    std::string fresh;
    if (output.token >= 0) {
      const bool end = output.finish == FinishReason::kStop;
      fresh = texts_[part].Push(output.token, end).text;
      if (!end) segment.tokens.push_back(output.token);
      if (output.extra != nullptr) segment.logprobs += output.extra->logprobs.logprob;
      ++segment.chosen;
    }
    if (output.finish != FinishReason::kNone) {
      fresh += texts_[part].Finish();
      --open_;
    }
    segment.text += fresh;
    if (stream_) fresh_ += fresh;
    return false;
  }
  void Flush() override {
    if (ended) return;
    if (stream_ && !fresh_.empty()) Event("delta", "delta", fresh_);
    fresh_.clear();
    if (!failure_.empty()) return Fail();
    if (open_ > 0) return;
    ended = true;
    if (stream_) {
      Event("done", "text", JoinedText(segments_));
      return reply().EndEvents();
    }
    switch (format_) {
      case Format::kText:
        return reply().Send(200, "text/plain; charset=utf-8", JoinedText(segments_));
      case Format::kSrt:
        return reply().Send(200, "application/x-subrip; charset=utf-8", SubRip(segments_));
      case Format::kVtt:
        return reply().Send(200, "text/vtt; charset=utf-8", WebVtt(segments_));
      case Format::kVerboseJson:
        return reply().Json(VerboseJson(head_, segments_));
      case Format::kJson:
        break;
    }
    std::string out = R"({"text":)";
    AppendJsonString(JoinedText(segments_), out);
    AppendDuration(head_.seconds, out);
    reply().Json(std::move(out += '}'));
  }

 private:
  // A client that reads events is told in one.
  void Fail() {
    if (!stream_) return FailWith(failure_);
    ended = true;
    ApiError error;
    error.status = 500;
    error.message = failure_;
    reply().exchange().Event(ErrorBody(error));
    reply().EndEvents();
  }
  void Event(std::string_view kind, std::string_view key, std::string_view text) {
    std::string out = fmt::format(R"({{"type":"transcript.text.{}","{}":)", kind, key);
    AppendJsonString(text, out);
    reply().exchange().Event(out += '}');
  }

  Format format_;
  bool stream_;
  TranscriptHead head_;
  std::vector<Segment> segments_;
  std::vector<engine::OutputText> texts_;  // of each segment
  size_t open_;
  std::string fresh_, failure_;
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
  const bool timed = r.format != Format::kJson && r.format != Format::kText;
  if (timed && r.stream)
    return reply->Error(Bad("stream", "goes with response_format json or text alone"));
  if (r.granularity && r.format != Format::kVerboseJson)
    return reply->Error(Bad("timestamp_granularities", "needs response_format verbose_json"));
  const engine::Audio& audio = model_->audio();
  Sounds sounds(audio, model_->tokenizer(), model_->max_model_len());
  std::string place;
  std::vector<std::shared_ptr<engine::Media>> heard;
  std::vector<Segment> segments;
  if (timed) {
    r.sampling.logprobs = 0;
    auto pieces = sounds.Cut(r.file, place);
    if (const auto* e = std::get_if<ApiError>(&pieces)) return reply->Error(OfFile(*e));
    for (engine::SoundPiece& piece : std::get<0>(pieces)) {
      segments.push_back({.start = piece.start, .end = piece.end});
      heard.push_back(std::move(piece.media));
    }
  } else {
    auto added = sounds.Add(r.file);
    if (const auto* e = std::get_if<ApiError>(&added)) return reply->Error(OfFile(*e));
    place = std::get<std::string>(std::move(added));
    segments.push_back({.end = sounds.media()->seconds});
    heard.push_back(sounds.media());
  }
  // Whatever is put together here is ours: the language was checked.
  std::string prompt;
  if (const auto bos = model_->tokenizer()->bos_id()) prompt = model_->tokenizer()->TokenText(*bos);
  prompt += fmt::format(fmt::runtime(audio.transcription), place,
                        r.language.empty() ? "" : "lang:" + r.language);
  const base::Result<std::vector<int32_t>> ids = model_->EncodePrompt(prompt, true);
  if (!ids) return reply->Error(FromError(ids.error()));
  const int64_t room = model_->max_model_len() - static_cast<int64_t>(ids->size());
  if (room < 1) {
    ApiError e =
        Bad("file", fmt::format("has {:.1f} seconds{}, which take {} tokens, but the context "
                                "holds {}: send it in pieces",
                                heard[0]->seconds, heard.size() > 1 ? " in its first piece" : "",
                                ids->size(), model_->max_model_len()));
    e.code = "context_length_exceeded";
    return reply->Error(e);
  }
  if (r.sampling.max_tokens == 0 || r.sampling.max_tokens > room) r.sampling.max_tokens = room;
  std::vector<engine::Request> requests(heard.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = *ids;
    requests[i].sampling = r.sampling;
    requests[i].media = std::move(heard[i]);
  }
  auto session = std::make_shared<TranscriptionSession>(
      reply, r, model_->tokenizer(), std::span(*ids).last(std::min<size_t>(ids->size(), 8)),
      std::move(segments));
  Submit(session, std::move(requests), "file");
}

}  // namespace vllm::server
