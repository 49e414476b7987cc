// A model's tensors in the types of a mix, as a GGUF file. Tensors stream from the source to the
// disk a piece at a time, so that memory stays small whatever the model's size.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/weights/gguf_writer.h"
#include "vllm/weights/mix.h"
#include "vllm/weights/tensor_source.h"

namespace vllm::weights {

// What the file will hold: the source's tensors, in its order, with the types that `mix` gives
// them. Errors: kInvalidArgument where a tensor is quantised already in another type, unless
// `allow_requantize`: what was rounded twice is worse than what was rounded once.
base::Result<std::vector<GgufTensor>> PlanQuantization(const TensorSource& source, const Mix& mix,
                                                       bool allow_requantize);

struct WriteOptions {
  int threads = 1;
  // Called often, with the share of the work that is done; false gives up. Optional.
  std::function<bool(double)> progress;
};

// Writes `plan` of `source` to `path`, with `keys` as metadata; see GgufWriter. Errors: also
// kCancelled, and kCorrupt for a tensor with values that are no numbers or too large for its type.
base::Status WriteQuantized(const TensorSource& source, const std::vector<GgufTensor>& plan,
                            const GgufKeys& keys, const std::string& path,
                            const WriteOptions& options);

}  // namespace vllm::weights
