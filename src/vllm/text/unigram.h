// Unigram language model: the segmentation with the highest sum of token scores (Kudo,
// arXiv:1804.10959), by Viterbi.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "vllm/text/model.h"
#include "vllm/text/trie.h"
#include "vllm/text/vocab.h"

namespace vllm::text {

struct UnigramSpec {
  const Vocab* vocab = nullptr;  // outlives the model
  std::vector<double> scores;    // one an id
  std::vector<uint8_t> usable;   // ids that text may become
  double lowest_score = 0;       // an unknown character costs 10 more than this
  int32_t unk_id = -1;
  bool byte_fallback = false;
};

class UnigramModel : public Model {
 public:
  static base::Result<std::unique_ptr<UnigramModel>> Create(UnigramSpec spec);
  base::Status Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                      std::vector<int32_t>* out) const override;

 private:
  UnigramModel() = default;
  base::Status EncodeWord(std::string_view word, std::vector<int32_t>* out) const;

  UnigramSpec spec_;
  Trie trie_;
  std::array<int32_t, 256> byte_ids_{};
  bool all_bytes_ = false;
};

}  // namespace vllm::text
