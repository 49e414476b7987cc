#include "apps/bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace apps::bench {
namespace {

// The output tokens of a request at the times they came. A chunk of several counts as its share.
template <typename Add>
void EachToken(const RequestRecord& r, const Add& add) {
  if (!r.ok() || r.times.empty()) return;
  const double weight = static_cast<double>(r.output_tokens) / static_cast<double>(r.times.size());
  for (const double time : r.times) add(time, weight);
}

double EndOf(const RunRecord& run) {
  double end = 0;
  for (const RequestRecord& r : run.requests) end = std::max(end, r.end);
  return end;
}

int64_t PeakConcurrency(const RunRecord& run) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& r : run.requests) {
    if (!r.ok()) continue;
    changes.emplace_back(r.start, 1);
    changes.emplace_back(r.end, -1);
  }
  std::sort(changes.begin(), changes.end());  // at one moment ends come first
  int64_t now = 0, peak = 0;
  for (const auto& [time, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

double PeakOutputRate(const RunRecord& run, double end) {
  std::vector<double> seconds(static_cast<size_t>(std::floor(end)));
  for (const RequestRecord& r : run.requests) {
    EachToken(r, [&](double time, double weight) {
      const auto second = static_cast<size_t>(time);
      if (second < seconds.size()) seconds[second] += weight;
    });
  }
  return seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

double Mean(const std::vector<double>& samples) {
  if (samples.empty()) return 0;
  double sum = 0;
  for (const double x : samples) sum += x;
  return sum / static_cast<double>(samples.size());
}

double Deviation(const std::vector<double>& samples) {
  if (samples.size() < 2) return 0;
  const double mean = Mean(samples);
  double sum = 0;
  for (const double x : samples) sum += (x - mean) * (x - mean);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

double Percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double rank = percent / 100 * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (rank - static_cast<double>(below)) * (samples[above] - samples[below]);
}

Distribution DistributionOf(const std::vector<double>& samples) {
  return {Mean(samples), Percentile(samples, 50), Percentile(samples, 99), Deviation(samples)};
}

Spread SpreadOf(const std::vector<double>& samples) {
  return {Percentile(samples, 50), Percentile(samples, 0), Percentile(samples, 100)};
}

Metrics Measure(const RunRecord& run) {
  Metrics m;
  m.seconds = EndOf(run);
  for (const RequestRecord& r : run.requests) {
    if (!r.ok()) {
      ++m.failed;
      continue;
    }
    ++m.completed;
    m.input_tokens += r.prompt_tokens;
    m.cached_tokens += r.cached_tokens;
    m.output_tokens += r.output_tokens;
    m.chunks += static_cast<int64_t>(r.times.size());
    const double rest = r.end - r.start - r.Ttft();
    const auto after_first = static_cast<double>(r.output_tokens - 1);
    m.ttft.push_back(r.Ttft());
    m.e2el.push_back(r.end - r.start);
    for (size_t i = 1; i < r.times.size(); ++i) m.itl.push_back(r.times[i] - r.times[i - 1]);
    if (after_first > 0) m.tpot.push_back(rest / after_first);
    if (r.Ttft() > 0) m.prefill_rates.push_back(static_cast<double>(r.prompt_tokens) / r.Ttft());
    if (after_first > 0 && rest > 0) m.decode_rates.push_back(after_first / rest);
  }
  m.peak_concurrency = PeakConcurrency(run);
  m.peak_output_rate = PeakOutputRate(run, m.seconds);
  if (m.seconds > 0) {
    m.request_rate = static_cast<double>(m.completed) / m.seconds;
    m.output_rate = static_cast<double>(m.output_tokens) / m.seconds;
    m.total_rate = static_cast<double>(m.input_tokens + m.output_tokens) / m.seconds;
  }
  return m;
}

std::vector<std::pair<double, double>> OutputOverTime(const RunRecord& run, int bins) {
  const double width = EndOf(run) / bins;
  if (bins < 1 || width <= 0) return {};
  std::vector<std::pair<double, double>> rates;
  rates.reserve(static_cast<size_t>(bins));
  for (int i = 0; i < bins; ++i) rates.emplace_back((i + 0.5) * width, 0.0);
  for (const RequestRecord& r : run.requests) {
    EachToken(r, [&](double time, double weight) {
      const auto bin = std::min(static_cast<size_t>(time / width), rates.size() - 1);
      rates[bin].second += weight / width;
    });
  }
  return rates;
}

}  // namespace apps::bench
