#include "vllm/engine/snapshot_pool.h"

namespace vllm::engine {

SnapshotPool::SnapshotPool(int32_t first, int64_t count)
    : first_(first), slots_(static_cast<size_t>(count)), free_(count) {}

SnapshotPool::Slot* SnapshotPool::Get(int32_t slot) {
  const int64_t i = int64_t{slot} - first_;
  return i < 0 || i >= count() ? nullptr : &slots_[static_cast<size_t>(i)];
}

// A scan: there are some dozens, and one is taken a block of tokens at most.
int32_t SnapshotPool::Take() {
  Slot* best = nullptr;
  for (Slot& s : slots_) {
    if (s.holds > 0) continue;
    if (s.node == 0) {
      best = &s;
      break;
    }
    if (best == nullptr || s.used < best->used) best = &s;
  }
  if (best == nullptr) return -1;
  if (best->node != 0) {
    ++counters_.evictions;
    Forget(best->node);
  }
  ++counters_.written;
  const auto slot = first_ + static_cast<int32_t>(best - slots_.data());
  Hold(slot);
  return slot;
}

void SnapshotPool::Hold(int32_t slot) {
  if (Slot* s = Get(slot)) {
    s->used = ++clock_;
    if (s->holds++ > 0) return;
    ++held_;
    if (s->node == 0) --free_;
  }
}

void SnapshotPool::Release(int32_t slot) {
  if (Slot* s = Get(slot)) {
    s->used = ++clock_;
    if (--s->holds > 0) return;
    --held_;
    if (s->node == 0) ++free_;
  }
}

bool SnapshotPool::Keep(PrefixNode node, int32_t slot) {
  if (!kept_.emplace(node, slot).second) return false;
  Get(slot)->node = node;
  return true;
}

int32_t SnapshotPool::Find(PrefixNode node) const {
  const auto found = kept_.find(node);
  return found == kept_.end() ? -1 : found->second;
}

void SnapshotPool::Forget(PrefixNode node) {
  const auto found = kept_.find(node);
  if (found == kept_.end()) return;
  Slot& slot = *Get(found->second);
  slot.node = 0;
  if (slot.holds == 0) ++free_;
  kept_.erase(found);
}

}  // namespace vllm::engine
