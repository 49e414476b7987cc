#include "vt/gpu/tiles/linear_tile.h"

namespace vt::gpu {

GPU_KERNEL(linear_tile_f32, TileLinearArgs, kLinearTileWaves4* ::gpu::kWave) {
  TileLinear<float, kLinearTile4, kLinearTileWaves4>(args).Run();
}

}  // namespace vt::gpu
