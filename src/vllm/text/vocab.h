// Token texts and ids, both ways. Filled at load, then read by any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vllm::text {

uint64_t HashBytes(std::string_view s);

class Vocab {
 public:
  // Ids of published vocabularies stay under 300,000; the bound keeps a hostile id from sizing the
  // tables.
  static constexpr int32_t kMaxId = 4'000'000;

  void Reserve(size_t tokens, size_t bytes);
  // Adds a token. Errors: an id out of range or taken by another text. A text that is there already
  // keeps its first id for Find, and both ids have the text.
  base::Status Add(std::string_view text, int64_t id);

  int32_t Find(std::string_view text) const;  // -1: absent
  bool Has(int32_t id) const { return id >= 0 && id < size() && entries_[id].size != kHole; }
  std::string_view Text(int32_t id) const {
    return Has(id) ? std::string_view(arena_).substr(entries_[id].offset, entries_[id].size)
                   : std::string_view();
  }
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }  // highest id + 1

 private:
  static constexpr uint32_t kHole = ~uint32_t{0};
  struct Entry {
    uint32_t offset = 0;
    uint32_t size = kHole;
  };
  base::Status Link(int32_t id);
  base::Status Grow();

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<int32_t> table_;  // open addressing over ids; -1 free
  size_t used_ = 0;
};

}  // namespace vllm::text
