// What was heard, with its times, in the formats that OpenAI's API names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::server {

// What was said in a piece of the sound.
struct Segment {
  double start = 0, end = 0;  // seconds
  std::string text;
  std::vector<int32_t> tokens;
  double logprobs = 0;  // the sum over all that the model chose, its end token among them
  int64_t chosen = 0;
};

// What a transcription was asked with.
struct TranscriptHead {
  std::string language;  // empty: the model found it and did not say
  double seconds = 0;    // of the sound
  float temperature = 0;
};

// The words of all, a space between two segments.
std::string JoinedText(const std::vector<Segment>& segments);

// Segments without words are left out of these.
std::string VerboseJson(const TranscriptHead& head, const std::vector<Segment>& segments);
std::string SubRip(const std::vector<Segment>& segments);
std::string WebVtt(const std::vector<Segment>& segments);

// ,"usage":{"type":"duration","seconds":...}
void AppendDuration(double seconds, std::string& out);

}  // namespace vllm::server
