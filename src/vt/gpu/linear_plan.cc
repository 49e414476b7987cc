#include "vt/gpu/linear_plan.h"

#include <algorithm>
#include <bit>

#include "vt/ir/dtype.h"

namespace vt::gpu {
namespace {

int64_t FloorPowerOfTwo(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

// Waves that a multiprocessor holds at once of a kernel of up to 128 registers.
constexpr int64_t kWavesOfUnit = 16;
constexpr int64_t kMostThreads = 512;  // of a block, as the kernels are declared
// Shared memory that a staged x may take: a multiprocessor should hold two blocks.
constexpr int64_t kMostStagedBytes = 100 << 10;
// Of weights, which take longer than what an early launch hides.
constexpr int64_t kLargeBytes = 32 << 20;

}  // namespace

LinearPlan PlanLinear(const LinearShape& shape, const DeviceFacts& device) {
  const bool plain = shape.input == LinearInput::kPlain && !shape.act_mul;
  const int64_t value_bytes = ir::Info(device.value_type).bytes;
  const bool direct = shape.input == LinearInput::kPlain && shape.aligned && shape.k % kPitch == 0;

  LinearPlan plan;
  plan.kernel = plain && direct && device.blas != nullptr ? LinearKernel::kLibrary
                : plain                                   ? LinearKernel::kTile
                                                          : LinearKernel::kNone;
  if (shape.rows > (direct ? kSkinnyRows : kStagedRows)) return plan;
  if (shape.segments.size() > kLinearSegments && !plain) return plan;

  LinearPlan skinny;
  skinny.kernel = LinearKernel::kSkinny;
  skinny.staged = !direct;
  skinny.token_tiles = shape.rows <= 16 ? 1 : shape.rows <= 32 ? 2 : 4;

  // A tile is Mma<T>::kN rows of weights. One a wave when two would leave multiprocessors idle.
  const int tile = device.cuda && value_bytes == 2 ? 8 : 16;
  const int64_t multiprocessors = std::max(device.properties.units, 1);
  const auto units = [&](int tiles) {
    if (shape.act_mul) return (shape.segments[0] + tile - 1) / tile;
    int64_t n = 0;
    for (const int64_t rows : shape.segments) n += (rows + tile * tiles - 1) / (tile * tiles);
    return n;
  };
  const bool narrow =
      !shape.act_mul && skinny.token_tiles == 1 && 2 * units(2) < 3 * multiprocessors;
  skinny.weight_tiles = narrow ? 1 : 2;
  skinny.columns = shape.act_mul ? tile : tile * skinny.weight_tiles;

  int64_t weight_rows = 0;
  for (const int64_t rows : shape.segments) weight_rows += rows;
  skinny.large = weight_rows * PitchOf(shape.k) * value_bytes >= kLargeBytes;

  // k is split so that each multiprocessor has work for all the waves it holds, if there is any.
  const int64_t most_waves = kMostThreads / device.properties.wave;
  const int64_t rounds = (units(skinny.weight_tiles) + multiprocessors - 1) / multiprocessors;
  const int64_t lines = PitchOf(shape.k) / kPitch;
  skinny.parts = static_cast<int>(
      std::min({FloorPowerOfTwo(kWavesOfUnit / rounds),
                skinny.token_tiles > 1 ? most_waves / 2 : most_waves, FloorPowerOfTwo(lines)}));
  // Small blocks even out what multiprocessors have to do; many units make that unnecessary.
  const bool many = rounds >= 2 * kWavesOfUnit;
  skinny.waves = std::max(skinny.parts, many ? 8 : 4);
  // RDNA's and CDNA's registers hold no more.
  skinny.deep = skinny.large && device.cuda && value_bytes == 2 && skinny.token_tiles == 1 &&
                skinny.weight_tiles == 2 && skinny.waves * 32 <= kLinearDeepThreads;

  if (skinny.staged) {
    // Rows start 64 bytes apart modulo 128, so that tiles are read without bank conflicts.
    const int64_t row_bytes = (PitchOf(shape.k) * value_bytes + 127) / 128 * 128 + 64;
    skinny.staged_pitch = row_bytes / value_bytes;
    skinny.partials = shape.rows * row_bytes;
    if (shape.input != LinearInput::kPlain)
      skinny.partials += (2 * shape.rows * skinny.waves * 4 + 15) / 16 * 16;
  }
  skinny.shared_bytes = skinny.partials + skinny.waves * shape.rows * tile * skinny.weight_tiles *
                                              int64_t{sizeof(float)};
  const int64_t most = skinny.staged ? std::min(kMostStagedBytes, device.properties.shared_bytes)
                                     : device.properties.shared_bytes;
  return skinny.shared_bytes <= most ? skinny : plan;
}

LinearTile TileOf(const DeviceFacts& device) {
  const int64_t bytes = ir::Info(device.value_type).bytes;
  LinearTile t{kLinearTile4, kLinearTileWaves4, 0};
  if (bytes == 2) t = {kLinearTile2, kLinearTileWaves2, 0};
  t.shared_bytes = 2 * 2 * t.size * (kPitch * bytes + 16);  // two stages of x and w
  return t;
}

}  // namespace vt::gpu
