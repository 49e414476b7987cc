#include "vt/cpu/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace vt::cpu {
namespace {

using ir::SamplerLayout;
using ir::SamplingRow;

constexpr double kSlack = 1e-6;       // as the reference's
constexpr float kMostNoise = 16.64f;  // -log(-log(1 - 2^-24)) is 16.6355
constexpr float kStepsANat = 8;       // of bits_needed_

bool ChangesLogits(const SamplingRow& r) {
  return r.use_mask || r.bias_words > 0 || r.bad_word_words > 0 ||
         (r.repetition_penalty > 0 && r.repetition_penalty != 1) || r.presence_penalty != 0 ||
         r.frequency_penalty != 0 || r.dry_multiplier != 0;
}

// The smallest float that is not below x.
float AtLeast(double x) {
  const auto f = static_cast<float>(x);
  return static_cast<double>(f) < x ? std::nextafter(f, INFINITY) : f;
}

// When nothing is left: the best logit that the mask allows, the lowest id of equals.
int32_t BestAllowed(const float* logits, int64_t vocabulary, const SamplingRow& row,
                    const int32_t* slot, const SamplerLayout& layout) {
  const int32_t* mask = slot != nullptr && row.use_mask ? slot + layout.mask_offset() : nullptr;
  int32_t best = -1;
  for (int64_t id = 0; id < vocabulary; ++id) {
    if (mask != nullptr && (std::bit_cast<uint32_t>(mask[id / 32]) >> (id % 32) & 1) == 0) continue;
    const float high = best < 0 || std::isnan(logits[best]) ? -INFINITY : logits[best];
    if (best < 0 || logits[id] > high) best = static_cast<int32_t>(id);
  }
  return std::max(best, 0);
}

// What noise can add at most. Where scores are so large that their own rounding reaches what is
// left of it, nothing is skipped.
float MostNoise(float best) { return std::fabs(best) < 16384 ? kMostNoise : INFINITY; }

float NoiseOf(uint32_t bits) { return -std::log(-std::log(ir::Uniform(bits))); }

// Keeps the best of `all` until their weights sum up to `wanted`, and at least one; false when all
// together do not. Sorts little: it looks for the bucket of keys in which the sum is reached, again
// and again, until that is small.
template <typename T>
bool KeepPrefix(std::vector<T>& all, double wanted) {
  constexpr int kBuckets = 256;
  size_t low = 0, high = all.size();
  double sum = 0;  // of [0, low), which is kept; what is behind `high` is not
  const auto at = [&](size_t i) { return all.begin() + static_cast<long>(i); };
  while (high - low > 64) {
    double best = all[low].key(), worst = best;
    for (size_t i = low; i < high; ++i) {
      best = std::max(best, all[i].key());
      worst = std::min(worst, all[i].key());
    }
    const double scale = kBuckets / (best - worst);
    if (!std::isfinite(scale)) {  // one key: by id
      const size_t middle = (low + high) / 2;
      std::nth_element(at(low), at(middle), at(high));
      double mass = 0;
      for (size_t i = low; i < middle; ++i) mass += all[i].mass();
      (sum + mass >= wanted ? high : low) = middle;
      if (low == middle) sum += mass;
      continue;
    }
    const auto bucket = [&](const T& t) {
      return std::min(kBuckets - 1, static_cast<int>((best - t.key()) * scale));
    };
    double masses[kBuckets] = {};
    for (size_t i = low; i < high; ++i) masses[bucket(all[i])] += all[i].mass();
    int reached = 0;
    while (reached < kBuckets - 1 && sum + masses[reached] < wanted) sum += masses[reached++];
    const auto first =
        std::partition(at(low), at(high), [&](const T& t) { return bucket(t) < reached; });
    const auto end =
        std::partition(first, at(high), [&](const T& t) { return bucket(t) == reached; });
    low = static_cast<size_t>(first - all.begin());
    high = static_cast<size_t>(end - all.begin());
  }
  std::sort(at(low), at(high));
  bool reached = high < all.size();
  for (; low < high; ++low) {
    sum += all[low].mass();
    if (sum < wanted) continue;
    high = low + 1;
    reached = true;
    break;
  }
  all.resize(std::max<size_t>(high, 1));
  return reached;
}

}  // namespace

Sampler::Sampler() {
  // Noise above g needs a uniform number above exp(-exp(-g)), of which 23 bits are drawn.
  for (int i = 0; i <= static_cast<int>(kMostNoise * kStepsANat) + 1; ++i) {
    const double u = std::exp(-std::exp(-static_cast<double>(i) / kStepsANat));
    bits_needed_.push_back(static_cast<uint32_t>(std::max(0.0, u * 8388608 - 1)));
  }
}

float Sampler::BoundOf(int64_t count) {
  if (count > static_cast<int64_t>(maxima_.size())) return -INFINITY;
  sorted_ = maxima_;
  std::nth_element(sorted_.begin(), sorted_.begin() + count - 1, sorted_.end(),
                   [](float a, float b) { return a > b; });
  return sorted_[static_cast<size_t>(count - 1)];
}

// Candidates of at least `floor`, and the best in any case.
void Sampler::Gather(const Draw& d, float floor) {
  kept_.clear();
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (!(maxima_[b] * d.inverse >= floor)) continue;
    const int64_t begin = static_cast<int64_t>(b) * kBlock, end = std::min(d.n, begin + kBlock);
    for (int64_t i = begin; i < end; ++i) {
      const float score = d.x[i] * d.inverse;
      if (score >= floor && score > -INFINITY)
        kept_.push_back({score, static_cast<int32_t>(i), std::exp(score - d.best)});
    }
  }
}

void Sampler::KeepTopK(const Draw& d) {
  if (d.row.top_k >= static_cast<float>(kept_.size())) return;
  const auto k = static_cast<long>(d.row.top_k);
  std::nth_element(kept_.begin(), kept_.begin() + k - 1, kept_.end());
  kept_.resize(static_cast<size_t>(k));
}

double Sampler::Mass() const {
  double sum = 0;
  for (const Candidate& c : kept_) sum += static_cast<double>(c.weight);
  return sum;
}

// In doubles, like the reference.
void Sampler::KeepTypical(const Draw& d) {
  double total = 0, surprise = 0;  // sums of e^s and of e^s s
  for (const Candidate& c : kept_) {
    const double s = static_cast<double>(c.score) - static_cast<double>(d.best), e = std::exp(s);
    total += e;
    surprise -= e * s;
  }
  const double logarithm = std::log(total), entropy = surprise / total + logarithm;
  std::vector<Surprise> all;
  all.reserve(kept_.size());
  for (const Candidate& c : kept_) {
    const double s = static_cast<double>(c.score) - static_cast<double>(d.best);
    all.push_back({c, -std::fabs(logarithm - s - entropy), std::exp(s)});
  }
  KeepPrefix(all, (static_cast<double>(d.row.typical_p) - kSlack) * total);
  kept_.clear();
  for (const Surprise& s : all) kept_.push_back(s.candidate);
}

bool Sampler::KeepTopP(double p, double total) { return KeepPrefix(kept_, (p - kSlack) * total); }

// Looks at the best few first: most often they have the mass. `low` is safe: all below it together
// are less than what top-p drops.
void Sampler::KeepTopPOfAll(const Draw& d) {
  const double total = d.kernels.sum_of_exp(d.x, d.n, d.inverse, d.best, d.floor);
  const double p = d.row.top_p;
  const auto low =
      static_cast<float>(d.best + std::log((1 - p) * total / static_cast<double>(d.n)) - 1e-3);
  const float last = std::max(d.floor, std::min(low, d.best));
  for (float reach = 3;; reach *= 2) {
    const float floor = std::max(last, d.best - reach);
    Gather(d, floor);
    const bool light = floor > last && Mass() < p * total;
    if (!light && (KeepTopP(p, total) || floor == last)) return;
  }
}

void Sampler::ExcludeTopChoices(Draw& d, double total) {
  const double wanted = (static_cast<double>(d.row.xtc_threshold) - kSlack) * total;
  const auto above = std::partition(kept_.begin(), kept_.end(),
                                    [&](const Candidate& c) { return c.mass() >= wanted; });
  if (above - kept_.begin() < 2) return;
  const Candidate least = *std::max_element(kept_.begin(), above);
  kept_.erase(kept_.begin(), above);
  kept_.push_back(least);
  d.ceiling = least.score;
  d.from = least.id;
}

int32_t Sampler::DrawCandidate(const Draw& d) const {
  const float most_noise = MostNoise(d.best);
  int32_t winner = d.first;
  float most = -INFINITY;
  for (const Candidate& c : kept_) {
    if (c.score + most_noise < most) continue;
    const float noised =
        c.score + ir::Gumbel(d.row.seed, d.row.choice, d.row.position, static_cast<uint32_t>(c.id));
    if (noised > most || (noised == most && c.id < winner)) {
      most = noised;
      winner = c.id;
    }
  }
  return winner;
}

// From everything of at least the floor. The best's block comes first, so that most others are seen
// to be too far behind: noise of at least the distance between the leader and the block's maximum
// is needed to win, and few random numbers are so large.
int32_t Sampler::DrawAll(const Draw& d) {
  const float most_noise = MostNoise(d.best);
  int32_t winner = d.first;
  float most = -INFINITY;
  BlockBits bits;
  const auto visit = [&](int64_t block) {
    const float high = maxima_[static_cast<size_t>(block)] * d.inverse;
    if (!(high >= d.floor) || high == -INFINITY || high + most_noise < most) return;
    d.kernels.random(static_cast<uint32_t>(block) * (kBlock / 4), d.row.position, d.row.choice,
                     d.row.seed, bits);
    // One step less than the distance: rounding must not decide.
    const float behind = (most - high) * kStepsANat - 1;
    const uint32_t needed =
        behind >= 0 && most_noise < INFINITY
            ? bits_needed_[std::min(static_cast<size_t>(behind), bits_needed_.size() - 1)]
            : 0;
    const int64_t begin = block * kBlock, count = std::min(d.n - begin, kBlock);
    for (int lane = 0; lane < 4; ++lane) {
      const uint32_t(&word)[16] = bits.word[lane];
      int any = 0;
      for (int g = 0; g < 16; ++g)
        any |= static_cast<int>(word[g] >> 9) >= static_cast<int>(needed) ? 1 : 0;
      if (any == 0) continue;
      for (int g = 0; g < 16; ++g) {
        const int64_t i = 4 * g + lane;
        if (i >= count || word[g] >> 9 < needed) continue;
        const float score = d.x[begin + i] * d.inverse;
        if (!d.Keeps(score, static_cast<int32_t>(begin + i)) || score == -INFINITY ||
            score + most_noise < most)
          continue;
        const float noised = score + NoiseOf(word[g]);
        const auto id = static_cast<int32_t>(begin + i);
        if (noised > most || (noised == most && id < winner)) {
          most = noised;
          winner = id;
        }
      }
    }
  };
  const int64_t blocks = static_cast<int64_t>(maxima_.size()), best = d.first / kBlock;
  visit(best);
  for (int64_t b = 0; b < blocks; ++b) {
    if (b != best) visit(b);
  }
  return winner;
}

int32_t Sampler::Choose(const KernelSet& kernels, const float* logits, int64_t vocabulary,
                        const SamplingRow& row, const int32_t* slot, const SamplerLayout& layout) {
  if (row.forced >= 0) return row.forced;
  if (row.slot < 0) slot = nullptr;
  const float* x = logits;
  if (slot != nullptr && ChangesLogits(row)) {
    Process(logits, vocabulary, row, slot, layout);
    x = work_.data();
  }
  const int32_t first = kernels.argmax(x, vocabulary);
  if (!(x[first] > -INFINITY)) return BestAllowed(logits, vocabulary, row, slot, layout);
  if (!(row.temperature > 0) || x[first] == INFINITY) return first;
  const float inverse = ir::InverseTemperature(row), best = x[first] * inverse;
  if (!std::isfinite(best)) return first;

  double floor = -INFINITY;
  if (row.top_n_sigma > 0) {
    const Moments m = kernels.vocabulary.moments(x, vocabulary, inverse, best);
    const double mean = m.sum / m.count;
    const double deviation = std::sqrt(std::max(0.0, m.squares / m.count - mean * mean));
    floor = best - row.top_n_sigma * deviation - kSlack;
  }
  if (row.min_p > 0)
    floor = std::max(floor, best + std::log(static_cast<double>(row.min_p)) - kSlack);
  constexpr int32_t kAnyId = std::numeric_limits<int32_t>::max();
  Draw d{kernels.vocabulary,
         x,
         vocabulary,
         row,
         inverse,
         best,
         first,
         std::min(AtLeast(floor), best),
         kAnyId};

  maxima_.resize(static_cast<size_t>((vocabulary + kBlock - 1) / kBlock));
  kernels.vocabulary.block_maxima(x, vocabulary, maxima_.data());
  const bool top_k = row.top_k >= 1 && row.top_k < static_cast<float>(vocabulary);
  const bool typical = row.typical_p > 0 && row.typical_p < 1;
  const bool top_p = row.top_p > 0 && row.top_p < 1;
  const bool xtc = row.xtc_probability > 0 && row.xtc_threshold <= 0.5f &&
                   ir::Coin(row.seed, row.choice, row.position) < row.xtc_probability;
  if (!top_k && !typical && !top_p && !xtc) return DrawAll(d);

  if (!top_k && !typical && !top_p) {  // XTC alone: only the top choices are looked at
    const double total = d.kernels.sum_of_exp(x, vocabulary, inverse, best, d.floor);
    const double least = best + std::log(std::max(1e-30, (row.xtc_threshold - kSlack) * total));
    Gather(d, std::clamp(static_cast<float>(least - 1e-3), d.floor, best));
    ExcludeTopChoices(d, total);
    return DrawAll(d);
  }
  if (top_p && !top_k && !typical) {
    KeepTopPOfAll(d);
  } else {
    Gather(d,
           top_k ? std::max(d.floor, BoundOf(static_cast<int64_t>(row.top_k)) * inverse) : d.floor);
    if (top_k) KeepTopK(d);
    if (typical) KeepTypical(d);
    if (top_p) KeepTopP(row.top_p, Mass());
  }
  if (xtc) ExcludeTopChoices(d, Mass());
  // Many that follow one another in their order: its ends say which.
  constexpr size_t kMany = 512;
  if (kept_.size() > kMany && !typical) {
    const Candidate& worst = *std::max_element(kept_.begin(), kept_.end());
    d.floor = worst.score;
    d.last = worst.id;
    return DrawAll(d);
  }
  return DrawCandidate(d);
}

void Sampler::TopLogprobs(const KernelSet& kernels, const float* logits, int64_t vocabulary,
                          const SamplingRow& row, int32_t token, float* values, int32_t* ids) {
  if (row.logprobs < 0) return;
  const float high = logits[kernels.argmax(logits, vocabulary)];
  const int64_t wanted = std::min<int64_t>({row.logprobs, int64_t{ir::kBestTokens}, vocabulary});
  maxima_.resize(static_cast<size_t>((vocabulary + kBlock - 1) / kBlock));
  kernels.vocabulary.block_maxima(logits, vocabulary, maxima_.data());
  const float bound = wanted > 0 ? BoundOf(wanted) : high;
  // Infinities and too few numbers: the reference's rules, at its speed. So are vocabularies of a
  // few blocks, which are quick anyway.
  if (!std::isfinite(high) || !(logits[token] > -INFINITY) || bound == -INFINITY)
    return ir::TopLogprobs(logits, vocabulary, row, token, values, ids);
  const double logarithm =
      std::log(kernels.vocabulary.sum_of_exp(logits, vocabulary, 1, high, -INFINITY));
  const auto logprob = [&](float x) {
    return static_cast<float>(static_cast<double>(x) - high - logarithm);
  };
  const float value = logits[token];
  const int64_t equal = std::count(logits, logits + token, value);
  values[0] = logprob(value);
  values[1] =
      static_cast<float>(1 + kernels.vocabulary.count_above(logits, vocabulary, value) + equal);
  kept_.clear();
  for (size_t b = 0; wanted > 0 && b < maxima_.size(); ++b) {
    if (!(maxima_[b] >= bound)) continue;
    const int64_t begin = static_cast<int64_t>(b) * kBlock;
    for (int64_t i = begin; i < std::min(vocabulary, begin + kBlock); ++i) {
      if (logits[i] >= bound) kept_.push_back({logits[i], static_cast<int32_t>(i), 0});
    }
  }
  std::partial_sort(kept_.begin(), kept_.begin() + wanted, kept_.end());
  for (int64_t i = 0; i < ir::kBestTokens; ++i) {
    values[2 + i] = i < wanted ? logprob(kept_[static_cast<size_t>(i)].score) : -INFINITY;
    ids[i] = i < wanted ? kept_[static_cast<size_t>(i)].id : -1;
  }
}

}  // namespace vt::cpu
