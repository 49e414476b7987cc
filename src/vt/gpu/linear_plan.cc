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
// Of rows without a norm that are worth a copy in shared memory.
constexpr int64_t kMostPlainBytes = 28 << 10;

// x can be read where it stands.
bool IsDirect(const LinearShape& shape) {
  return shape.input == LinearInput::kPlain && shape.aligned && shape.k % kPitch == 0;
}
// Of a row of a staged x. Rows start 64 bytes apart modulo 128, so that tiles are read without bank
// conflicts.
int64_t StagedRowBytes(const LinearShape& shape, int64_t value_bytes) {
  return (PitchOf(shape.k) * value_bytes + 127) / 128 * 128 + 64;
}
// Of its norms' sums.
int64_t NormBytes(const LinearShape& shape, int64_t waves) {
  return shape.input == LinearInput::kPlain ? 0 : (2 * shape.rows * waves * 4 + 15) / 16 * 16;
}

// The same for large matrices; false: not for this one.
bool PlanStream(const LinearShape& shape, const DeviceFacts& device, LinearPlan& plan) {
  const int64_t value_bytes = ir::Info(device.value_type).bytes, pitch = PitchOf(shape.k);
  // Below, a wave has too few lines of a unit to be worth a meeting of all waves.
  constexpr int64_t kLeastLines = 2;
  const StreamShape& stream = shape.rows <= kStreamOne.most_rows   ? kStreamOne
                              : shape.rows <= kStreamFew.most_rows ? kStreamFew
                                                                   : kStreamMore;
  if (!device.cuda || value_bytes != 2 || shape.rows > stream.most_rows ||
      pitch % stream.line != 0 || pitch / stream.line < kLeastLines * kStreamWaves)
    return false;
  plan.stream = stream.most_rows;
  plan.columns = shape.act_mul ? kStreamRows / 2 : kStreamRows;
  plan.parts = plan.waves = kStreamWaves;
  int64_t rows = 0, units = 0;
  for (const int64_t n : shape.segments) {
    rows += n;
    if (!shape.act_mul || units == 0) units += LinearUnits(plan, n);
  }
  // Blocks have as many units each as the most loaded one, or wait for it; with one each there is
  // nothing to look ahead to.
  const int64_t blocks = std::max(device.properties.units, 1);
  const int64_t rounds = (units + blocks - 1) / blocks;
  if (rows * pitch * value_bytes < device.stream_bytes || rounds < 2 ||
      units * 4 < rounds * blocks * 3)
    return false;
  const int64_t row_bytes = StagedRowBytes(shape, value_bytes);
  // x in shared memory if that leaves room for the ring.
  const int64_t ring = kStreamWaves * stream.depth * kStreamRows * stream.line * value_bytes;
  const int64_t partials = 2 * kStreamWaves * shape.rows * kStreamRows * int64_t{sizeof(float)};
  const auto place = [&](bool staged) {
    plan.staged = staged;
    plan.staged_pitch = staged ? row_bytes / value_bytes : 0;
    plan.ring = (staged ? shape.rows * row_bytes : 0) + NormBytes(shape, plan.waves);
    plan.partials = plan.ring + ring;
    // More than half of what there is: see tiles/linear_stream.h.
    plan.shared_bytes =
        std::max(plan.partials + partials, device.properties.shared_bytes / 2 + 1024);
    return plan.shared_bytes <= device.properties.shared_bytes;
  };
  const bool direct = IsDirect(shape);
  return (direct && shape.rows * row_bytes > kMostPlainBytes && place(false)) || place(true) ||
         (direct && place(false));
}

}  // namespace

LinearPlan PlanLinear(const LinearShape& shape, const DeviceFacts& device) {
  const bool plain = shape.input == LinearInput::kPlain && !shape.act_mul;
  const int64_t value_bytes = ir::Info(device.value_type).bytes;
  const bool direct = IsDirect(shape);

  LinearPlan plan;
  plan.kernel = plain && direct && device.blas != nullptr ? LinearKernel::kLibrary
                : plain                                   ? LinearKernel::kTile
                                                          : LinearKernel::kNone;
  if (shape.rows > (direct ? kSkinnyRows : kStagedRows)) return plan;
  if (shape.segments.size() > kLinearSegments && !plain) return plan;

  LinearPlan skinny;
  skinny.kernel = LinearKernel::kSkinny;
  if (LinearPlan stream = skinny; PlanStream(shape, device, stream)) return stream;
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

  // k is split so that each multiprocessor has work for all the waves it holds, if there is any.
  const int64_t most_waves = kMostThreads / device.properties.wave;
  const int64_t rounds = (units(skinny.weight_tiles) + multiprocessors - 1) / multiprocessors;
  const int64_t lines = PitchOf(shape.k) / kPitch;
  skinny.parts = static_cast<int>(
      std::min({FloorPowerOfTwo(kWavesOfUnit / rounds),
                skinny.token_tiles > 1 ? most_waves / 2 : most_waves, FloorPowerOfTwo(lines)}));
  // Small blocks even out what multiprocessors have to do; many units make that unnecessary. But
  // small ones that begin early gather where the kernel before has made room: a block for all that
  // a multiprocessor has to do cannot, if nearly all of them get one.
  const bool many = rounds >= 2 * kWavesOfUnit;
  skinny.waves = std::max(skinny.parts, many ? 8 : 4);
  const int64_t all = units(skinny.weight_tiles), blocks = (all + rounds - 1) / rounds;
  if (device.properties.early_launch && shape.rows == 1 && rounds * skinny.parts <= most_waves &&
      10 * blocks >= 9 * multiprocessors)
    skinny.waves = static_cast<int>(rounds) * skinny.parts;
  if (skinny.staged) {
    const int64_t row_bytes = StagedRowBytes(shape, value_bytes);
    skinny.staged_pitch = row_bytes / value_bytes;
    skinny.partials = shape.rows * row_bytes + NormBytes(shape, skinny.waves);
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
