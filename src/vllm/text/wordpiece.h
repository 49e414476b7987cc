// WordPiece: from the left, always the longest token that fits (BERT, arXiv:1810.04805). A word
// that cannot be covered is one unknown token.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "vllm/text/model.h"
#include "vllm/text/trie.h"
#include "vllm/text/vocab.h"

namespace vllm::text {

struct WordPieceSpec {
  const Vocab* vocab = nullptr;   // read by Create only
  std::string word_prefix;        // in front of a word's first token ("▁" in GGUF files)
  std::string continuing_prefix;  // in front of the others ("##")
  size_t max_characters = 100;    // longer words are unknown; 0: no limit
  int32_t unk_id = -1;
  const std::vector<uint8_t>* control = nullptr;  // ids that text must never become; may be null
};

class WordPieceModel : public Model {
 public:
  static base::Result<std::unique_ptr<WordPieceModel>> Create(const WordPieceSpec& spec);
  base::Status Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                      std::vector<int32_t>* out) const override;

 private:
  WordPieceModel() = default;
  bool EncodeWord(std::string_view word, std::vector<int32_t>* out) const;

  Trie first_;  // of a word
  Trie rest_;
  size_t max_characters_ = 100;
  int32_t unk_id_ = -1;
};

}  // namespace vllm::text
