// How files describe and store DeepSeek-V4.
#pragma once

#include "vllm/weights/family.h"

namespace vllm::models {

// Config::options of a layer, by its number: how many tokens leave an entry in its cache (0: none
// do), whether such windows overlap and an index chooses among entries, and whether its experts
// follow from the token.
struct DeepSeekV4Layer {
  int64_t ratio = 0;
  bool indexed = false, hashed = false;
};
DeepSeekV4Layer LayerOf(const weights::Config& c, int64_t layer);

weights::Family DeepSeekV4();

}  // namespace vllm::models
