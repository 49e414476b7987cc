// A hash map from 64-bit keys to 64-bit values in two flat arrays' worth of memory: filled once,
// then only read.
#pragma once

#include <cstdint>
#include <vector>

namespace vllm::text {

inline uint64_t MixBits(uint64_t x) {  // the finaliser of MurmurHash3
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

class FlatMap {
 public:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // not a key
  // Linear probing past this many slots means keys chosen to collide: Insert refuses.
  static constexpr int kMaxProbes = 4096;

  void Reserve(size_t n) {
    size_t capacity = 16;
    while (capacity < n + n / 2 + 1) capacity *= 2;
    if (capacity > slots_.size()) Rehash(capacity);
  }

  // The last value of a key wins. False: see kMaxProbes.
  bool Insert(uint64_t key, uint64_t value) {
    if ((size_ + 1) * 3 > slots_.size() * 2 && !Rehash(slots_.empty() ? 16 : slots_.size() * 2))
      return false;
    return Put(key, value);
  }

  // Null when absent.
  const uint64_t* Find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = MixBits(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    uint64_t value = 0;
  };

  bool Put(uint64_t key, uint64_t value) {
    int probes = 0;
    for (size_t i = MixBits(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) {
        slots_[i].value = value;
        return true;
      }
      if (slots_[i].key == kEmpty) {
        slots_[i] = {key, value};
        ++size_;
        return true;
      }
      if (++probes > kMaxProbes) return false;
    }
  }

  bool Rehash(size_t capacity) {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(capacity, {});
    mask_ = capacity - 1;
    size_ = 0;
    for (const Slot& s : old) {
      if (s.key != kEmpty && !Put(s.key, s.value)) return false;
    }
    return true;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace vllm::text
