#include "model_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstring>
#include <limits>

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
  if (o.contains("bf16_error")) golden.bf16_error = o.at("bf16_error").as_double();
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
