#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "vt/cpu/step.h"

namespace vt::cpu {
namespace {

base::Error Internal(const std::string& what, const ir::Value& v) {
  return {base::Code::kInternal, fmt::format("cpu: value '{}' {}", v.name, what)};
}

}  // namespace

void RopeTable::Ensure(int64_t positions) {
  const auto have = static_cast<int64_t>(cos_.size()) / std::max<int64_t>(half(), 1);
  if (positions <= have || half() == 0) return;
  // By at least half more, so that a growing sequence recomputes seldom.
  const int64_t want = std::max({positions, have + have / 2, int64_t{512}});
  cos_.resize(static_cast<size_t>(want * half()));
  sin_.resize(static_cast<size_t>(want * half()));
  for (int64_t p = have; p < want; ++p) {
    const auto magnitude = static_cast<float>(attrs_.MagnitudeAt(p));
    for (int64_t i = 0; i < half(); ++i) {
      // The angle is rounded to f32, as the models' own code computes it.
      const double angle = static_cast<float>(p) * attrs_.frequencies[static_cast<size_t>(i)];
      cos_[static_cast<size_t>(p * half() + i)] = static_cast<float>(std::cos(angle)) * magnitude;
      sin_[static_cast<size_t>(p * half() + i)] = static_cast<float>(std::sin(angle)) * magnitude;
    }
  }
}

base::Result<std::byte*> Context::Arena(ir::ValueId id) const {
  const ir::Placement& p = plan.memory.places[static_cast<size_t>(id)];
  if (p.buffer == ir::kNone) return Internal("has no place in the arena", value(id));
  return static_cast<std::byte*>(bindings.arena) + p.offset;
}

base::Result<RowsView> Context::Rows(ir::ValueId id) const {
  const ir::Value& v = value(id);
  RowsView r;
  if (v.shape.empty()) return Internal("has no dimensions", v);
  r.width = v.shape.back().At(plan.bucket);
  for (size_t i = 1; i + 1 < v.shape.size(); ++i) r.inner *= v.shape[i].At(plan.bucket);
  if (v.shape.size() > 1) r.outer = v.shape[0];
  r.stride = r.inner * r.width;
  if (v.dtype != ir::DType::kF32 && v.kind != ir::ValueKind::kWeight)
    return Internal("is not f32", v);
  switch (v.kind) {
    case ir::ValueKind::kNode: {
      const base::Result<std::byte*> p = Arena(id);
      if (!p) return p.error();
      r.base = reinterpret_cast<float*>(*p);
      if (v.shape.size() > 1) r.stride = plan.memory.places[static_cast<size_t>(id)].row_stride;
      return r;
    }
    case ir::ValueKind::kWeight: {
      const base::Result<const DeviceWeight*> w = Weight(id);
      if (!w) return w.error();
      if ((*w)->layout.name != kVectorLayout) return Internal("is a matrix used as a vector", v);
      r.base = static_cast<float*>((*w)->data);
      return r;
    }
    case ir::ValueKind::kInput:
      for (const StepLayout::Field& f : layout.fields()) {
        if (f.value == id)
          r.base = reinterpret_cast<float*>(static_cast<std::byte*>(bindings.inputs) + f.offset);
      }
      return r;
    case ir::ValueKind::kState:
      break;
  }
  return Internal("is not a tensor", v);
}

base::Result<const float*> Context::Vector(ir::ValueId id) const {
  const base::Result<RowsView> r = Rows(id);
  if (!r) return r.error();
  return static_cast<const float*>(r->base);
}

base::Result<const int32_t*> Context::Input(ir::ValueId id) const {
  for (const StepLayout::Field& f : layout.fields()) {
    if (f.value == id)
      return reinterpret_cast<const int32_t*>(static_cast<std::byte*>(bindings.inputs) + f.offset);
  }
  if (value(id).kind == ir::ValueKind::kNode) {
    const base::Result<std::byte*> p = Arena(id);
    if (!p) return p.error();
    return reinterpret_cast<const int32_t*>(*p);
  }
  return Internal("is not an input of the step", value(id));
}

base::Result<const DeviceWeight*> Context::Weight(ir::ValueId id) const {
  const ir::Value& v = value(id);
  const auto it = bindings.weights.find(v.name);
  if (v.kind != ir::ValueKind::kWeight || it == bindings.weights.end())
    return Internal("is not a loaded weight", v);
  return &it->second;
}

KvLayer KvLayerOf(const ir::StateGroup& group, int64_t block_size) {
  KvLayer kv;
  kv.block_size = block_size;
  kv.pitch = (block_size + 15) / 16 * 16;
  kv.kv_heads = group.kv_heads;
  kv.head_dim = group.head_dim;
  kv.half = group.dtype != ir::DType::kF32;
  kv.brain = group.dtype == ir::DType::kBF16;
  kv.latent = group.latent;
  kv.block_bytes =
      kv.kv_heads * kv.head_dim * ((kv.latent ? 0 : kv.pitch) + kv.block_size) * (kv.half ? 2 : 4);
  return kv;
}

base::Result<KvLayer> Context::Kv(ir::ValueId state) const {
  const ir::Value& v = value(state);
  if (v.kind != ir::ValueKind::kState || v.group < 0) return Internal("is not a state", v);
  const auto group = static_cast<size_t>(v.group), layer = static_cast<size_t>(v.layer);
  if (group >= bindings.state.size() || layer >= bindings.state[group].size())
    return Internal("has no memory", v);
  KvLayer kv = KvLayerOf(plan.graph.state_groups[group], bindings.block_size);
  kv.data = static_cast<std::byte*>(bindings.state[group][layer]);
  return kv;
}

std::string PanelLayoutName(const KernelSet& k, ir::DType format) {
  const bool pairs = k.pairs && format == ir::DType::kBF16;
  return fmt::format("{}{}.{}", pairs ? "pairs" : "panel", k.nr, ir::Name(format));
}

}  // namespace vt::cpu
