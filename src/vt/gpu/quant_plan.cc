#include "vt/gpu/quant_plan.h"

#include <algorithm>
#include <bit>

#include "vt/gpu/quant_sets.h"

namespace vt::gpu {
namespace {

int64_t FloorPowerOfTwo(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

// Waves that a multiprocessor holds at once of the kernels of one row, and of those of more.
constexpr int64_t kWavesOfUnit = 24, kWavesOfUnitMore = 16;

}  // namespace

std::string QuantSetSuffix(std::span<const QuantSegment> segments) {
  using enum QuantFormat;
  uint32_t all = 0;
  const auto bit = [](QuantFormat f) { return uint32_t{1} << static_cast<int>(f); };
  for (const QuantSegment& s : segments) all |= bit(s.w.format);
  const auto has = [&](auto... formats) { return (all & ~(bit(formats) | ...)) == 0; };
#define VT_SET(suffix, ...) \
  if (has(__VA_ARGS__)) return #suffix;
  VT_QUANT_SETS(VT_SET)
#undef VT_SET
  return "";
}

QuantGemvPlan PlanQuantGemv(int64_t rows, int64_t units, int64_t blocks,
                            const DeviceFacts& device) {
  QuantGemvPlan plan;
  plan.at_once = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8;
  units = std::max<int64_t>(units, 1);
  const int64_t multiprocessors = std::max(device.properties.units, 1);
  const int64_t wave = device.properties.wave, most_waves = kQuantGemvThreads / wave;
  const int64_t resident =
      multiprocessors * (plan.at_once == 1 ? kWavesOfUnit : kWavesOfUnitMore) * 32 / wave;
  // k is split where waves would be missing, as long as each part has work for all lanes.
  const int64_t parts =
      std::min({FloorPowerOfTwo(resident / units), FloorPowerOfTwo(blocks / wave), most_waves});
  // Small blocks even out what multiprocessors have to do, where there is little of it.
  const int64_t waves =
      std::clamp(FloorPowerOfTwo(units * parts / multiprocessors), parts, most_waves);
  plan.parts = static_cast<int>(parts);
  plan.groups = static_cast<int>(waves / parts);
  // As many blocks as are there at once, all with the same number of units as far as that goes.
  const int64_t at_once = std::max<int64_t>(resident / waves, 1) * plan.groups;
  const int64_t rounds = (units + at_once - 1) / at_once, each = plan.groups * rounds;
  plan.blocks = parts == 1 ? (units + each - 1) / each : (units + plan.groups - 1) / plan.groups;
  plan.shared_bytes = waves * kQuantUnit * plan.at_once * int64_t{sizeof(float)};
  return plan;
}

QuantGemvPlan PlanQuantFrom(int64_t units, int64_t blocks, const DeviceFacts& device) {
  QuantGemvPlan plan;
  units = std::max<int64_t>(units, 1);
  const int64_t multiprocessors = std::max(device.properties.units, 1);
  const int64_t wave = device.properties.wave, most_waves = kQuantFromThreads / wave;
  const int64_t parts = std::min({FloorPowerOfTwo(multiprocessors * most_waves / units),
                                  FloorPowerOfTwo(blocks / wave), FloorPowerOfTwo(most_waves)});
  // One block a multiprocessor, of all the waves there is work for.
  const int64_t most_groups = most_waves / parts,
                groups = std::min(most_groups, (units + multiprocessors - 1) / multiprocessors),
                rounds = (units + multiprocessors * groups - 1) / (multiprocessors * groups);
  plan.parts = static_cast<int>(parts);
  plan.groups = static_cast<int>(groups);
  plan.blocks = (units + groups * rounds - 1) / (groups * rounds);
  plan.shared_bytes = parts * groups * kQuantUnit * int64_t{sizeof(float)};
  return plan;
}

QuantGemvPlan PlanQuantExperts(int64_t rows, int64_t units, int64_t blocks, int64_t chosen,
                               const DeviceFacts& device) {
  const int64_t wave = device.properties.wave;
  int64_t lanes = wave;
  while (chosen > 0 && lanes > 4 && lanes / 2 >= blocks) lanes /= 2;
  const int64_t shared = wave / lanes;  // units of a wave
  QuantGemvPlan plan = PlanQuantGemv(1, rows * ((units + shared - 1) / shared), blocks, device);
  plan.lanes = static_cast<int>(lanes);
  const int64_t waves = int64_t{plan.parts} * plan.groups;
  if (chosen > 0) {
    // Waves that have the same number of rows, as far as that goes.
    const int64_t most = kQuantGemvThreads / device.properties.wave,
                  rounds = (chosen + most - 1) / most;
    plan.parts = static_cast<int>((chosen + rounds - 1) / rounds);
    plan.groups = static_cast<int>(std::max<int64_t>(1, waves / plan.parts));
  }
  plan.shared_bytes = plan.parts * plan.groups * shared * kQuantUnit * int64_t{sizeof(float)};
  plan.blocks = (units + plan.groups * shared - 1) / (plan.groups * shared);
  return plan;
}

QuantDownPlan PlanQuantDown(int64_t blocks, int64_t experts, const DeviceFacts& device) {
  QuantDownPlan plan;
  const int64_t wave = device.properties.wave;
  // So much is under way in a lane that AMD's compiler keeps it in memory.
  if (!device.cuda || blocks > wave || experts > kQuantDownWaves) return plan;
  int64_t lanes = wave;
  while (lanes > kQuantDownRows && lanes / 2 >= blocks) lanes /= 2;
  plan.lanes = static_cast<int>(lanes);
  plan.rows = kQuantDownRows * (wave / lanes);
  plan.shared_bytes = experts * plan.rows * int64_t{sizeof(float)};
  return plan;
}

namespace {

QuantTilePlan WithShared(QuantTilePlan plan, int64_t value_bytes) {
  const QuantTileShape& s = plan.shape;
  plan.shared_bytes = (2 * s.rows + s.stages * s.columns) * (kQuantStep * value_bytes + 16);
  return plan;
}

}  // namespace

QuantTilePlan PlanQuantExpertTile(int64_t rows, int64_t experts, const DeviceFacts& device) {
  const int64_t bytes = ir::Info(device.value_type).bytes;
  if (bytes == 4) return WithShared({kQuantTile4, "quant_expert_tile", 0}, bytes);
  // As many as an expert has on average should fill a good part of a tile.
  if (rows < 24 * experts) return WithShared({kQuantTileFew, "quant_expert_tile_few", 0}, bytes);
  return WithShared({kQuantTileSome, "quant_expert_tile_some", 0}, bytes);
}

int64_t QuantExpandBytes(int64_t rows, int64_t weight_rows, int64_t k, const DeviceFacts& device) {
  constexpr int64_t kRows = 128, kMostBytes = int64_t{512} << 20;
  const int64_t bytes = weight_rows * k * ir::Info(device.value_type).bytes;
  return device.blas != nullptr && rows >= kRows && bytes <= kMostBytes ? bytes : 0;
}

QuantTilePlan PlanQuantTile(int64_t rows, const DeviceFacts& device) {
  const int64_t bytes = ir::Info(device.value_type).bytes;
  QuantTilePlan plan = {kQuantTile4, "quant_tile", 0};
  if (bytes == 2) {
    if (rows <= kQuantTileFew.rows) {
      plan = {kQuantTileFew, "quant_tile_few", 0};
    } else if (rows <= kQuantTileSome.rows) {
      plan = {kQuantTileSome, "quant_tile_some", 0};
    } else {
      plan = {kQuantTileMany, "quant_tile_many", 0};
    }
  }
  return WithShared(plan, bytes);
}

}  // namespace vt::gpu
