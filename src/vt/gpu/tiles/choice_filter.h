// What of a row stays: a set of candidates that filters make smaller. All but typical-p keep a
// range in the order of falling score, then id; a set is that range, and another one in the order
// of typical-p's distances. Once few enough are left they stand as a sorted list in shared memory,
// and the row is read no more.
//
// A cut looks for the candidate at which a count or a mass is reached: a histogram over distances
// from the best says in which bin, further ones over the digits of keys where a bin has more
// candidates than can be sorted.
#pragma once

#include "vt/gpu/tiles/choice_block.h"

namespace vt::gpu {

// Rises as scores fall.
GPU_FN uint32_t KeyOf(float score) {
  const uint32_t u = score == 0 ? 0 : ::gpu::bits_of(score);
  return u >> 31 != 0 ? u : ~u & 0x7fffffff;
}

inline constexpr double kMassUnit = 4398046511104.0;  // 2^42: see Tally

// Where to cut: at the first candidate with which so many, or so much mass, are reached.
struct Goal {
  bool by_mass;
  int count;
  uint64_t mass;
  double fraction;  // of all mass, instead of `mass`, when positive
};

// The item of a sequence in which a goal is reached; index -1: in none.
struct Crossing {
  int index;
  int unused;
  Tally before, item;
};

class Filter {
 public:
  // Scores are x * inverse, of which `best` is the highest and `first` its lowest id; what is below
  // `floor` is not in the set.
  GPU_FN Filter(const float* x, int n, bool aligned, float inverse, float best, int first,
                float floor)
      : x_(x),
        n_(n),
        aligned_(aligned),
        inverse_(inverse),
        best_(best),
        first_(first),
        floor_(floor) {
    char* p = ::gpu::shared() + kChoiceScratch;
    list_.key = reinterpret_cast<uint64_t*>(p);
    p += 8 * kChoiceList;
    list_.id = reinterpret_cast<int*>(p);
    p += 4 * kChoiceList;
    list_.score = reinterpret_cast<float*>(p);
    p += 4 * kChoiceList;
    counts_ = reinterpret_cast<int*>(p);
    lows_ = counts_ + kChoiceBins;
    highs_ = lows_ + kChoiceBins;
    p += 12 * kChoiceBins;
    gathered_ = reinterpret_cast<int*>(p + 32);
    list_.count = -1;
  }

  GPU_FN bool listed() const { return list_.count >= 0; }
  GPU_FN const Candidates& list() const { return list_; }

  // To what is not above the best.
  GPU_FN void RaiseFloor(double floor) { floor_ = ::gpu::max(floor_, AtLeast(floor)); }

  GPU_FN void KeepSigma(float n);
  // Nothing below the k-th of `maxima`, which are of disjoint parts of the row, is among the k
  // best. Makes the list when what is left fits.
  GPU_FN void ListBest(int k, const float* maxima, int parts);
  // What typical-p's distances are counted from; before it keeps.
  GPU_FN void FindEntropy();
  // Below this the mass of all together is less than 1 - p of `total`, the whole row's.
  GPU_FN void DropTail(float p, double total) {
    const double each = (1 - static_cast<double>(p)) * total / n_;
    RaiseFloor(::gpu::min(best_, static_cast<float>(best_ + LogDouble(each) - 1e-3)));
  }
  // Keeps what the goal is reached with, in the order of scores or of typical-p.
  GPU_FN void Keep(Goal goal, bool typical);
  GPU_FN void ExcludeTopChoices(float threshold);
  GPU_FN int Draw(const ChoiceRow& r);

 private:
  GPU_FN uint64_t Place(float score, int id) const {
    return uint64_t{KeyOf(score)} << 32 | static_cast<uint32_t>(id);
  }
  GPU_FN float ScoreOf(float x) const { return ::gpu::product(x, inverse_); }
  GPU_FN float Weight(float score) const { return score == best_ ? 1 : ::gpu::exp(score - best_); }
  GPU_FN uint64_t Mass(float score) const {
    return static_cast<uint64_t>(Weight(score) * static_cast<float>(kMassUnit));
  }
  GPU_FN Tally TallyOf(float score) const { return {Mass(score), 1, 0}; }

  // How far a score's surprise is from the entropy; as a key, in which the higher of two scores at
  // the same distance comes first.
  GPU_FN double Distance(float score) const {
    const double d = static_cast<double>(score) - static_cast<double>(best_) - center_;
    return d < 0 ? -d : d;
  }
  GPU_FN uint64_t TypicalKey(float score) const {
    const double d = Distance(score);
    const auto high = static_cast<float>(d);
    const uint32_t u = ::gpu::bits_of(static_cast<float>(d - high));
    const uint32_t low = u >> 31 != 0 ? ~u : u | 0x80000000u;
    const bool below = static_cast<double>(score) - static_cast<double>(best_) < center_;
    return uint64_t{::gpu::bits_of(high)} << 32 | ((low & ~1u) | (below ? 1u : 0u));
  }
  GPU_FN uint64_t Key(float score, bool typical) const {
    return typical ? TypicalKey(score) : uint64_t{KeyOf(score)};
  }
  // 64 bins a nat, then 16.
  GPU_FN int Bin(float score, bool typical) const {
    float d = score == best_ ? 0 : best_ - score;
    if (typical) d = static_cast<float>(Distance(score));
    if (d < 16) return static_cast<int>(d * 64);
    d = (d - 16) * 16;
    return d < 1023 ? 1024 + static_cast<int>(d) : kChoiceBins - 1;
  }

  GPU_FN bool Keeps(float score, int id) const {
    if (!(score >= floor_)) return false;
    const uint64_t place = Place(score, id);
    if (place > last_ || place < from_) return false;
    if (!typical_) return true;
    const uint64_t key = TypicalKey(score);
    return key < far_ || (key == far_ && id <= far_id_);
  }
  // f(score, id) for each candidate, from the row.
  template <class F>
  GPU_FN void Each(F f) const {
    EachFrom(x_, n_, aligned_, inverse_, floor_, [&](float score, int id) {
      if (Keeps(score, id)) f(score, id);
    });
  }

  // The candidates in some bins that share the upper digits of key and id.
  struct Part {
    bool typical;
    int first_bin = 0, last_bin = kChoiceBins - 1;
    uint64_t key_mask = 0, key = 0;
    uint32_t id_mask = 0, id = 0;
    GPU_FN bool Has(int bin, uint64_t k, int i) const {
      return bin >= first_bin && bin <= last_bin && (k & key_mask) == key &&
             (static_cast<uint32_t>(i) & id_mask) == id;
    }
  };

  // Of a sequence of tallies that begins behind `before`. Makes the goal's fraction a mass.
  template <class F>
  GPU_FN Crossing Cross(int items, F tally, Tally before, Goal* goal);
  GPU_FN void AddTo(int bin, float score, bool mass);
  GPU_FN Tally BinTally(int i) const {
    return {uint64_t{static_cast<uint32_t>(highs_[i])} << 32 | static_cast<uint32_t>(lows_[i]),
            counts_[i], 0};
  }
  // Puts a part in the list, sorted; how many there are, of which no more than fit stand there.
  GPU_FN int Gather(const Part& part);
  GPU_FN void SortList(bool typical) {
    for (int i = ::gpu::thread(); i < list_.count; i += ::gpu::threads())
      list_.key[i] = Key(list_.score[i], typical);
    ::gpu::sync();
    Sort(list_);
  }
  GPU_FN void ListAll() {
    if (Gather({.typical = false}) > kChoiceList) list_.count = -1;
  }
  // Where in the list, which begins behind `before`, the goal is reached; -1: nowhere.
  GPU_FN int CutList(Tally before, Goal* goal) {
    return Cross(
               list_.count, [&](int i) { return TallyOf(list_.score[i]); }, before, goal)
        .index;
  }
  // Keep, from the row.
  GPU_FN void Narrow(Goal goal, bool typical);

  const float* x_;
  int n_;
  bool aligned_;
  float inverse_, best_;
  int first_;
  float floor_;
  uint64_t last_ = ~uint64_t{0}, from_ = 0;  // places
  bool typical_ = false;
  double center_ = 0;  // score - best of the surprise that is the entropy
  uint64_t far_ = 0;
  int far_id_ = 0;
  Candidates list_;
  int *counts_, *lows_, *highs_;  // of bins
  int* gathered_;
};

template <class F>
GPU_FN Crossing Filter::Cross(int items, F tally, Tally before, Goal* goal) {
  const int each = (items + ::gpu::threads() - 1) / ::gpu::threads();
  const int begin = ::gpu::min(items, each * ::gpu::thread());
  const int end = ::gpu::min(items, begin + each);
  Tally mine = {0, 0, 0}, total;
  for (int i = begin; i < end; ++i) mine = mine + tally(i);
  Tally sum = before + BlockScan(mine, &total);
  if (goal->fraction > 0) {
    const double wanted = goal->fraction * static_cast<double>(before.mass + total.mass);
    goal->mass = static_cast<uint64_t>(wanted);
    if (static_cast<double>(goal->mass) < wanted) ++goal->mass;
    goal->fraction = 0;
  }
  const auto reached = [&](Tally t) {
    return t.count > 0 && (goal->by_mass ? t.mass >= goal->mass : t.count >= goal->count);
  };
  Crossing* found = reinterpret_cast<Crossing*>(::gpu::shared() + kChoiceScratch / 2);
  if (::gpu::thread() == 0) found->index = -1;
  ::gpu::sync();
  if (!reached(sum)) {
    for (int i = begin; i < end; ++i) {
      const Tally item = tally(i), after = sum + item;
      if (reached(after)) {
        *found = {i, 0, sum, item};
        break;
      }
      sum = after;
    }
  }
  ::gpu::sync();
  const Crossing c = *found;
  ::gpu::sync();
  return c;
}

// A mass is added in two words: whoever makes the low one overflow carries.
GPU_FN void Filter::AddTo(int bin, float score, bool mass) {
  ::gpu::atomic_add(&counts_[bin], 1);
  if (!mass) return;
  const uint64_t m = Mass(score);
  const auto low = static_cast<uint32_t>(m);
  auto high = static_cast<uint32_t>(m >> 32);
  const auto old = static_cast<uint32_t>(::gpu::atomic_add(&lows_[bin], static_cast<int>(low)));
  if (old + low < old) ++high;
  if (high != 0) ::gpu::atomic_add(&highs_[bin], static_cast<int>(high));
}

GPU_FN int Filter::Gather(const Part& part) {
  ::gpu::sync();
  if (::gpu::thread() == 0) *gathered_ = 0;
  ::gpu::sync();
  Each([&](float score, int id) {
    const uint64_t key = Key(score, part.typical);
    if (!part.Has(Bin(score, part.typical), key, id)) return;
    const int i = ::gpu::atomic_add(gathered_, 1);
    if (i >= kChoiceList) return;
    list_.key[i] = key;
    list_.id[i] = id;
    list_.score[i] = score;
  });
  ::gpu::sync();
  const int count = *gathered_;
  list_.count = ::gpu::min(count, kChoiceList);
  if (count <= kChoiceList) Sort(list_);
  return count;
}

GPU_FN void Filter::Narrow(Goal goal, bool typical) {
  constexpr int kDigit = 11, kIdBits = 20;
  Part part = {.typical = typical};
  int left = (typical ? 64 : 32) + kIdBits;  // bits of (key, id) that the part does not share
  Tally before = {0, 0, 0};
  bool whole;  // all that may stay fits
  for (bool bins = true;; bins = false) {
    const bool of_key = left > kIdBits;
    const int bits = of_key ? left - kIdBits : left, shift = ::gpu::max(bits - kDigit, 0);
    const uint32_t mask = (1u << (bits - shift)) - 1;
    for (int i = ::gpu::thread(); i < kChoiceBins; i += ::gpu::threads())
      counts_[i] = lows_[i] = highs_[i] = 0;
    ::gpu::sync();
    Each([&](float score, int id) {
      const uint64_t key = Key(score, typical);
      const int bin = Bin(score, typical);
      if (!part.Has(bin, key, id)) return;
      const uint32_t digits =
          of_key ? static_cast<uint32_t>(key >> shift) : static_cast<uint32_t>(id) >> shift;
      AddTo(bins ? bin : static_cast<int>(digits & mask), score, goal.by_mass);
    });
    ::gpu::sync();
    const Crossing c = Cross(
        kChoiceBins, [&](int i) { return BinTally(i); }, before, &goal);
    if (c.index < 0) return;  // all stay
    before = c.before;
    if (bins) {
      part.first_bin = part.last_bin = c.index;
    } else if (of_key) {
      part.key_mask |= uint64_t{mask} << shift;
      part.key |= static_cast<uint64_t>(c.index) << shift;
      left -= bits - shift;
    } else {
      part.id_mask |= mask << shift;
      part.id |= static_cast<uint32_t>(c.index) << shift;
      left -= bits - shift;
    }
    whole = bins && before.count + c.item.count <= kChoiceList;
    if (whole || c.item.count <= kChoiceList) break;
  }
  if (whole) {
    part.first_bin = 0;
    before = {0, 0, 0};
  }
  Gather(part);
  const int at = CutList(before, &goal);
  if (whole) {
    list_.count = at + 1;
    return;
  }
  const uint64_t key = list_.key[at];
  const int id = list_.id[at];
  const float score = list_.score[at];
  ::gpu::sync();
  list_.count = -1;
  if (typical) {
    typical_ = true;
    far_ = key;
    far_id_ = id;
  } else {
    last_ = Place(score, id);
    floor_ = ::gpu::max(floor_, score);
  }
  if (before.count + at < kChoiceList) ListAll();
}

GPU_FN void Filter::Keep(Goal goal, bool typical) {
  if (!listed()) {
    Narrow(goal, typical);
  } else {
    if (typical) SortList(true);
    const int at = CutList({0, 0, 0}, &goal);
    if (at >= 0) list_.count = at + 1;
  }
  if (typical && listed()) SortList(false);
}

GPU_FN void Filter::KeepSigma(float n) {
  double sum = 0, squares = 0;
  int count = 0;
  Each([&](float score, int) {
    const double d = static_cast<double>(score) - static_cast<double>(best_);
    sum += d;
    squares += d * d;
    ++count;
  });
  sum = BlockSum(sum);
  squares = BlockSum(squares);
  count = BlockSum(count);
  const double mean = sum / count, variance = squares / count - mean * mean;
  RaiseFloor(static_cast<double>(best_) - n * SqrtDouble(variance > 0 ? variance : 0) -
             kChoiceSlack);
}

GPU_FN void Filter::ListBest(int k, const float* maxima, int parts) {
  if (k > kChoiceList) return;
  float bound = floor_;
  if (n_ > kChoiceList && k <= parts && parts <= kChoiceList) {
    for (int i = ::gpu::thread(); i < parts; i += ::gpu::threads()) {
      list_.score[i] = ScoreOf(maxima[i]);
      list_.id[i] = i;
    }
    list_.count = parts;
    SortList(false);
    bound = ::gpu::max(bound, list_.score[k - 1]);
    ::gpu::sync();
    list_.count = -1;
  }
  if (n_ > kChoiceList && !(bound > floor_)) return;
  const float floor = floor_;
  floor_ = bound;
  ListAll();
  floor_ = floor;
}

GPU_FN void Filter::FindEntropy() {
  double total = 0, surprise = 0;  // sums of e^s and of -e^s s
  const auto add = [&](float score) {
    const double s = static_cast<double>(score) - static_cast<double>(best_), e = ExpDouble(s);
    total += e;
    surprise -= e * s;
  };
  if (listed()) {
    for (int i = ::gpu::thread(); i < list_.count; i += ::gpu::threads()) add(list_.score[i]);
  } else {
    Each([&](float score, int) { add(score); });
  }
  // -log p = log(total) - s, and the entropy is surprise / total + log(total).
  surprise = BlockSum(surprise);
  center_ = -surprise / BlockSum(total);
}

GPU_FN void Filter::ExcludeTopChoices(float threshold) {
  Tally all = {0, 0, 0};
  if (listed()) {
    for (int i = ::gpu::thread(); i < list_.count; i += ::gpu::threads())
      all = all + TallyOf(list_.score[i]);
  } else {
    Each([&](float score, int) { all = all + TallyOf(score); });
  }
  all = BlockSum(all);
  const double wanted =
      (static_cast<double>(threshold) - kChoiceSlack) * static_cast<double>(all.mass);
  // How many are above, and the place of the last of them.
  struct Above {
    uint64_t place;
    int count, unused;
  };
  Above above = {0, 0, 0};
  const auto look = [&](float score, int id) {
    if (static_cast<double>(Mass(score)) < wanted) return;
    const uint64_t place = Place(score, id);
    ++above.count;
    if (place > above.place) above.place = place;
  };
  if (listed()) {
    for (int i = ::gpu::thread(); i < list_.count; i += ::gpu::threads())
      look(list_.score[i], list_.id[i]);
  } else {
    Each(look);
  }
  above = BlockReduce(above, [](Above a, Above b) {
    return Above{a.place > b.place ? a.place : b.place, a.count + b.count, 0};
  });
  if (above.count > 1) from_ = above.place;
}

GPU_FN int Filter::Draw(const ChoiceRow& r) {
  Best best = NoBest();
  if (listed()) {
    for (int i = ::gpu::thread(); i < list_.count; i += ::gpu::threads()) {
      const float score = list_.score[i];
      const int id = list_.id[i];
      if (Place(score, id) >= from_) best = Better(best, {score + r.Gumbel(id), id});
    }
  } else {
    // Noise is at most 16.6355: what is further behind than that cannot win. Not so where scores
    // are so large that their own rounding matters.
    const float most = (best_ < 0 ? -best_ : best_) < 16384 ? 16.64f : PlusInfinity();
    if (Keeps(best_, first_)) best = {best_ + r.Gumbel(first_), first_};
    Each([&](float score, int id) {
      if (score + most >= best.value) best = Better(best, {score + r.Gumbel(id), id});
    });
  }
  best = BlockBest(best);
  return best.value > MinusInfinity() ? best.id : first_;
}

}  // namespace vt::gpu
