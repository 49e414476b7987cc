#include "apps/bench/results.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "base/strings.h"

namespace apps::bench {
namespace {

namespace json = boost::json;

constexpr int kWidth = 58;

std::string Rule(const std::string& title, char fill) {
  const auto left = static_cast<size_t>(kWidth) - title.size();
  return std::string(left / 2, fill) + title + std::string(left - left / 2, fill) + "\n";
}

std::string Row(const std::string& name, const std::string& value) {
  return fmt::format("{:<44}{:>14}\n", name, value);
}
std::string Row(const std::string& name, int64_t value) { return Row(name, std::to_string(value)); }
std::string Row(const std::string& name, double value) {
  return Row(name, fmt::format("{:.2f}", value));
}

std::string Limit(int64_t concurrency) {
  return concurrency > 0 ? std::to_string(concurrency) : "none";
}

std::string LatencyRows(const std::string& title, const std::string& name,
                        const std::vector<double>& seconds) {
  const Distribution d = DistributionOf(seconds);
  return Rule(title, '-') + Row("Mean " + name + " (ms):", d.mean * 1e3) +
         Row("Median " + name + " (ms):", d.median * 1e3) +
         Row("P99 " + name + " (ms):", d.p99 * 1e3);
}

std::string RangeText(const Spread& s) {
  return fmt::format("{:.2f} ({:.2f} .. {:.2f})", s.median, s.min, s.max);
}

std::string OnePoint(const Results& results, const Point& point) {
  const Metrics& m = point.shown();
  std::string text = Rule(" Serving Benchmark Result ", '=');
  text += Row("Successful requests:", m.completed);
  text += Row("Failed requests:", m.failed);
  if (point.concurrency > 0) text += Row("Maximum request concurrency:", point.concurrency);
  if (!std::isinf(results.request_rate)) {
    text += Row("Request rate configured (RPS):", results.request_rate);
  }
  text += Row("Benchmark duration (s):", m.seconds);
  text += Row("Total input tokens:", m.input_tokens);
  if (m.cached_tokens > 0) text += Row("  of them from the prefix cache:", m.cached_tokens);
  text += Row("Total generated tokens:", m.output_tokens);
  text += Row("Request throughput (req/s):", m.request_rate);
  text += Row("Output token throughput (tok/s):", m.output_rate);
  if (m.peak_output_rate > 0) {
    text += Row("Peak output token throughput (tok/s):", m.peak_output_rate);
  }
  text += Row("Peak concurrent requests:", m.peak_concurrency);
  text += Row("Total token throughput (tok/s):", m.total_rate);
  text += Row("Prefill rate of a request, median (tok/s):", Percentile(m.prefill_rates, 50));
  text += Row("Decode rate of a request, median (tok/s):", Percentile(m.decode_rates, 50));
  text += LatencyRows("Time to First Token", "TTFT", m.ttft);
  text += LatencyRows("Time per Output Token (excl. 1st token)", "TPOT", m.tpot);
  text += LatencyRows("Inter-token Latency", "ITL", m.itl);
  text += LatencyRows("End-to-end Latency", "E2EL", m.e2el);
  if (results.over_http && m.chunks < m.output_tokens) {
    text += fmt::format("{} tokens came in {} chunks: ITL is the time between chunks\n",
                        m.output_tokens, m.chunks);
  }
  if (point.runs.size() > 1) {
    text += Rule(fmt::format("Median (min .. max) of {} runs", point.runs.size()), '-');
    const auto spread = [&](const char* name, double Metrics::*rate) {
      text += fmt::format("{:<26}{:>32}\n", name, RangeText(point.Over(rate)));
    };
    spread("Requests (req/s):", &Metrics::request_rate);
    spread("Output tokens (tok/s):", &Metrics::output_rate);
    spread("Total tokens (tok/s):", &Metrics::total_rate);
  }
  return text + std::string(kWidth, '=') + "\n";
}

std::string Sweep(const Results& results) {
  std::string text = fmt::format(
      "{:>11} {:>8} {:>30} {:>10} {:>19} {:>17} {:>9} {:>10}\n{:>11} {:>8} {:>30} {:>10} {:>19} "
      "{:>17} {:>9} {:>10}\n",
      "concurrency", "req/s", "output tok/s", "total", "TTFT ms", "TPOT ms", "ITL ms", "E2EL ms",
      "", "", "median (min .. max)", "tok/s", "median, P99", "median, P99", "P99", "median");
  for (const Point& p : results.points) {
    const Metrics& m = p.shown();
    const Distribution ttft = DistributionOf(m.ttft), tpot = DistributionOf(m.tpot);
    text += fmt::format(
        "{:>11} {:>8.2f} {:>30} {:>10.1f} {:>9.1f} {:>9.1f} {:>8.2f} {:>8.2f} {:>9.2f} {:>10.1f}\n",
        Limit(p.concurrency), p.Over(&Metrics::request_rate).median,
        RangeText(p.Over(&Metrics::output_rate)), p.Over(&Metrics::total_rate).median,
        ttft.median * 1e3, ttft.p99 * 1e3, tpot.median * 1e3, tpot.p99 * 1e3,
        Percentile(m.itl, 99) * 1e3, Percentile(m.e2el, 50) * 1e3);
  }
  return text;
}

void AddLatency(const std::string& name, const std::vector<double>& seconds, json::object& out) {
  const Distribution d = DistributionOf(seconds);
  out["mean_" + name + "_ms"] = d.mean * 1e3;
  out["median_" + name + "_ms"] = d.median * 1e3;
  out["std_" + name + "_ms"] = d.deviation * 1e3;
  out["p99_" + name + "_ms"] = d.p99 * 1e3;
}

void AddRequests(const RunRecord& run, json::object& out) {
  json::array inputs, outputs, starts, ttfts, e2els, itls, errors;
  for (const RequestRecord& r : run.requests) {
    inputs.push_back(r.prompt_tokens);
    outputs.push_back(r.output_tokens);
    starts.push_back(r.start);
    ttfts.push_back(r.Ttft());
    e2els.push_back(r.end - r.start);
    errors.push_back(json::string(r.error));
    json::array gaps;
    for (size_t i = 1; i < r.times.size(); ++i) gaps.push_back(r.times[i] - r.times[i - 1]);
    itls.push_back(std::move(gaps));
  }
  out["input_lens"] = std::move(inputs);
  out["output_lens"] = std::move(outputs);
  out["start_times"] = std::move(starts);
  out["ttfts"] = std::move(ttfts);
  out["e2els"] = std::move(e2els);
  out["itls"] = std::move(itls);
  out["errors"] = std::move(errors);
}

json::object RunJson(const RunRecord& run, const Metrics& m, bool detailed) {
  json::object out = {{"duration", m.seconds},
                      {"completed", m.completed},
                      {"failed", m.failed},
                      {"total_input_tokens", m.input_tokens},
                      {"cached_input_tokens", m.cached_tokens},
                      {"total_output_tokens", m.output_tokens},
                      {"output_chunks", m.chunks},
                      {"request_throughput", m.request_rate},
                      {"output_throughput", m.output_rate},
                      {"max_output_tokens_per_s", m.peak_output_rate},
                      {"total_token_throughput", m.total_rate},
                      {"max_concurrent_requests", m.peak_concurrency},
                      {"median_prefill_rate", Percentile(m.prefill_rates, 50)},
                      {"median_decode_rate", Percentile(m.decode_rates, 50)}};
  AddLatency("ttft", m.ttft, out);
  AddLatency("tpot", m.tpot, out);
  AddLatency("itl", m.itl, out);
  AddLatency("e2el", m.e2el, out);
  if (detailed) AddRequests(run, out);
  return out;
}

}  // namespace

Point Point::Of(int64_t concurrency, std::vector<RunRecord> runs) {
  Point p{.concurrency = concurrency, .runs = std::move(runs), .metrics = {}, .middle = 0};
  for (const RunRecord& run : p.runs) p.metrics.push_back(Measure(run));
  std::vector<size_t> order(p.runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return p.metrics[a].output_rate < p.metrics[b].output_rate;
  });
  p.middle = order[(order.size() - 1) / 2];
  return p;
}

Spread Point::Over(double Metrics::*rate) const {
  std::vector<double> rates;
  for (const Metrics& m : metrics) rates.push_back(m.*rate);
  return SpreadOf(rates);
}

int64_t Results::completed() const {
  int64_t count = 0;
  for (const Point& p : points) {
    for (const Metrics& m : p.metrics) count += m.completed;
  }
  return count;
}

int64_t Results::failed() const {
  int64_t count = 0;
  for (const Point& p : points) {
    for (const Metrics& m : p.metrics) count += m.failed;
  }
  return count;
}

std::vector<std::string> Results::Errors() const {
  constexpr size_t kShown = 5;
  std::vector<std::string> order;
  std::map<std::string, int64_t> counts;
  for (const Point& p : points) {
    for (const RunRecord& run : p.runs) {
      for (const RequestRecord& r : run.requests) {
        if (!r.ok() && ++counts[r.error] == 1) order.push_back(r.error);
      }
    }
  }
  std::vector<std::string> lines;
  for (const std::string& error : order) {
    if (lines.size() == kShown) {
      lines.push_back(fmt::format("and {} other errors", order.size() - kShown));
      break;
    }
    lines.push_back(fmt::format("{} of the requests failed: {}", counts[error], error));
  }
  return lines;
}

std::string Table(const Results& results) {
  return results.points.size() == 1 ? OnePoint(results, results.points[0]) : Sweep(results);
}

json::object ToJson(const Results& results, bool detailed) {
  json::array points;
  for (const Point& p : results.points) {
    json::array runs;
    for (size_t i = 0; i < p.runs.size(); ++i) {
      runs.push_back(RunJson(p.runs[i], p.metrics[i], detailed));
    }
    json::object point = {{"max_concurrency", nullptr}, {"runs", std::move(runs)}};
    if (p.concurrency > 0) point["max_concurrency"] = p.concurrency;
    const auto spread = [&](const char* name, double Metrics::*rate) {
      const Spread s = p.Over(rate);
      point[name] = json::object{{"median", s.median}, {"min", s.min}, {"max", s.max}};
    };
    spread("request_throughput", &Metrics::request_rate);
    spread("output_throughput", &Metrics::output_rate);
    spread("total_token_throughput", &Metrics::total_rate);
    points.push_back(std::move(point));
  }
  json::object settings;
  for (const auto& [name, value] : results.settings) settings[name] = value;
  json::object out = {{"command", results.command}, {"date", results.date},
                      {"machine", results.machine}, {"model", results.model},
                      {"target", results.target},   {"request_rate", "inf"},
                      {"settings", settings},       {"points", std::move(points)}};
  if (!std::isinf(results.request_rate)) out["request_rate"] = results.request_rate;
  return out;
}

json::object TokenIdsJson(const Results& results) {
  json::array runs;
  for (const Point& p : results.points) {
    for (size_t i = 0; i < p.runs.size(); ++i) {
      json::array ids;
      for (const RequestRecord& r : p.runs[i].requests) {
        ids.push_back(json::array(r.ids.begin(), r.ids.end()));
      }
      runs.push_back(json::object{
          {"concurrency", p.concurrency}, {"repeat", i}, {"output_token_ids", std::move(ids)}});
    }
  }
  return {{"runs", std::move(runs)}};
}

}  // namespace apps::bench
