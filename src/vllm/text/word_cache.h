// A bounded cache from short words to their ids. Most words of a text are short and come again, and
// looking one up here takes a tenth of merging it anew.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace vllm::text {

class WordCache {
 public:
  static constexpr uint32_t kMaxBytes = 15;  // a word and its length fill two registers
  static constexpr int kMaxIds = 4;          // so that an entry is 32 bytes, half a cache line

  struct Key {
    uint64_t low, high;
  };
  struct alignas(32) Entry {
    Key key{0, 0};  // the length sits in the top byte, so a real key isn't zero
    int32_t ids[kMaxIds];
  };

  // REQUIRES: 1 <= size <= kMaxBytes. `readable` bytes may be read from p.
  static Key MakeKey(const char* p, uint32_t size, size_t readable) {
    uint64_t w[2] = {0, 0};
    if (readable >= 16) {
      std::memcpy(w, p, 16);
      if (size >= 8) {
        w[1] &= (uint64_t{1} << (8 * (size - 8))) - 1;
      } else {
        w[0] &= (uint64_t{1} << (8 * size)) - 1;
        w[1] = 0;
      }
    } else {
      std::memcpy(w, p, size);
    }
    return {w[0], w[1] | uint64_t{size} << 56};
  }

  // The entry of `key`, or null. Unused places of ids are -1.
  const Entry* Find(Key key) const {
    if (entries_.empty()) return nullptr;
    const size_t slot = Slot(key);
    for (const size_t s : {slot, slot ^ 1}) {
      const Entry& e = entries_[s];
      if (e.key.low == key.low && e.key.high == key.high) return &e;
    }
    return nullptr;
  }

  // Keeps the newest two words of a slot pair.
  void Insert(Key key, const int32_t* ids, int n) {
    if (entries_.empty()) entries_.resize(kEntries);
    const size_t slot = Slot(key);
    entries_[slot ^ 1] = entries_[slot];
    Entry& e = entries_[slot];
    e.key = key;
    for (int i = 0; i < kMaxIds; ++i) e.ids[i] = i < n ? ids[i] : -1;
  }

 private:
  // 32,768 entries are 1 MiB: about what a core's second-level cache holds, and more words than
  // most texts have.
  static constexpr size_t kEntries = 1 << 15;
  static size_t Slot(Key key) {
    const uint64_t h = (key.low ^ (key.high * 0x9E3779B97F4A7C15ull)) * 0xff51afd7ed558ccdull;
    return (h >> 40) & (kEntries - 1);
  }
  std::vector<Entry> entries_;
};

}  // namespace vllm::text
