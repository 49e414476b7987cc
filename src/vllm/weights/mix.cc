#include "vllm/weights/mix.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/strings.h"

namespace vllm::weights {

using vt::ir::DType;

namespace {

// Index of the layer in "blk.N.name"; 0 for other names.
int64_t LayerOf(std::string_view name) {
  if (!base::StartsWith(name, "blk.")) return 0;
  int64_t n = 0;
  for (const char c : name.substr(4)) {
    if (c < '0' || c > '9' || n > 100000) break;
    n = n * 10 + (c - '0');
  }
  return n;
}

// The first and last eighth of the layers, and every third between.
bool MoreBits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// The format for rows that are no whole number of `type`'s blocks.
DType Fallback(DType type, int64_t row) {
  if (row % vt::ir::Info(type).block == 0) return type;
  DType other = type;
  switch (type) {
    case DType::kIQ4_XS:
      other = DType::kIQ4_NL;
      break;
    case DType::kQ2_K:
    case DType::kQ3_K:
      other = DType::kQ4_0;
      break;
    case DType::kQ4_K:
      other = DType::kQ5_0;
      break;
    case DType::kQ5_K:
      other = DType::kQ5_1;
      break;
    case DType::kQ6_K:
      other = DType::kQ8_0;
      break;
    default:
      break;
  }
  return row % vt::ir::Info(other).block == 0 ? other : DType::kF16;
}

}  // namespace

struct Mix::Entry {
  std::string_view name;
  Kind kind;
  DType base;
  uint32_t file_type;  // llama.cpp's enumeration of files
};

std::span<const Mix::Entry> Mix::Table() {
  static constexpr std::array<Entry, 24> kTable = {{
      {"Q2_K_S", Kind::kQ2KS, DType::kQ2_K, 21},      {"Q2_K", Kind::kQ2K, DType::kQ2_K, 10},
      {"Q3_K_S", Kind::kQ3KS, DType::kQ3_K, 11},      {"Q3_K_M", Kind::kQ3KM, DType::kQ3_K, 12},
      {"Q3_K", Kind::kQ3KM, DType::kQ3_K, 12},        {"Q3_K_L", Kind::kQ3KL, DType::kQ3_K, 13},
      {"IQ4_XS", Kind::kIQ4, DType::kIQ4_XS, 30},     {"IQ4_NL", Kind::kIQ4, DType::kIQ4_NL, 25},
      {"Q4_0", Kind::kUniform, DType::kQ4_0, 2},      {"Q4_K_S", Kind::kQ4KS, DType::kQ4_K, 14},
      {"Q4_K_M", Kind::kQ4KM, DType::kQ4_K, 15},      {"Q4_K", Kind::kQ4KM, DType::kQ4_K, 15},
      {"Q4_1", Kind::kUniform, DType::kQ4_1, 3},      {"Q5_0", Kind::kUniform, DType::kQ5_0, 8},
      {"Q5_K_S", Kind::kQ5KS, DType::kQ5_K, 16},      {"Q5_K_M", Kind::kQ5KM, DType::kQ5_K, 17},
      {"Q5_K", Kind::kQ5KM, DType::kQ5_K, 17},        {"Q5_1", Kind::kUniform, DType::kQ5_1, 9},
      {"Q6_K", Kind::kQ6K, DType::kQ6_K, 18},         {"Q8_0", Kind::kUniform, DType::kQ8_0, 7},
      {"MXFP4_MOE", Kind::kMXFP4, DType::kMXFP4, 38}, {"F16", Kind::kPlain, DType::kF16, 1},
      {"BF16", Kind::kPlain, DType::kBF16, 32},       {"F32", Kind::kPlain, DType::kF32, 0},
  }};
  return kTable;
}

std::vector<std::string_view> Mix::Names() {
  std::vector<std::string_view> out;
  for (const Entry& e : Table()) out.push_back(e.name);
  return out;
}

base::Result<Mix> Mix::FromName(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  Mix mix;
  for (const Entry& e : Table()) {
    if (e.name != upper) continue;
    mix.name_ = e.name;
    mix.kind_ = e.kind;
    mix.base_ = e.base;
    mix.file_type_ = e.file_type;
    return mix;
  }
  return base::Error{base::Code::kInvalidArgument,
                     fmt::format("quantization '{}' is unknown; these are known: {}",
                                 base::Printable(name), fmt::join(Names(), ", "))};
}

bool Mix::Keeps(std::string_view name, const std::vector<int64_t>& shape) {
  static constexpr std::array<std::string_view, 19> kSmall = {"_norm.weight",
                                                              "ffn_gate_inp",
                                                              "altup",
                                                              "laurel",
                                                              "per_layer_model_proj",
                                                              "position_embd",
                                                              "token_types",
                                                              "ssm_conv1d",
                                                              "shortconv.conv.weight",
                                                              "indexer.k_proj.weight",
                                                              "indexer.q_proj.weight",
                                                              "time_mix_first.weight",
                                                              "time_mix_w",
                                                              "time_mix_v",
                                                              "time_mix_a",
                                                              "time_mix_g",
                                                              "time_mix_decay_w",
                                                              "time_mix_lerp_fused.weight",
                                                              "attn_rel_b.weight"};
  return shape.size() < 2 || !base::EndsWith(name, "weight") ||
         std::any_of(kSmall.begin(), kSmall.end(), [&](std::string_view part) {
           return name.find(part) != std::string_view::npos;
         });
}

bool Mix::IsValue(std::string_view name) {
  return name.find("attn_v.weight") != std::string_view::npos ||
         name.find("attn_qkv.weight") != std::string_view::npos ||
         name.find("attn_kv_b.weight") != std::string_view::npos;
}

DType Mix::Choose(const MixModel& model, std::string_view name,
                  const std::vector<int64_t>& shape) const {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (Keeps(name, shape)) return DType::kF32;
  if (kind_ == Kind::kPlain) return base_;
  if (has("attn_k_b.") || has("attn_v_b.")) return DType::kF16;  // matrices of heads are held plain
  const int64_t row = shape.back();
  if (kind_ == Kind::kMXFP4) return Fallback(shape.size() == 3 ? base_ : DType::kQ8_0, row);
  int64_t layer = LayerOf(name), layers = std::max<int64_t>(model.layers, 1);
  const std::vector<int64_t>& values = model.value_layers;
  if (IsValue(name) && !values.empty()) {
    layer = std::lower_bound(values.begin(), values.end(), layer) - values.begin();
    layers = static_cast<int64_t>(values.size());
  }
  const bool many = model.heads_per_kv_head >= 4;
  DType type = base_;

  if (name == "output.weight" || (name == "token_embd.weight" && model.tied_embeddings)) {
    if (row % vt::ir::Info(type).block != 0) {
      type = DType::kQ8_0;
    } else if (type != DType::kQ8_0) {
      type = DType::kQ6_K;
    }
  } else if (IsValue(name)) {
    switch (kind_) {
      case Kind::kQ2K:
        type = many ? DType::kQ4_K : DType::kQ3_K;
        break;
      case Kind::kQ2KS:
        if (many) type = DType::kQ4_K;
        break;
      case Kind::kQ3KM:
        type = layer < 2 ? DType::kQ5_K : DType::kQ4_K;
        break;
      case Kind::kQ3KL:
        type = DType::kQ5_K;
        break;
      case Kind::kIQ4:
        if (many) type = DType::kQ5_K;
        break;
      case Kind::kQ4KM:
      case Kind::kQ5KM:
        if (MoreBits(layer, layers)) type = DType::kQ6_K;
        break;
      case Kind::kQ4KS:
        if (layer < 4) type = DType::kQ5_K;
        break;
      default:
        break;
    }
    // 70B models (80 layers): eight heads share each value, so these bits are cheap.
    if (model.layers == 80 && (type == DType::kQ3_K || type == DType::kQ4_K)) type = DType::kQ5_K;
    if (model.experts == 8) type = DType::kQ8_0;  // Mixtral's attention is small beside its experts
  } else if (has("attn_k.weight") && model.experts == 8) {
    type = DType::kQ8_0;
  } else if (has("ffn_down")) {
    switch (kind_) {
      case Kind::kQ2K:
        type = DType::kQ3_K;
        break;
      case Kind::kQ2KS:
        if (layer < layers / 8) type = DType::kQ4_K;
        break;
      case Kind::kQ3KM:
        type = layer < layers / 16 ? DType::kQ5_K : DType::kQ4_K;
        break;
      case Kind::kQ3KL:
        type = DType::kQ5_K;
        break;
      case Kind::kQ4KM:
      case Kind::kQ5KM:
        if (MoreBits(layer, layers)) type = DType::kQ6_K;
        break;
      case Kind::kQ4KS:
      case Kind::kIQ4:
        if (layer < layers / 8) type = DType::kQ5_K;
        break;
      default:
        break;
    }
  } else if (has("attn_output.weight") && model.experts == 8) {
    if (kind_ != Kind::kUniform && kind_ != Kind::kQ2KS && kind_ != Kind::kQ3KL &&
        kind_ != Kind::kQ5KS && kind_ != Kind::kQ5KM && kind_ != Kind::kQ6K)
      type = DType::kQ5_K;
  } else if (has("attn_output.weight")) {
    switch (kind_) {
      case Kind::kQ2K:
        type = DType::kQ3_K;
        break;
      case Kind::kQ3KM:
        type = DType::kQ4_K;
        break;
      case Kind::kQ3KL:
        type = DType::kQ5_K;
        break;
      default:
        break;
    }
  }
  return Fallback(type, row);
}

}  // namespace vllm::weights
