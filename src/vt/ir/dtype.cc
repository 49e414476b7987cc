#include "vt/ir/dtype.h"

#include <array>
#include <cctype>

namespace vt::ir {
namespace {

constexpr std::array<DTypeInfo, kDTypeCount> kInfo = {{
    {"f32", 1, 4, 0, false},        {"f16", 1, 2, 1, false},      {"bf16", 1, 2, 30, false},
    {"i32", 1, 4, 26, false},       {"i64", 1, 8, 27, false},     {"i8", 1, 1, 24, false},
    {"u8", 1, 1, -1, false},        {"Q4_0", 32, 18, 2, true},    {"Q4_1", 32, 20, 3, true},
    {"Q5_0", 32, 22, 6, true},      {"Q5_1", 32, 24, 7, true},    {"Q8_0", 32, 34, 8, true},
    {"Q2_K", 256, 84, 10, true},    {"Q3_K", 256, 110, 11, true}, {"Q4_K", 256, 144, 12, true},
    {"Q5_K", 256, 176, 13, true},   {"Q6_K", 256, 210, 14, true}, {"IQ4_NL", 32, 18, 20, true},
    {"IQ4_XS", 256, 136, 23, true}, {"MXFP4", 32, 17, 39, true},  {"F8_32", 32, 36, -1, true},
    {"Q8_A32", 32, 40, -1, true},   {"f8_e4m3", 1, 1, -1, false},
}};

}  // namespace

const DTypeInfo& Info(DType t) { return kInfo[static_cast<size_t>(t)]; }

std::optional<DType> FromGgmlType(int ggml_type) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kInfo[i].ggml_type == ggml_type && ggml_type >= 0) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<DType> FromName(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const std::string_view n = kInfo[i].name;
    if (n.size() != name.size()) continue;
    bool equal = true;
    for (size_t j = 0; j < n.size() && equal; ++j) {
      equal = std::tolower(static_cast<unsigned char>(n[j])) ==
              std::tolower(static_cast<unsigned char>(name[j]));
    }
    if (equal) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace vt::ir
