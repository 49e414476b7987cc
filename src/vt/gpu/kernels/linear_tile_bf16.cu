#include "vt/gpu/tiles/linear_tile.h"

namespace vt::gpu {

GPU_KERNEL(linear_tile_bf16, TileLinearArgs, kLinearTileWaves2* ::gpu::kWave) {
  TileLinear<::gpu::bf16, kLinearTile2, kLinearTileWaves2>(args).Run();
}

}  // namespace vt::gpu
