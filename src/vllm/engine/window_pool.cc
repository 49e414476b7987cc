#include "vllm/engine/window_pool.h"

#include <algorithm>
#include <limits>

namespace vllm::engine {

WindowPool::WindowPool(int64_t window, int64_t blocks, int64_t block_size, bool caching)
    : window_(window), block_size_(block_size), pool_(window > 0 ? blocks : 0, 0, caching) {}

// The first block that a token at this position, or one behind it, sees.
int64_t WindowPool::FirstBlock(int64_t position) const {
  return std::max<int64_t>(position - window_ + 1, 0) / block_size_;
}

// Neither the window's beginning nor the last token need be at the edge of a block.
int64_t WindowPool::MostTokens(int64_t longest) const {
  if (!used() || pool_.blocks() * block_size_ >= longest)
    return std::numeric_limits<int64_t>::max();
  return (pool_.blocks() - 1) * block_size_ - (window_ - 1);
}

int64_t WindowPool::Wanted(const WindowTable& found, int64_t tokens, int64_t step_tokens) const {
  if (!used()) return 0;
  const auto there = static_cast<int64_t>(found.blocks.size());
  const int64_t all = (tokens + block_size_ - 1) / block_size_ - there;
  const int64_t at_once = (window_ - 1 + step_tokens + block_size_ - 1) / block_size_ + 1;
  return std::min(all, std::min(at_once, pool_.blocks()) - (there - found.first));
}

bool WindowPool::Grow(WindowTable& table, int64_t count) {
  if (!used()) return true;
  const int64_t wanted = count - static_cast<int64_t>(table.blocks.size());
  return wanted <= 0 || pool_.Allocate(wanted, table.blocks);
}

bool WindowPool::GrowsAt(const WindowTable& table, int64_t position, int64_t count) const {
  if (!used()) return true;
  const auto there = static_cast<int64_t>(table.blocks.size());
  const int64_t behind = std::min(FirstBlock(position), there) - table.first;
  return count - there <= pool_.free_blocks() + std::max<int64_t>(behind, 0);
}

void WindowPool::Slide(WindowTable& table, int64_t position) {
  if (!used()) return;
  const int64_t first = std::min(FirstBlock(position), static_cast<int64_t>(table.blocks.size()));
  for (; table.first < first; ++table.first)
    pool_.Release(table.blocks[static_cast<size_t>(table.first)]);
}

void WindowPool::Release(WindowTable& table) {
  if (!used()) return;
  pool_.Release(table.blocks, table.first);
  table = {};
}

int64_t WindowPool::Find(int64_t count, const std::function<PrefixNode(int64_t)>& node,
                         const std::function<bool(int64_t)>& also, WindowTable& table) {
  std::vector<int32_t> found;  // the last one first: blocks begin .. count - 1
  int64_t begin = count;
  const auto drop = [&](int64_t end) {  // those from `end` on
    while (!found.empty() && begin + static_cast<int64_t>(found.size()) > end) {
      pool_.Release(found.front());
      found.erase(found.begin());
    }
  };
  while (count > 0) {
    const int64_t first = used() ? FirstBlock(count * block_size_) : count;
    int32_t block = 0;
    while (begin > first && (block = pool_.FindOne(node(begin - 1), {})) >= 0) {
      found.push_back(block);
      --begin;
    }
    if (begin > first) {  // no prefix that sees the missing block can be gone on from
      count = begin - 1;
    } else if (also(count)) {
      break;
    } else {
      --count;
    }
    drop(count);
    begin = std::min(begin, count);
  }
  if (!used()) return count;
  table.blocks.assign(static_cast<size_t>(begin), 0);
  table.first = begin;
  table.blocks.insert(table.blocks.end(), found.rbegin(), found.rend());
  return count;
}

void WindowPool::Publish(const WindowTable& table, int64_t index, PrefixNode node) {
  if (used() && index >= table.first)
    pool_.Publish(node, {}, table.blocks[static_cast<size_t>(index)]);
}

}  // namespace vllm::engine
