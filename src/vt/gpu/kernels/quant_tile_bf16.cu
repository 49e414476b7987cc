#include "vt/gpu/tiles/quant_tile.h"

namespace vt::gpu {

GPU_KERNEL(quant_tile_few_bf16, QuantTileArgs, kQuantTileFew.waves* ::gpu::kWave) {
  QuantTile<::gpu::bf16, kQuantTileFew>(args).Run();
}
GPU_KERNEL(quant_tile_some_bf16, QuantTileArgs, kQuantTileSome.waves* ::gpu::kWave) {
  QuantTile<::gpu::bf16, kQuantTileSome>(args).Run();
}
GPU_KERNEL(quant_tile_many_bf16, QuantTileArgs, kQuantTileMany.waves* ::gpu::kWave) {
  QuantTile<::gpu::bf16, kQuantTileMany>(args).Run();
}

}  // namespace vt::gpu
