#include "vt/gpu/tiles/quant_tile.h"

namespace vt::gpu {

GPU_KERNEL(quant_tile_few_f16, QuantTileArgs, kQuantTileFew.waves* ::gpu::kWave) {
  QuantTile<::gpu::f16, kQuantTileFew>(args).Run();
}
GPU_KERNEL(quant_tile_some_f16, QuantTileArgs, kQuantTileSome.waves* ::gpu::kWave) {
  QuantTile<::gpu::f16, kQuantTileSome>(args).Run();
}
GPU_KERNEL(quant_tile_many_f16, QuantTileArgs, kQuantTileMany.waves* ::gpu::kWave) {
  QuantTile<::gpu::f16, kQuantTileMany>(args).Run();
}

}  // namespace vt::gpu
