// Where the KV blocks of layers with windows and those of the others stand: each kind in memory of
// its own, whose size is settled at start, or both in one memory of pages.
//
// A page holds one block of all layers with windows or several blocks of all others, and is either
// from one request to the next, so nothing is divided. It is so many bytes of each of some lanes.
// Each layer without a window has a lane of its own; layers with windows stand behind each other in
// one. Every layer's blocks are as far apart as they are long, so that a kernel sees what it would
// see anyway; only the numbers of a page's blocks differ from layer to layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vt/ir/graph.h"

namespace vllm::engine {

struct KvLayout {
  struct Place {
    int64_t lane = 0, offset = 0;  // of the layer's block in page 0
  };
  int64_t lanes = 0;                       // 0: there are no pages
  int64_t lane_bytes = 0;                  // of a page
  int64_t page_blocks = 1;                 // of layers without windows
  std::vector<std::vector<Place>> places;  // [group][layer], of those in pages
  std::vector<int64_t> spread;             // [group]: blocks of a layer that would fill its lane

  bool paged() const { return lanes > 0; }
  bool Holds(size_t group) const { return paged() && !places[group].empty(); }
  int64_t page_bytes() const { return lanes * lane_bytes; }
};

// `block_bytes`: of a block of one layer of each group. There are pages where layers of both kinds
// exist, fit together and waste little.
KvLayout LayOutKv(std::span<const vt::ir::StateGroup> groups, std::span<const int64_t> block_bytes);

}  // namespace vllm::engine
