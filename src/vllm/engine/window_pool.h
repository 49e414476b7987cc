// KV blocks of layers that see a window of the last tokens alone, and each sequence's table of
// them.
//
// A table has an entry for each block of tokens from position 0 on, as that of the other layers;
// but blocks that no token to come can see are given back, and their entries stay behind unread.
// Cached content is found by the node of the block of the same tokens in the other layers' pool: a
// prefix can be gone on from where the blocks of its last window are there.
//
// The blocks are the pool's own, or pages of the other layers' pool (kv_layout.h), of which each
// stands for several blocks there: as many blocks as `pages.block_size()` has of these then have
// one node. Not thread-safe.
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
  // Takes pages of `pages`, where sequences have at most `longest` tokens. REQUIRES: window > 0;
  // the pages' block size is a multiple of this one's.
  WindowPool(int64_t window, int64_t block_size, BlockPool& pages, int64_t longest);
  WindowPool(const WindowPool&) = delete;
  WindowPool& operator=(const WindowPool&) = delete;

  bool used() const { return window_ > 0; }
  int64_t blocks() const { return own_.blocks(); }  // of its own
  int64_t free_blocks() const { return own_.free_blocks(); }
  // Whether so many blocks are free in the other layers' pool, and so many here.
  bool Fit(const BlockPool& others, int64_t in_others, int64_t here) const;

  // How many tokens a sequence of at most `longest` that has the whole pool may be given at a time.
  int64_t MostTokens(int64_t longest) const;
  // Blocks that must be free before a sequence of so many tokens may begin, where steps have
  // `step_tokens`.
  int64_t Wanted(const WindowTable& found, int64_t tokens, int64_t step_tokens) const;
  // Whether all blocks that a token at this position sees are held, as far as the table goes.
  bool Holds(const WindowTable& table, int64_t position) const {
    return !used() || table.first <= FirstBlock(position);
  }

  // How many blocks the table lacks for so many tokens.
  int64_t Missing(const WindowTable& table, int64_t tokens) const;
  // Appends them. False, and nothing happens, when too few are free.
  bool Grow(WindowTable& table, int64_t tokens);
  // How many blocks sliding to this position would give back, if nobody shares them.
  int64_t Behind(const WindowTable& table, int64_t position) const;
  // Gives back the blocks that tokens from this position on do not see.
  void Slide(WindowTable& table, int64_t position);
  void Release(WindowTable& table);

  // Of a prefix of `count` of the other layers' blocks the longest that can be gone on from and
  // that `also` takes; its table is filled. `node` gives the node of the block of this index there.
  int64_t Find(int64_t count, const std::function<PrefixNode(int64_t)>& node,
               const std::function<bool(int64_t)>& also, WindowTable& table);
  // Says that the blocks of the tokens of the others' block of this index hold what belongs to its
  // node.
  void Publish(const WindowTable& table, int64_t index, PrefixNode node);

 private:
  int64_t FirstBlock(int64_t position) const;

  int64_t window_, block_size_;
  BlockPool own_;
  BlockPool& pool_;   // own_, or of pages
  int64_t each_ = 1;  // blocks to one of the others'
  int64_t most_;      // blocks that one sequence can have
};

}  // namespace vllm::engine
