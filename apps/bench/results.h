// All that was measured, and how it is printed: the serving table and JSON.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/statistics.h"

namespace apps::bench {

// One concurrency, measured once or several times.
struct Point {
  int64_t concurrency = 0;  // 0: no limit
  std::vector<RunRecord> runs;
  std::vector<Metrics> metrics;  // of each run
  size_t middle = 0;             // the run whose output rate is the median

  // REQUIRES: at least one run.
  static Point Of(int64_t concurrency, std::vector<RunRecord> runs);
  const Metrics& shown() const { return metrics[middle]; }
  Spread Over(double Metrics::*rate) const;
};

struct Results {
  std::string command, date, machine, model, target;          // target: a device, or a URL
  double request_rate = 0;                                    // infinity: all at once
  std::vector<std::pair<std::string, std::string>> settings;  // further ones, for people
  bool over_http = false;
  std::vector<Point> points;  // of a sweep; else one

  int64_t completed() const;
  int64_t failed() const;
  // The first few different errors, with how often each came.
  std::vector<std::string> Errors() const;
};

// vLLM's serving table of the middle run; with several points a line each.
std::string Table(const Results& results);

// Names as in vLLM's result file. `detailed`: with arrays of every request.
boost::json::object ToJson(const Results& results, bool detailed);

// {"runs": [{"concurrency", "repeat", "output_token_ids": [[..], ..]}]}: two files of equal
// settings and seed are equal when the outputs are.
boost::json::object TokenIdsJson(const Results& results);

}  // namespace apps::bench
