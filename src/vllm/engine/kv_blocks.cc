#include "vllm/engine/kv_blocks.h"

#include "base/strings.h"

namespace vllm::engine {

KvBlocks::KvBlocks(int64_t blocks, int64_t block_size, int64_t sequences)
    : block_size_(block_size), tables_(static_cast<size_t>(sequences)) {
  for (int64_t b = blocks - 1; b >= 0; --b) free_.push_back(static_cast<int32_t>(b));
}

base::Status KvBlocks::Reserve(int sequence, int64_t tokens) {
  std::vector<int32_t>& table = tables_[static_cast<size_t>(sequence)];
  const int64_t wanted =
      (tokens + block_size_ - 1) / block_size_ - static_cast<int64_t>(table.size());
  if (wanted > free_blocks()) {
    return base::Error{
        base::Code::kResourceExhausted,
        fmt::format("{} KV blocks wanted, {} free: use a shorter context or fewer requests", wanted,
                    free_blocks())};
  }
  for (int64_t i = 0; i < wanted; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  return {};
}

void KvBlocks::Release(int sequence) {
  std::vector<int32_t>& table = tables_[static_cast<size_t>(sequence)];
  free_.insert(free_.end(), table.rbegin(), table.rend());
  table.clear();
}

int32_t KvBlocks::Slot(int sequence, int64_t position) const {
  const int32_t block = table(sequence)[static_cast<size_t>(position / block_size_)];
  return static_cast<int32_t>(block * block_size_ + position % block_size_);
}

}  // namespace vllm::engine
