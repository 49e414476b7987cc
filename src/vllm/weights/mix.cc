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
};

std::span<const Mix::Entry> Mix::Table() {
  static constexpr std::array<Entry, 23> kTable = {{
      {"Q2_K_S", Kind::kQ2KS, DType::kQ2_K},  {"Q2_K", Kind::kQ2K, DType::kQ2_K},
      {"Q3_K_S", Kind::kQ3KS, DType::kQ3_K},  {"Q3_K_M", Kind::kQ3KM, DType::kQ3_K},
      {"Q3_K", Kind::kQ3KM, DType::kQ3_K},    {"Q3_K_L", Kind::kQ3KL, DType::kQ3_K},
      {"IQ4_XS", Kind::kIQ4, DType::kIQ4_XS}, {"IQ4_NL", Kind::kIQ4, DType::kIQ4_NL},
      {"Q4_0", Kind::kUniform, DType::kQ4_0}, {"Q4_K_S", Kind::kQ4KS, DType::kQ4_K},
      {"Q4_K_M", Kind::kQ4KM, DType::kQ4_K},  {"Q4_K", Kind::kQ4KM, DType::kQ4_K},
      {"Q4_1", Kind::kUniform, DType::kQ4_1}, {"Q5_0", Kind::kUniform, DType::kQ5_0},
      {"Q5_K_S", Kind::kQ5KS, DType::kQ5_K},  {"Q5_K_M", Kind::kQ5KM, DType::kQ5_K},
      {"Q5_K", Kind::kQ5KM, DType::kQ5_K},    {"Q5_1", Kind::kUniform, DType::kQ5_1},
      {"Q6_K", Kind::kQ6K, DType::kQ6_K},     {"Q8_0", Kind::kUniform, DType::kQ8_0},
      {"F16", Kind::kPlain, DType::kF16},     {"BF16", Kind::kPlain, DType::kBF16},
      {"F32", Kind::kPlain, DType::kF32},
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
    return mix;
  }
  return base::Error{base::Code::kInvalidArgument,
                     fmt::format("quantization '{}' is unknown; these are known: {}",
                                 base::Printable(name), fmt::join(Names(), ", "))};
}

DType Mix::Choose(const MixModel& model, std::string_view name,
                  const std::vector<int64_t>& shape) const {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  // Vectors and norms stay as they are: f32.
  if (shape.size() < 2 || !base::EndsWith(name, "weight") || has("_norm.weight"))
    return DType::kF32;
  // What chooses experts, and the small convolution, stay too.
  if (has("ffn_gate_inp") || has("ssm_conv1d")) return DType::kF32;
  if (kind_ == Kind::kPlain) return base_;
  const int64_t row = shape.back(), layer = LayerOf(name),
                layers = std::max<int64_t>(model.layers, 1);
  const bool many = model.heads_per_kv_head >= 4;
  const bool eight = model.experts == 8;  // Mixtral 8x7B: attention is cheap beside the experts
  DType type = base_;

  if (name == "output.weight" || (name == "token_embd.weight" && model.tied_embeddings)) {
    if (row % vt::ir::Info(type).block != 0) {
      type = DType::kQ8_0;
    } else if (type != DType::kQ8_0) {
      type = DType::kQ6_K;
    }
  } else if (has("attn_v.weight") || has("attn_qkv.weight")) {
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
    if (layers == 80 && (type == DType::kQ3_K || type == DType::kQ4_K)) type = DType::kQ5_K;
    if (eight) type = DType::kQ8_0;
  } else if (has("attn_k.weight")) {
    if (eight) type = DType::kQ8_0;
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
  } else if (has("attn_output.weight") && eight) {
    switch (kind_) {
      case Kind::kQ2K:
      case Kind::kQ3KS:
      case Kind::kQ3KM:
      case Kind::kQ4KS:
      case Kind::kQ4KM:
      case Kind::kIQ4:
        type = DType::kQ5_K;
        break;
      default:
        break;
    }
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
