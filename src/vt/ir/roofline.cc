// Predicted bytes, operations and seconds of every op. Views cost nothing; reads of weights and
// values count once.
#include <algorithm>
#include <cmath>

#include "vt/ir/fused.h"
#include "vt/ir/passes.h"
#include "vt/ir/rewrite.h"

namespace vt::ir {
namespace {

double BytesOf(const Value& v, const Bucket& b) {
  return static_cast<double>(Bytes(v.dtype, Elements(v.shape, b)));
}

// Operations an element of the output, of what is not a dot product.
double OpsAnElement(Op op) {
  switch (op) {
    case Op::kUnary:
    case Op::kSoftmax:
    case Op::kLogSoftmax:
      return 10;  // an exponential
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      return 5;
    case Op::kRope:
      return 4;
    case Op::kQuantize:
      return 4;
    case Op::kTopLogprobs:
      return 10;
    case Op::kSample:
      return 40;  // ten Philox rounds and two logarithms
    default:
      return 1;
  }
}

// Whether the op is `what` or has it among its parts.
bool Contains(Op op, Op what) {
  if (!IsFused(op)) return op == what;
  for (const FusedPart& part : DefinitionOf(op).parts) {
    if (part.op == what) return true;
  }
  return false;
}

// The attention that the op is or ends in, or none.
const AttentionAttrs* AttentionOf(const Node& n) {
  if (n.op == Op::kAttention) return &n.attrs.as<AttentionAttrs>();
  const auto* fused = std::get_if<FusedAttrs>(&n.attrs.v);
  return fused == nullptr ? nullptr : std::get_if<AttentionAttrs>(&fused->parts.back().v);
}

// Heads' matrices are read all; experts' as chosen.
bool IsStack(const Value& v) { return v.kind == ValueKind::kWeight && v.shape.size() == 3; }

// Rows that go through experts: tokens times choices.
int64_t ChosenRows(const Graph& g, const Node& node, const Bucket& b) {
  for (const ValueId v : node.inputs) {
    const Value& ids = g.value(v);
    if (ids.dtype == DType::kI32 && ids.shape.size() == 2) return Elements(ids.shape, b);
  }
  return 0;
}

// Experts that random choices meet, of all: every token's are different from one another.
double MetExperts(const Graph& g, const Node& node, int64_t experts, const Bucket& b) {
  const auto all = static_cast<double>(experts);
  const double chosen = static_cast<double>(ChosenRows(g, node, b)) /
                        static_cast<double>(std::max<int64_t>(b.tokens, 1));
  return all * (1 - std::pow(1 - std::min(1.0, chosen / all), static_cast<double>(b.tokens)));
}

double Flops(const Graph& g, const Node& node, const Bucket& b, double attended) {
  const double elements = static_cast<double>(Elements(g.value(node.outputs[0]).shape, b));
  if (Contains(node.op, Op::kGroupedLinear)) {
    double flops = 0;
    for (const ValueId v : node.inputs) {
      const Value& w = g.value(v);
      if (IsStack(w)) {
        flops += 2 * static_cast<double>(ChosenRows(g, node, b)) *
                 static_cast<double>(w.shape[1].At(b) * w.shape[2].At(b));
      }
    }
    return flops;
  }
  if (Contains(node.op, Op::kHeadLinear)) {
    for (const ValueId v : node.inputs) {
      const Value& w = g.value(v);
      if (IsStack(w)) return 2 * static_cast<double>(b.tokens * Elements(w.shape, b));
    }
  }
  if (Contains(node.op, Op::kLinear)) {
    // Each matrix meets every row of what is read.
    const double rows = static_cast<double>(Rows(g.value(node.inputs[0]).shape, b));
    double flops = 0;
    for (const ValueId v : node.inputs) {
      const Value& w = g.value(v);
      if (w.kind == ValueKind::kWeight && w.shape.size() == 2)
        flops += 2 * rows * static_cast<double>(Elements(w.shape, b));
    }
    return flops;
  }
  if (const AttentionAttrs* a = AttentionOf(node)) {
    return 2 * static_cast<double>(b.tokens * a->heads * (a->head_dim + a->value_dim())) * attended;
  }
  switch (node.op) {
    case Op::kKvWrite:
      return 0;
    case Op::kCausalConv:
      return 2 * elements * static_cast<double>(node.attrs.as<ConvAttrs>().width);
    case Op::kGatedDelta:  // decay, k^T S, update, q^T S
      return 7 * static_cast<double>(b.tokens * node.attrs.as<DeltaAttrs>().state_floats());
    case Op::kArgMax:
    case Op::kSample:
    case Op::kTopLogprobs:
      return OpsAnElement(node.op) *
             static_cast<double>(Elements(g.value(node.inputs[0]).shape, b));
    default:
      break;
  }
  if (!IsFused(node.op)) return OpsAnElement(node.op) * elements;
  double ops = 0;
  for (const FusedPart& part : DefinitionOf(node.op).parts) ops += OpsAnElement(part.op) * elements;
  return ops;
}

}  // namespace

Cost Predict(const Graph& graph, const Node& node, const Bucket& bucket, int64_t context,
             const Rates& rates) {
  if (IsView(node.op)) return {};
  Cost cost;
  double attended = static_cast<double>(context);  // cached tokens that a query sees
  bool integer = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& v = graph.value(node.inputs[i]);
    if (v.kind == ValueKind::kState) {
      const StateGroup& group = graph.state_groups[static_cast<size_t>(v.group)];
      if (group.name == kRecurrentGroup) {
        // Read and written once a request, by the part of the slot that is the op's.
        const auto floats = node.op == Op::kCausalConv ? node.attrs.as<ConvAttrs>().state_floats()
                            : node.op == Op::kGatedDelta
                                ? node.attrs.as<DeltaAttrs>().state_floats()
                                : group.slot_bytes / 4;
        cost.bytes += 2 * 4 * static_cast<double>(bucket.requests * floats);
      } else if (AttentionOf(node) != nullptr) {
        if (group.window > 0) attended = std::min(attended, static_cast<double>(group.window));
        cost.bytes +=
            static_cast<double>(bucket.requests * group.bytes_per_token_and_layer()) * attended;
      } else {
        cost.bytes += static_cast<double>(bucket.tokens * group.bytes_per_token_and_layer());
      }
    } else if (node.op == Op::kEmbed && i == 0) {
      cost.bytes += static_cast<double>(bucket.tokens * Bytes(v.dtype, v.shape[1].At(bucket)));
    } else if (IsStack(v) && Contains(node.op, Op::kGroupedLinear)) {
      const int64_t experts = v.shape[0].At(bucket);
      cost.bytes += BytesOf(v, bucket) / static_cast<double>(experts) *
                    MetExperts(graph, node, experts, bucket);
    } else {
      cost.bytes += BytesOf(v, bucket);
    }
    integer |= v.dtype == DType::kQ8_A32;
  }
  for (const ValueId v : node.outputs) {
    if (graph.value(v).kind == ValueKind::kNode) cost.bytes += BytesOf(graph.value(v), bucket);
  }
  cost.flops = Flops(graph, node, bucket, attended);
  const double rate = integer ? rates.int8_ops_per_second : rates.flops_per_second;
  cost.seconds =
      rates.seconds_per_node + std::max(cost.bytes / rates.bytes_per_second, cost.flops / rate);
  return cost;
}

int64_t CountComputed(const Plan& plan) {
  int64_t count = 0;
  for (const Node& n : plan.graph.nodes) {
    const ValueId out = n.outputs[0];
    count += !IsView(n.op) || plan.memory.places[static_cast<size_t>(out)].buffer == out;
  }
  return count;
}

double PredictStep(const Plan& plan, int64_t launches, int64_t context, const Rates& rates) {
  double seconds = static_cast<double>(launches) * rates.seconds_per_node;
  for (const Node& n : plan.graph.nodes) {
    const Cost cost = Predict(plan.graph, n, plan.bucket, context, rates);
    if (cost.seconds > 0) seconds += cost.seconds - rates.seconds_per_node;
  }
  return seconds;
}

}  // namespace vt::ir
