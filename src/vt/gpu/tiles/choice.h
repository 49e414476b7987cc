// token_feed and argmax.
#pragma once

#include "vt/gpu/tiles/choice_block.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

GPU_FN void FeedTokens(const TokenFeedArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int t = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
  if (t >= a.header->tokens) return;
  int id = a.ids[t];
  if (id < 0) {
    const int32_t* slot = SlotAt(a.slots, -1 - id);
    if (slot != nullptr) id = slot[0];
  }
  a.out[t] = id;
}

// A block a row. Logits are f32, whatever the type of values (lower.cc).
GPU_FN void ArgMaxRow(const ArgMaxArgs& a) {
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const int row = ::gpu::block();
  if (row >= CountOf(a.header, a.count)) return;
  const float* x = RowOf<float>(a.logits, row);
  Best best = NoBest();
  for (int id = ::gpu::thread(); id < a.logits.width; id += ::gpu::threads()) {
    if (x[id] > best.value) best = {x[id], id};
  }
  best = BlockBest(best);
  if (::gpu::thread() == 0) a.out[row] = best.value > MinusInfinity() ? best.id : 0;
}

}  // namespace vt::gpu
