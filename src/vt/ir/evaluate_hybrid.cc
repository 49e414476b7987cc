#include "vt/ir/evaluate_hybrid.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "base/strings.h"

namespace vt::ir {
namespace {

using Tensors = base::Result<std::vector<Tensor>>;

size_t Size(const Tensor& t, size_t dim) { return static_cast<size_t>(t.shape[dim].At({})); }
base::Error Bad(const std::string& what) { return {base::Code::kInvalidArgument, what}; }

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// What a score counts when experts are compared.
double Rank(double score) {
  return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
}

std::vector<double> Scores(const RouterAttrs& a, std::span<const float> logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (a.sigmoid || a.root) {
    for (double& s : scores) s = a.root ? std::sqrt(Softplus(s)) : Sigmoid(s);
    return scores;
  }
  double high = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double s : scores) high = std::max(high, Rank(s));
  if (!std::isfinite(high)) return std::vector<double>(scores.size(), 0);  // nothing to go by
  for (double& s : scores) sum += std::isnan(s) ? 0 : (s = std::exp(s - high));
  for (double& s : scores) s /= sum;
  return scores;
}

// Indices of the `count` largest, in falling order, ties to the lower index.
std::vector<size_t> Largest(std::span<const double> values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return Rank(values[i]) > Rank(values[j]); });
  order.resize(count);
  return order;
}

// Experts outside the best groups are no longer to be chosen.
void KeepBestGroups(const RouterAttrs& a, std::vector<double>& ranks) {
  if (a.groups <= 1) return;
  const size_t size = ranks.size() / static_cast<size_t>(a.groups);
  std::vector<double> groups;
  for (size_t g = 0; g < static_cast<size_t>(a.groups); ++g) {
    const std::span<const double> group(&ranks[g * size], size);
    const std::vector<size_t> two = Largest(group, 2);
    groups.push_back(Rank(group[two[0]]) + (a.group_max ? 0 : Rank(group[two[1]])));
  }
  const std::vector<size_t> best = Largest(groups, static_cast<size_t>(a.top_groups));
  for (size_t g = 0; g < groups.size(); ++g) {
    if (std::find(best.begin(), best.end(), g) != best.end()) continue;
    std::fill_n(ranks.begin() + static_cast<long>(g * size), size,
                -std::numeric_limits<double>::infinity());
  }
}

// The rows of each request, and the slots it is read from and written to.
struct Pieces {
  const Tensor &starts, &reads, &writes;
  size_t count() const { return reads.i.size(); }
};

// f(rows [begin, end) of the step, the state before them) for each request; the state after them is
// kept. `begin` and `size`: which of the slot's floats f sees.
void ForEachRequest(const Pieces& p, size_t tokens, KvState& state, size_t begin, size_t size,
                    const std::function<void(size_t, size_t, float*)>& f) {
  std::map<int32_t, std::vector<float>> written;
  for (size_t r = 0; r < p.count(); ++r) {
    std::vector<float> s(size);
    if (const auto found = state.recurrent.find(p.reads.i[r]); found != state.recurrent.end()) {
      for (size_t i = 0; i < size && begin + i < found->second.size(); ++i)
        s[i] = found->second[begin + i];
    }
    const auto first = static_cast<size_t>(p.starts.i[r]);
    f(first, std::max(first, std::min(static_cast<size_t>(p.starts.i[r + 1]), tokens)), s.data());
    if (p.writes.i[r] >= 0) written[p.writes.i[r]] = std::move(s);
  }
  for (const auto& [slot, floats] : written) {  // after all were read
    std::vector<float>& kept = state.recurrent[slot];
    kept.resize(std::max(kept.size(), begin + size));
    std::copy(floats.begin(), floats.end(), kept.begin() + static_cast<long>(begin));
  }
}

void L2Normalise(std::vector<double>& x, double eps, double factor) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v *= factor / std::sqrt(squares + eps);
}

}  // namespace

Tensors RouteExperts(const RouterAttrs& a, const std::vector<const Tensor*>& in, bool hashed) {
  const Tensor& logits = *in[0];
  const Tensor *bias = a.bias ? in[1] : nullptr, *scales = a.expert_scales ? in.back() : nullptr;
  const size_t tokens = Size(logits, 0), experts = Size(logits, 1);
  const Shape shape = {Dim(static_cast<int64_t>(tokens)), Dim(a.top_k)};
  Tensor weights{.shape = shape, .f = {}, .i = {}}, ids{.shape = shape, .f = {}, .i = {}};
  for (size_t t = 0; t < tokens; ++t) {
    const std::vector<double> scores = Scores(a, {&logits.f[t * experts], experts});
    std::vector<double> ranks = scores;
    for (size_t e = 0; e < experts && bias != nullptr; ++e) ranks[e] += bias->f[e];
    KeepBestGroups(a, ranks);
    double sum = 0;
    std::vector<size_t> chosen = Largest(ranks, static_cast<size_t>(a.top_k));
    for (size_t i = 0; hashed && i < chosen.size(); ++i) {
      const size_t at = static_cast<size_t>(in[2]->i[t]) * chosen.size() + i;
      if (at >= in[1]->f.size() || in[1]->f[at] < 0 || in[1]->f[at] >= static_cast<float>(experts))
        return Bad("a token's row of the table has experts that are not there");
      chosen[i] = static_cast<size_t>(in[1]->f[at]);
    }
    for (const size_t e : chosen) sum += std::isnan(scores[e]) ? 0 : scores[e];
    for (const size_t e : chosen) {
      double w = std::isnan(scores[e]) ? 0 : scores[e];
      if (a.normalise) w = sum > 0 ? w / sum : 0;
      weights.f.push_back(static_cast<float>(w * a.scale * (scales != nullptr ? scales->f[e] : 1)));
      ids.i.push_back(static_cast<int32_t>(e));
    }
  }
  return std::vector<Tensor>{std::move(weights), std::move(ids)};
}

Tensors GroupedLinear(const GroupedLinearAttrs& a, const std::vector<const Tensor*>& in) {
  const Tensor &x = *in[0], &ids = *in[1];
  const size_t tokens = Size(ids, 0), chosen = Size(ids, 1), k = Size(x, x.shape.size() - 1);
  const bool shared = x.shape.size() == 2;  // all choices of a token read the same row
  size_t n = 0;
  for (int s = 0; s < a.segments; ++s) n += Size(*in[static_cast<size_t>(2 + s)], 1);
  Tensor y{.shape = {ids.shape[0], ids.shape[1], Dim(static_cast<int64_t>(n))}, .f = {}, .i = {}};
  y.f.reserve(tokens * chosen * n);
  for (size_t row = 0; row < tokens * chosen; ++row) {
    const float* p = &x.f[(shared ? row / chosen : row) * k];
    for (int s = 0; s < a.segments; ++s) {
      const Tensor& w = *in[static_cast<size_t>(2 + s)];
      const size_t experts = Size(w, 0), rows = Size(w, 1);
      if (ids.i[row] < 0) {
        y.f.insert(y.f.end(), rows, 0.0f);
        continue;
      }
      if (static_cast<size_t>(ids.i[row]) >= experts)
        return Bad(fmt::format("expert {} is not below {}", ids.i[row], experts));
      const float* matrix = &w.f[static_cast<size_t>(ids.i[row]) * rows * k];
      for (size_t o = 0; o < rows; ++o) {
        double sum = 0;
        for (size_t i = 0; i < k; ++i) sum += static_cast<double>(p[i]) * matrix[o * k + i];
        y.f.push_back(static_cast<float>(sum));
      }
    }
  }
  return std::vector<Tensor>{std::move(y)};
}

Tensor HeadLinear(const Tensor& x, const Tensor& w) {
  const size_t tokens = Size(x, 0), heads = Size(x, 1), k = Size(x, 2), n = Size(w, 1);
  Tensor y{.shape = {x.shape[0], x.shape[1], w.shape[1]}, .f = {}, .i = {}};
  y.f.reserve(tokens * heads * n);
  for (size_t row = 0; row < tokens * heads; ++row) {
    const float *p = &x.f[row * k], *matrix = &w.f[row % heads * n * k];
    for (size_t o = 0; o < n; ++o) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(p[i]) * matrix[o * k + i];
      y.f.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

Tensor ExpertSum(const Tensor& y, const Tensor& weights) {
  const size_t tokens = Size(y, 0), chosen = Size(y, 1), n = Size(y, 2);
  Tensor out{.shape = {y.shape[0], y.shape[2]}, .f = std::vector<float>(tokens * n), .i = {}};
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = 0; j < chosen; ++j) {
        sum += static_cast<double>(weights.f[t * chosen + j]) * y.f[(t * chosen + j) * n + i];
      }
      out.f[t * n + i] = static_cast<float>(sum);
    }
  }
  return out;
}

Tensors CausalConv(const ConvAttrs& a, const std::vector<const Tensor*>& in, KvState& state) {
  const Tensor &x = *in[0], &w = *in[1];
  const auto channels = static_cast<size_t>(a.channels), width = static_cast<size_t>(a.width);
  Tensor y{.shape = x.shape, .f = std::vector<float>(x.f.size()), .i = {}};
  const Pieces pieces{*in[3], *in[4], *in[5]};
  ForEachRequest(
      pieces, Size(x, 0), state, 0, (width - 1) * channels,
      [&](size_t begin, size_t end, float* rows) {
        // The rows that each tap sees: those kept from before, then the step's.
        std::vector<float> seen(rows, rows + (width - 1) * channels);
        seen.insert(seen.end(), x.f.begin() + static_cast<long>(begin * channels),
                    x.f.begin() + static_cast<long>(end * channels));
        for (size_t t = begin; t < end; ++t) {
          for (size_t c = 0; c < channels; ++c) {
            double sum = 0;
            for (size_t j = 0; j < width; ++j)
              sum += static_cast<double>(w.f[c * width + j]) * seen[(t - begin + j) * channels + c];
            y.f[t * channels + c] = static_cast<float>(sum);
          }
        }
        std::copy(seen.end() - static_cast<long>((width - 1) * channels), seen.end(), rows);
      });
  return std::vector<Tensor>{std::move(y), Tensor{}};
}

Tensors GatedDelta(const DeltaAttrs& a, const std::vector<const Tensor*>& in, KvState& state) {
  const Tensor &qkv = *in[0], &decay = *in[1], &beta = *in[2], &big_a = *in[3], &dt = *in[4];
  const auto heads = static_cast<size_t>(a.v_heads), key_heads = static_cast<size_t>(a.k_heads);
  const auto dk = static_cast<size_t>(a.k_dim), dv = static_cast<size_t>(a.v_dim);
  const size_t tokens = Size(qkv, 0), row = static_cast<size_t>(a.channels());
  Tensor y{.shape = {qkv.shape[0], Dim(a.v_heads), Dim(a.v_dim)},
           .f = std::vector<float>(tokens * heads * dv),
           .i = {}};
  const auto step = [&](size_t t, size_t h, float* s) {
    const size_t kh = a.tiled ? h % key_heads : h / (heads / key_heads);
    const float* x = &qkv.f[t * row];
    std::vector<double> q(x + kh * dk, x + (kh + 1) * dk);
    std::vector<double> k(x + (key_heads + kh) * dk, x + (key_heads + kh + 1) * dk);
    const float* v = x + 2 * key_heads * dk + h * dv;
    L2Normalise(q, a.eps, 1 / std::sqrt(static_cast<double>(dk)));
    L2Normalise(k, a.eps, 1);
    const double rate = a.log_a ? -std::exp(static_cast<double>(big_a.f[h])) : big_a.f[h];
    const double keep = std::exp(rate * Softplus(static_cast<double>(decay.f[t * heads + h]) +
                                                 static_cast<double>(dt.f[h])));
    const double write = Sigmoid(beta.f[t * heads + h]);
    for (size_t j = 0; j < dv; ++j) {
      double known = 0, out = 0;
      for (size_t i = 0; i < dk; ++i) known += k[i] * (s[i * dv + j] * keep);
      const double delta = write * (v[j] - known);
      for (size_t i = 0; i < dk; ++i) {
        const double next = s[i * dv + j] * keep + k[i] * delta;
        s[i * dv + j] = static_cast<float>(next);
        out += q[i] * next;
      }
      y.f[(t * heads + h) * dv + j] = static_cast<float>(out);
    }
  };
  const Pieces pieces{*in[6], *in[7], *in[8]};
  ForEachRequest(pieces, tokens, state, static_cast<size_t>(a.state_begin), heads * dk * dv,
                 [&](size_t begin, size_t end, float* s) {
                   for (size_t t = begin; t < end; ++t) {
                     for (size_t h = 0; h < heads; ++h) step(t, h, s + h * dk * dv);
                   }
                 });
  return std::vector<Tensor>{std::move(y), Tensor{}};
}

}  // namespace vt::ir
