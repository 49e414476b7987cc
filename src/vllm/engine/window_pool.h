// KV blocks of layers that see a window of the last tokens alone, and each sequence's table of
// them.
//
// A table has an entry for each block of tokens from position 0 on, as that of the other layers;
// but blocks that no token to come can see are given back, and their entries stay behind unread.
// Cached content is found by the node of the block of the same tokens in the other layers' pool: a
// prefix can be gone on from where the blocks of its last window are there. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "vllm/engine/block_pool.h"

namespace vllm::engine {

struct WindowTable {
  std::vector<int32_t> blocks;
  int64_t first = 0;  // the first that is held
};

class WindowPool {
 public:
  // `window`: the longest of the model's, in tokens; 0: it has none, and every call does nothing.
  WindowPool(int64_t window, int64_t blocks, int64_t block_size, bool caching);

  bool used() const { return window_ > 0; }
  int64_t blocks() const { return pool_.blocks(); }
  int64_t free_blocks() const { return used() ? pool_.free_blocks() : 0; }

  // How many tokens a sequence of at most `longest` that has the whole pool may be given at a time.
  int64_t MostTokens(int64_t longest) const;
  // Blocks that must be free before a sequence of so many tokens may begin, where steps have
  // `step_tokens`.
  int64_t Wanted(const WindowTable& found, int64_t tokens, int64_t step_tokens) const;
  // Whether all blocks that a token at this position sees are held, as far as the table goes.
  bool Holds(const WindowTable& table, int64_t position) const {
    return !used() || table.first <= FirstBlock(position);
  }

  // Appends blocks until the table has `count`. False, and nothing happens, when too few are free.
  bool Grow(WindowTable& table, int64_t count);
  // Whether it could grow so far once it has slid to this position, if nobody shares its blocks.
  bool GrowsAt(const WindowTable& table, int64_t position, int64_t count) const;
  // Gives back the blocks that tokens from this position on do not see.
  void Slide(WindowTable& table, int64_t position);
  void Release(WindowTable& table);

  // Of a prefix of `count` blocks the longest that can be gone on from and that `also` takes; its
  // table is filled. `node` gives the node of the prefix's block of this index.
  int64_t Find(int64_t count, const std::function<PrefixNode(int64_t)>& node,
               const std::function<bool(int64_t)>& also, WindowTable& table);
  // Says that the block of this index holds what belongs to the node.
  void Publish(const WindowTable& table, int64_t index, PrefixNode node);

 private:
  int64_t FirstBlock(int64_t position) const;

  int64_t window_, block_size_;
  BlockPool pool_;  // content is named by the node alone
};

}  // namespace vllm::engine
