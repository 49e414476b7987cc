// Where a decode step's time goes, kernel by kernel.
//
// Decode alone: an answer of `second` tokens is profiled, then one of `first` tokens, and the
// difference is divided by the steps between them, so that whatever an answer costs once is not in
// it. A step gives a token to each of `batch` requests.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "vllm/engine/llm.h"

namespace apps::bench {

struct ProfileOptions {
  int64_t batch = 1;
  int64_t context = 128;           // tokens of each request before its answer
  int64_t first = 4, second = 36;  // output tokens; REQUIRES: 0 < first < second
};

struct KernelRow {
  std::string kernel, ops;
  double calls = 0, seconds = 0, predicted = 0;  // a step; predicted: by the roofline
};

struct KernelProfile {
  ProfileOptions options;
  std::vector<KernelRow> rows;  // the slowest first
  double kernels = 0;           // seconds a step: the sum of the rows,
  double device = 0;            // the step on the device without clocks in it,
  double step = 0;              // and as a whole, with packing and logits brought to the host
};

// REQUIRES: llm was loaded with max_num_seqs >= batch and room for context + second tokens.
base::Result<KernelProfile> ProfileDecode(vllm::engine::Llm& llm, const ProfileOptions& options);

std::string ProfileTable(const KernelProfile& profile);
boost::json::object ProfileJson(const KernelProfile& profile);

}  // namespace apps::bench
