// Forms, sound in requests, and transcriptions over a model that says what a test tells it to.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/base64.h"
#include "base/os/file.h"
#include "vllm/server/json_text.h"
#include "vllm/server/multipart.h"
#include "vllm/server/server_testing.h"
#include "vllm/server/service.h"
#include "vllm/server/sounds.h"
#include "vllm/server/transcript.h"

namespace vllm::server {
namespace {

const std::string kType = "multipart/form-data; boundary=XX";

std::string Field(const std::string& name, const std::string& value, const std::string& more = "") {
  return "--XX\r\nContent-Disposition: form-data; name=\"" + name + "\"" + more + "\r\n\r\n" +
         value + "\r\n";
}
const std::string kClose = "--XX--\r\n";

std::string ToneFile() {
  const auto file =
      base::os::ReadFile(std::string(VLLM_SOURCE_DIR) + "/tests/goldens/audio/tone.wav");
  EXPECT_TRUE(file.ok());
  return file.ok() ? *file : "";
}

// A WAV file of 16-bit silence at 16 kHz.
std::string SilentFile(uint32_t samples) {
  const auto number = [](uint32_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
    return out;
  };
  return "RIFF" + number(36 + 2 * samples, 4) + "WAVEfmt " + number(16, 4) + number(1, 2) +
         number(1, 2) + number(16000, 4) + number(32000, 4) + number(2, 2) + number(16, 2) +
         "data" + number(2 * samples, 4) + std::string(2 * samples, '\0');
}

TEST(Form, GivesFieldsAsTheyWereSent) {
  const std::string data("a\r\n--X\0\r\n", 10);
  const std::string body =
      "--XX\r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION: form-data ; "
      "filename=\"q\\\"; name=no\" ; name = one\r\n\r\n" +
      data + "\r\n" + Field("two", "") + kClose;
  const auto form = ParseForm(kType, body);
  ASSERT_TRUE(form.ok()) << form.error().message;
  ASSERT_EQ(form->size(), 2u);
  EXPECT_EQ((*form)[0].name, "one");
  EXPECT_TRUE((*form)[0].is_file);
  EXPECT_EQ((*form)[0].data, data);
  EXPECT_EQ((*form)[1].name, "two");
  EXPECT_FALSE((*form)[1].is_file);
  EXPECT_EQ((*form)[1].data, "");
  EXPECT_TRUE(ParseForm("multipart/form-data; charset=x; boundary=\"XX\"", kClose)->empty());
}

TEST(Form, RefusesWhatIsCutOrMalformed) {
  const std::string whole = Field("file", "data") + kClose;
  for (size_t cut = 0; cut + 4 < whole.size(); ++cut)
    EXPECT_FALSE(ParseForm(kType, whole.substr(0, cut)).ok()) << cut;
  EXPECT_FALSE(ParseForm("application/json", whole).ok());
  EXPECT_FALSE(ParseForm("multipart/form-data", whole).ok());
  EXPECT_FALSE(ParseForm("multipart/form-data; boundary=" + std::string(71, 'x'), whole).ok());
  EXPECT_FALSE(ParseForm(kType, "--XX\r\nname: x\r\n\r\nv\r\n" + kClose).ok());
  EXPECT_FALSE(
      ParseForm(kType, "--XX\r\nContent-Disposition: file; name=x\r\n\r\nv\r\n" + kClose).ok());
  std::string many;
  for (size_t i = 0; i <= kMaxFormFields; ++i) many += Field("f", "v");
  EXPECT_FALSE(ParseForm(kType, many + kClose).ok());
}

TEST(Base64, IsReadStrictly) {
  for (const std::string& bytes : {std::string(""), std::string("a"), std::string("ab"),
                                   std::string("abc"), std::string("\0\xFF\x10\x80", 4)}) {
    std::string text;
    base::AppendBase64(bytes, text);
    EXPECT_EQ(base::DecodeBase64(text), bytes);
  }
  for (const char* bad : {"a", "ab", "abc", "a===", "====", "ab=c", "ab c", "\xC3\xA4=="})
    EXPECT_EQ(base::DecodeBase64(bad), std::nullopt) << bad;
}

class HearingService : public ::testing::Test {
 protected:
  HearingService() : log_(LogLevel::kNone) {
    service_ = std::make_unique<Service>(
        ServiceOptions{.model_names = {"m"}, .log_requests = false}, log_);
    auto fake = std::make_unique<FakeModel>(*service_, [this](const engine::Request& r, int32_t) {
      const std::lock_guard lock(mutex_);
      seen_ = r;
      if (answers_.empty()) return std::string("said \"so\"");
      std::string answer = answers_.front();
      answers_.erase(answers_.begin());
      return answer;
    });
    fake->hears = {.mel_bins = 8,
                   .positions = 20,
                   .rows = 5,
                   .token = 'A',
                   .before = "(",
                   .transcription = "<{}>{}!"};
    fake_ = fake.get();
    service_->Ready(std::move(fake));
  }
  ~HearingService() override { service_->Stop(); }

  std::shared_ptr<FakeExchange> Post(const std::string& path, const std::string& body,
                                     const std::string& type) {
    net::HttpRequest r;
    r.method = "POST";
    r.path = path;
    r.body = body;
    r.headers = {{"content-type", type}};
    auto x = std::make_shared<FakeExchange>(std::move(r));
    service_->Handle(x);
    x->Wait();
    return x;
  }
  std::shared_ptr<FakeExchange> Transcribe(const std::string& fields) {
    return Post("/v1/audio/transcriptions", fields + kClose, kType);
  }
  std::string Prompt() {
    const std::lock_guard lock(mutex_);
    return {seen_.prompt.begin(), seen_.prompt.end()};
  }
  engine::Request Seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  std::string Why(const std::string& fields) {
    const auto x = Transcribe(fields);
    EXPECT_EQ(x->status, 400) << x->body;
    return x->body;
  }

  Log log_;
  std::mutex mutex_;
  engine::Request seen_;
  std::vector<std::string> answers_;  // of the requests to come
  FakeModel* fake_ = nullptr;
  std::unique_ptr<Service> service_;
};

TEST_F(HearingService, TranscribesAFile) {
  const std::string file = Field("file", ToneFile(), "; filename=\"tone.wav\"");
  auto x = Transcribe(Field("model", "m") + file + Field("language", "en") +
                      Field("temperature", "0.5") + Field("seed", "7"));
  EXPECT_EQ(x->status, 200) << x->body;
  EXPECT_EQ(x->body, R"({"text":"said \"so\"","usage":{"type":"duration","seconds":0.25}})");
  EXPECT_EQ(Prompt(), "<(AAAAA>lang:en!");
  EXPECT_EQ(Seen().media->mel.size(), 8u * 40);
  EXPECT_EQ(Seen().sampling.temperature, 0.5f);
  EXPECT_EQ(Seen().sampling.seed, 7u);
  x = Transcribe(file + Field("response_format", "text"));
  EXPECT_EQ(x->body, "said \"so\"");
  EXPECT_EQ(Prompt(), "<(AAAAA>!");
  x = Transcribe(file + Field("stream", "true"));
  EXPECT_NE(x->body.find(R"({"type":"transcript.text.done","text":"said \"so\""})"),
            std::string::npos)
      << x->body;
}

// Pieces of at most 6400 samples, cut in the middle of a window of 21: silence is as quiet at their
// ends as anywhere.
TEST_F(HearingService, GivesTimesOfTheSoundsPieces) {
  const std::string form = Field("file", SilentFile(16000)) + Field("language", "en") +
                           Field("timestamp_granularities[]", "segment");
  answers_ = {" one.", "", " three "};
  auto x = Transcribe(form + Field("response_format", "verbose_json"));
  EXPECT_EQ(x->status, 200) << x->body;
  const std::string nothing = R"("compression_ratio":null,"no_speech_prob":null})";
  // Log-probabilities of FakeModel: -id / 100; the end token is 257.
  EXPECT_EQ(x->body, R"({"task":"transcribe","language":"en","duration":1.0,"text":"one. three",)"
                     R"("segments":[{"id":0,"seek":0,"start":0.0,"end":0.399375,"text":" one.",)"
                     R"("tokens":[32,111,110,101,46],"temperature":0.0,"avg_logprob":-1.095,)" +
                         nothing +
                         R"(,{"id":1,"seek":80,"start":0.79875,"end":1.0,"text":" three ",)"
                         R"("tokens":[32,116,104,114,101,101,32],"temperature":0.0,)"
                         R"("avg_logprob":-1.07125,)" +
                         nothing + R"(],"usage":{"type":"duration","seconds":1.0}})");
  EXPECT_EQ(Prompt(), "<(AAAAA>lang:en!");
  EXPECT_EQ(Seen().media->mel.size(), 8u * 40);

  const std::string file = Field("file", SilentFile(8000));
  answers_ = {"a -->\n\nb", "c < d & e"};
  x = Transcribe(file + Field("response_format", "srt"));
  EXPECT_EQ(x->type, "application/x-subrip; charset=utf-8");
  EXPECT_EQ(x->body,
            "1\n00:00:00,000 --> 00:00:00,399\na -> b\n\n"
            "2\n00:00:00,399 --> 00:00:00,500\nc < d & e\n\n");
  answers_ = {"a -->\n\nb", "c < d & e"};
  x = Transcribe(file + Field("response_format", "vtt"));
  EXPECT_EQ(x->type, "text/vtt; charset=utf-8");
  EXPECT_EQ(x->body,
            "WEBVTT\n\n00:00:00.000 --> 00:00:00.399\na --&gt; b\n\n"
            "00:00:00.399 --> 00:00:00.500\nc &lt; d &amp; e\n\n");
  // Without times the model hears all at once.
  x = Transcribe(file);
  EXPECT_EQ(Prompt(), "<(AAAAAAAAAA>!");
}

TEST_F(HearingService, SaysThatTheLanguageIsNotKnown) {
  const auto x = Transcribe(Field("file", ToneFile()) + Field("response_format", "verbose_json"));
  EXPECT_EQ(x->Json().at("language").as_string(), "und");
}

TEST(Transcript, CountsHours) {
  EXPECT_EQ(SubRip({{.start = 3599.9996, .end = 36610.5, .text = "x"}}),
            "1\n01:00:00,000 --> 10:10:10,500\nx\n\n");
}

TEST_F(HearingService, EndsWithTheErrorWhereTheEngineFails) {
  const std::string file = Field("file", SilentFile(8000));
  fake_->FailAfter(2, "the device is gone");
  auto x = Transcribe(file + Field("stream", "true"));
  EXPECT_EQ(x->status, 200);  // the stream had begun
  const size_t error = x->body.rfind("data: ");
  EXPECT_EQ(x->body.substr(error),
            "data: {\"error\":{\"message\":\"the device is gone\",\"type\":\"server_error\","
            "\"param\":null,\"code\":null}}\n\n");
  // In front of it the words that were there, and nothing behind it that would say that it is done.
  std::string words;
  const std::string delta = R"(data: {"type":"transcript.text.delta","delta":")";
  for (size_t at = 0; at < error; at = x->body.find("data: ", at + 1)) {
    ASSERT_EQ(x->body.compare(at, delta.size(), delta), 0) << x->body;
    words += x->body.substr(at + delta.size(), x->body.find("\"}", at) - at - delta.size());
  }
  EXPECT_EQ(words, "sa");
  for (const char* format : {"json", "verbose_json"}) {
    x = Transcribe(file + Field("response_format", format));
    EXPECT_EQ(x->status, 500);
    EXPECT_NE(x->body.find("the device is gone"), std::string::npos) << x->body;
  }
  // A session goes right behind its answer.
  for (int i = 0; i < 60000 && service_->sessions() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(service_->sessions(), 0u);
  fake_->FailAfter(INT64_MAX, "");
  EXPECT_EQ(Transcribe(file)->status, 200);
}

TEST_F(HearingService, RefusesFormsInASentence) {
  const std::string file = Field("file", ToneFile());
  EXPECT_NE(Why(Field("model", "m")).find("file is missing"), std::string::npos);
  EXPECT_NE(Why(Field("file", "<html>")).find("no sound that can be read"), std::string::npos);
  EXPECT_NE(Why(Field("file", "")).find("empty"), std::string::npos);
  EXPECT_NE(Why(file + Field("response_format", "xml")).find("verbose_json, srt or vtt"),
            std::string::npos);
  EXPECT_NE(Why(file + Field("response_format", "vtt") + Field("stream", "true")).find("stream"),
            std::string::npos);
  const std::string granularity = Field("timestamp_granularities[]", "segment");
  EXPECT_NE(Why(file + granularity).find("needs response_format verbose_json"), std::string::npos);
  EXPECT_NE(Why(file + Field("timestamp_granularities[]", "word")).find("must be segment"),
            std::string::npos);
  EXPECT_NE(Why(file + Field("language", "English")).find("language"), std::string::npos);
  EXPECT_NE(Why(file + Field("prompt", "Names: Ann")).find("prompt"), std::string::npos);
  EXPECT_NE(Why(file + Field("temperature", "hot")).find("temperature"), std::string::npos);
  EXPECT_NE(Why(file + Field("speed", "2")).find("speed is not supported"), std::string::npos);
  EXPECT_EQ(Transcribe(file + Field("model", "other"))->status, 404);
  EXPECT_EQ(Post("/v1/audio/transcriptions", "{}", "application/json")->status, 400);
  fake_->hears = {};
  EXPECT_NE(Why(file).find("does not hear"), std::string::npos);
}

TEST_F(HearingService, HearsInConversations) {
  std::string data;
  base::AppendBase64(ToneFile(), data);
  const auto message = [](const std::string& parts) {
    return R"({"messages":[{"role":"user","content":[)" + parts + "]}]}";
  };
  const std::string sound =
      R"({"type":"input_audio","input_audio":{"format":"wav","data":")" + data + R"("}})";
  const auto x = Post("/v1/chat/completions", message(sound + R"(,{"type":"text","text":"what?"})"),
                      "application/json");
  EXPECT_EQ(x->status, 200) << x->body;
  EXPECT_EQ(Seen().media->mel.size(), 8u * 40);
  for (const char* bad :
       {R"({"type":"input_audio"})", R"({"type":"input_audio","input_audio":{"data":"%%%"}})",
        R"({"type":"input_audio","input_audio":{"data":"aGVsbG8="}})"}) {
    const auto refused = Post("/v1/chat/completions", message(bad), "application/json");
    EXPECT_EQ(refused->status, 400) << refused->body;
    EXPECT_NE(refused->body.find("\"param\":\"messages\""), std::string::npos) << refused->body;
  }
}

}  // namespace
}  // namespace vllm::server
