#include "vt/gpu/tiles/quant_tile.h"

namespace vt::gpu {

GPU_KERNEL(quant_tile_f32, QuantTileArgs, kQuantTile4.waves* ::gpu::kWave) {
  QuantTile<float, kQuantTile4>(args).Run();
}

}  // namespace vt::gpu
