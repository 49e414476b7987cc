// Attention of few tokens: blocks of a lane of the work list, of up to kRows heads of q each, which
// go about an item one by one (attention_heads.h) or, with kLong and where its token is long,
// together (attention_long.h).
#pragma once

#include "vt/gpu/tiles/attention_long.h"

namespace vt::gpu {

template <class T, int kLanes, int kRows, bool kSame, bool kLong = false>
GPU_FN void AttentionRow(const AttentionRowArgs& args) {
  const AttentionArgs& a = args.read;
  // Without writes as AttentionDecode: the write before this launch has let it begin after its own
  // waiting, so that the work list and the keys of earlier steps are there. With them, the last
  // attention has; the first one of a step waits.
  const bool writes = args.write.slots != nullptr, early = !writes || a.list_is_there != 0;
  if (!early) ::gpu::wait_predecessor();
  if (!writes || !early) ::gpu::launch_dependents();
  const int columns = a.kv.kv_heads * a.row_tiles;
  const int lane = ::gpu::block() / columns, column = ::gpu::block() % columns;
  // With where it begins, not behind it.
  DecodeItem item = LoadListed(a.list.lane_first + lane);
  const int begin = a.list.lane_begin[lane], end = a.list.lane_begin[lane + 1];
  const int stride = a.header->table_stride;
  if (begin == end) {
    if (::gpu::block() == 0) ::gpu::wait_predecessor();
    return;
  }
  using One = AttentionRows<T, kLanes, kRows, kSame>;
#pragma unroll 1
  for (int i = begin;;) {
    const int32_t* table = a.block_table + static_cast<int64_t>(item.request) * stride;
    const bool first = early && i == begin;
    bool is_long = false;
    if constexpr (kLong) is_long = IsLong(item);
    if (!is_long) {
      One(args, column / a.row_tiles, column % a.row_tiles * kRows).Run(item, table, first, early);
    } else if constexpr (kLong) {
      LongItem<T, kLanes>(args, column).Run(item, i, table, first, early);
    }
    if (++i == end) return;
    item = a.list.items[i];
  }
}

}  // namespace vt::gpu
