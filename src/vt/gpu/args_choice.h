// Arguments of the kernels that choose tokens (tiles/choice*.h). What the words mean says
// ir/sampling.h.
#pragma once

#include "vt/gpu/args.h"

namespace vt::gpu {

// ir::SampleParam, of a row of 32 words.
enum ChoiceParam : int32_t {
  kChoiceTemperature,
  kChoiceTopK,
  kChoiceTopP,
  kChoiceMinP,
  kChoiceSeed,
  kChoicePosition = kChoiceSeed + 2,
  kChoiceChoice,
  kChoiceTypicalP,
  kChoiceTopNSigma,
  kChoiceRepetition,
  kChoicePresence,
  kChoiceFrequency,
  kChoiceDryMultiplier,
  kChoiceDryBase,
  kChoiceDryAllowedLength,
  kChoiceDryLastN,
  kChoiceXtcProbability,
  kChoiceXtcThreshold,
  kChoiceSlotOne,
  kChoiceLength,
  kChoicePromptLength,
  kChoiceBiasWords,
  kChoiceBadWordWords,
  kChoiceUseBreakers,
  kChoiceUseMask,
  kChoiceForcedOne,
  kChoiceLogprobsOne,
  kChoiceParamsUsed
};
inline constexpr int kChoiceParams = 32;

inline constexpr int kChoiceBest = 20;                 // ir::kBestTokens
inline constexpr int kChoiceValues = 2 + kChoiceBest;  // ir::kLogprobValues
inline constexpr int kChoiceHistory = 4;               // ir::SamplerLayout::history_offset()

// A block of the first pass has this many ids of a row: 16 KiB of logits, so that a row of 150k is
// spread over 37 blocks and each of 256 threads has four loads of 16 bytes at once.
inline constexpr int kChoiceChunk = 4096;
inline constexpr int kChoiceScanThreads = 256;
// The second pass has a block a row, or more threads would want more registers than there are.
inline constexpr int kChoicePickThreads = 512;
// Shared memory: of reductions; of the first pass (an int an id); of the second (a histogram and a
// list of candidates).
inline constexpr int kChoiceScratch = 1024;
inline constexpr int kChoiceBins = 2048, kChoiceList = 1024;
inline constexpr int kChoiceScanShared = kChoiceScratch + 4 * kChoiceChunk;
inline constexpr int kChoicePickShared = kChoiceScratch + 12 * kChoiceBins + 16 * kChoiceList + 64;

// Slots of a sampler: ir::SamplerLayout's offsets, in words.
struct ChoiceSlots {
  int32_t* words = nullptr;
  int32_t count = 0;
  int32_t history = 0, lists = 0;  // sizes
  int64_t stride = 0, mask = 0, breakers = 0, lists_at = 0;
};

// What a block of the first pass finds in its chunk.
struct ChoicePart {
  float high;      // the best logit, -inf when there is none,
  int32_t id;      // and its id
  float noised;    // the best score with noise (rows without filters),
  int32_t winner;  // and its id
  double sum;      // of e^(logit - high), scaled by 1 / temperature
  int32_t above;   // logits before the token's (top_logprobs)
  int32_t unused;
};

struct TokenFeedArgs {
  const Header* header = nullptr;
  const int32_t* ids = nullptr;
  ChoiceSlots slots;
  int32_t* out = nullptr;
};

struct ArgMaxArgs {
  const Header* header = nullptr;
  Rows logits;
  Count count;
  int32_t* out = nullptr;
};

// Of sample and top_logprobs: a grid of (chunks, rows), then one of rows.
struct ChoiceArgs {
  const Header* header = nullptr;
  const float* logits = nullptr;
  int64_t stride = 0;  // of rows, in values
  int32_t vocabulary = 0;
  int32_t chunks = 0;
  int32_t scan_waves = 0;  // threads of a block of the first pass / wave
  int32_t aligned = 0;     // each row starts on 16 bytes
  const float* params = nullptr;
  ChoiceSlots slots;
  int32_t* tokens = nullptr;  // [O]: the choice, or the chosen (top_logprobs)
  float* values = nullptr;    // [O, kChoiceValues]
  int64_t values_stride = 0;
  int32_t* ids = nullptr;  // [O, kChoiceBest]
  // Workspace: processed logits [O, work_stride], parts [O, chunks], maxima of the first pass'
  // waves [O, chunks * scan_waves].
  float* work = nullptr;
  int64_t work_stride = 0;
  ChoicePart* parts = nullptr;
  float* maxima = nullptr;
};

}  // namespace vt::gpu
