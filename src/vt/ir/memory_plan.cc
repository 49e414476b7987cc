#include <algorithm>

#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {
namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector of a CPU

int64_t DenseStride(const Shape& shape, const Bucket& b) {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i].At(b);
  return n;
}

// Bytes of a dense value; quantised rows are whole blocks.
int64_t ValueBytes(const Value& v, const Bucket& b) { return Bytes(v.dtype, Elements(v.shape, b)); }

struct View {
  ValueId buffer = kNone;
  int64_t offset = 0;  // bytes in the buffer
  int64_t row_stride = 0;
};

// The view that a reshape or slice of `source` can be, or none when the result has to be copied.
View ViewOf(const Node& node, const Value& in, const View& source, const Value& out,
            const Bucket& b) {
  // A result of another type is a conversion.
  if (source.buffer == kNone || !IsView(node.op) || in.dtype != out.dtype || in.shape.empty() ||
      out.shape.empty())
    return {};
  if (node.op == Op::kSlice) {
    // Inner dimensions stay dense only when there is nothing between the first and the last.
    if (in.shape.size() == 1) {
      const int64_t begin = node.attrs.as<SliceAttrs>().begin;
      return {source.buffer, source.offset + Bytes(in.dtype, begin), 1};
    }
    for (size_t i = 1; i + 1 < in.shape.size(); ++i) {
      if (in.shape[i].At(b) != 1) return {};
    }
    const auto& a = node.attrs.as<SliceAttrs>();
    if (a.begin % Info(in.dtype).block != 0 || a.size % Info(in.dtype).block != 0) return {};
    return {source.buffer, source.offset + Bytes(in.dtype, a.begin), source.row_stride};
  }
  if (in.shape[0].At(b) == out.shape[0].At(b)) return source;  // only dense inner dimensions change
  if (source.row_stride != DenseStride(in.shape, b)) return {};
  return {source.buffer, source.offset, DenseStride(out.shape, b)};
}

struct Buffer {
  ValueId value;
  int64_t bytes;
  NodeId first, last;  // nodes during which it is alive
  int64_t offset = 0;
};

// Lowest offset at which no placed buffer that is alive at the same time is in the way.
int64_t FirstFit(const std::vector<const Buffer*>& placed, const Buffer& b) {
  int64_t offset = 0;
  for (const Buffer* p : placed) {  // by offset
    if (p->last < b.first || p->first > b.last) continue;
    if (p->offset >= offset + b.bytes) break;
    offset = std::max(offset, p->offset + p->bytes);
  }
  return offset;
}

}  // namespace

MemoryPlan PlanMemory(const Graph& graph, const Bucket& bucket) {
  std::vector<View> views(graph.values.size());
  std::vector<Buffer> buffers;
  std::vector<int> buffer_of(graph.values.size(), -1);
  const auto keep_until = [&](ValueId v, NodeId n) {
    const ValueId owner = views[static_cast<size_t>(v)].buffer;
    if (owner == kNone) return;
    Buffer& b = buffers[static_cast<size_t>(buffer_of[static_cast<size_t>(owner)])];
    b.last = std::max(b.last, n);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (const ValueId v : node.outputs) {
      const Value& out = graph.value(v);
      if (out.kind != ValueKind::kNode) continue;
      View view = ViewOf(node, graph.value(node.inputs[0]),
                         views[static_cast<size_t>(node.inputs[0])], out, bucket);
      if (view.buffer == kNone) {
        view = {v, 0, DenseStride(out.shape, bucket)};
        const int64_t bytes = (ValueBytes(out, bucket) + kAlignment - 1) / kAlignment * kAlignment;
        buffer_of[static_cast<size_t>(v)] = static_cast<int>(buffers.size());
        buffers.push_back(
            {v, std::max(bytes, kAlignment), static_cast<NodeId>(n), static_cast<NodeId>(n)});
      }
      views[static_cast<size_t>(v)] = view;
      keep_until(v, static_cast<NodeId>(n));
    }
    for (const ValueId v : node.inputs) keep_until(v, static_cast<NodeId>(n));
  }
  for (const ValueId v : graph.outputs) keep_until(v, static_cast<NodeId>(graph.nodes.size()));

  std::vector<Buffer*> order;
  for (Buffer& b : buffers) order.push_back(&b);
  std::sort(order.begin(), order.end(), [](const Buffer* a, const Buffer* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->value < b->value;
  });
  MemoryPlan plan;
  std::vector<const Buffer*> placed;
  for (Buffer* b : order) {
    b->offset = FirstFit(placed, *b);
    plan.arena_bytes = std::max(plan.arena_bytes, b->offset + b->bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), b,
                         [](const Buffer* x, const Buffer* y) { return x->offset < y->offset; }),
        b);
  }

  plan.places.resize(graph.values.size());
  for (size_t v = 0; v < views.size(); ++v) {
    if (views[v].buffer == kNone) continue;
    const Buffer& owner =
        buffers[static_cast<size_t>(buffer_of[static_cast<size_t>(views[v].buffer)])];
    plan.places[v] = {views[v].buffer, owner.offset + views[v].offset, views[v].row_stride,
                      owner.bytes};
  }
  return plan;
}

}  // namespace vt::ir
