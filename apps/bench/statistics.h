// What a run of requests says: latencies, rates and their distributions.
//
// TTFT is the time from sending a request to its first token; ITL the time between two tokens (over
// HTTP between two chunks, which may hold several tokens); TPOT a request's time after its first
// token divided by its tokens after the first; E2EL the time from sending to the last token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace apps::bench {

// Empty samples give 0.
double Mean(const std::vector<double>& samples);
// Of a sample (divided by n - 1); 0 below two values.
double Deviation(const std::vector<double>& samples);
// percent in [0, 100], linear between the nearest ranks, as numpy's default.
double Percentile(std::vector<double> samples, double percent);

struct Distribution {
  double mean = 0, median = 0, p99 = 0, deviation = 0;
};
Distribution DistributionOf(const std::vector<double>& samples);

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread SpreadOf(const std::vector<double>& samples);

// One request as it was seen from outside. Times are seconds since the run began.
struct RequestRecord {
  std::string error = "not sent";  // empty: it succeeded
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double start = 0, end = 0;
  std::vector<double> times;  // of each token; over HTTP of each chunk with tokens
  std::vector<int32_t> ids;   // of the output, where they are known

  bool ok() const { return error.empty(); }
  double Ttft() const { return times.empty() ? end - start : times.front() - start; }
};

struct RunRecord {
  std::vector<RequestRecord> requests;
};

struct Metrics {
  int64_t completed = 0, failed = 0;
  int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;
  int64_t chunks = 0;  // that carried the output tokens
  int64_t peak_concurrency = 0;
  double seconds = 0;
  double request_rate = 0, output_rate = 0, total_rate = 0;  // a second
  double peak_output_rate = 0;                // in the best whole second; 0 for runs below one
  std::vector<double> ttft, tpot, itl, e2el;  // seconds
  // Of each request, tokens a second: prompt tokens by TTFT, tokens after the first by the rest.
  std::vector<double> prefill_rates, decode_rates;
};
Metrics Measure(const RunRecord& run);

// Output tokens a second in `bins` equal parts of the run: (middle of the part, rate).
std::vector<std::pair<double, double>> OutputOverTime(const RunRecord& run, int bins);

}  // namespace apps::bench
