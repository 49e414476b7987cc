#include "vt/ir/quant_fit.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "vt/ir/quant_blocks.h"

namespace vt::ir {
namespace {

constexpr int kLanes = 8;  // sums side by side, which compilers turn into vectors

float Total(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float x : lanes) sum += x;
  return sum;
}

// What decides how good codes q are for values x with weights w: with the best scale xq / qq the
// error is the sum of w x^2 less xq^2 / qq.
struct Projection {
  float xq = 0, qq = 0;
  float scale() const { return xq / qq; }
  bool Beats(const Projection& other) const {
    return qq > 0 && (other.qq <= 0 || xq * xq * other.qq > other.xq * other.xq * qq);
  }
};

// Values over their extreme, so that no sum of third powers leaves the range of a float.
struct Relative {
  Relative(const float* x, int n) : extreme(Extreme(x, n)) {
    for (int i = 0; i < n && extreme != 0; ++i) values[i] = x[i] / extreme;
  }
  float extreme;
  float values[32];
};

// Of the codes of x * inverse.
Projection Project(const float* x, int n, float inverse, float lo, float hi) {
  float xq[kLanes] = {}, qq[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float v = x[i + j], q = CodeOf(v * inverse, lo, hi), wq = v * v * q;
      xq[j] += wq * v;
      qq[j] += wq * q;
    }
  }
  return {Total(xq), Total(qq)};
}

// The table of IQ4 codes by the floor of twice the value: all middles between neighbours are
// multiples of a half, so this is exact.
constexpr int kTableBase = 254, kTableSize = 2 * (127 + 113) + 1;
constexpr std::array<uint8_t, kTableSize> IQ4Codes() {
  std::array<uint8_t, kTableSize> table{};
  for (int twice = -kTableBase; twice <= 226; ++twice) {
    int code = 0;
    while (code < 15 && twice >= kIQ4Values[code] + kIQ4Values[code + 1]) ++code;
    table[static_cast<size_t>(twice + kTableBase)] = static_cast<uint8_t>(code);
  }
  return table;
}
constexpr std::array<uint8_t, kTableSize> kIQ4Codes = IQ4Codes();

}  // namespace

float Extreme(const float* x, int n) {
  float m = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(m)) m = x[i];
  }
  return m;
}

float FitScale(const float* x, int n, int lo, int hi) {
  const Relative r(x, n);
  if (r.extreme == 0) return 0;
  const auto low = static_cast<float>(lo), high = static_cast<float>(hi);
  Projection best;
  for (int step = -9; step <= 9; ++step) {
    const Projection trial = Project(r.values, n, low + 0.1f * static_cast<float>(step), low, high);
    if (trial.Beats(best)) best = trial;
  }
  return best.qq > 0 ? best.scale() * r.extreme : r.extreme / low;
}

float FitCodes(const float* values, int n, int lo, int hi) {
  const Relative r(values, n);
  if (r.extreme == 0) return 0;
  const float* x = r.values;
  const auto low = static_cast<float>(lo), high = static_cast<float>(hi);
  float codes[32];
  Projection now;
  for (int i = 0; i < n; ++i) {
    const float q = codes[i] = CodeOf(x[i] * low, low, high), w = x[i] * x[i];
    now.xq += w * x[i] * q;
    now.qq += w * q * q;
  }
  bool moved = true;
  for (int round = 0; round < 5 && moved; ++round) {
    moved = false;
    for (int i = 0; i < n; ++i) {
      const float w = x[i] * x[i], q = codes[i];
      // Without this value the others want the scale rest.xq / rest.qq; its code is what that makes
      // of it.
      const Projection rest{now.xq - w * x[i] * q, now.qq - w * q * q};
      if (rest.xq == 0) continue;
      const float other = CodeOf(x[i] * rest.qq / rest.xq, low, high);
      if (other == q) continue;
      const Projection trial{rest.xq + w * x[i] * other, rest.qq + w * other * other};
      if (!trial.Beats(now)) continue;
      now = trial;
      codes[i] = other;
      moved = true;
    }
  }
  return now.qq > 0 ? now.scale() * r.extreme : r.extreme / low;
}

Affine FitAffine(const float* x, const float* weights, int n, const AffineSearch& search) {
  const float *const least = std::min_element(x, x + n), *const most = std::max_element(x, x + n);
  float lo = std::min(*least, 0.0f);  // of the trial; from the best fit so far
  if (!(*most > lo)) return {0, -lo};
  const auto top = static_cast<float>(search.top);
  float w[kLanes] = {}, wx[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      w[j] += weights[i + j];
      wx[j] += weights[i + j] * x[i + j];
    }
  }
  const float sum_w = Total(w), sum_x = Total(wx);

  float codes[32];
  const auto round = [&](float spanned) {
    const float inverse = spanned / (*most - lo);
    for (int i = 0; i < n; ++i) codes[i] = CodeOf((x[i] - lo) * inverse, 0, top);
  };
  const auto error = [&](const Affine& fit) {
    float sum[kLanes] = {};
    for (int i = 0; i < n; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        const float e = fit.scale * codes[i + j] - fit.min - x[i + j];
        sum[j] += weights[i + j] * (search.absolute ? std::fabs(e) : e * e);
      }
    }
    return Total(sum);
  };

  Affine best{(*most - lo) / top, -lo};
  round(top);
  float best_error = error(best);
  for (int t = 0; t < search.trials; ++t) {
    round(top + search.first + 0.1f * static_cast<float>(t));
    float q[kLanes] = {}, qq[kLanes] = {}, xq[kLanes] = {};
    for (int i = 0; i < n; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        const float wq = weights[i + j] * codes[i + j];
        q[j] += wq;
        qq[j] += wq * codes[i + j];
        xq[j] += wq * x[i + j];
      }
    }
    const float sum_q = Total(q), sum_qq = Total(qq), sum_xq = Total(xq);
    const float determinant = sum_w * sum_qq - sum_q * sum_q;
    if (!(determinant > 0)) continue;
    Affine fit{(sum_w * sum_xq - sum_x * sum_q) / determinant,
               -(sum_qq * sum_x - sum_q * sum_xq) / determinant};
    if (fit.min < 0) fit = {sum_xq / sum_qq, 0};
    if (!(fit.scale > 0)) continue;
    const float e = error(fit);
    if (e < best_error) {
      best_error = e;
      best = fit;
      lo = -fit.min;
    }
  }
  return best;
}

int NearestIQ4(float x) {
  const float inside = x > -127 ? std::min(x, 113.0f) : -127.0f;
  return kIQ4Codes[static_cast<size_t>(2 * inside + kTableBase)];
}

float FitIQ4(const float* values) {
  const Relative r(values, 32);
  if (r.extreme == 0) return 0;
  const float* x = r.values;
  Projection best;
  // The extreme value sits near the long end of the table; the short one is worth one trial, since
  // scales of both signs share a superblock's worse.
  for (int step = -7; step <= 8; ++step) {
    const float inverse = step == 8 ? 127.0f : -127.0f + static_cast<float>(step);
    Projection trial;
    for (int j = 0; j < 32; ++j) {
      const auto q = static_cast<float>(kIQ4Values[NearestIQ4(x[j] * inverse)]);
      const float wq = x[j] * x[j] * q;
      trial.xq += wq * x[j];
      trial.qq += wq * q;
    }
    if (trial.Beats(best)) best = trial;
  }
  return best.qq > 0 ? best.scale() * r.extreme : 0;
}

}  // namespace vt::ir
