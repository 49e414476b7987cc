#include "vllm/engine/window_pool.h"

#include <algorithm>
#include <array>
#include <limits>

namespace vllm::engine {
namespace {

// What names the content of a node's `index`th block beside the node. No token has such an id, so
// that it is never taken for what follows the node.
std::array<int32_t, 1> Name(int64_t index) { return {static_cast<int32_t>(-1 - index)}; }

}  // namespace

WindowPool::WindowPool(int64_t window, int64_t blocks, int64_t block_size, bool caching)
    : window_(window),
      block_size_(block_size),
      own_(window > 0 ? blocks : 0, 1, caching),
      pool_(own_),
      most_(own_.blocks()) {}

WindowPool::WindowPool(int64_t window, int64_t block_size, BlockPool& pages, int64_t longest)
    : window_(window),
      block_size_(block_size),
      own_(0, 1, false),
      pool_(pages),
      each_(pages.block_size() / block_size),
      most_(pages.blocks() - pages.BlocksOf(longest)) {}

// The first block that a token at this position, or one behind it, sees.
int64_t WindowPool::FirstBlock(int64_t position) const {
  return std::max<int64_t>(position - window_ + 1, 0) / block_size_;
}

bool WindowPool::Fit(const BlockPool& others, int64_t in_others, int64_t here) const {
  if (&pool_ == &others) return in_others + here <= others.free_blocks();
  return in_others <= others.free_blocks() && here <= pool_.free_blocks();
}

// Neither the window's beginning nor the last token need be at the edge of a block.
int64_t WindowPool::MostTokens(int64_t longest) const {
  if (!used() || most_ * block_size_ >= longest) return std::numeric_limits<int64_t>::max();
  return (most_ - 1) * block_size_ - (window_ - 1);
}

int64_t WindowPool::Wanted(const WindowTable& found, int64_t tokens, int64_t step_tokens) const {
  if (!used()) return 0;
  const auto there = static_cast<int64_t>(found.blocks.size());
  const int64_t all = (tokens + block_size_ - 1) / block_size_ - there;
  const int64_t at_once = (window_ - 1 + step_tokens + block_size_ - 1) / block_size_ + 1;
  const int64_t more = std::min(at_once, most_) - (there - found.first);
  return std::max<int64_t>(std::min(all, more), 0);
}

int64_t WindowPool::Missing(const WindowTable& table, int64_t tokens) const {
  if (!used()) return 0;
  const int64_t count = (tokens + block_size_ - 1) / block_size_;
  return std::max<int64_t>(count - static_cast<int64_t>(table.blocks.size()), 0);
}

bool WindowPool::Grow(WindowTable& table, int64_t tokens) {
  return pool_.Allocate(Missing(table, tokens), table.blocks);
}

int64_t WindowPool::Behind(const WindowTable& table, int64_t position) const {
  if (!used()) return 0;
  const auto there = static_cast<int64_t>(table.blocks.size());
  return std::max<int64_t>(std::min(FirstBlock(position), there) - table.first, 0);
}

void WindowPool::Slide(WindowTable& table, int64_t position) {
  for (int64_t n = Behind(table, position); n > 0; --n)
    pool_.Release(table.blocks[static_cast<size_t>(table.first++)], true);
}

void WindowPool::Release(WindowTable& table) {
  if (!used()) return;
  pool_.Release(table.blocks, table.first);
  table = {};
}

int64_t WindowPool::Find(int64_t count, const std::function<PrefixNode(int64_t)>& node,
                         const std::function<bool(int64_t)>& also, WindowTable& table) {
  std::vector<int32_t> found;  // the last one first: blocks begin .. count * each_ - 1
  int64_t begin = count * each_;
  const auto drop = [&](int64_t end) {  // those from `end` on
    while (!found.empty() && begin + static_cast<int64_t>(found.size()) > end) {
      pool_.Release(found.front());
      found.erase(found.begin());
    }
  };
  while (count > 0) {
    const int64_t end = count * each_, first = used() ? FirstBlock(end * block_size_) : end;
    int32_t block = 0;
    while (begin > first &&
           (block = pool_.FindOne(node((begin - 1) / each_), Name((begin - 1) % each_))) >= 0) {
      found.push_back(block);
      --begin;
    }
    if (begin > first) {  // no prefix that sees the missing block can be gone on from
      count = (begin - 1) / each_;
    } else if (also(count)) {
      break;
    } else {
      --count;
    }
    drop(count * each_);
    begin = std::min(begin, count * each_);
  }
  if (!used()) return count;
  table.blocks.assign(static_cast<size_t>(begin), 0);
  table.first = begin;
  table.blocks.insert(table.blocks.end(), found.rbegin(), found.rend());
  return count;
}

void WindowPool::Publish(const WindowTable& table, int64_t index, PrefixNode node) {
  if (!used()) return;
  for (int64_t i = std::max(index * each_, table.first); i < (index + 1) * each_; ++i)
    pool_.Publish(node, Name(i % each_), table.blocks[static_cast<size_t>(i)]);
}

}  // namespace vllm::engine
