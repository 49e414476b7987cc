// A byte trie over texts with a number each, its edges in one hash map.
#pragma once

#include <cstdint>
#include <string_view>

#include "vllm/text/flat_map.h"

namespace vllm::text {

class Trie {
 public:
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  // The first value of a text stays. False: keys made to collide, or over 64 million nodes.
  bool Insert(std::string_view text, int32_t value) {
    int32_t node = kRoot;
    for (const char c : text) {
      int32_t next = Next(node, c);
      if (next == kNone) {
        next = ++last_;
        if (last_ > (1 << 26) || !edges_.Insert(Key(node, c), static_cast<uint64_t>(next)))
          return false;
      }
      node = next;
    }
    return values_.Find(static_cast<uint64_t>(node)) != nullptr ||
           values_.Insert(static_cast<uint64_t>(node), static_cast<uint64_t>(value));
  }

  int32_t Next(int32_t node, char c) const {
    const uint64_t* found = edges_.Find(Key(node, c));
    return found == nullptr ? kNone : static_cast<int32_t>(*found);
  }
  // The value of the text that ends at `node`, or kNone.
  int32_t Value(int32_t node) const {
    const uint64_t* found = values_.Find(static_cast<uint64_t>(node));
    return found == nullptr ? kNone : static_cast<int32_t>(*found);
  }

  // The longest text that `s` begins with: its value, and its length in *length.
  int32_t Longest(std::string_view s, size_t* length) const {
    int32_t node = kRoot;
    int32_t best = kNone;
    *length = 0;
    for (size_t i = 0; i < s.size(); ++i) {
      node = Next(node, s[i]);
      if (node == kNone) break;
      if (const int32_t v = Value(node); v != kNone) {
        best = v;
        *length = i + 1;
      }
    }
    return best;
  }

 private:
  static uint64_t Key(int32_t node, char c) {
    return uint64_t{static_cast<uint32_t>(node)} << 8 | static_cast<uint8_t>(c);
  }
  FlatMap edges_;
  FlatMap values_;
  int32_t last_ = 0;
};

}  // namespace vllm::text
