// Cutting a normalised text into the words that the model sees.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/text/model.h"

namespace vllm::text {

// A text being cut: each pre-tokenizer in turn replaces `words` by finer ones, or the text by
// another.
struct PreTokens {
  std::string_view text;  // into the caller's text or into `storage`
  std::string storage;
  std::vector<Span> words;  // in order, not overlapping; what lies between is dropped
  std::vector<Span> spare;
  bool at_start = true;  // the text begins where the whole input begins

  // Starts anew with one word, all of `t`.
  void Reset(std::string_view t, bool start) {
    text = t;
    at_start = start;
    words.clear();
    if (!t.empty()) words.push_back({0, static_cast<uint32_t>(t.size())});
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual base::Status Apply(PreTokens* tokens) const = 0;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

// A regular expression (a scanner where one is known) or, with `literal`, a plain string.
base::Result<std::unique_ptr<PreTokenizer>> MakeSplit(std::string_view pattern, bool literal,
                                                      SplitBehavior behavior, bool invert);
// Replaces bytes by GPT-2's stand-ins (for a vocabulary that isn't read as bytes).
std::unique_ptr<PreTokenizer> MakeByteStandIns();
// Puts `prefix` in front of each word that doesn't begin with it; with `only_at_start`, only of the
// input's first.
std::unique_ptr<PreTokenizer> MakePrefix(std::string prefix, bool only_at_start);
// Words are what lies between white space, each punctuation character a word of its own.
std::unique_ptr<PreTokenizer> MakeBertSplit();

enum class CharSet { kDigits, kPunctuation, kSpaces };
// Each character of the set is a match.
std::unique_ptr<PreTokenizer> MakeCharSplit(CharSet set, SplitBehavior behavior);
// \w+|[^\w\s]+, the rest dropped.
std::unique_ptr<PreTokenizer> MakeWordSplit();
// Replaces each space by `mark`.
std::unique_ptr<PreTokenizer> MakeSpaceToMark(std::string mark);

// The "pre_tokenizer" of a tokenizer.json; null gives none. `*ends_in_bytes` is set when the last
// step is ByteLevel: its replacement by stand-ins is then left out, and the model must read the
// words as bytes.
base::Result<PreTokenizers> ParsePreTokenizer(const boost::json::value& json, bool allow_bytes,
                                              bool* ends_in_bytes);

}  // namespace vllm::text
