#include "vllm/engine/block_pool.h"

#include <algorithm>

namespace vllm::engine {
namespace {

// Salts are chosen by clients: beyond so many the map starts anew, which forgets cached prefixes
// and never confuses them, since nodes are not used twice.
constexpr size_t kMaxRoots = 65536;

// One in so many blocks may be behind a window while others' content goes: a long prompt leaves
// many there, of which few are ever found.
constexpr int64_t kFewBehind = 4;

}  // namespace

BlockPool::BlockPool(int64_t blocks, int64_t block_size, bool caching)
    : block_size_(block_size),
      caching_(caching),
      info_(static_cast<size_t>(blocks)),
      tokens_(caching ? static_cast<size_t>(blocks * block_size) : 0),
      index_(0, Hash{this}, Equal{this}) {
  for (int32_t b = 0; b < blocks; ++b) Link(b, false);
}

PrefixNode BlockPool::Root(const std::string& extra_keys) {
  if (roots_.size() > kMaxRoots) roots_.clear();
  PrefixNode& root = roots_[extra_keys];
  if (root == 0) root = next_node_++;
  return root;
}

std::span<int32_t> BlockPool::TokensOf(int32_t block) {
  return {tokens_.data() + block * block_size_, static_cast<size_t>(block_size_)};
}

bool BlockPool::Holds(int32_t block, const Key& key) const {
  const Info& i = info(block);
  return i.hash == key.hash && i.parent == key.parent &&
         std::equal(key.tokens.begin(), key.tokens.end(), tokens_.begin() + block * block_size_);
}

BlockPool::Key BlockPool::MakeKey(PrefixNode parent, std::span<const int32_t> tokens) const {
  // splitmix64's mixing step over parent and tokens.
  uint64_t h = parent * 0x9E3779B97F4A7C15u;
  for (const int32_t t : tokens) {
    h = (h ^ static_cast<uint32_t>(t)) * 0xBF58476D1CE4E5B9u;
    h ^= h >> 29;
  }
  return {parent, tokens, static_cast<size_t>(h)};
}

void BlockPool::Link(int32_t block, bool at_front) {
  Info& i = info(block);
  List& list = ListOf(block);
  i.previous = at_front ? -1 : list.last;
  i.next = at_front ? list.first : -1;
  (i.previous >= 0 ? info(i.previous).next : list.first) = block;
  (i.next >= 0 ? info(i.next).previous : list.last) = block;
  ++list.count;
}

void BlockPool::Unlink(int32_t block) {
  const Info& i = info(block);
  List& list = ListOf(block);
  (i.previous >= 0 ? info(i.previous).next : list.first) = i.next;
  (i.next >= 0 ? info(i.next).previous : list.last) = i.previous;
  --list.count;
}

// The free block that is used next. REQUIRES: there is one.
int32_t BlockPool::Next() const {
  const List& others = free_[0];
  const bool empty = others.count > 0 && info(others.first).node == 0;
  const bool many = free_[1].count * kFewBehind > blocks();
  return empty || (others.count > 0 && !many) ? others.first : free_[1].first;
}

void BlockPool::Hold(int32_t block) {
  if (info(block).holds++ == 0) Unlink(block);
}

bool BlockPool::Allocate(int64_t count, std::vector<int32_t>& table) {
  if (count > free_blocks()) return false;
  for (int64_t n = 0; n < count; ++n) {
    const int32_t block = Next();
    Hold(block);
    Info& i = info(block);
    if (i.node != 0) {
      index_.erase(block);
      if (on_forget_) on_forget_(i.node);
      i.node = 0;
    }
    table.push_back(block);
  }
  return true;
}

void BlockPool::Release(std::vector<int32_t>& table, int64_t keep) {
  for (auto n = static_cast<int64_t>(table.size()); n-- > keep;) {
    Release(table.back());
    table.pop_back();
  }
}

void BlockPool::Release(int32_t block, bool behind) {
  Info& i = info(block);
  if (--i.holds > 0) return;
  i.behind = behind && i.node != 0;
  Link(block, i.node == 0);
}

int32_t BlockPool::FindOne(PrefixNode parent, std::span<const int32_t> tokens) {
  if (!caching_) return -1;
  const auto found = index_.find(MakeKey(parent, tokens));
  if (found == index_.end()) return -1;
  Hold(*found);
  return *found;
}

BlockPool::Match BlockPool::Find(PrefixNode root, std::span<const int32_t> tokens,
                                 std::vector<int32_t>& table) {
  Match match{0, root};
  if (!caching_) return match;
  const auto size = static_cast<size_t>(block_size_);
  for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
    const int32_t block = FindOne(match.node, tokens.first(size));
    if (block < 0) break;
    table.push_back(block);
    match.node = info(block).node;
    ++match.blocks;
  }
  return match;
}

PrefixNode BlockPool::Publish(PrefixNode parent, std::span<const int32_t> tokens, int32_t block) {
  if (!caching_) return 0;
  const Key key = MakeKey(parent, tokens);
  const auto found = index_.find(key);
  if (found != index_.end()) return info(*found).node;
  Info& i = info(block);
  i.parent = parent;
  i.hash = key.hash;
  i.node = next_node_++;
  std::copy(tokens.begin(), tokens.end(), TokensOf(block).begin());
  index_.insert(block);
  return i.node;
}

}  // namespace vllm::engine
