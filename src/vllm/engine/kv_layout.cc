#include "vllm/engine/kv_layout.h"

namespace vllm::engine {
namespace {

using Kind = vt::ir::StateGroup::Kind;

// A cached prefix ends with a page, and a request's last page is half empty.
constexpr int64_t kMostBlocks = 16;

// Puts the layers with windows of `layout`'s pages behind each other. False: they don't fit.
bool PlaceWindows(std::span<const vt::ir::StateGroup> groups, std::span<const int64_t> block_bytes,
                  KvLayout& layout) {
  KvLayout::Place next;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind != Kind::kPagedWindow) continue;
    const int64_t bytes = block_bytes[g];
    if (layout.lane_bytes % bytes != 0) return false;
    layout.spread[g] = layout.lane_bytes / bytes;
    for (int layer = 0; layer < groups[g].layers; ++layer) {
      // Blocks of another group before it may have left it at an odd place.
      next.offset = (next.offset + bytes - 1) / bytes * bytes;
      if (next.offset == layout.lane_bytes) next = {next.lane + 1, 0};
      if (next.lane == layout.lanes) return false;
      layout.places[g].push_back(next);
      next.offset += bytes;
    }
  }
  return true;
}

}  // namespace

KvLayout LayOutKv(std::span<const vt::ir::StateGroup> groups,
                  std::span<const int64_t> block_bytes) {
  size_t others = groups.size();
  int64_t window_bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == Kind::kPagedWindow) window_bytes += groups[g].layers * block_bytes[g];
    if (groups[g].kind != Kind::kPagedGlobal) continue;
    if (others < groups.size()) return {};  // of two sizes
    others = g;
  }
  if (others == groups.size() || window_bytes == 0) return {};
  const int64_t bytes = block_bytes[others], lanes = groups[others].layers;
  // A block with windows that leaves most of a page empty is better off in memory of its own.
  if (2 * window_bytes < lanes * bytes) return {};
  for (int64_t n = 1; n <= kMostBlocks; ++n) {
    KvLayout layout;
    layout.lanes = lanes;
    layout.lane_bytes = n * bytes;
    layout.page_blocks = n;
    if (layout.page_bytes() < window_bytes) continue;
    layout.places.resize(groups.size());
    layout.spread.assign(groups.size(), 1);
    layout.spread[others] = n;
    for (int64_t layer = 0; layer < lanes; ++layer) layout.places[others].push_back({layer, 0});
    if (PlaceWindows(groups, block_bytes, layout)) return layout;
  }
  return {};
}

}  // namespace vllm::engine
