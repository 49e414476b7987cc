#include "model_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/os/file.h"

namespace vllm::testing {

static_assert(std::endian::native == std::endian::little, "the goldens are little-endian");

std::string GoldenFolder() { return std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/"; }

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  const auto entries = base::os::ListDirectory(GoldenFolder());
  if (!entries) return names;
  for (const std::string& entry : *entries) {
    if (entry.ends_with(".bin")) names.push_back(entry.substr(0, entry.size() - 4));
  }
  return names;
}

ModelGolden LoadGolden(const std::string& name) {
  const auto json = base::ParseJsonFile(GoldenFolder() + name + ".json");
  const auto binary = base::os::ReadFile(GoldenFolder() + name + ".bin");
  if (!json || !binary) {
    ADD_FAILURE() << (json ? binary.error().message : json.error().message);
    return {};
  }
  const boost::json::object& o = json->as_object();
  ModelGolden golden;
  golden.name = name;
  golden.path = GoldenFolder() + std::string(o.at("model").as_string());
  golden.vocab = o.at("vocab").as_int64();
  golden.context_is_prompt_length = o.contains("context_is_prompt_length");
  size_t offset = 0;
  for (const auto& prompt : o.at("prompts").as_array()) {
    std::vector<int32_t>& ids = golden.prompts.emplace_back();
    for (const auto& id : prompt.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
    std::vector<float>& rows =
        golden.logits.emplace_back(ids.size() * static_cast<size_t>(golden.vocab));
    const size_t bytes = rows.size() * sizeof(float);
    if (offset + bytes > binary->size()) {
      ADD_FAILURE() << name << ".bin is too short";
      return {};
    }
    std::memcpy(rows.data(), binary->data() + offset, bytes);
    offset += bytes;
  }
  EXPECT_EQ(offset, binary->size()) << name << ".bin has rows that belong to no prompt";
  return golden;
}

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
    chunk.sampling.temperature = 0;
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

double RelativeError(std::span<const float> a, std::span<const float> b, int64_t vocab) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t row = 0; row < b.size(); row += static_cast<size_t>(vocab)) {
    double difference = 0, scale = 0;
    for (size_t i = row; i < row + static_cast<size_t>(vocab); ++i) {
      if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
      difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
      scale = std::max(scale, std::abs(double{b[i]}));
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

}  // namespace vllm::testing
