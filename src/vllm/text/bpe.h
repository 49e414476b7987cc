// Byte-pair encoding by merge ranks (Sennrich et al., arXiv:1508.07909), over bytes (GPT-2) or
// characters.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "vllm/text/flat_map.h"
#include "vllm/text/model.h"
#include "vllm/text/safe_cuts.h"
#include "vllm/text/vocab.h"

namespace vllm::text {

struct BpeSpec {
  const Vocab* vocab = nullptr;  // outlives Create only; texts as the file writes them
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // the first has rank 0
  bool byte_level =
      false;  // the text is raw bytes; the vocabulary writes them as GPT-2's stand-ins
  bool byte_fallback = false;  // characters without a token become <0x..> tokens
  bool fuse_unk = false;       // neighbouring unknown characters give one unknown token
  bool by_id = false;  // instead of merges: neighbours whose joined text is a token, the lowest id
                       // first (tiktoken)
  bool ignore_merges = false;   // a word that is a token is that token, whatever the merges say
  bool lenient = false;         // GGUF: merges may name texts that are no tokens
  bool cut_safely = false;      // words may be whole texts: see SafeCuts
  bool whole_newlines = false;  // a word of newlines that is a token is that token
  int32_t unk_id = -1;
  std::string prefix;                             // continuing_subword_prefix
  std::string suffix;                             // end_of_word_suffix
  const std::vector<uint8_t>* control = nullptr;  // ids that text must never become; may be null
};

class BpeModel : public Model {
 public:
  static base::Result<std::unique_ptr<BpeModel>> Create(const BpeSpec& spec);
  base::Status Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                      std::vector<int32_t>* out) const override;

 private:
  BpeModel() = default;
  base::Status LoadMerges(const BpeSpec& spec);
  void LoadCharacters(const BpeSpec& spec);
  base::Status EncodeWord(std::string_view text, Span word, Scratch* scratch) const;
  base::Status Split(std::string_view text, Span word, std::vector<Symbol>* symbols) const;
  base::Status SplitAffixed(std::string_view text, Span word, std::vector<Symbol>* symbols) const;
  base::Status Unknown(std::string_view text, uint32_t begin, uint32_t end,
                       std::vector<Symbol>* symbols) const;
  base::Status EncodeRun(std::string_view text, std::span<const Span> words, Scratch* scratch,
                         std::vector<int32_t>* out) const;

  bool byte_level_ = false, fuse_unk_ = false, byte_fallback_ = false;
  int32_t unk_id_ = -1;
  int32_t vocab_size_ =
      0;  // ids from here on are texts that merges go through but that are no tokens
  std::string prefix_, suffix_;
  std::array<int32_t, 256>
      byte_ids_{};  // byte level: symbol of each byte; else its <0x..> token; -1: none
  std::array<int32_t, 128> ascii_ids_{};  // character level
  FlatMap char_ids_;                      // other characters
  FlatMap merges_;                        // left << 32 | right -> rank << 32 | result
  std::unique_ptr<Vocab>
      words_;  // ignore_merges: in the text's own form; also for affixed characters
  bool ignore_merges_ = false, whole_newlines_ = false, by_id_ = false;
  uint32_t longest_ = 0;  // bytes of a token, for by_id
  std::unique_ptr<SafeCuts> cuts_;
};

}  // namespace vllm::text
