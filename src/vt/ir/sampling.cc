#include "vt/ir/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace vt::ir {
namespace {

struct Candidate {
  float score;
  int32_t id;
  bool operator<(const Candidate& o) const {
    return score != o.score ? score > o.score : id < o.id;
  }
};

// Sorts ever longer prefixes of `all` until the sum of their probabilities reaches p; returns the
// length to keep. `total` is the sum of exp(score - best) over all.
size_t TopPLength(std::vector<Candidate>& all, double p, float best) {
  double total = 0;
  for (const Candidate& c : all) total += std::exp(static_cast<double>(c.score) - best);
  double sum = 0;
  size_t sorted = 0;
  while (sorted < all.size()) {
    const size_t next = std::min(all.size(), std::max<size_t>(256, sorted * 8));
    std::partial_sort(all.begin() + static_cast<long>(sorted),
                      all.begin() + static_cast<long>(next), all.end());
    for (; sorted < next; ++sorted) {
      sum += std::exp(static_cast<double>(all[sorted].score) - best);
      if (sum >= p * total) return sorted + 1;
    }
  }
  return all.size();
}

// Noise of consecutive ids: four come from one Philox call.
class GumbelSource {
 public:
  explicit GumbelSource(const SamplingRow& row) : row_(row) {}
  float At(uint32_t id) {
    if (id / 4 != block_) {
      block_ = id / 4;
      bits_ = Philox({block_, row_.position, row_.choice, 0},
                     {static_cast<uint32_t>(row_.seed), static_cast<uint32_t>(row_.seed >> 32)});
    }
    return -std::log(-std::log(Uniform(bits_[id % 4])));
  }

 private:
  const SamplingRow& row_;
  uint32_t block_ = UINT32_MAX;  // ids are below 2^31, so no block has this number
  std::array<uint32_t, 4> bits_{};
};

}  // namespace

void PackSamplingRow(const SamplingRow& row, float* params) {
  std::fill_n(params, kSampleParamCount, 0.0f);
  params[0] = row.temperature;
  params[1] = row.top_k;
  params[2] = row.top_p;
  params[3] = row.min_p;
  std::memcpy(params + 4, &row.seed, 8);  // little-endian: low word first
  std::memcpy(params + 6, &row.position, 4);
  std::memcpy(params + 7, &row.choice, 4);
}

SamplingRow UnpackSamplingRow(const float* params) {
  SamplingRow row{params[0], params[1], params[2], params[3]};
  std::memcpy(&row.seed, params + 4, 8);
  std::memcpy(&row.position, params + 6, 4);
  std::memcpy(&row.choice, params + 7, 4);
  return row;
}

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;  // the golden ratio
    k[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return c;
}

float Gumbel(uint64_t seed, uint32_t choice, uint32_t position, uint32_t vocabulary_id) {
  const SamplingRow row{.seed = seed, .position = position, .choice = choice};
  return GumbelSource(row).At(vocabulary_id);
}

int32_t ArgMax(const float* values, int64_t count) {
  int32_t best = 0;
  float high = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] > high) {
      high = values[i];
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

int32_t SampleToken(const float* logits, int64_t vocabulary, const SamplingRow& row) {
  const int32_t first = ArgMax(logits, vocabulary);
  // Nothing finite, or infinitely sure: there is nothing to draw from.
  if (!(row.temperature > 0) || !std::isfinite(logits[first])) return first;
  const float inverse = 1 / std::max(row.temperature, 1e-6f);
  const float best = logits[first] * inverse;
  if (!std::isfinite(best)) return first;

  const bool top_k = row.top_k >= 1 && row.top_k < static_cast<float>(vocabulary);
  const bool top_p = row.top_p > 0 && row.top_p < 1;
  const float floor = row.min_p > 0 ? best + std::log(row.min_p) : -INFINITY;
  GumbelSource noise(row);
  Candidate winner{-INFINITY, first};
  const auto consider = [&](int32_t id, float score) {
    if (id != first && !(score >= floor && score > -INFINITY))
      return;  // min-p never drops the best
    const Candidate noised{score + noise.At(static_cast<uint32_t>(id)), id};
    if (noised < winner || winner.score == -INFINITY) winner = noised;
  };
  if (!top_k && !top_p) {
    for (int64_t i = 0; i < vocabulary; ++i) consider(static_cast<int32_t>(i), logits[i] * inverse);
    return winner.id;
  }

  std::vector<Candidate> kept;
  kept.reserve(static_cast<size_t>(vocabulary));
  for (int64_t i = 0; i < vocabulary; ++i) {
    if (logits[i] > -INFINITY) kept.push_back({logits[i] * inverse, static_cast<int32_t>(i)});
  }
  if (top_k && static_cast<size_t>(row.top_k) < kept.size()) {
    const auto k = static_cast<long>(row.top_k);
    std::nth_element(kept.begin(), kept.begin() + k - 1, kept.end());
    kept.resize(static_cast<size_t>(k));
  }
  if (top_p) kept.resize(TopPLength(kept, row.top_p, best));
  for (const Candidate& c : kept) consider(c.id, c.score);
  return winner.id;
}

}  // namespace vt::ir
