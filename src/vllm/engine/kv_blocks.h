// Which KV blocks each running sequence holds. Block ids index every layer's state buffer of every
// group alike. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace vllm::engine {

class KvBlocks {
 public:
  KvBlocks(int64_t blocks, int64_t block_size, int64_t sequences);

  // Makes room for `tokens` tokens in all. Errors: kResourceExhausted; the sequence then keeps what
  // it had.
  base::Status Reserve(int sequence, int64_t tokens);
  // Gives back all blocks of a sequence.
  void Release(int sequence);

  const std::vector<int32_t>& table(int sequence) const {
    return tables_[static_cast<size_t>(sequence)];
  }
  // Where the token at `position` is stored: block * block_size + offset. REQUIRES: reserved.
  int32_t Slot(int sequence, int64_t position) const;
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t block_size() const { return block_size_; }

 private:
  int64_t block_size_;
  std::vector<int32_t> free_;
  std::vector<std::vector<int32_t>> tables_;
};

}  // namespace vllm::engine
