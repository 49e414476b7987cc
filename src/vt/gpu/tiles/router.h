// The choice of experts by their scores.
#pragma once

#include "vt/gpu/args_router.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

// Better: larger, then of the lower index. NaN counts as -infinity does.
struct Choice {
  float value;
  int index;
};
GPU_FN bool Better(const Choice& a, const Choice& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

GPU_FN float Lowest() { return -::gpu::float_of(0x7f800000); }
GPU_FN float NumberOf(float v) { return v == v ? v : Lowest(); }

// sqrt(softplus(v)). Small e^v by the series of log(1 + e), which keeps its digits.
GPU_FN float RootScore(float v) {
  const float e = ::gpu::exp(v);
  const float small = e * (1 - e * (0.5f - e * (0.333333333f - e * 0.25f)));
  return ::gpu::sqrt(v > 20 ? v : e < 0.02f ? small : ::gpu::log(1 + e));
}
// Of scores that do not depend on the other logits.
GPU_FN float ScoreOf(const RouterArgs& a, float logit) {
  return a.root != 0 ? RootScore(logit) : 1 / (1 + ::gpu::exp(-logit));
}
GPU_FN float ExpertScale(const RouterArgs& a, int e) {
  return a.scales != nullptr && e < a.experts ? a.scales[e] : 1.0f;
}

// Scores of a softmax go as their logits do.
GPU_FN bool RanksByLogit(const RouterArgs& a) {
  return a.sigmoid == 0 && a.root == 0 && a.bias == nullptr;
}

// Up to kLane ranks a lane in registers, lane l has those of l, l + kWave, ..; as integers of the
// same order, of which 0 is one that has been taken. Straight code without branches: what waits for
// it is everything.
template <int kLane>
struct HeldRanks {
  uint32_t v[kLane];

  GPU_FN static int At(int i) { return i * ::gpu::kWave + ::gpu::lane(); }
  // rank(i, At(i)), of experts that are.
  template <class F>
  GPU_FN void Set(F rank, int experts) {
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      const uint32_t bits = At(i) < experts ? ::gpu::bits_of(rank(i, At(i)) + 0.0f) : ~0u;
      v[i] = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    }
  }
  // The index of the largest, the lowest of equal ones; `none` without any.
  GPU_FN int Take(int none) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kLane; ++i) most = v[i] > most ? v[i] : most;
    most = ::gpu::wave_max(most);
    int first = none;
#pragma unroll
    for (int i = kLane - 1; i >= 0; --i)
      if (most != 0 && v[i] == most) first = At(i);
    first = static_cast<int>(~::gpu::wave_max(~static_cast<uint32_t>(first)));
#pragma unroll
    for (int i = 0; i < kLane; ++i)
      if (At(i) == first) v[i] = 0;
    return first;
  }
};

// By a wave: the choices of the token and their weights.
template <int kLane>
GPU_FN void ChooseOf(const RouterArgs& a, const float* logits, int token) {
  using Held = HeldRanks<kLane>;
  // All of them are under way before the first is there.
  float scores[kLane], bias[kLane];
#pragma unroll
  for (int i = 0; i < kLane; ++i) {
    const int e = ::gpu::min(Held::At(i), a.experts - 1);
    scores[i] = ::gpu::load_volatile(logits + e);
    bias[i] = a.bias != nullptr ? a.bias[e] : 0;
  }
  const auto live = [&](int i) { return Held::At(i) < a.experts; };
  const bool by_logit = RanksByLogit(a);
  float ranks[kLane];
#pragma unroll
  for (int i = 0; i < kLane; ++i) ranks[i] = NumberOf(scores[i]);
  if (a.sigmoid == 0 && a.root == 0) {
    float high = Lowest(), sum = 0;
#pragma unroll
    for (int i = 0; i < kLane; ++i)
      if (live(i)) high = ::gpu::max(high, NumberOf(scores[i]));
    high = ::gpu::wave_max(high);
    // No logit to go by: all scores are 0.
    const bool finite = high > Lowest() && high < -Lowest();
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      scores[i] = finite ? ::gpu::exp(scores[i] - high) : 0;
      if (live(i) && scores[i] == scores[i]) sum += scores[i];
    }
    sum = ::gpu::wave_sum(sum);
    if (!finite) sum = 1;
#pragma unroll
    for (int i = 0; i < kLane; ++i) scores[i] /= sum;
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i) scores[i] = ScoreOf(a, scores[i]);
  }
  Held held;
  held.Set([&](int i, int) { return by_logit ? ranks[i] : NumberOf(scores[i] + bias[i]); },
           a.experts);

  int mine = 0;  // lane j's choice is the j-th
  float weight = 0, sum = 0;
#pragma unroll 1
  for (int j = 0; j < a.chosen; ++j) {
    const int e = held.Take(a.experts);
    float score = 0;
#pragma unroll
    for (int i = 0; i < kLane; ++i)
      if (Held::At(i) == e && live(i)) score = scores[i];
    score = ::gpu::shuffle(score, e % ::gpu::kWave);
    if (!(score == score)) score = 0;
    sum += score;
    if (::gpu::lane() == j) {
      mine = e;
      weight = score;
    }
  }
  if (::gpu::lane() < a.chosen) {
    const float by = a.normalise == 0 ? a.scale : sum > 0 ? a.scale / sum : 0;
    a.ids[token * a.chosen + ::gpu::lane()] = mine;
    a.weights[token * a.chosen + ::gpu::lane()] = weight * by * ExpertScale(a, mine);
  }
}
// Where in_lanes, of at most kMost experts a lane. The fewer registers, the sooner.
template <int kMost = kRouterLane>
GPU_FN void ChooseInLanes(const RouterArgs& a, const float* logits, int token) {
  if (a.experts <= 4 * ::gpu::kWave) return ChooseOf<4>(a, logits, token);
  if (kMost == 8 || a.experts <= 8 * ::gpu::kWave) return ChooseOf<8>(a, logits, token);
  ChooseOf<kMost>(a, logits, token);
}

// The j-th expert of the token alone, by a wave.
template <int kLane>
GPU_FN int FindOf(const RouterArgs& a, const float* logits, int j) {
  using Held = HeldRanks<kLane>;
  float ranks[kLane];
  const auto expert = [&](int i) { return ::gpu::min(Held::At(i), a.experts - 1); };
#pragma unroll
  for (int i = 0; i < kLane; ++i) ranks[i] = ::gpu::load_volatile(logits + expert(i));
  if (!RanksByLogit(a)) {
    float bias[kLane] = {};
    if (a.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kLane; ++i) bias[i] = a.bias[expert(i)];
    }
    // A loop over registers, whose values move on: what is rare is short.
#pragma unroll 1
    for (int n = 0; n < kLane; ++n) {
      const float rank = ScoreOf(a, ranks[0]) + bias[0];
#pragma unroll
      for (int i = 1; i < kLane; ++i) {
        ranks[i - 1] = ranks[i];
        bias[i - 1] = bias[i];
      }
      ranks[kLane - 1] = rank;
    }
  }
  Held held;
  held.Set([&](int i, int) { return NumberOf(ranks[i]); }, a.experts);
  int e = a.experts;
#pragma unroll 1
  for (int i = 0; i <= j; ++i) e = held.Take(a.experts);
  return e;
}

// By a block, all of whose threads get the j-th expert of the token. `room`: of shared memory.
GPU_FN int ChooseHere(const RouterHere& here, int token, int j, int* room) {
  if (::gpu::wave() == 0) {
    const RouterArgs& a = here.router;
    const float* logits = here.logits + token * a.experts;
    const int e = a.experts <= 4 * ::gpu::kWave ? FindOf<4>(a, logits, j)
                                                : FindOf<kRouterUpLane>(a, logits, j);
    if (::gpu::lane() == 0) *room = e;
  }
  ::gpu::sync();
  return *room;
}

// A wave; scores and ranks of all experts in `room`, lane l has experts l, l + kWave, ..
class RouterTile {
 public:
  GPU_FN RouterTile(const RouterArgs& args, float* room)
      : a_(args), scores_(room), ranks_(scores_ + args.experts), groups_(ranks_ + args.experts) {}

  GPU_FN void Run(int token, const float* logits) {
    Score(logits);
    ::gpu::sync_wave();
    if (a_.groups > 1) KeepBestGroups();
    Choose(token);
  }

 private:
  template <class F>
  GPU_FN void ForMine(F f) const {
    for (int e = ::gpu::lane(); e < a_.experts; e += ::gpu::kWave) f(e);
  }
  GPU_FN void Score(const float* logits) {
    float high = Lowest(), sum = 0;
    if (a_.sigmoid == 0 && a_.root == 0) {
      ForMine([&](int e) { high = ::gpu::max(high, NumberOf(logits[e])); });
      high = ::gpu::wave_max(high);
      // No logit to go by: all scores are 0.
      const bool finite = high > Lowest() && high < -Lowest();
      ForMine([&](int e) {
        const float s = finite ? ::gpu::exp(logits[e] - high) : 0;
        scores_[e] = s;
        if (s == s) sum += s;
      });
      sum = ::gpu::wave_sum(sum);
      if (!finite) sum = 1;
    }
    ForMine([&](int e) {
      const float s = a_.root != 0 || a_.sigmoid != 0 ? ScoreOf(a_, logits[e]) : scores_[e] / sum;
      scores_[e] = s;
      ranks_[e] = NumberOf(a_.bias != nullptr ? s + a_.bias[e] : s);
    });
  }

  // A lane a group: its two best, then how many groups are better.
  GPU_FN void KeepBestGroups() {
    const int size = a_.experts / a_.groups;
    for (int g = ::gpu::lane(); g < a_.groups; g += ::gpu::kWave) {
      float first = Lowest(), second = Lowest();
      for (int e = g * size; e < (g + 1) * size; ++e) {
        const float v = ranks_[e];
        second = ::gpu::max(second, ::gpu::min(first, v));
        first = ::gpu::max(first, v);
      }
      groups_[g] = NumberOf(a_.group_max != 0 ? first : first + second);
    }
    ::gpu::sync_wave();
    ForMine([&](int e) {
      const Choice mine = {groups_[e / size], e / size};
      int better = 0;
      for (int g = 0; g < a_.groups; ++g) better += Better({groups_[g], g}, mine) ? 1 : 0;
      if (better >= a_.top_groups) ranks_[e] = Lowest();
    });
    ::gpu::sync_wave();
  }

  // The best of those that come after the last one.
  GPU_FN Choice After(const Choice& last) const {
    Choice best = {Lowest(), a_.experts};
    ForMine([&](int e) {
      const Choice c = {ranks_[e], e};
      if (Better(last, c) && Better(c, best)) best = c;
    });
#pragma unroll
    for (int m = ::gpu::kWave / 2; m > 0; m /= 2) {
      const Choice other = {::gpu::shuffle_xor(best.value, m), ::gpu::shuffle_xor(best.index, m)};
      if (Better(other, best)) best = other;
    }
    return best;
  }

  GPU_FN void Choose(int token) {
    Choice last = {-Lowest(), -1};
    float sum = 0, weight = 0, scale = 1;  // lane j has the weight and scale of choice j
    HeldRanks<kRouterLane> held;
    held.Set([&](int, int e) { return ranks_[::gpu::min(e, a_.experts - 1)]; }, a_.experts);
    for (int j = 0; j < a_.chosen; ++j) {
      Choice best =
          a_.experts <= kRouterLane * ::gpu::kWave ? Choice{0, held.Take(a_.experts)} : After(last);
      if (a_.table != nullptr) {
        const float e = a_.table[static_cast<int64_t>(a_.tokens[token]) * a_.chosen + j];
        best.index = ::gpu::max(0, ::gpu::min(static_cast<int>(e), a_.experts - 1));
      }
      last = best;
      const float score = best.index < a_.experts ? scores_[best.index] : 0;
      const float w = score == score ? score : 0;
      sum += w;
      if (::gpu::lane() == j % ::gpu::kWave) {
        a_.ids[token * a_.chosen + j] = best.index;
        weight = w;
        if (a_.normalise == 0)
          a_.weights[token * a_.chosen + j] = w * a_.scale * ExpertScale(a_, best.index);
        if (j < ::gpu::kWave) scale = ExpertScale(a_, best.index);
      }
    }
    if (a_.normalise == 0) return;
    const float by = sum > 0 ? a_.scale / sum : 0;
    if (a_.chosen <= ::gpu::kWave) {
      if (::gpu::lane() < a_.chosen)
        a_.weights[token * a_.chosen + ::gpu::lane()] = weight * by * scale;
      return;
    }
    ::gpu::sync_wave();
    for (int j = ::gpu::lane(); j < a_.chosen; j += ::gpu::kWave) {
      const int e = a_.ids[token * a_.chosen + j];
      const float score = scores_[e];
      a_.weights[token * a_.chosen + j] = (score == score ? score : 0) * by * ExpertScale(a_, e);
    }
  }

  const RouterArgs& a_;
  float *scores_, *ranks_, *groups_;
};

}  // namespace vt::gpu
