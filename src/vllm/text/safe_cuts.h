// Where a text may be cut without changing what merging makes of it.
//
// SentencePiece-style tokenizers (Gemma, Llama 2) merge over a whole text. But a merge across a
// place needs a token in which the two characters at that place are neighbours. Where no token has
// them so, nothing ever crosses, and the two sides can be merged apart: short pieces, most of which
// a cache knows.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "vllm/text/model.h"
#include "vllm/text/unicode.h"

namespace vllm::text {

class SafeCuts {
 public:
  // REQUIRES: valid UTF-8; every token that merging can produce is added.
  void AddToken(std::string_view token) {
    uint8_t previous = 0;
    for (size_t i = 0; i < token.size();) {
      uint32_t c;
      const size_t start = i;
      i += DecodeValid(token.data() + i, &c);
      const uint8_t slot = SlotOf(c);
      if (start > 0) neighbours_->set(previous * 256u + slot);
      previous = slot;
    }
  }

  // Appends the pieces of `span` of `text`.
  void Cut(std::string_view text, Span span, std::vector<Span>* pieces) const {
    const char* p = text.data();
    uint32_t begin = span.begin;
    uint32_t c;
    uint32_t i = span.begin;
    if (i == span.end) return;
    i += static_cast<uint32_t>(DecodeValid(p + i, &c));
    uint8_t previous = SlotOf(c);
    while (i < span.end) {
      const uint32_t at = i;
      i += static_cast<uint32_t>(DecodeValid(p + i, &c));
      const uint8_t slot = SlotOf(c);
      if (!neighbours_->test(previous * 256u + slot)) {
        pieces->push_back({begin, at});
        begin = at;
      }
      previous = slot;
    }
    pieces->push_back({begin, span.end});
  }

 private:
  // ASCII and the word mark U+2581 have a slot each; the rest share, which only forgoes cuts.
  static uint8_t SlotOf(uint32_t c) {
    if (c < 128) return static_cast<uint8_t>(c);
    if (c == 0x2581) return 128;
    return static_cast<uint8_t>(129 + (c ^ c >> 7) % 127);
  }
  std::unique_ptr<std::bitset<65536>> neighbours_ = std::make_unique<std::bitset<65536>>();
};

}  // namespace vllm::text
