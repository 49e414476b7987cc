// The fast form of the sampler's reference (vt/ir/sampling.h): the same token of the same logits,
// without sorting the vocabulary.
//
// What makes it fast: one maximum for each 64 logits. The k-th largest of those bounds the k-th
// largest logit, the mass below a score bounds what top-p can keep, and the most that noise can add
// bounds what can still win; blocks below a bound are never looked into.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "vt/cpu/kernels.h"
#include "vt/ir/sampling.h"

namespace vt::cpu {

// Scratch of one thread; not thread-safe.
class Sampler {
 public:
  Sampler();

  // As ir::SampleToken.
  int32_t Choose(const KernelSet& kernels, const float* logits, int64_t vocabulary,
                 const ir::SamplingRow& row, const int32_t* slot, const ir::SamplerLayout& layout);
  // As ir::TopLogprobs.
  void TopLogprobs(const KernelSet& kernels, const float* logits, int64_t vocabulary,
                   const ir::SamplingRow& row, int32_t token, float* values, int32_t* ids);

 private:
  struct Candidate {
    float score;
    int32_t id;
    float weight;  // e^(score - best)
    bool operator<(const Candidate& o) const {
      return score != o.score ? score > o.score : id < o.id;
    }
    double key() const { return score; }
    double mass() const { return weight; }
  };
  // For typical-p: how near its surprise is to the entropy, at most 0.
  struct Surprise {
    Candidate candidate;
    double nearness, p;
    bool operator<(const Surprise& o) const {
      return nearness != o.nearness ? nearness > o.nearness : candidate < o.candidate;
    }
    double key() const { return nearness; }
    double mass() const { return p; }
  };
  // A row whose scores are filtered and drawn from.
  struct Draw {
    const VocabularyKernels& kernels;
    const float* x;
    int64_t n;
    const ir::SamplingRow& row;
    float inverse;  // score = x * inverse
    float best;     // score
    int32_t first;  // its id
    float floor;    // scores below are gone
    int32_t last;   // of scores equal to the floor: ids above are gone
    float ceiling = std::numeric_limits<float>::infinity();  // scores above are gone too,
    int32_t from = 0;                                        // and of those equal to it ids below
    bool Keeps(float score, int32_t id) const {
      return (score > floor || (score == floor && id <= last)) &&
             (score < ceiling || (score == ceiling && id >= from));
    }
  };

  // The processors (sampler_processors.cc): steps 1 to 6 into work_.
  void Process(const float* logits, int64_t vocabulary, const ir::SamplingRow& row,
               const int32_t* slot, const ir::SamplerLayout& layout);
  void Penalise(const ir::SamplingRow& row, const int32_t* history, int64_t length);
  void Dry(const ir::SamplingRow& row, const int32_t* history, int64_t length,
           const int32_t* breakers);

  // At least the `count` largest of x, and every x >= the value given back, stand in blocks whose
  // maximum is at least that value. -inf when there are too few blocks to tell.
  float BoundOf(int64_t count);
  void Gather(const Draw& d, float floor);
  void KeepTopK(const Draw& d);
  void KeepTypical(const Draw& d);
  // Keeps what of kept_ has the sum p * total; false when kept_ is too light for it.
  bool KeepTopP(double p, double total);
  // Top-p over all of at least the floor.
  void KeepTopPOfAll(const Draw& d);
  // XTC over kept_, of which `total` is the mass: all but the least of the top choices go from
  // kept_ and from d.
  void ExcludeTopChoices(Draw& d, double total);
  double Mass() const;
  int32_t DrawCandidate(const Draw& d) const;
  int32_t DrawAll(const Draw& d);

  std::vector<float> work_;      // processed logits
  std::vector<float> maxima_;    // of blocks of x
  std::vector<float> sorted_;    // some of them, reordered
  std::vector<int32_t> counts_;  // by id; zero between uses
  std::vector<int32_t> repeats_;
  std::vector<Candidate> kept_;
  std::vector<uint32_t> bits_needed_;  // by how far a score is behind: see DrawAll
};

}  // namespace vt::cpu
