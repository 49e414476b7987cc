#include "base/strings.h"
#include "vt/ir/passes.h"

namespace vt::ir {

std::string DumpPlan(const Plan& plan, int64_t launches, const Rates& rates, int64_t context,
                     const std::vector<double>& measured) {
  const Graph& g = plan.graph;
  std::string text =
      fmt::format("{}: T={} R={} O={}, context {}, arena {}\n", g.name, plan.bucket.tokens,
                  plan.bucket.requests, plan.bucket.outputs, context,
                  base::HumanBytes(static_cast<uint64_t>(plan.memory.arena_bytes)));
  text +=
      fmt::format("{:>4} {:<44} {:<22} {:<24} {:<18} {:>10} {:>12} {:>9} {:>9}\n", "", "node", "op",
                  "kernel", "shape", "offset", "bytes", "us", measured.empty() ? "" : "measured");
  Cost sum;
  double sum_measured = 0;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    const Cost cost = Predict(g, node, plan.bucket, context, rates);
    sum.bytes += cost.bytes;
    const ValueId out = node.outputs[0];
    const Placement& place = plan.memory.places[static_cast<size_t>(out)];
    std::string offset = "-";
    if (place.buffer != kNone)
      offset = (place.buffer == out ? "" : "view ") + std::to_string(place.offset);
    std::string clock;
    if (n < measured.size()) {
      clock = fmt::format("{:.1f}", measured[n] * 1e6);
      sum_measured += measured[n];
    }
    text +=
        fmt::format("{:>4} {:<44} {:<22} {:<24} {:<18} {:>10} {:>12.0f} {:>9.1f} {:>9}\n", n,
                    node.name, Name(node.op), n < plan.kernels.size() ? plan.kernels[n] : "",
                    ToString(g.value(out).shape), offset, cost.bytes, cost.seconds * 1e6, clock);
  }
  text += fmt::format("total: {}, {} launches, {:.1f} us predicted",
                      base::HumanBytes(static_cast<uint64_t>(sum.bytes)), launches,
                      PredictStep(plan, launches, context, rates) * 1e6);
  if (!measured.empty()) text += fmt::format(", {:.1f} us measured", sum_measured * 1e6);
  return text + "\n";
}

}  // namespace vt::ir
