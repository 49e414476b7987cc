#include "vt/gpu/tiles/linear_tile.h"

namespace vt::gpu {

GPU_KERNEL(linear_tile_f16, TileLinearArgs, kLinearTileWaves2* ::gpu::kWave) {
  TileLinear<::gpu::f16, kLinearTile2, kLinearTileWaves2>(args).Run();
}

}  // namespace vt::gpu
