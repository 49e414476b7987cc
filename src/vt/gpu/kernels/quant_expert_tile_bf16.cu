#include "vt/gpu/tiles/quant_tile.h"

namespace vt::gpu {

GPU_KERNEL(quant_expert_tile_few_bf16, QuantExpertTileArgs, kQuantTileFew.waves* ::gpu::kWave) {
  QuantTile<::gpu::bf16, kQuantTileFew>(args.linear).RunExperts(args);
}
GPU_KERNEL_BLOCKS(quant_expert_tile_some_bf16, QuantExpertTileArgs,
                  kQuantTileSome.waves* ::gpu::kWave, 4) {
  QuantTile<::gpu::bf16, kQuantTileSome>(args.linear).RunExperts(args);
}

}  // namespace vt::gpu
