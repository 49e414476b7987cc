// Steps 1 to 6 of the sampler over a chunk of a row: mask, bias, bad words, penalties, DRY. A block
// does what concerns the ids of its chunk and nothing else, so blocks need not wait for each other.
#pragma once

#include "vt/gpu/tiles/choice_block.h"

namespace vt::gpu {

// A chunk [begin, end) of a row: `work` is the whole row's workspace, `marks` an int an id of the
// chunk in shared memory.
class ChunkProcessor {
 public:
  GPU_FN ChunkProcessor(const ChoiceArgs& a, const ChoiceRow& row, const int32_t* slot, float* work,
                        int* marks, int begin, int end)
      : row_(row),
        slots_(a.slots),
        slot_(slot),
        history_(slot + kChoiceHistory),
        work_(work + begin),
        marks_(marks),
        vocabulary_(a.vocabulary),
        begin_(begin),
        size_(end - begin) {
    length_ = ::gpu::max(0, ::gpu::min(row.length(), slots_.history));
  }

  GPU_FN void Run(const float* logits) {
    Copy(logits + begin_);
    const int bias = row_.word(kChoiceBiasWords), bad = row_.word(kChoiceBadWordWords);
    // Counts that do not fit the slot are nobody's.
    if (bias < 0 || bad < 0 || bias > slots_.lists || bad > slots_.lists - bias) return;
    const int32_t* lists = slot_ + slots_.lists_at;
    if (bias > 0) AddBias(lists, bias);
    if (bad > 0) BanWords(lists + bias, bad);
    if (row_.repeats()) Repetition();
    if (row_.counts()) Counts();
    if (row_.dry()) Dry();
  }

 private:
  GPU_FN bool Mine(int id) const { return id >= begin_ && id < begin_ + size_; }

  // f(i) for the chunk's ids, each thread its own.
  template <class F>
  GPU_FN void Each(F f) const {
    for (int i = ::gpu::thread(); i < size_; i += ::gpu::threads()) f(i);
  }
  GPU_FN void ClearMarks() const {
    Each([&](int i) { marks_[i] = 0; });
    ::gpu::sync();
  }

  GPU_FN void Copy(const float* logits) const {
    const bool masked = row_.word(kChoiceUseMask) != 0;
    const int32_t* mask = slot_ + slots_.mask;
    Each([&](int i) {
      const bool allowed = !masked || HasBit(mask, begin_ + i, vocabulary_);
      work_[i] = allowed ? Value(logits[i]) : MinusInfinity();
    });
    ::gpu::sync();
  }

  // The first entry of an id adds all of them, in their order.
  GPU_FN void AddBias(const int32_t* list, int words) const {
    const int entries = words / 3;
    for (int e = ::gpu::thread(); e < entries; e += ::gpu::threads()) {
      const int id = list[3 * e];
      if (!Mine(id)) continue;
      bool first = true;
      for (int b = 0; b < e && first; ++b) first = list[3 * b] != id;
      if (!first) continue;
      float v = work_[id - begin_];
      for (int b = e; b < entries; ++b) {
        if (list[3 * b] == id && row_.position() < static_cast<uint32_t>(list[3 * b + 2]))
          v += ::gpu::float_of(static_cast<uint32_t>(list[3 * b + 1]));
      }
      work_[id - begin_] = v;
    }
    ::gpu::sync();
  }

  GPU_FN void BanWords(const int32_t* list, int words) const {
    int index = 0;
    for (int at = 0; at < words; ++index) {
      const int count = list[at];
      if (count < 1 || count >= words - at) break;  // not a list of ours
      const int32_t* word = list + at + 1;
      at += 1 + count;
      if (index % ::gpu::threads() != ::gpu::thread()) continue;
      const int before = count - 1;
      if (!Mine(word[before]) || before > length_) continue;
      bool banned = true;
      for (int i = 0; i < before && banned; ++i) banned = word[i] == history_[length_ - before + i];
      if (banned) work_[word[before] - begin_] = MinusInfinity();
    }
    ::gpu::sync();
  }

  GPU_FN void Repetition() const {
    ClearMarks();
    for (int i = ::gpu::thread(); i < length_; i += ::gpu::threads()) {
      if (Mine(history_[i])) marks_[history_[i] - begin_] = 1;
    }
    ::gpu::sync();
    const float penalty = row_.real(kChoiceRepetition);
    Each([&](int i) {
      const float v = work_[i];
      if (marks_[i] != 0) work_[i] = v > 0 ? v / penalty : v * penalty;
    });
    ::gpu::sync();
  }

  GPU_FN void Counts() const {
    ClearMarks();
    const int begin = ::gpu::max(0, ::gpu::min(row_.word(kChoicePromptLength), length_));
    for (int i = begin + ::gpu::thread(); i < length_; i += ::gpu::threads()) {
      if (Mine(history_[i])) ::gpu::atomic_add(&marks_[history_[i] - begin_], 1);
    }
    ::gpu::sync();
    const float presence = row_.real(kChoicePresence), frequency = row_.real(kChoiceFrequency);
    Each([&](int i) {
      if (marks_[i] == 0) return;
      work_[i] -= ::gpu::product(frequency, static_cast<float>(marks_[i])) + presence;
    });
    ::gpu::sync();
  }

  // From the history's end: back(0) is its last token.
  GPU_FN int Back(int i) const { return history_[length_ - 1 - i]; }

  GPU_FN void Dry() const {
    ClearMarks();
    const int last = row_.word(kChoiceDryLastN);
    const int n = last > 0 ? ::gpu::min(length_, last) : length_;
    const bool breakers = row_.word(kChoiceUseBreakers) != 0;
    const auto breaks = [&](int id) {
      return breakers && HasBit(slot_ + slots_.breakers, id, vocabulary_);
    };
    const int allowed = row_.word(kChoiceDryAllowedLength), shortest = ::gpu::max(allowed, 1);
    int limit = n;  // tokens since the last breaker
    if (breakers) {
      for (int i = ::gpu::thread(); i < limit; i += ::gpu::threads()) {
        if (breaks(Back(i))) limit = i;
      }
      limit = BlockReduce(limit, [](int a, int b) { return ::gpu::min(a, b); });
    }
    // Longer repeats than this cost no more: the power's exponent is capped.
    const float base = row_.real(kChoiceDryBase);
    double logarithm = 0;
    float most = 1e9f;
    if (base > 1) logarithm = LogDouble(base);
    if (base > 1.000001f) {
      most = 88.72283f / static_cast<float>(logarithm);
      most = static_cast<float>(static_cast<int>(most));
      const float longest = most + static_cast<float>(allowed) + 1;
      if (longest < static_cast<float>(limit))
        limit = ::gpu::max(static_cast<int>(longest), shortest);
    }
    for (int i = 1 + ::gpu::thread(); i < n; i += ::gpu::threads()) {
      const int next = Back(i - 1);
      if (!Mine(next) || breaks(next)) continue;
      const int end = ::gpu::min(limit, n - i);
      int repeat = 0;
      while (repeat < end && Back(repeat) == Back(i + repeat)) ++repeat;
      if (repeat >= shortest) ::gpu::atomic_max(&marks_[next - begin_], repeat);
    }
    ::gpu::sync();
    const float multiplier = row_.real(kChoiceDryMultiplier);
    Each([&](int i) {
      if (marks_[i] == 0) return;
      const float exponent = ::gpu::min(static_cast<float>(marks_[i] - allowed), most);
      const auto power = static_cast<float>(ExpDouble(logarithm * exponent));
      work_[i] -= ::gpu::product(multiplier, power);
    });
    ::gpu::sync();
  }

  const ChoiceRow& row_;
  const ChoiceSlots& slots_;
  const int32_t* slot_;
  const int32_t* history_;
  float* work_;
  int* marks_;
  int vocabulary_, begin_, size_, length_;
};

}  // namespace vt::gpu
