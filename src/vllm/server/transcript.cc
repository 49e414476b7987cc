#include "vllm/server/transcript.h"

#include <cmath>

#include "base/strings.h"
#include "vllm/server/json_text.h"

namespace vllm::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::string Time(double seconds, char point) {
  const auto ms = static_cast<int64_t>(std::llround(seconds * 1000));
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60,
                     point, ms % 1000);
}

// Of one line, as an empty one would end the cue. WebVTT gives a meaning to & and <; SubRip has no
// way to write its arrow, so that loses a dash.
std::string CueText(std::string_view text, bool vtt) {
  std::string out;
  for (const char c : Trimmed(text)) {
    if (kSpace.find(c) != std::string_view::npos) {
      if (out.back() != ' ') out += ' ';
    } else if (vtt && (c == '&' || c == '<' || c == '>')) {
      out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : "&gt;";
    } else {
      if (c == '>' && out.ends_with("--")) out.pop_back();
      out += c;
    }
  }
  return out;
}

std::string Cues(const std::vector<Segment>& segments, bool vtt) {
  std::string out = vtt ? "WEBVTT\n\n" : "";
  int64_t number = 0;
  for (const Segment& s : segments) {
    const std::string text = CueText(s.text, vtt);
    if (text.empty()) continue;
    if (!vtt) out += fmt::format("{}\n", ++number);
    const char point = vtt ? '.' : ',';
    out += fmt::format("{} --> {}\n{}\n\n", Time(s.start, point), Time(s.end, point), text);
  }
  return out;
}

}  // namespace

std::string JoinedText(const std::vector<Segment>& segments) {
  if (segments.size() == 1) return segments[0].text;
  std::string out;
  for (const Segment& s : segments) {
    const std::string_view text = Trimmed(s.text);
    if (text.empty()) continue;
    if (!out.empty()) out += ' ';
    out += text;
  }
  return out;
}

std::string VerboseJson(const TranscriptHead& head, const std::vector<Segment>& segments) {
  std::string out = R"({"task":"transcribe","language":)";
  AppendJsonString(head.language.empty() ? "und" : head.language, out);  // ISO 639's "undetermined"
  out += R"(,"duration":)";
  AppendFloat(static_cast<float>(head.seconds), out);
  out += R"(,"text":)";
  AppendJsonString(JoinedText(segments), out);
  out += R"(,"segments":[)";
  int64_t id = 0;
  for (const Segment& s : segments) {
    if (Trimmed(s.text).empty()) continue;
    out += id > 0 ? R"(,{"id":)" : R"({"id":)";
    AppendInt(id++, out);
    // In hundredths of seconds, as Whisper counts.
    out += R"(,"seek":)";
    AppendInt(std::llround(s.start * 100), out);
    out += R"(,"start":)";
    AppendFloat(static_cast<float>(s.start), out);
    out += R"(,"end":)";
    AppendFloat(static_cast<float>(s.end), out);
    out += R"(,"text":)";
    AppendJsonString(s.text, out);
    out += R"(,"tokens":[)";
    for (size_t i = 0; i < s.tokens.size(); ++i) {
      if (i > 0) out += ',';
      AppendInt(s.tokens[i], out);
    }
    out += R"(],"temperature":)";
    AppendFloat(head.temperature, out);
    out += R"(,"avg_logprob":)";
    AppendFloat(s.chosen > 0 ? static_cast<float>(s.logprobs / static_cast<double>(s.chosen)) : 0,
                out);
    // Measured by nobody here.
    out += R"(,"compression_ratio":null,"no_speech_prob":null})";
  }
  out += ']';
  AppendDuration(head.seconds, out);
  return out += '}';
}

std::string SubRip(const std::vector<Segment>& segments) { return Cues(segments, false); }

std::string WebVtt(const std::vector<Segment>& segments) { return Cues(segments, true); }

void AppendDuration(double seconds, std::string& out) {
  out += R"(,"usage":{"type":"duration","seconds":)";
  AppendFloat(static_cast<float>(seconds), out);
  out += '}';
}

}  // namespace vllm::server
