// The second pass of sample: a block a row puts the chunks' findings together, filters and draws
// where the row asks for it, and writes the token.
#pragma once

#include "vt/gpu/tiles/choice_filter.h"

namespace vt::gpu {

// What the chunks of a row found, together.
struct RowFindings {
  Best high, noised;
};
GPU_FN RowFindings FindingsOf(const ChoiceArgs& a, int row, bool draws) {
  Best high = NoBest(), noised = NoBest();
  for (int c = ::gpu::thread(); c < a.chunks; c += ::gpu::threads()) {
    const ChoicePart& p = a.parts[row * a.chunks + c];
    high = Better(high, {p.high, p.id});
    if (draws) noised = Better(noised, {p.noised, p.winner});
  }
  high = BlockBest(high);
  if (draws) noised = BlockBest(noised);
  return {high, noised};
}

// Of the row's e^(score - best), when the chunks have summed theirs.
GPU_FN double TotalOf(const ChoiceArgs& a, int row, float inverse, float best) {
  double total = 0;
  for (int c = ::gpu::thread(); c < a.chunks; c += ::gpu::threads()) {
    const ChoicePart& p = a.parts[row * a.chunks + c];
    if (p.high > MinusInfinity())
      total += p.sum * ::gpu::exp(::gpu::product(p.high, inverse) - best);
  }
  return BlockSum(total);
}

// When nothing is left: the best logit that the mask allows.
GPU_FN int BestAllowed(const ChoiceArgs& a, const ChoiceRow& r, const int32_t* slot, int row) {
  const int32_t* mask =
      slot != nullptr && r.word(kChoiceUseMask) != 0 ? slot + a.slots.mask : nullptr;
  const float* x = a.logits + row * a.stride;
  Best best = NoBest();
  for (int id = ::gpu::thread(); id < a.vocabulary; id += ::gpu::threads()) {
    if (mask == nullptr || HasBit(mask, id, a.vocabulary)) best = Better(best, {Value(x[id]), id});
  }
  best = BlockBest(best);
  return best.id < a.vocabulary ? best.id : 0;
}

GPU_FN int DrawFiltered(const ChoiceArgs& a, const ChoiceRow& r, int row, float inverse, float best,
                        int first) {
  const bool processed = IsProcessed(a, r);
  const float* x = processed ? a.work + row * a.work_stride : a.logits + row * a.stride;
  Filter f(x, a.vocabulary, processed || a.aligned != 0, inverse, best, first, -kMostFinite);
  const float sigma = r.real(kChoiceTopNSigma), min_p = r.real(kChoiceMinP);
  if (sigma > 0) f.KeepSigma(sigma);
  bool alone = false;  // the best is probable enough, and nothing else
  if (min_p > 0) {
    const double below = min_p < 2 ? LogDouble(min_p) - kChoiceSlack : 1;
    alone = below > 0;
    f.RaiseFloor(static_cast<double>(best) + (alone ? 0 : below));
  }
  const bool top_k = r.top_k(a.vocabulary), typical = r.typical(), top_p = r.top_p();
  // One place that cuts, so that its code is there once.
#pragma unroll 1
  for (int stage = 0; stage < 3; ++stage) {
    Goal goal = {true, 0, 0, 0};
    if (stage == 0) {
      if (!top_k && !alone) continue;
      const int parts = a.chunks * a.scan_waves;
      goal = {false, alone ? 1 : static_cast<int>(r.real(kChoiceTopK)), 0, 0};
      if (top_k) f.ListBest(goal.count, a.maxima + row * parts, parts);
    } else if (stage == 1) {
      if (!typical) continue;
      f.FindEntropy();
      goal.fraction = static_cast<double>(r.real(kChoiceTypicalP)) - kChoiceSlack;
    } else {
      if (!top_p) continue;
      const float p = r.real(kChoiceTopP);
      goal.fraction = static_cast<double>(p) - kChoiceSlack;
      if (!top_k && !typical && !r.floors()) {
        const double total = TotalOf(a, row, inverse, best);
        f.DropTail(p, total);
        if (goal.fraction > 0) goal.mass = static_cast<uint64_t>(goal.fraction * total * kMassUnit);
        goal.fraction = 0;
      }
    }
    f.Keep(goal, stage == 1);
  }
  if (r.xtc()) f.ExcludeTopChoices(r.real(kChoiceXtcThreshold));
  return f.Draw(r);
}

GPU_FN void PickToken(const ChoiceArgs& a) {
  ::gpu::launch_dependents();
  const int row = ::gpu::block();
  const ChoiceRow r(a, row);
  const bool live = row < a.header->outputs, draws = !r.greedy();
  const bool filters = draws && r.filters(a.vocabulary);
  const int forced = r.forced(), length = r.length();
  int32_t* slot = SlotAt(a.slots, r.slot());
  ::gpu::wait_predecessor();
  if (!live) return;
  if (forced >= 0) {
    if (::gpu::thread() == 0) a.tokens[row] = forced;
    return;
  }
  const RowFindings found = FindingsOf(a, row, draws && !filters);
  const float high = found.high.value;
  int token = found.high.id;
  if (high == MinusInfinity()) {
    token = BestAllowed(a, r, slot, row);
  } else if (draws && high < PlusInfinity()) {
    const float inverse = r.inverse(), best = ::gpu::product(high, inverse);
    if (best > MinusInfinity() && best < PlusInfinity()) {
      if (filters) {
        token = DrawFiltered(a, r, row, inverse, best, token);
      } else if (found.noised.value > MinusInfinity()) {
        token = found.noised.id;
      }
    }
  }
  if (::gpu::thread() != 0) return;
  a.tokens[row] = token;
  if (slot == nullptr) return;
  slot[0] = token;
  if (length >= 0 && length < a.slots.history) slot[kChoiceHistory + length] = token;
}

}  // namespace vt::gpu
