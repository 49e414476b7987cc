// Flags of the serving benchmark.
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/data.h"
#include "base/result.h"
#include "vllm/engine/options.h"

namespace apps::bench {

inline constexpr const char* kName = "vllm-bench";

struct ServeFlags {
  vllm::engine::LoadOptions options;
  std::string command;  // as it was typed

  int64_t num_prompts = 100;
  std::string input_text = "512", output_text = "128";
  double range_ratio = 0;
  int64_t prefix = 0;
  std::string dataset;
  int64_t concurrency = 0;
  std::vector<int64_t> sweep;
  double request_rate = std::numeric_limits<double>::infinity();
  double temperature = 0;
  std::optional<bool> ignore_eos;
  uint64_t seed = 0;
  int64_t warmups = 1;
  int repeat = 1;

  std::string url, endpoint = "/v1/completions", served_model, api_key, extra_body;
  std::string prompt_form = "ids";

  std::string output_json, output_ids, report;
  bool detailed = false;

  bool profile = false;
  int64_t batch = 1;
  std::vector<int64_t> profile_lengths = {4, 36};

  // Settled by Settle.
  Lengths input, output;
  bool output_given = false, max_seqs_given = false;
};

void AddServeFlags(CLI::App& app, ServeFlags& flags);

// After the parse: flags that contradict each other or would have no effect are refused by name.
base::Status Settle(const CLI::App& app, ServeFlags& flags);

}  // namespace apps::bench
