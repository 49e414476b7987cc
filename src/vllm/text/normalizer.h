// Rewriting a text before it is cut: Unicode forms, lower case, replacements.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vllm::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // True when a cheap look shows that Apply would change nothing.
  virtual bool Leaves(std::string_view) const { return false; }
  // REQUIRES: valid UTF-8; gives valid UTF-8.
  virtual base::Status Apply(std::string* text) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

// Runs all of them. The result is `text` itself where nothing changes, else it is in *storage.
base::Result<std::string_view> Normalize(const Normalizers& normalizers, std::string_view text,
                                         std::string* storage);

std::unique_ptr<Normalizer> MakeNfc();
std::unique_ptr<Normalizer> MakeReplaceLiteral(std::string from, std::string to);
std::unique_ptr<Normalizer> MakePrepend(std::string prefix);

// Runs of spaces to one, none at the ends.
std::unique_ptr<Normalizer> MakeSqueezeSpaces();

struct BertOptions {
  bool clean_text = true;            // control characters away, white space to ' '
  bool handle_chinese_chars = true;  // spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;
};
std::unique_ptr<Normalizer> MakeBert(const BertOptions& options);

// SentencePiece's precompiled character map: a double array of UTF-8 prefixes and their
// replacements. `greedy`: at each place the longest prefix (SentencePiece, GGUF); else one grapheme
// at a time (tokenizer.json).
base::Result<std::unique_ptr<Normalizer>> MakeCharsMap(std::string_view blob, bool greedy);

// The "normalizer" of a tokenizer.json; null gives none.
base::Result<Normalizers> ParseNormalizer(const boost::json::value& json);

}  // namespace vllm::text
