// The KV blocks of a device: who holds them, and which cached prefixes they contain.
//
// Block ids index every layer's state buffer of every group that the pool is for. A full block
// whose tokens are known can be published: later requests with the same prefix then share it. A
// published block that nobody holds stays cached until its memory is needed; the least recently
// used goes first, and blocks without content go before any cached one. Those that a window has
// left behind go before the others while they are more than a quarter of all blocks.
//
// Published content is a node of a tree: (parent node, tokens of the block). Nodes are found by
// hash and compared token by token, so two prefixes can never be taken for each other. A root
// stands for everything else that keys and values depend on (salt, adapter, media).
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace vllm::engine {

using PrefixNode = uint64_t;  // 0: none; never used twice

class BlockPool {
 public:
  BlockPool(int64_t blocks, int64_t block_size, bool caching);
  BlockPool(const BlockPool&) = delete;  // the index points back here
  BlockPool& operator=(const BlockPool&) = delete;

  // The root of all prefixes with these extra keys.
  PrefixNode Root(const std::string& extra_keys);

  // Appends `count` blocks to `table`. False, and nothing happens, when fewer are free.
  bool Allocate(int64_t count, std::vector<int32_t>& table);
  // Gives back one hold on each block behind the first `keep`, which the table keeps. The last
  // block is forgotten first, so that a prefix outlives its continuations.
  void Release(std::vector<int32_t>& table, int64_t keep = 0);
  // Gives back one hold on a block. `behind`: a window has left it.
  void Release(int32_t block, bool behind = false);

  struct Match {
    int64_t blocks = 0;
    PrefixNode node = 0;  // of the last matched block; the root's without a match
  };
  // Appends the blocks of the longest cached prefix of `tokens` to `table`, and holds them.
  Match Find(PrefixNode root, std::span<const int32_t> tokens, std::vector<int32_t>& table);
  // The block with these tokens after `parent`, which it holds; -1 where there is none.
  int32_t FindOne(PrefixNode parent, std::span<const int32_t> tokens);
  // Says that a held block contains keys and values of exactly these tokens after `parent`. Returns
  // the content's node; when the same content is published already, that one's. REQUIRES:
  // tokens.size() <= block_size, and no content of fewer tokens begins another one's.
  PrefixNode Publish(PrefixNode parent, std::span<const int32_t> tokens, int32_t block);
  // Of a published block; else 0.
  PrefixNode NodeOf(int32_t block) const { return info(block).node; }
  // Called with the node of each published block whose content is given up.
  void OnForget(std::function<void(PrefixNode)> f) { on_forget_ = std::move(f); }

  int64_t blocks() const { return static_cast<int64_t>(info_.size()); }
  int64_t block_size() const { return block_size_; }
  int64_t free_blocks() const { return free_[0].count + free_[1].count; }  // cached ones included
  int64_t cached_blocks() const { return static_cast<int64_t>(index_.size()); }
  bool caching() const { return caching_; }
  // How many blocks a table of that many lacks for so many tokens.
  int64_t Missing(size_t there, int64_t tokens) const {
    return std::max<int64_t>(BlocksOf(tokens) - static_cast<int64_t>(there), 0);
  }
  int64_t BlocksOf(int64_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }

 private:
  struct Info {
    int32_t holds = 0;
    int32_t previous = -1, next = -1;  // in its list of free blocks
    bool behind = false;               // of two, which
    PrefixNode node = 0, parent = 0;
    size_t hash = 0;
  };
  struct Key {
    PrefixNode parent;
    std::span<const int32_t> tokens;
    size_t hash;
  };
  struct Hash {
    using is_transparent = void;
    const BlockPool* pool;
    size_t operator()(int32_t block) const { return pool->info(block).hash; }
    size_t operator()(const Key& key) const { return key.hash; }
  };
  struct Equal {
    using is_transparent = void;
    const BlockPool* pool;
    bool operator()(int32_t a, int32_t b) const { return a == b; }
    bool operator()(const Key& key, int32_t block) const { return pool->Holds(block, key); }
    bool operator()(int32_t block, const Key& key) const { return pool->Holds(block, key); }
  };

  const Info& info(int32_t block) const { return info_[static_cast<size_t>(block)]; }
  Info& info(int32_t block) { return info_[static_cast<size_t>(block)]; }
  std::span<int32_t> TokensOf(int32_t block);
  bool Holds(int32_t block, const Key& key) const;
  Key MakeKey(PrefixNode parent, std::span<const int32_t> tokens) const;
  // Free blocks, in the order in which they will be used.
  struct List {
    int32_t first = -1, last = -1;
    int64_t count = 0;
  };
  List& ListOf(int32_t block) { return free_[info(block).behind ? 1 : 0]; }
  int32_t Next() const;
  void Link(int32_t block, bool at_front);
  void Unlink(int32_t block);
  void Hold(int32_t block);

  int64_t block_size_;
  bool caching_;
  std::vector<Info> info_;
  std::vector<int32_t> tokens_;  // [block, block_size], of published blocks
  List free_[2];                 // the second: content that a window has left behind
  PrefixNode next_node_ = 1;
  std::map<std::string, PrefixNode> roots_;
  std::unordered_set<int32_t, Hash, Equal> index_;  // published blocks
  std::function<void(PrefixNode)> on_forget_;
};

}  // namespace vllm::engine
