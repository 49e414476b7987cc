// The builder's calls for caches of entries, residuals of several streams, and experts by token.
#include <numeric>

#include "base/strings.h"
#include "vt/ir/builder.h"

namespace vt::ir {

Builder::Cache Builder::MakeCache(int64_t width, int64_t window) {
  const int group = PagedGroup(window, 1, width, true);
  const int layer = graph_.state_groups[static_cast<size_t>(group)].layers;
  return {
      State(fmt::format("kv.{}.{}", group, layer), group, kv_.dtype, {Dim(1), Dim(1), Dim(width)}),
      group};
}

int64_t Builder::EntryRows(int64_t ratio) const { return std::gcd(ratio, kv_.block_size); }

void Builder::Write(Cache& cache, ValueId x, const std::string& name) {
  if (x >= 0 && cache.state >= 0)
    cache.state = Emit(Op::kKvWrite, name + ".kv_write",
                       {cache.state, x, Input(SlotsName(cache.group), {T()})});
}

void Builder::Compress(const Cache& raw, Cache& entries, const CompressAttrs& attrs,
                       const std::string& bias, const std::string& norm, const std::string& name) {
  if (raw.state < 0 || entries.state < 0) return;
  entries.state =
      Emit(Op::kCompress, name,
           {raw.state, entries.state, Positions(), Input(kQueryStart, {Dim(1, Sym::kRequests, 1)}),
            BlockTable(raw.group), BlockTable(entries.group),
            Weight(bias, {attrs.ratio, attrs.width()}), Weight(norm, {attrs.dim})},
           {attrs});
}

ValueId Builder::IndexEntries(ValueId q, ValueId weights, const Cache& entries,
                              const EntryAttrs& attrs, const std::string& name) {
  if (q < 0 || weights < 0 || entries.state < 0) return kNone;
  return Emit(Op::kIndexEntries, name,
              {q, weights, entries.state, Positions(),
               Input(kQueryStart, {Dim(1, Sym::kRequests, 1)}), BlockTable(entries.group)},
              {attrs});
}

ValueId Builder::EntryAttention(ValueId q, const Cache& window, const Cache& entries, ValueId ids,
                                const EntryAttrs& attrs, const std::string& sinks,
                                const std::string& name) {
  if (q < 0 || window.state < 0 || entries.state < 0 || (attrs.top_k > 0 && ids < 0)) return kNone;
  std::vector<ValueId> inputs = {q,
                                 window.state,
                                 entries.state,
                                 Positions(),
                                 Input(kQueryStart, {Dim(1, Sym::kRequests, 1)}),
                                 BlockTable(window.group),
                                 BlockTable(entries.group),
                                 Weight(sinks, {attrs.heads})};
  if (attrs.top_k > 0) inputs.push_back(ids);
  return Emit(Op::kEntryAttention, name, std::move(inputs), {attrs});
}

Builder::Collapsed Builder::HyperCollapse(ValueId streams, const HyperAttrs& attrs,
                                          const std::string& name) {
  if (streams < 0) return {};
  const Shape shape = graph_.value(streams).shape;
  const int64_t h = shape[1].At({}), d = shape[2].At({});
  const int64_t mixes = attrs.rounds > 0 ? (2 + h) * h : h;
  const ValueId flat =
      Emit(Op::kReshape, name + "join_streams", {streams}, {ReshapeAttrs{{shape[0], Dim(h * d)}}});
  const ValueId mix = Emit(Op::kLinear, name + "fn", {flat, Weight(name + "fn", {mixes, h * d})},
                           {LinearAttrs{1, false}});
  Collapsed out;
  out.x = Emit(Op::kHyperCollapse, name + "collapse",
               {streams, mix, Weight(name + "base", {mixes}),
                Weight(name + "scale", {attrs.rounds > 0 ? 3 : 1})},
               {attrs});
  if (out.x >= 0 && attrs.rounds > 0) out.gates = graph_.nodes.back().outputs[1];
  return out;
}

ValueId Builder::HyperExpand(ValueId streams, ValueId y, ValueId gates) {
  if (streams < 0 || y < 0 || gates < 0) return kNone;
  return Emit(Op::kHyperExpand, fmt::format("hyper_expand.{}", graph_.nodes.size()),
              {streams, y, gates});
}

Builder::Routed Builder::HashRouter(ValueId logits, const RouterAttrs& attrs,
                                    const std::string& name, const std::string& table,
                                    int64_t vocabulary) {
  if (logits < 0) return {};
  Routed out;
  out.weights = Emit(Op::kHashRouter, name,
                     {logits, Weight(table, {vocabulary, attrs.top_k}), TokenIds()}, {attrs});
  if (out.weights >= 0) out.ids = graph_.nodes.back().outputs[1];
  return out;
}

}  // namespace vt::ir
