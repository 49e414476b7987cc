// From token texts back to text: a chain of steps that work on a stream, so that decoding all at
// once and one token at a time are the same code.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/text/regex.h"

namespace vllm::text {

struct DecoderStep {
  enum class Kind {
    kByteLevel,     // GPT-2's stand-ins to bytes, all tokens to one text
    kByteFallback,  // runs of <0x..> to characters; a run that isn't UTF-8 to one U+FFFD a byte
    kFuse,          // all tokens to one
    kReplace,       // `from` or `regex` to `to`
    kStrip,         // up to `start` times `from` in front, up to `stop` behind
    kMetaspace,     // `from` to ' ', dropped in the first token when `flag`
    kWordPiece,     // `from` joins, else a space between; `flag`: tidy up spaces
    kBpe,           // suffix `from` to ' ', to nothing in the last token
    kCtc,           // repetitions and `from` (padding) away, `to` to ' '; `flag`: tidy up spaces
    kJoin,          // a space between tokens: what no decoder means
  };
  Kind kind;
  std::string from, to;
  size_t start = 0, stop = 0;
  bool flag = false;
  std::shared_ptr<const Regex> regex;
};

using DecoderSteps = std::vector<DecoderStep>;

// The "decoder" of a tokenizer.json; null gives kJoin.
base::Result<DecoderSteps> ParseDecoder(const boost::json::value& json);

// What one token adds to a text in the middle.
std::string DecodeAlone(const DecoderSteps& steps, std::string_view token);

// A stream through the chain. `steps` must outlive it.
class DecoderState {
 public:
  explicit DecoderState(const DecoderSteps& steps);
  ~DecoderState();

  // Both append to *out what has become certain; whole characters only.
  void Push(std::string_view token, std::string* out);
  void Finish(std::string* out);  // afterwards the state is as new

  class Stage;

 private:
  void Build();
  const DecoderSteps& steps_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace vllm::text
