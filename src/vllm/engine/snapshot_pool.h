// Snapshots of recurrent state, so that prefixes of recurrent models can be cached.
//
// Where attention has keys and values a block, a recurrent layer has one state, which is right at
// one count of tokens alone. A snapshot is a slot of the recurrent group that no request owns: a
// step wrote the state behind the last token of a block into it instead of into its request's own
// slot, and the request's next step read it from there. Nothing is ever copied. A snapshot is kept
// under its block's node (block_pool.h) until the block is forgotten or its slot is needed for
// another one; the least recently used goes first, and none that is held. Not thread-safe.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "vllm/engine/block_pool.h"

namespace vllm::engine {

class SnapshotPool {
 public:
  struct Counters {
    int64_t written = 0, hits = 0, evictions = 0;
  };

  // Slots [first, first + count) of the group.
  SnapshotPool(int32_t first, int64_t count);

  // A slot to write to, held once; -1 when all are held.
  int32_t Take();
  // Slots that are not of this pool are ignored, so that callers need not tell them apart.
  void Hold(int32_t slot);
  // Gives back one hold. A slot that nobody holds and that isn't kept is free.
  void Release(int32_t slot);

  // Says that a held slot contains the state behind this node's tokens. False, and nothing happens,
  // when there is one already.
  bool Keep(PrefixNode node, int32_t slot);
  // The slot kept under this node, or -1.
  int32_t Find(PrefixNode node) const;
  // The node's block is gone, or something better has come: its slot is free once nobody holds it.
  void Forget(PrefixNode node);
  // Counts a request that went on from a snapshot.
  void CountHit() { ++counters_.hits; }

  int64_t count() const { return static_cast<int64_t>(slots_.size()); }
  int64_t kept() const { return static_cast<int64_t>(kept_.size()); }
  int64_t held() const { return held_; }
  int64_t used() const { return count() - free_; }  // kept or held
  const Counters& counters() const { return counters_; }

 private:
  struct Slot {
    int32_t holds = 0;
    PrefixNode node = 0;  // 0: not kept
    uint64_t used = 0;    // when it was held last
  };
  Slot* Get(int32_t slot);

  int32_t first_;
  std::vector<Slot> slots_;
  std::unordered_map<PrefixNode, int32_t> kept_;
  uint64_t clock_ = 0;
  int64_t held_ = 0, free_ = 0;  // slots
  Counters counters_;
};

}  // namespace vllm::engine
