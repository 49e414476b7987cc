// What is asked: prompts, lengths and times of arrival, the same for the same seed on every
// machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace apps::bench {

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  // where it is known
  int64_t output_tokens = 0;
};

struct Lengths {  // uniform in [low, high]
  int64_t low = 0, high = 0;
};
// "512", or "100..1024". With `ratio` r a single length L is the middle of [L (1 - r), L (1 + r)].
// Errors name `flag`.
base::Result<Lengths> ParseLengths(const std::string& flag, const std::string& text, double ratio);

struct RandomData {
  int64_t count = 0;
  Lengths input, output;
  int64_t prefix = 0;  // tokens that all prompts begin with, beside `input`
  int64_t vocabulary = 0;
};
std::vector<Prompt> RandomPrompts(const RandomData& data, uint64_t seed);

// Text to ids, with the tokens that a model wants around a prompt or without.
using Encode =
    std::function<base::Result<std::vector<int32_t>>(std::string_view text, bool special)>;

// A file in ShareGPT's form: an array of {"conversations": [{"from", "value"}, ...]}. The first
// turn is the prompt and the length of the second the output's, unless `output_tokens` > 0 says
// otherwise.
class Conversations {
 public:
  // Errors name the path and the entry.
  static base::Result<Conversations> Read(const std::string& path);

  // `count` in an order that `seed` decides, again from the start where there are fewer. Left out
  // are turns below 4 tokens, prompts over 1024, and both together over 2048 or `max_tokens`, as
  // vLLM's benchmark does. Errors: nothing is left.
  base::Result<std::vector<Prompt>> Sample(int64_t count, int64_t output_tokens, int64_t max_tokens,
                                           uint64_t seed, const Encode& encode) const;
  size_t size() const { return turns_.size(); }

 private:
  struct Turn {
    std::string prompt, answer;
  };
  std::string path_;
  std::vector<Turn> turns_;
};

// Seconds at which requests come: a Poisson process of `rate` a second that begins with a request;
// all at 0 for an infinite one.
std::vector<double> Arrivals(int64_t count, double rate, uint64_t seed);

}  // namespace apps::bench
