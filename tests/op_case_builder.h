// How op cases are written down. Included by their files alone.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tests/op_cases.h"
#include "vt/ir/builder.h"

namespace tests {

using namespace vt::ir;  // NOLINT: op cases are written in the IR's words

inline constexpr std::array kFormats = {
    DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,  DType::kQ4_1, DType::kQ5_0,
    DType::kQ5_1, DType::kQ8_0,   DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K, DType::kQ5_K,
    DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kF8_32};

inline constexpr int64_t kVocabulary = 97;

// Rows of the plain steps: single rows, odd numbers, more than any tile.
inline std::vector<OpStep> RowSteps() {
  return {{{1}}, {{3}}, {{7}, 2}, {{31}}, {{33}}, {{100}, 3}, {{0}, 4}};
}

inline RopeAttrs Rotation(int64_t dim, bool interleaved = false) {
  RopeAttrs a;
  a.rotary_dim = dim;
  a.interleaved = interleaved;
  for (int64_t i = 0; i < dim / 2; ++i) a.frequencies.push_back(1 / static_cast<float>(1 + 3 * i));
  return a;
}

// Prefills of several lengths, mixed steps, decodes, a chunk over a block's edge, padding.
inline std::vector<OpStep> ServingSteps() {
  return {{{5, 33, 1}, 2, 1}, {{1, 1, 20}},      {{1, 1, 1}},   {{1, 0, 17}, 1},
          {{60, 1, 1}, 3, 2}, {{1, 1, 1}, 1, 1}, {{0, 0, 0}, 2}};
}

// A Builder over weights that are declared as they are used.
class CaseBuilder {
 public:
  explicit CaseBuilder(std::string name, KvOptions kv = {.max_model_len = 256})
      : weights_(std::make_shared<std::map<std::string, WeightInfo>>()),
        b(
            name,
            [w = weights_](const std::string& n) -> std::optional<WeightInfo> {
              const auto found = w->find(n);
              return found == w->end() ? std::nullopt : std::optional(found->second);
            },
            kv) {
    case_.name = std::move(name);
    case_.block_size = kv.block_size;
  }

  // Random f32 rows [T, width], from a table of at least kVocabulary.
  ValueId X(int64_t width, const std::string& table = "x.weight", DType t = DType::kF32,
            int64_t rows = 0) {
    rows = std::max(rows, kVocabulary);
    (*weights_)[table] = {t, {rows, width}};
    return b.Embed(table, rows, width);
  }
  std::string Vector(const std::string& name, int64_t size, DType t = DType::kF32) {
    (*weights_)[name] = {t, {size}};
    return name;
  }
  // A matrix an expert.
  ValueId Grouped(ValueId x, ValueId ids, const std::string& name, int64_t experts, int64_t n,
                  int64_t k, DType t) {
    (*weights_)[name + ".weight"] = {t, {experts, n, k}};
    return b.GroupedLinear(x, ids, name, experts, n);
  }
  // A matrix a head.
  ValueId HeadLinear(ValueId x, const std::string& name, int64_t heads, int64_t n, int64_t k,
                     DType t) {
    (*weights_)[name + ".weight"] = {t, {heads, n, k}};
    return b.HeadLinear(x, name, n);
  }
  std::string Matrix(const std::string& name, int64_t rows, int64_t columns) {
    (*weights_)[name] = {DType::kF32, {rows, columns}};
    return name;
  }
  // Small integers.
  std::string Table(const std::string& name, int64_t rows, int64_t columns) {
    (*weights_)[name] = {DType::kI64, {rows, columns}};
    return name;
  }
  ValueId Linear(ValueId x, const std::string& name, int64_t n, int64_t k, DType t,
                 bool bias = false) {
    (*weights_)[name + ".weight"] = {t, {n, k}};
    if (bias) (*weights_)[name + ".bias"] = {DType::kF32, {n}};
    return b.Linear(x, name, n, bias);
  }

  OpCase Finish(std::vector<ValueId> outputs, std::vector<OpStep> steps, double tolerance = 4e-5) {
    auto g = b.Finish(std::move(outputs));
    // A case that does not build is a case with an empty graph, which the test reports by name.
    if (g) case_.graph = *std::move(g);
    case_.steps = std::move(steps);
    case_.tolerance = tolerance;
    return std::move(case_);
  }

 private:
  std::shared_ptr<std::map<std::string, WeightInfo>> weights_;
  OpCase case_;

 public:
  Builder b;
};

// The cases of op_cases_hybrid.cc.
void AddExperts(std::vector<OpCase>& cases);
void AddRecurrent(std::vector<OpCase>& cases);
void AddHybridSpeed(std::vector<OpCase>& cases);
// Those of op_cases_latent.cc.
void AddLatent(std::vector<OpCase>& cases);
void AddLatentSpeed(std::vector<OpCase>& cases);
// Those of op_cases_entries.cc.
void AddEntries(std::vector<OpCase>& cases);

}  // namespace tests
