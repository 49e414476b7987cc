// cos and sin of rotations, made once and read by all kernels that rotate.
#include <algorithm>
#include <cmath>

#include "vt/gpu/context.h"

namespace vt::gpu {

std::vector<float> RopeTable(const ir::RopeAttrs& attrs, int64_t positions) {
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions) * attrs.frequencies.size() * 2);
  for (int64_t p = 0; p < positions; ++p) {
    const double magnitude = attrs.MagnitudeAt(p);
    for (const float frequency : attrs.frequencies) {
      // The angle is rounded to f32, as the models' own code computes it.
      const float angle = static_cast<float>(p) * frequency;
      table.push_back(static_cast<float>(std::cos(static_cast<double>(angle)) * magnitude));
      table.push_back(static_cast<float>(std::sin(static_cast<double>(angle)) * magnitude));
    }
  }
  return table;
}

int64_t MostPositions(const Context& c) {
  // What a block table can hold. A graph without one remembers nothing from step to step: its
  // requests are short, and 4096 positions are cheap.
  int64_t most = std::max<int64_t>(4096, c.bucket().tokens);
  bool found = false;
  for (const ir::Value& v : c.plan.graph.values) {
    if (v.kind != ir::ValueKind::kInput || v.shape.size() != 2 ||
        !v.name.starts_with("block_table."))
      continue;
    const int64_t positions = v.shape[1].At(c.bucket()) * c.bindings.block_size;
    most = found ? std::max(most, positions) : positions;
    found = true;
  }
  return std::max<int64_t>(most, 1);
}

const float* RopeTableOf(const Context& c, const ir::RopeAttrs& attrs) {
  const int64_t positions = MostPositions(c);
  RopeTables own;
  RopeTables& tables = c.rope_tables != nullptr ? *c.rope_tables : own;
  for (const RopeTables::Made& t : tables.made) {
    if (t.positions >= positions && t.attrs == attrs) return t.data;
  }
  const std::vector<float> table = RopeTable(attrs, positions);
  auto p = c.constants(table.data(), static_cast<int64_t>(table.size() * sizeof(float)));
  if (!p) {
    if (c.status) c.status = p.error();
    return nullptr;
  }
  tables.made.push_back({attrs, positions, static_cast<const float*>(*p)});
  return tables.made.back().data;
}

}  // namespace vt::gpu
