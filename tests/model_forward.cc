#include "model_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace vllm::testing {

engine::LoadOptions Float32Options(const std::string& path, int64_t max_model_len,
                                   int64_t max_num_seqs) {
  engine::LoadOptions options;
  options.model = path;
  options.threads = 1;
  options.dtype = "float32";
  options.kv_cache_dtype = "float32";
  options.max_model_len = max_model_len;
  options.max_num_seqs = max_num_seqs;
  options.max_num_batched_tokens = 64;
  options.score_prompts = true;
  options.module_folders = {std::string(VLLM_BINARY_DIR) + "/examples"};
  return options;
}

std::unique_ptr<engine::Llm> LoadFloat32(const std::string& path, int64_t max_model_len,
                                         int64_t max_num_seqs) {
  auto llm = engine::Llm::Load(Float32Options(path, max_model_len, max_num_seqs));
  if (!llm) {
    ADD_FAILURE() << path << ": " << llm.error().message;
    return nullptr;
  }
  return *std::move(llm);
}

engine::LoadOptions CardOptions(const ModelGolden& golden, const std::string& device,
                                const std::string& dtype, int64_t max_model_len) {
  engine::LoadOptions o = Float32Options(golden.path, max_model_len);
  o.device = device;
  o.dtype = dtype;
  if (dtype != "float32") o.kv_cache_dtype = "auto";
  o.kv_cache_memory = 1 << 20;
  o.max_num_batched_tokens = 32;
  return o;
}

double WorstErrorOn(const ModelGolden& golden, const std::string& device,
                    const std::string& dtype) {
  const std::vector<std::vector<int64_t>> cuts = {{32}, {3, 1, 7, 2, 16, 5}, {1}};
  std::unique_ptr<engine::Llm> llm;
  double worst = 0;
  for (size_t p = 0; p < golden.prompts.size(); ++p) {
    const auto length = static_cast<int64_t>(golden.prompts[p].size());
    if (!llm || golden.context_is_prompt_length) {
      auto loaded = engine::Llm::Load(
          CardOptions(golden, device, dtype, golden.context_is_prompt_length ? length : 64));
      if (!loaded) {
        ADD_FAILURE() << loaded.error().message;
        return std::numeric_limits<double>::infinity();
      }
      llm = *std::move(loaded);
    }
    const std::vector<float> rows = Forward(*llm, golden.prompts[p], cuts[p % cuts.size()]);
    worst = std::max(worst, RelativeError(rows, golden.logits[p], golden.vocab));
  }
  return worst;
}

std::vector<float> Forward(engine::Llm& llm, std::span<const int32_t> ids,
                           std::span<const int64_t> cuts) {
  std::vector<float> rows;
  llm.Reset(0);
  const auto total = static_cast<int64_t>(ids.size());
  size_t cut = 0;
  for (int64_t start = 0; start < total; ++cut) {
    const int64_t n = std::min(cuts[std::min(cut, cuts.size() - 1)], total - start);
    engine::Chunk chunk;
    chunk.start = start;
    chunk.logits = engine::Chunk::Logits::kAll;
    chunk.tokens.assign(ids.begin() + start, ids.begin() + start + n);
    const auto step = llm.Step({&chunk, 1});
    if (!step) {
      ADD_FAILURE() << step.error().message;
      return {};
    }
    EXPECT_EQ(step->outputs, n);
    rows.insert(rows.end(), step->logits, step->logits + n * llm.runner().vocab_size());
    start += n;
  }
  return rows;
}

}  // namespace vllm::testing
