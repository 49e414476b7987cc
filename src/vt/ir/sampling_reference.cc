// The sampler's meaning in plain code: one function a step, in the order of sampling.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "vt/ir/sampling.h"

namespace vt::ir {
namespace {

constexpr double kSlack = 1e-6;

// A row's words of the state.
class Slot {
 public:
  Slot(const SamplingRow& row, const int32_t* words, const SamplerLayout& layout)
      : row_(row), words_(words), layout_(layout) {}

  std::span<const int32_t> history() const {
    return {words_ + SamplerLayout::history_offset(), static_cast<size_t>(row_.length)};
  }
  std::span<const int32_t> output() const {
    return history().subspan(static_cast<size_t>(std::min(row_.prompt_length, row_.length)));
  }
  bool Allowed(int64_t id) const {
    return !row_.use_mask || HasBit(words_ + layout_.mask_offset(), id, layout_.vocabulary);
  }
  bool Breaks(int64_t id) const {
    return row_.use_breakers && HasBit(words_ + layout_.breakers_offset(), id, layout_.vocabulary);
  }
  std::span<const int32_t> bias() const { return List(0, row_.bias_words); }
  std::span<const int32_t> bad_words() const { return List(row_.bias_words, row_.bad_word_words); }

 private:
  std::span<const int32_t> List(int32_t begin, int32_t count) const {
    return {words_ + layout_.lists_offset() + begin, static_cast<size_t>(count)};
  }
  const SamplingRow& row_;
  const int32_t* words_;
  const SamplerLayout& layout_;
};

float& At(std::vector<float>& x, int32_t id) { return x[static_cast<size_t>(id)]; }

void AddBias(std::vector<float>& x, const Slot& slot, const SamplingRow& row) {
  const std::span<const int32_t> list = slot.bias();
  for (size_t i = 0; i + 2 < list.size(); i += 3) {
    if (row.position < static_cast<uint32_t>(list[i + 2])) {
      At(x, list[i]) += std::bit_cast<float>(list[i + 1]);
    }
  }
}

void BanWords(std::vector<float>& x, const Slot& slot) {
  const std::span<const int32_t> list = slot.bad_words(), history = slot.history();
  for (size_t i = 0; i < list.size(); i += 1 + static_cast<size_t>(list[i])) {
    const auto word = list.subspan(i + 1, static_cast<size_t>(list[i]));
    const auto before = word.first(word.size() - 1);
    if (before.size() <= history.size() &&
        std::equal(before.begin(), before.end(), history.end() - static_cast<long>(before.size())))
      At(x, word.back()) = -INFINITY;
  }
}

void Penalise(std::vector<float>& x, const Slot& slot, const SamplingRow& row) {
  if (row.repetition_penalty > 0 && row.repetition_penalty != 1) {
    const auto history = slot.history();
    for (const int32_t id : std::set<int32_t>(history.begin(), history.end())) {
      float& v = At(x, id);
      v = v > 0 ? v / row.repetition_penalty : v * row.repetition_penalty;
    }
  }
  if (row.frequency_penalty == 0 && row.presence_penalty == 0) return;
  std::map<int32_t, int32_t> counts;
  for (const int32_t id : slot.output()) ++counts[id];
  for (const auto& [id, count] : counts) {
    At(x, id) -= row.frequency_penalty * static_cast<float>(count) + row.presence_penalty;
  }
}

void Dry(std::vector<float>& x, const Slot& slot, const SamplingRow& row) {
  if (row.dry_multiplier == 0 || row.dry_base < 1 || row.dry_last_n == 0) return;
  std::span<const int32_t> window = slot.history();
  if (row.dry_last_n > 0 && window.size() > static_cast<size_t>(row.dry_last_n))
    window = window.last(static_cast<size_t>(row.dry_last_n));
  std::map<int32_t, int32_t> longest;  // by the id that would continue the repeat
  const auto n = static_cast<int64_t>(window.size());
  const auto token = [&](int64_t i) { return window[static_cast<size_t>(i)]; };
  for (int64_t end = 0; end + 1 < n; ++end) {
    int32_t length = 0;
    while (length <= end && token(end - length) == token(n - 1 - length) &&
           !slot.Breaks(token(n - 1 - length)))
      ++length;
    if (length < std::max(row.dry_allowed_length, 1)) continue;
    const int32_t next = token(end + 1);
    if (!slot.Breaks(next)) longest[next] = std::max(longest[next], length);
  }
  for (const auto& [id, length] : longest) {
    At(x, id) -= DryPenalty(row, length);
  }
}

struct Candidate {
  int32_t id;
  double score;
  double p = 0;
};
using Candidates = std::vector<Candidate>;  // by falling score, then id

// p of all: their softmax.
void Normalise(Candidates& all) {
  double high = -INFINITY, sum = 0;
  for (const Candidate& c : all) high = std::max(high, c.score);
  for (Candidate& c : all) sum += c.p = std::exp(c.score - high);
  for (Candidate& c : all) c.p /= sum;
}

// How many of `all`, in this order, have a sum of p.
size_t PrefixOf(const Candidates& all, double p) {
  double sum = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    sum += all[i].p;
    if (sum >= p - kSlack) return i + 1;
  }
  return all.size();
}

void KeepSigma(Candidates& all, double n) {
  double sum = 0, squares = 0;
  for (const Candidate& c : all) sum += c.score;
  const double mean = sum / static_cast<double>(all.size());
  for (const Candidate& c : all) squares += (c.score - mean) * (c.score - mean);
  const double floor =
      all[0].score - n * std::sqrt(squares / static_cast<double>(all.size())) - kSlack;
  std::erase_if(all, [&](const Candidate& c) { return c.score < floor; });
}

void KeepTypical(Candidates& all, double p) {
  Normalise(all);
  double entropy = 0;
  for (const Candidate& c : all) {
    if (c.p > 0) entropy -= c.p * std::log(c.p);
  }
  const auto distance = [&](const Candidate& c) { return std::fabs(-std::log(c.p) - entropy); };
  std::stable_sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
    return distance(a) < distance(b);
  });
  all.resize(PrefixOf(all, p));
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  });
}

void ExcludeTopChoices(Candidates& all, const SamplingRow& row) {
  if (!(row.xtc_probability > 0) || row.xtc_threshold > 0.5f) return;
  if (Coin(row.seed, row.choice, row.position) >= row.xtc_probability) return;
  Normalise(all);
  size_t above = 0;
  while (above < all.size() && all[above].p >= row.xtc_threshold - kSlack) ++above;
  if (above > 1) all.erase(all.begin(), all.begin() + static_cast<long>(above) - 1);
}

}  // namespace

std::vector<float> ProcessLogits(const float* logits, int64_t vocabulary, const SamplingRow& row,
                                 const int32_t* words, const SamplerLayout& layout) {
  std::vector<float> x(logits, logits + vocabulary);
  for (float& v : x) v = std::isnan(v) ? -INFINITY : v;
  if (words == nullptr || row.slot < 0) return x;
  const Slot slot(row, words, layout);
  for (int64_t id = 0; id < vocabulary; ++id) {
    if (!slot.Allowed(id)) x[static_cast<size_t>(id)] = -INFINITY;
  }
  AddBias(x, slot, row);
  BanWords(x, slot);
  Penalise(x, slot, row);
  Dry(x, slot, row);
  for (float& v : x) v = std::isnan(v) ? -INFINITY : v;  // +inf with a bias of -inf
  return x;
}

std::vector<float> FilterScores(const std::vector<float>& logits, const SamplingRow& row) {
  const float inverse = InverseTemperature(row);
  Candidates all;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float score = logits[i] * inverse;
    if (score > -INFINITY) all.push_back({static_cast<int32_t>(i), score});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  if (row.top_n_sigma > 0) KeepSigma(all, row.top_n_sigma);
  if (row.min_p > 0) {
    const double floor = all[0].score + std::log(static_cast<double>(row.min_p)) - kSlack;
    std::erase_if(
        all, [&, best = all[0].id](const Candidate& c) { return c.score < floor && c.id != best; });
  }
  if (row.top_k >= 1 && row.top_k < static_cast<float>(all.size()))
    all.resize(static_cast<size_t>(row.top_k));
  if (row.typical_p > 0 && row.typical_p < 1) KeepTypical(all, row.typical_p);
  if (row.top_p > 0 && row.top_p < 1) {
    Normalise(all);
    all.resize(PrefixOf(all, row.top_p));
  }
  ExcludeTopChoices(all, row);
  std::vector<float> kept(logits.size(), -INFINITY);
  for (const Candidate& c : all) At(kept, c.id) = static_cast<float>(c.score);
  return kept;
}

int32_t SampleToken(const float* logits, int64_t vocabulary, const SamplingRow& row,
                    const int32_t* words, const SamplerLayout& layout) {
  if (row.forced >= 0) return row.forced;
  const std::vector<float> x = ProcessLogits(logits, vocabulary, row, words, layout);
  const int32_t first = ArgMax(x.data(), vocabulary);
  const float high = x[static_cast<size_t>(first)];
  if (high == -INFINITY) {  // nothing is left
    const bool slot = words != nullptr && row.slot >= 0;
    int32_t best = -1;
    for (int64_t id = 0; id < vocabulary; ++id) {
      if (slot && !Slot(row, words, layout).Allowed(id)) continue;
      const bool better = best < 0 || (logits[id] > logits[best] ||
                                       (std::isnan(logits[best]) && logits[id] > -INFINITY));
      if (better) best = static_cast<int32_t>(id);
    }
    return std::max(best, 0);
  }
  if (!(row.temperature > 0) || high == INFINITY) return first;
  if (!std::isfinite(high * InverseTemperature(row))) return first;
  const std::vector<float> scores = FilterScores(x, row);
  int32_t winner = first;
  float best = -INFINITY;
  for (int64_t i = 0; i < vocabulary; ++i) {
    const float score = scores[static_cast<size_t>(i)];
    if (score == -INFINITY) continue;
    const auto id = static_cast<uint32_t>(i);
    const float noised = score + Gumbel(row.seed, row.choice, row.position, id);
    if (noised > best) {
      best = noised;
      winner = static_cast<int32_t>(i);
    }
  }
  return winner;
}

void RecordToken(const SamplingRow& row, const SamplerLayout& layout, int32_t token,
                 int32_t* slot) {
  slot[SamplerLayout::last_token_offset()] = token;
  if (row.length >= 0 && row.length < layout.history)
    slot[SamplerLayout::history_offset() + row.length] = token;
}

void TopLogprobs(const float* logits, int64_t vocabulary, const SamplingRow& row, int32_t token,
                 float* values, int32_t* ids) {
  if (row.logprobs < 0) return;
  const auto value = [&](int64_t id) { return std::isnan(logits[id]) ? -INFINITY : logits[id]; };
  const double high = value(ArgMax(logits, vocabulary));
  double sum = 0;
  for (int64_t id = 0; id < vocabulary; ++id) {
    // An infinite best shares all the probability with its equals.
    sum += value(id) == high ? 1 : std::exp(value(id) - high);
  }
  const auto logprob = [&](int64_t id) {
    if (value(id) == -INFINITY) return -INFINITY;
    const double below = value(id) == high ? 0 : value(id) - high;
    return static_cast<float>(below - std::log(sum));
  };
  std::vector<int32_t> order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return value(a) > value(b); });
  values[0] = logprob(token);
  values[1] = static_cast<float>(std::find(order.begin(), order.end(), token) - order.begin() + 1);
  const int64_t wanted = std::min<int64_t>({row.logprobs, kBestTokens, vocabulary});
  for (int64_t i = 0; i < kBestTokens; ++i) {
    const int32_t id = i < wanted ? order[static_cast<size_t>(i)] : -1;
    values[2 + i] = id < 0 ? -INFINITY : logprob(id);
    ids[i] = id;
  }
}

}  // namespace vt::ir
