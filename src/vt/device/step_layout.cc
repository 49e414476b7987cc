#include "vt/device/step_layout.h"

namespace vt {

StepLayout::StepLayout(const ir::Graph& graph, const ir::Bucket& bucket) {
  bytes_ = sizeof(StepHeader);
  for (const bool tables : {false, true}) {
    for (size_t id = 0; id < graph.values.size(); ++id) {
      const ir::Value& v = graph.values[id];
      if (v.kind != ir::ValueKind::kInput || v.name.starts_with("block_table.") != tables) continue;
      const int64_t count = ir::Elements(v.shape, bucket);
      fields_.push_back({v.name, static_cast<ir::ValueId>(id), bytes_, count});
      bytes_ += (count * 4 + 15) / 16 * 16;  // i32 and f32 inputs alike
    }
  }
}

int64_t StepLayout::OffsetOf(const std::string& name) const {
  for (const Field& f : fields_) {
    if (f.name == name) return f.offset;
  }
  return -1;
}

}  // namespace vt
