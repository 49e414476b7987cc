#include "vllm/text/vocab.h"

#include <cstring>

#include "base/strings.h"
#include "vllm/text/flat_map.h"

namespace vllm::text {

uint64_t HashBytes(std::string_view s) {
  uint64_t h = 0x9E3779B97F4A7C15ull ^ s.size();
  size_t i = 0;
  for (; i + 8 <= s.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, s.data() + i, 8);
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  uint64_t tail = 0;
  if (i < s.size()) std::memcpy(&tail, s.data() + i, s.size() - i);
  return MixBits(h ^ tail);
}

void Vocab::Reserve(size_t tokens, size_t bytes) {
  arena_.reserve(bytes);
  entries_.reserve(tokens);
}

base::Status Vocab::Add(std::string_view text, int64_t id) {
  if (id < 0 || id >= kMaxId) {
    return base::Error{base::Code::kCorrupt,
                       fmt::format("token \"{}\" has id {}, outside 0..{}; the file is damaged",
                                   base::Printable(text), id, kMaxId - 1)};
  }
  const auto i = static_cast<int32_t>(id);
  if (Has(i)) {
    if (Text(i) == text) return {};
    return base::Error{base::Code::kCorrupt,
                       fmt::format("tokens \"{}\" and \"{}\" both have id {}; the file is damaged",
                                   base::Printable(Text(i)), base::Printable(text), id)};
  }
  if (arena_.size() + text.size() >= kHole) {
    return base::Error{base::Code::kResourceExhausted,
                       "the vocabulary has more than 4 GiB of text"};
  }
  if (i >= size()) entries_.resize(static_cast<size_t>(i) + 1);
  entries_[i] = {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(text.size())};
  arena_.append(text);
  if ((used_ + 1) * 2 > table_.size()) {
    if (auto s = Grow(); !s.ok()) return s;
  }
  return Link(i);
}

base::Status Vocab::Link(int32_t id) {
  const std::string_view text = Text(id);
  const size_t mask = table_.size() - 1;
  int probes = 0;
  for (size_t slot = HashBytes(text) & mask;; slot = (slot + 1) & mask) {
    if (table_[slot] == id) return {};
    if (table_[slot] < 0) {
      table_[slot] = id;
      ++used_;
      return {};
    }
    if (Text(table_[slot]) == text) return {};
    if (++probes > FlatMap::kMaxProbes) {
      return base::Error{base::Code::kCorrupt,
                         "the vocabulary's texts are made to collide; it is refused"};
    }
  }
}

base::Status Vocab::Grow() {
  const std::vector<int32_t> old = std::move(table_);
  table_.assign(old.empty() ? 1024 : old.size() * 2, -1);
  used_ = 0;
  for (const int32_t id : old) {
    if (id < 0) continue;
    if (auto s = Link(id); !s.ok()) return s;
  }
  return {};
}

int32_t Vocab::Find(std::string_view text) const {
  if (table_.empty()) return -1;
  const size_t mask = table_.size() - 1;
  for (size_t slot = HashBytes(text) & mask;; slot = (slot + 1) & mask) {
    if (table_[slot] < 0) return -1;
    if (Text(table_[slot]) == text) return table_[slot];
  }
}

}  // namespace vllm::text
