// Whom the benchmark asks: the engine in this process, or a server.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/bench/data.h"
#include "apps/bench/statistics.h"

namespace apps::bench {

struct Work {
  std::vector<Prompt> prompts;
  std::vector<double> arrivals;  // of each, seconds since the run began
  int64_t concurrency = 0;       // requests under way at most; 0: no limit
  float temperature = 0;
  uint64_t seed = 0;  // of sampling; request i has seed + i
  bool ignore_eos = true;
  bool ids = false;  // the output's ids are wanted
  std::string salt;  // prefixes are shared inside a run alone, where the other side can do so
};

// Called after each request, by one thread at a time.
using OnDone = std::function<void(const RequestRecord&)>;

class Client {
 public:
  virtual ~Client() = default;
  // Sends everything and waits for the ends. Records stand in the order of the prompts.
  virtual RunRecord Run(const Work& work, const OnDone& on_done) = 0;
};

}  // namespace apps::bench
