// The part of a tokenizer that turns pre-tokens into ids: BPE, SentencePiece-style BPE, Unigram,
// WordPiece.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/text/word_cache.h"

namespace vllm::text {

// A half-open range of bytes of the text at hand.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
};

// A piece of a word during merging.
struct Symbol {
  int32_t id;
  uint32_t begin, end;  // bytes of the text; begin == end: merged away
  int32_t prev, next;   // indices, -1 at the ends
};

// Two neighbouring symbols that may be merged.
struct Candidate {
  uint64_t order;  // rank, then the left symbol's index; the smallest is merged first
  uint32_t size;   // bytes of both together: unequal means that one has changed since
  int32_t result;  // id of the merged symbol
};

// Buffers that one Encode call uses and the next one reuses; owned by one thread at a time.
struct Scratch {
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<int32_t> ids;
  std::vector<Span> cuts;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `words`, ranges of `text`, one after the other. Thread-safe; a scratch
  // serves one model.
  virtual base::Status Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                              std::vector<int32_t>* out) const = 0;
};

}  // namespace vllm::text
