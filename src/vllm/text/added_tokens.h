// Tokens that are cut out of the text before anything else happens to it: control tokens,
// "<think>", runs of spaces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/text/model.h"
#include "vllm/text/trie.h"

namespace vllm::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // a control token
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space in front with it
  bool rstrip = false;       // and behind
  bool normalized = false;   // matched in the normalised text
};

// A stretch of text, or (id >= 0) an added token in it.
struct Section {
  Span span;
  int32_t id = -1;
};

class AddedTokens {
 public:
  // Longer contents would let a file make matching quadratic.
  static constexpr size_t kMaxBytes = 1024;

  // `match` is the text to look for: the content, normalised if need be. An empty one is never
  // found.
  base::Status Add(const AddedToken& token, std::string_view match);
  bool empty() const { return tokens_.empty(); }

  // Cuts `text`, leftmost-longest. Special tokens count only inside one of `special_ranges`
  // (sorted, apart).
  void Cut(std::string_view text, const std::vector<Span>& special_ranges,
           std::vector<Section>* out) const;

 private:
  int32_t Match(std::string_view text, size_t at, const std::vector<Span>& ranges, size_t* length,
                size_t* skip) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;
  std::array<bool, 256> first_{};  // bytes that begin a token
};

}  // namespace vllm::text
