// Which experts a token goes to, and the sum of what they gave.
#pragma once

#include <cfloat>

#include "vt/cpu/kernels.h"
#include "vt/cpu/row_kernels.h"

namespace vt::cpu {
namespace {

constexpr float kNever = -__builtin_inff();  // the rank of what is not to be chosen

// Its index, ties to the lower one; what is taken (by now) has the rank NaN.
inline int64_t TakeBest(float* ranks, int64_t n) {
  vf best = Splat(kNever);
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) best = Max(Load(ranks + i), best);
  float m = MaxLane(best);
  for (; i < n; ++i) m = ranks[i] > m ? ranks[i] : m;
  for (i = 0; i < n && ranks[i] != m; ++i) {
  }
  if (i < n) ranks[i] = __builtin_nanf("");
  return i;
}

// Softmax over all experts, or sigmoid. A logit that is no number has the score 0 and spoils no
// other's. False: a softmax over nothing finite, whose scores are all 0.
inline bool Scores(const RouterArgs& a, const float* logits, float* scores) {
  const int64_t n = a.experts;
  if (a.sigmoid || a.root) {
    ActivateRow(a.root ? Activate::kSoftplus : Activate::kSigmoid, logits, n, scores);
    for (int64_t i = 0; i < n; ++i) {
      if (a.root) scores[i] = __builtin_sqrtf(scores[i]);
      if (logits[i] != logits[i]) scores[i] = 0;
    }
    return true;
  }
  vf m = Splat(kNever);
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) m = Max(Load(logits + i), m);
  if (i < n) m = Max(LoadTail(logits + i, n - i, kNever), m);
  const float max = MaxLane(m);
  if (!(max > kNever && max < -kNever)) {
    for (i = 0; i < n; ++i) scores[i] = 0;
    return false;
  }
  vf sums = {};
  Map(logits, n, scores, [&](vf x) {
    const vf y = Exp(x - max);
    return x == x ? y : vf{};
  });
  for (i = 0; i + kNr <= n; i += kNr) sums += Load(scores + i);
  if (i < n) sums += LoadTail(scores + i, n - i);
  const float inverse = 1.0f / Sum(sums);
  Map(scores, n, scores, [=](vf x) { return x * inverse; });
  return true;
}

// Only the best groups stay, by the sum of their two best or by the best; a tie goes to the lower
// group.
inline void KeepGroups(const RouterArgs& a, float* ranks, float* groups) {
  const int64_t size = a.experts / a.groups;
  for (int64_t g = 0; g < a.groups; ++g) {
    float first = kNever, second = kNever;
    for (int64_t i = 0; i < size; ++i) {
      const float r = ranks[g * size + i];
      if (r > first) {
        second = first;
        first = r;
      } else if (r > second) {
        second = r;
      }
    }
    groups[g] = a.group_max ? first : first + second;
  }
  for (int64_t i = 0; i < a.top_groups; ++i) TakeBest(groups, a.groups);
  for (int64_t g = 0; g < a.groups; ++g) {
    if (groups[g] != groups[g]) continue;  // taken
    for (int64_t i = 0; i < size; ++i) ranks[g * size + i] = kNever;
  }
}

void RouteToken(const RouterArgs& a, const float* logits, const float* chosen, float* weights,
                int32_t* ids, float* scratch) {
  float *scores = scratch, *ranks = scores + a.experts, *groups = ranks + a.experts;
  const bool scored = Scores(a, logits, scores);
  // Scores grow with the logits, which are what is exact: two logits may round to one score.
  const bool by_logits = scored && a.bias == nullptr && a.groups <= 1;
  for (int64_t e = 0; e < a.experts; ++e) {
    float rank = scores[e] + (a.bias != nullptr ? a.bias[e] : 0);
    if (by_logits) rank = logits[e] < -FLT_MAX ? -FLT_MAX : logits[e];  // above what is no number
    ranks[e] = rank == rank && (!scored || logits[e] == logits[e]) ? rank : kNever;
  }
  if (a.groups > 1) KeepGroups(a, ranks, groups);
  float sum = 0;
  for (int64_t j = 0; j < a.top_k; ++j) {
    int64_t e = chosen != nullptr ? static_cast<int64_t>(chosen[j]) : TakeBest(ranks, a.experts);
    if (chosen != nullptr) e = e < 0 ? 0 : e < a.experts ? e : a.experts - 1;
    ids[j] = static_cast<int32_t>(e);
    weights[j] = scores[e];
    sum += scores[e];
  }
  const float factor = !a.normalise ? a.scale : sum > 0 ? a.scale / sum : 0;
  for (int64_t j = 0; j < a.top_k; ++j)
    weights[j] *= factor * (a.scales != nullptr ? a.scales[ids[j]] : 1);
}

void WeightedSum(const float* x, int64_t stride, const float* weights, int64_t count, int64_t n,
                 float* y) {
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) {
    vf sum = {};
    for (int64_t j = 0; j < count; ++j) sum += Load(x + j * stride + i) * weights[j];
    Store(y + i, sum);
  }
  for (; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < count; ++j) sum += x[j * stride + i] * weights[j];
    y[i] = sum;
  }
}

void AddScaled(const float* x, float factor, int64_t n, float* y) {
  Map2(x, y, n, y, [=](vf a, vf b) { return a * factor + b; });
}

}  // namespace
}  // namespace vt::cpu
