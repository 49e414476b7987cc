#include "vllm/models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/json.h"
#include "base/strings.h"

namespace vllm::models {
namespace {

using std::numbers::pi;

// Llama 3.1 (Meta's reference): long wavelengths are divided by the factor, short ones kept,
// between them a linear blend.
double Llama3Frequency(const weights::Rope& r, double frequency) {
  const double original = static_cast<double>(r.original_max_position_embeddings);
  const double wavelength = 2 * pi / frequency;
  if (wavelength < original / r.high_freq_factor) return frequency;
  if (wavelength >= original / r.low_freq_factor) return frequency / r.factor;
  const double smooth =
      (original / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - smooth) * frequency / r.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071), section 3.2: which pair turns `rotations` times over the original
// context.
double YarnPair(double rotations, double dim, double theta, double original) {
  return dim * std::log(original / (rotations * 2 * pi)) / (2 * std::log(theta));
}

// The attention factor of YaRN: 0.1 m ln(s) + 1.
double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// The attention factor of LongRoPE (arXiv 2402.13753).
double LongRopeMagnitude(double factor, double original) {
  return std::sqrt(1 + std::log(factor) / std::log(original));
}

}  // namespace

base::Result<vt::ir::RopeAttrs> MakeRope(const weights::Rope& r, int64_t head_dim,
                                         int64_t max_model_len, bool interleaved) {
  vt::ir::RopeAttrs attrs;
  attrs.interleaved = interleaved;
  attrs.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * r.partial_rotary_factor);
  attrs.rotary_dim -= attrs.rotary_dim % 2;
  // Proportional: pairs are those of the whole head, of which the first ones turn.
  const int64_t turning = attrs.rotary_dim / 2;
  if (r.type == "proportional") attrs.rotary_dim = head_dim;
  const auto dim = static_cast<double>(attrs.rotary_dim);
  const auto original = static_cast<double>(r.original_max_position_embeddings);

  double theta = r.theta;
  if (r.type == "dynamic") {
    const double length = std::max<double>(static_cast<double>(max_model_len), original);
    theta *= std::pow(r.factor * length / original - (r.factor - 1), dim / (dim - 2));
  }
  double low = 0, high = 1;
  if (r.type == "yarn") {
    low = YarnPair(r.beta_fast, dim, theta, original);
    high = YarnPair(r.beta_slow, dim, theta, original);
    if (r.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
    if (r.attention_factor > 0) {
      attrs.magnitude = static_cast<float>(r.attention_factor);
    } else if (r.mscale > 0 && r.mscale_all_dim > 0) {
      attrs.magnitude = static_cast<float>(YarnMagnitude(r.factor, r.mscale) /
                                           YarnMagnitude(r.factor, r.mscale_all_dim));
    } else {
      attrs.magnitude = static_cast<float>(YarnMagnitude(r.factor, 1));
    }
  } else if (r.type == "longrope") {
    attrs.magnitude = static_cast<float>(r.attention_factor > 0 ? r.attention_factor
                                         : r.factor <= 1        ? 1
                                                         : LongRopeMagnitude(r.factor, original));
    if (r.short_factor.size() != static_cast<size_t>(attrs.rotary_dim / 2) ||
        r.long_factor.size() != r.short_factor.size()) {
      return base::Error{base::Code::kCorrupt,
                         fmt::format("short_factor and long_factor of longrope need {} numbers",
                                     attrs.rotary_dim / 2)};
    }
  } else if (r.type != "default" && r.type != "linear" && r.type != "dynamic" &&
             r.type != "llama3" && r.type != "proportional") {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("rope type '{}' is not implemented", base::Printable(r.type))};
  }

  for (int64_t i = 0; i < attrs.rotary_dim / 2; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
    if (r.type == "linear" || r.type == "proportional") f /= r.factor;
    if (i >= turning) f = 0;
    if (r.type == "longrope") {
      const bool beyond = static_cast<double>(max_model_len) > original;
      f /= (beyond ? r.long_factor : r.short_factor)[static_cast<size_t>(i)];
    }
    if (r.type == "llama3") f = Llama3Frequency(r, f);
    if (r.type == "yarn") {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      f = f / r.factor * ramp + f * (1 - ramp);
    }
    if (!r.frequency_factors.empty()) {
      if (attrs.rotary_dim / 2 != static_cast<int64_t>(r.frequency_factors.size())) {
        return base::Error{base::Code::kCorrupt,
                           fmt::format("tensor 'rope_freqs.weight' has {} numbers for {} pairs",
                                       r.frequency_factors.size(), attrs.rotary_dim / 2)};
      }
      f /= r.frequency_factors[static_cast<size_t>(i)];
    }
    attrs.frequencies.push_back(static_cast<float>(f));
  }
  return attrs;
}

void SkipEvery(int64_t interval, weights::Config& c) {
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    c.unrotated_layers.push_back((i + 1) % interval == 0);
}

base::Status ReadUnrotated(const boost::json::object& o, weights::Config& c) {
  const boost::json::value* list = o.if_contains("no_rope_layers");
  if (list == nullptr || list->is_null()) {
    SkipEvery(c.IntOption("no_rope_layer_interval"), c);
    return {};
  }
  const boost::json::array* values = list->if_array();
  if (values == nullptr || static_cast<int64_t>(values->size()) != c.num_hidden_layers)
    return base::Error{base::Code::kCorrupt, "field 'no_rope_layers' must list every layer"};
  for (const boost::json::value& v : *values) {
    if (v != 0 && v != 1)
      return base::Error{base::Code::kCorrupt, "field 'no_rope_layers' must hold 0 and 1 alone"};
    c.unrotated_layers.push_back(v == 0);
  }
  return {};
}

}  // namespace vllm::models
