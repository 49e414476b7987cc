// What the files of a model that tells classes apart say about them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace vllm::engine {

struct ClassHead {
  std::vector<std::string> labels;  // a class each; empty: the model tells none apart
  // How scores become probabilities: of one class among all, of each by itself, or not at all.
  enum class Scale : uint8_t { kSoftmax, kSigmoid, kNone } scale = Scale::kSoftmax;
};

// Of config.json in the folder `path`: id2label and problem_type. What it does not say (or a GGUF
// file, which has none) is as transformers has it: LABEL_0 and so on, and a sigmoid of one class, a
// softmax of several. Errors: kUnsupported for a problem_type that is not one of transformers'.
base::Result<ClassHead> LoadClassHead(const std::string& path, int64_t classes);

}  // namespace vllm::engine
