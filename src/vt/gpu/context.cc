#include "vt/gpu/context.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

namespace vt::gpu {

std::string MatrixLayout(ir::DType value_type) {
  return fmt::format("rows.{}", ir::Name(value_type));
}

std::string Context::Suffix(ir::DType type) { return fmt::format("_{}", ir::Name(type)); }

const Workspace& Context::parts() const {
  if (!known_parts) known_parts = WorkspaceOf(plan.graph, bucket(), device);
  return *known_parts;
}

void Context::Fail(ir::NodeId id, const std::string& what) const {
  if (!status) return;
  status = base::Error{base::Code::kInternal, fmt::format("node '{}' ({}) {}", node(id).name,
                                                          ir::Name(node(id).op), what)};
}

void* Context::Address(ir::ValueId id) const {
  const ir::Value& v = value(id);
  switch (v.kind) {
    case ir::ValueKind::kNode: {
      const ir::Placement& p = plan.memory.places[static_cast<size_t>(id)];
      if (p.buffer != ir::kNone) return static_cast<std::byte*>(bindings.arena) + p.offset;
      break;
    }
    case ir::ValueKind::kWeight: {
      const auto w = bindings.weights.find(v.name);
      if (w != bindings.weights.end()) return w->second.data;
      break;
    }
    case ir::ValueKind::kInput:
      for (const StepLayout::Field& f : layout.fields()) {
        if (f.value == id) return static_cast<std::byte*>(bindings.inputs) + f.offset;
      }
      break;
    case ir::ValueKind::kState: {
      const auto group = static_cast<size_t>(v.group), layer = static_cast<size_t>(v.layer);
      if (group < bindings.state.size() && layer < bindings.state[group].size())
        return bindings.state[group][layer];
      break;
    }
  }
  if (status) {
    status = base::Error{base::Code::kInternal, fmt::format("value '{}' has no memory", v.name)};
  }
  return nullptr;
}

Rows Context::RowsOf(ir::ValueId id) const {
  const ir::Value& v = value(id);
  Rows r;
  r.base = Address(id);
  r.width = static_cast<int32_t>(v.shape.back().At(bucket()));
  for (size_t i = 1; i + 1 < v.shape.size(); ++i)
    r.inner *= static_cast<int32_t>(v.shape[i].At(bucket()));
  r.stride = int64_t{r.inner} * r.width;
  if (v.kind == ir::ValueKind::kNode && v.shape.size() > 1)
    r.stride = plan.memory.places[static_cast<size_t>(id)].row_stride;
  if (v.kind == ir::ValueKind::kWeight && v.shape.size() > 1) r.stride = MatrixOf(id).pitch;
  return r;
}

Count Context::CountOf(ir::ValueId id) const {
  const ir::Value& v = value(id);
  Count c;
  for (size_t i = 0; i + 1 < v.shape.size(); ++i) {
    const ir::Dim& d = v.shape[i];
    if (d.sym != ir::Sym::kOne && i == 0) {
      c.of = d.sym == ir::Sym::kTokens     ? Of::kTokens
             : d.sym == ir::Sym::kRequests ? Of::kRequests
                                           : Of::kOutputs;
      c.times *= static_cast<int32_t>(d.count);
    } else {
      c.times *= static_cast<int32_t>(d.At(bucket()));
    }
  }
  return c;
}

int64_t Context::MostRows(ir::ValueId id) const {
  const ir::Shape& s = value(id).shape;
  return s.size() > 1 ? ir::Rows(s, bucket()) : 1;
}

bool Context::Aligned(ir::ValueId id) const {
  const Rows r = RowsOf(id);
  const int64_t bytes = ir::Info(value(id).dtype).bytes;
  return reinterpret_cast<uintptr_t>(r.base) % 16 == 0 && r.stride * bytes % 16 == 0 &&
         (r.inner == 1 || r.width * bytes % 16 == 0);
}

const float* Context::Vector(ir::ValueId id) const {
  const ir::Value& v = value(id);
  const auto w = bindings.weights.find(v.name);
  if (v.kind != ir::ValueKind::kWeight || w == bindings.weights.end() ||
      w->second.layout.name != kVectorLayout) {
    if (status) {
      status = base::Error{base::Code::kInternal,
                           fmt::format("value '{}' is not a vector of weights", v.name)};
    }
    return nullptr;
  }
  return static_cast<const float*>(w->second.data);
}

Matrix Context::MatrixOf(ir::ValueId id) const {
  const ir::Value& v = value(id);
  Matrix m;
  m.data = Address(id);
  m.rows = v.shape.size() > 1 ? v.shape[0].At(bucket()) : 1;
  m.columns = v.shape.back().At(bucket());
  m.pitch = PitchOf(m.columns);
  const auto w = bindings.weights.find(v.name);
  if (w != bindings.weights.end() && w->second.layout.name == kVectorLayout && status) {
    status = base::Error{base::Code::kInternal,
                         fmt::format("weight '{}' is held as a vector, not as a matrix", v.name)};
  }
  return m;
}

const int32_t* Context::Ints(ir::ValueId id) const {
  return static_cast<const int32_t*>(Address(id));
}

KvLayer Context::Kv(ir::ValueId state) const {
  const ir::Value& v = value(state);
  KvLayer kv =
      KvLayerOf(plan.graph.state_groups[static_cast<size_t>(v.group)], bindings.block_size);
  kv.data = static_cast<char*>(Address(state));
  return kv;
}

Context::Slots Context::SlotsOf(ir::ValueId state) const {
  Slots s;
  s.words = static_cast<int32_t*>(Address(state));
  const auto group = static_cast<size_t>(value(state).group);
  if (group < bindings.state_blocks.size()) s.count = bindings.state_blocks[group];
  return s;
}

std::byte* Context::workspace() const {
  return static_cast<std::byte*>(bindings.arena) + plan.workspace_offset;
}

}  // namespace vt::gpu
