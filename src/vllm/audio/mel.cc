#include "vllm/audio/mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "vllm/audio/sound.h"

namespace vllm::audio {
namespace {

constexpr int kWindow = 400, kBins = kWindow / 2 + 1;  // of the Fourier transform

// Slaney's scale: linear to 1 kHz, then logarithmic.
constexpr double kMelHz = 200.0 / 3, kKnee = 1000, kKneeMel = kKnee / kMelHz;
double MelStep() { return std::log(6.4) / 27; }
double MelOf(double hz) {
  return hz < kKnee ? hz / kMelHz : kKneeMel + std::log(hz / kKnee) / MelStep();
}
double HzOf(double mel) {
  return mel < kKneeMel ? mel * kMelHz : kKnee * std::exp((mel - kKneeMel) * MelStep());
}

// A triangle over some neighbouring bins.
struct Filter {
  int first = 0;
  std::vector<double> weights;
};

std::vector<Filter> MakeFilters(int64_t count) {
  std::vector<double> hz;
  const double top = MelOf(kRate / 2.0);
  for (int64_t i = 0; i < count + 2; ++i)
    hz.push_back(HzOf(top * static_cast<double>(i) / static_cast<double>(count + 1)));
  std::vector<Filter> filters;
  for (size_t m = 0; m < static_cast<size_t>(count); ++m) {
    Filter& f = filters.emplace_back();
    for (int k = 0; k < kBins; ++k) {
      const double at = k * (kRate / 2.0) / (kBins - 1);
      const double weight =
          std::min((at - hz[m]) / (hz[m + 1] - hz[m]), (hz[m + 2] - at) / (hz[m + 2] - hz[m + 1]));
      if (weight <= 0) continue;
      if (f.weights.empty()) f.first = k;
      f.weights.push_back(weight * 2 / (hz[m + 2] - hz[m]));
    }
  }
  return filters;
}

// |DFT|^2 of 400 real numbers at the bins from 0 to 200. x[n] and x[400 - n] meet the same cosine
// and opposite sines, so half of the products are enough.
class PowerSpectrum {
 public:
  PowerSpectrum() : cos_(kHalf * kBins), sin_(kHalf * kBins) {
    for (int n = 0; n < kHalf; ++n) {
      for (int k = 0; k < kBins; ++k) {
        const double angle = 2 * std::numbers::pi * (n * k % kWindow) / kWindow;
        cos_[static_cast<size_t>(n * kBins + k)] = std::cos(angle);
        sin_[static_cast<size_t>(n * kBins + k)] = std::sin(angle);
      }
    }
  }
  void operator()(const std::array<double, kWindow>& x, std::array<double, kBins>& power) const {
    std::array<double, kBins> re, im{};
    for (int k = 0; k < kBins; ++k) re[k] = x[0] + (k % 2 == 0 ? x[kHalf] : -x[kHalf]);
    for (int n = 1; n < kHalf; ++n) {
      const double sum = x[n] + x[kWindow - n], difference = x[n] - x[kWindow - n];
      const double *c = &cos_[static_cast<size_t>(n * kBins)],
                   *s = &sin_[static_cast<size_t>(n * kBins)];
      for (int k = 0; k < kBins; ++k) {
        re[k] += sum * c[k];
        im[k] += difference * s[k];
      }
    }
    for (int k = 0; k < kBins; ++k) power[k] = re[k] * re[k] + im[k] * im[k];
  }

 private:
  static constexpr int kHalf = kWindow / 2;
  std::vector<double> cos_, sin_;
};

}  // namespace

std::vector<float> LogMel(std::span<const float> samples, int64_t bins, int64_t piece) {
  static const PowerSpectrum spectrum;
  const std::vector<Filter> filters = MakeFilters(bins);
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t unit = piece * kHop, length = (count + unit - 1) / unit * unit,
                frames = length / kHop;
  // Windows stand around their frame's first sample; before the first and behind the last sample
  // the sound is mirrored.
  const auto at = [&](int64_t i) {
    i = i < 0 ? -i : i >= length ? 2 * (length - 1) - i : i;
    return i < count ? double{samples[static_cast<size_t>(i)]} : 0.0;
  };
  std::array<double, kWindow> window, x;
  for (int n = 0; n < kWindow; ++n)
    window[n] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / kWindow);
  std::vector<float> out(static_cast<size_t>(frames * bins));
  std::array<double, kBins> power;
  float loudest = -10;
  float* to = out.data();
  for (int64_t f = 0; f < frames; ++f) {
    const int64_t begin = f * kHop - kWindow / 2;
    if (begin >= count && begin + kWindow <= length) {  // silence
      to = std::fill_n(to, bins, -10.0f);
      continue;
    }
    for (int n = 0; n < kWindow; ++n) x[n] = at(begin + n) * window[n];
    spectrum(x, power);
    for (const Filter& filter : filters) {
      double sum = 0;
      for (size_t i = 0; i < filter.weights.size(); ++i)
        sum += filter.weights[i] * power[static_cast<size_t>(filter.first) + i];
      *to = static_cast<float>(std::log10(std::max(sum, 1e-10)));
      loudest = std::max(loudest, *to++);
    }
  }
  for (float& v : out) v = (std::max(v, loudest - 8) + 4) / 4;
  return out;
}

}  // namespace vllm::audio
