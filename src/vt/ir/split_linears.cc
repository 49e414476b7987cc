// What merging was of no use for: nothing fused with the merged linear, and its output's shape
// costs more than it saves.
#include <algorithm>
#include <set>

#include "vt/ir/passes.h"
#include "vt/ir/quant.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {
namespace {

// Rows of so many values start on multiples of 16 bytes in any type, which fast copies and products
// of matrices ask for.
constexpr int64_t kAlignedValues = 8;
// From so many tokens on a linear is a product of matrices.
constexpr int64_t kManyTokens = 65;

class Splitter {
 public:
  Splitter(Graph& graph, const Bucket& bucket)
      : graph_(graph), bucket_(bucket), users_(graph.Users()) {}

  void Run() {
    std::vector<Node> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (dropped_.contains(static_cast<NodeId>(n))) continue;
      const std::vector<bool> apart = Apart(static_cast<NodeId>(n));
      if (std::find(apart.begin(), apart.end(), true) == apart.end()) {
        nodes.push_back(graph_.nodes[n]);
      } else {
        Split(static_cast<NodeId>(n), apart, nodes);
      }
    }
    graph_.nodes = std::move(nodes);
    Renumber(graph_);
  }

 private:
  const Node& node(NodeId n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  int64_t RowsOf(const Node& n, size_t segment) const {
    const WeightInputs w = WeightsOf(n);
    const Shape& shape = graph_.value(n.inputs[w.first + segment]).shape;
    return shape[n.op == Op::kGroupedLinear ? 1 : 0].At(bucket_);
  }

  // The slice that is a segment's output, in the order of segments; empty if any user is something
  // else.
  std::vector<NodeId> SlicesOf(NodeId id) const {
    const Node& n = node(id);
    const size_t count = WeightsOf(n).count;
    const auto& users = users_[static_cast<size_t>(n.outputs[0])];
    if (count < 2 || users.size() != count) return {};
    std::vector<NodeId> slices;
    int64_t begin = 0;
    for (size_t s = 0; s < count; ++s) {
      const int64_t rows = RowsOf(n, s);
      const auto found = std::find_if(users.begin(), users.end(), [&](NodeId u) {
        return node(u).op == Op::kSlice &&
               node(u).attrs.as<SliceAttrs>() == SliceAttrs{begin, rows};
      });
      if (found == users.end()) return {};
      slices.push_back(*found);
      begin += rows;
    }
    return slices;
  }

  // The segments that become linears of their own; none if nothing changes.
  std::vector<bool> Apart(NodeId id) const {
    const Node& n = node(id);
    if ((n.op != Op::kGroupedLinear && n.op != Op::kLinear) || SlicesOf(id).empty()) return {};
    const Value& out = graph_.value(n.outputs[0]);
    std::vector<bool> apart(WeightsOf(n).count);
    if (n.op == Op::kGroupedLinear) {
      // A slice of each of a token's rows is a copy.
      const bool copies = out.shape.size() > 2 && out.shape[1].At(bucket_) != 1;
      if (copies && !IsQuantised(graph_.value(n.inputs[0]).dtype))
        std::fill(apart.begin(), apart.end(), true);
    } else if (bucket_.tokens >= kManyTokens &&
               out.shape.back().At(bucket_) % kAlignedValues != 0) {
      for (size_t s = 0; s < apart.size(); ++s) apart[s] = RowsOf(n, s) % kAlignedValues != 0;
    }
    return apart;
  }

  // A linear of some of the segments; its output is new, or a slice's.
  Node Of(const Node& n, const std::string& name, const std::vector<size_t>& segments,
          ValueId out) const {
    const WeightInputs w = WeightsOf(n);
    const auto count = static_cast<int>(segments.size());
    Node part{.op = n.op, .name = name, .inputs = {}, .outputs = {out}, .attrs = {}};
    part.inputs.assign(n.inputs.begin(), n.inputs.begin() + static_cast<long>(w.first));
    for (const size_t s : segments) part.inputs.push_back(n.inputs[w.first + s]);
    if (n.op == Op::kGroupedLinear) {
      part.attrs = {GroupedLinearAttrs{count}};
      return part;
    }
    const bool bias = n.attrs.as<LinearAttrs>().bias;
    for (size_t i = 0; bias && i < segments.size(); ++i)
      part.inputs.push_back(n.inputs[w.first + w.count + segments[i]]);
    part.attrs = {LinearAttrs{count, bias}};
    return part;
  }

  void Split(NodeId id, const std::vector<bool>& apart, std::vector<Node>& nodes) {
    const Node n = node(id);
    const std::vector<NodeId> slices = SlicesOf(id);
    std::vector<size_t> together;
    for (size_t s = 0; s < apart.size(); ++s) {
      const Node& slice = node(slices[s]);
      if (apart[s]) {
        nodes.push_back(Of(n, slice.name, {s}, slice.outputs[0]));
      } else {
        together.push_back(s);
      }
      dropped_.insert(slices[s]);
    }
    if (together.size() == 1) {
      const Node& slice = node(slices[together[0]]);
      nodes.push_back(Of(n, slice.name, together, slice.outputs[0]));
    } else if (!together.empty()) {
      const Value& whole = graph_.value(n.outputs[0]);
      Shape shape = whole.shape;
      int64_t width = 0;
      for (const size_t s : together) width += RowsOf(n, s);
      shape.back() = Dim(width);
      const ValueId out = AddValue(graph_, n.name, whole.dtype, std::move(shape));
      nodes.push_back(Of(n, n.name, together, out));
      int64_t begin = 0;
      for (const size_t s : together) {
        Node slice = node(slices[s]);
        slice.inputs = {out};
        slice.attrs = {SliceAttrs{begin, RowsOf(n, s)}};
        begin += RowsOf(n, s);
        nodes.push_back(std::move(slice));
      }
    }
  }

  Graph& graph_;
  const Bucket& bucket_;
  const std::vector<std::vector<NodeId>> users_;
  std::set<NodeId> dropped_;  // slices that their linear has taken the place of
};

}  // namespace

void SplitLinears(Graph& graph, const Bucket& bucket) { Splitter(graph, bucket).Run(); }

}  // namespace vt::ir
