#include "vt/gpu/tiles/quant_tile.h"

namespace vt::gpu {

GPU_KERNEL(quant_expert_tile_f32, QuantExpertTileArgs, kQuantTile4.waves* ::gpu::kWave) {
  QuantTile<float, kQuantTile4>(args.linear).RunExperts(args);
}

}  // namespace vt::gpu
