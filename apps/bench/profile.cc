#include "apps/bench/profile.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <map>

#include "base/clock.h"
#include "base/strings.h"
#include "vt/ir/op.h"

namespace apps::bench {
namespace {

using vllm::engine::Chunk;
using vllm::engine::Llm;

// Of a whole answer.
struct Sums {
  std::map<std::string, std::pair<double, double>> kernels;  // calls and seconds
  double device = 0, step = 0;
};

std::vector<int32_t> Ids(const Llm& llm, int64_t count, int64_t salt) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  const int64_t vocabulary = llm.config().vocab_size;
  for (int64_t i = 0; i < count; ++i) {
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(((i + salt * 131) * 7919 + 13) % vocabulary);
  }
  return ids;
}

base::Status Prefill(Llm& llm, const ProfileOptions& o) {
  for (int64_t r = 0; r < o.batch; ++r) {
    llm.Reset(static_cast<int>(r));
    for (int64_t start = 0; start < o.context;) {
      const int64_t n = std::min(o.context - start, llm.options().max_num_batched_tokens);
      const Chunk chunk{.sequence = static_cast<int>(r), .start = start, .tokens = Ids(llm, n, r)};
      if (const auto done = llm.Step({&chunk, 1}); !done) return done.error();
      start += n;
    }
  }
  return {};
}

// A reshape or slice that the plan made a view: nothing runs.
bool Runs(const vt::ir::Plan& plan, const vt::ir::Node& node) {
  if (node.op != vt::ir::Op::kReshape && node.op != vt::ir::Op::kSlice) return true;
  const vt::ir::ValueId out = node.outputs[0];
  return plan.memory.places[static_cast<size_t>(out)].buffer == out;
}

// The first token comes from the prompt's step, each other one from a decode step.
base::Result<Sums> Answer(Llm& llm, const ProfileOptions& o, int64_t tokens) {
  if (const base::Status s = Prefill(llm, o); !s) return s.error();
  vt::Executable& executable =
      llm.runner().ExecutableFor({.tokens = o.batch, .requests = o.batch, .outputs = o.batch});
  const vt::ir::Plan& plan = executable.plan();
  vt::Queue& queue = llm.runner().queue();
  Sums sums;
  for (int64_t t = 0; t + 1 < tokens; ++t) {
    std::vector<Chunk> chunks;
    for (int64_t r = 0; r < o.batch; ++r) {
      chunks.push_back({.sequence = static_cast<int>(r),
                        .start = o.context + t,
                        .tokens = Ids(llm, 1, o.batch + r + t)});
    }
    double clock = base::Seconds();
    if (const auto done = llm.Step(chunks); !done) return done.error();
    sums.step += base::Seconds() - clock;
    // The packed inputs stay, so the same step can run again.
    clock = base::Seconds();
    if (const base::Status s = executable.Run(queue); !s) return s.error();
    if (const base::Status s = llm.backend().Synchronize(queue); !s) return s.error();
    sums.device += base::Seconds() - clock;
    const base::Result<std::vector<double>> nodes = executable.Profile(queue);
    if (!nodes) return nodes.error();
    for (size_t n = 0; n < nodes->size(); ++n) {
      if (!Runs(plan, plan.graph.nodes[n])) continue;
      auto& [calls, seconds] = sums.kernels[plan.kernels[n]];
      calls += 1;
      seconds += (*nodes)[n];
    }
  }
  return sums;
}

}  // namespace

base::Result<KernelProfile> ProfileDecode(Llm& llm, const ProfileOptions& o) {
  if (const auto warm = Answer(llm, o, 2); !warm) return warm.error();
  const base::Result<Sums> longer = Answer(llm, o, o.second);
  if (!longer) return longer.error();
  const base::Result<Sums> shorter = Answer(llm, o, o.first);
  if (!shorter) return shorter.error();

  const auto steps = static_cast<double>(o.second - o.first);
  KernelProfile out{.options = o, .rows = {}};
  out.device = (longer->device - shorter->device) / steps;
  out.step = (longer->step - shorter->step) / steps;
  std::map<std::string, KernelRow> rows;
  for (const auto& [kernel, sum] : longer->kernels) {
    const auto found = shorter->kernels.find(kernel);
    const auto before = found == shorter->kernels.end() ? std::pair(0.0, 0.0) : found->second;
    rows[kernel] = {.kernel = kernel,
                    .ops = "",
                    .calls = (sum.first - before.first) / steps,
                    .seconds = (sum.second - before.second) / steps};
    out.kernels += rows[kernel].seconds;
  }
  const vt::ir::Bucket step = {.tokens = o.batch, .requests = o.batch, .outputs = o.batch};
  const vt::ir::Plan& plan = llm.runner().ExecutableFor(step).plan();
  const vt::ir::Rates rates = llm.backend().MachineRates();
  const int64_t context = o.context + (o.first + o.second) / 2;
  for (size_t n = 0; n < plan.graph.nodes.size(); ++n) {
    const vt::ir::Node& node = plan.graph.nodes[n];
    if (!Runs(plan, node)) continue;
    KernelRow& row = rows[plan.kernels[n]];
    const std::string op(vt::ir::Name(node.op));
    const std::vector<std::string> known = base::Split(row.ops, ' ');
    if (std::find(known.begin(), known.end(), op) == known.end()) {
      row.ops += (row.ops.empty() ? "" : " ") + op;
    }
    row.predicted += vt::ir::Predict(plan.graph, node, plan.bucket, context, rates).seconds;
  }
  for (auto& [kernel, row] : rows) out.rows.push_back(std::move(row));
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.seconds > b.seconds; });
  return out;
}

std::string ProfileTable(const KernelProfile& p) {
  std::string out = fmt::format(
      "Decode of {} request{}, context {}: output tokens {} to {}, us of each step\n"
      "{:<32} {:<28} {:>6} {:>10} {:>7} {:>10}\n",
      p.options.batch, p.options.batch == 1 ? "" : "s", p.options.context, p.options.first + 1,
      p.options.second, "kernel", "ops", "calls", "us", "share", "predicted");
  const auto share = [&](double seconds) {
    return p.kernels > 0 ? fmt::format("{:.1f}%", seconds / p.kernels * 100) : std::string("-");
  };
  double calls = 0, predicted = 0;
  for (const KernelRow& r : p.rows) {
    calls += r.calls;
    predicted += r.predicted;
    out += fmt::format("{:<32} {:<28} {:>6.0f} {:>10.1f} {:>7} {:>10.1f}\n", r.kernel, r.ops,
                       r.calls, r.seconds * 1e6, share(r.seconds), r.predicted * 1e6);
  }
  const auto sum = [&](const char* name, double seconds) {
    out += fmt::format("{:<61} {:>6} {:>10.1f}\n", name, "", seconds * 1e6);
  };
  out += fmt::format("{:<61} {:>6.0f} {:>10.1f} {:>7} {:>10.1f}\n", "sum of kernels", calls,
                     p.kernels * 1e6, share(p.kernels), predicted * 1e6);
  sum("the step on the device, without clocks", p.device);
  sum("the whole step, with inputs packed and logits on the host", p.step);
  return out;
}

boost::json::object ProfileJson(const KernelProfile& p) {
  boost::json::array rows;
  for (const KernelRow& r : p.rows) {
    rows.push_back(boost::json::object{{"kernel", r.kernel},
                                       {"ops", r.ops},
                                       {"calls_per_step", r.calls},
                                       {"us_per_step", r.seconds * 1e6},
                                       {"share", p.kernels > 0 ? r.seconds / p.kernels : 0},
                                       {"predicted_us", r.predicted * 1e6}});
  }
  return {{"batch", p.options.batch},
          {"context", p.options.context},
          {"output_tokens", boost::json::array{p.options.first, p.options.second}},
          {"kernels_us_per_step", p.kernels * 1e6},
          {"device_us_per_step", p.device * 1e6},
          {"step_us", p.step * 1e6},
          {"kernels", std::move(rows)}};
}

}  // namespace apps::bench
