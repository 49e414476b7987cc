// Nodes that choose tokens from logits, list log-probabilities, and feed chosen tokens to a step.
#include <algorithm>
#include <cstddef>

#include "base/strings.h"
#include "vt/gpu/args_choice.h"
#include "vt/gpu/context.h"
#include "vt/ir/sampling.h"

namespace vt::gpu {
namespace {

using ir::Op;

static_assert(static_cast<int>(kChoiceSeed) == ir::kParamSeed);
static_assert(static_cast<int>(kChoicePosition) == ir::kParamPosition);
static_assert(static_cast<int>(kChoiceTypicalP) == ir::kParamTypicalP);
static_assert(static_cast<int>(kChoiceTopNSigma) == ir::kParamTopNSigma);
static_assert(static_cast<int>(kChoiceRepetition) == ir::kParamRepetition);
static_assert(static_cast<int>(kChoiceDryLastN) == ir::kParamDryLastN);
static_assert(static_cast<int>(kChoiceXtcThreshold) == ir::kParamXtcThreshold);
static_assert(static_cast<int>(kChoiceSlotOne) == ir::kParamSlotOne);
static_assert(static_cast<int>(kChoiceBadWordWords) == ir::kParamBadWordWords);
static_assert(static_cast<int>(kChoiceUseBreakers) == ir::kParamUseBreakers);
static_assert(static_cast<int>(kChoiceUseMask) == ir::kParamUseMask);
static_assert(static_cast<int>(kChoiceForcedOne) == ir::kParamForcedOne);
static_assert(static_cast<int>(kChoiceParamsUsed) == ir::kParamsUsed);
static_assert(kChoiceParams == ir::kSampleParamCount);
static_assert(kChoiceBest == ir::kBestTokens && kChoiceValues == ir::kLogprobValues);
static_assert(kChoiceHistory == ir::SamplerLayout::history_offset());

// Ids have 20 bits in the sampler's keys.
constexpr int64_t kMostIds = int64_t{1} << 20;

// Threads for `items`: whole waves of either width.
unsigned ThreadsFor(int64_t items, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + 63) / 64 * 64, 64, most));
}

// The passes over rows of `vocabulary` logits, and what they need of the workspace.
struct ChoicePlan {
  int64_t outputs = 0, vocabulary = 0;
  int wave = 32;

  int64_t chunks() const { return (vocabulary + kChoiceChunk - 1) / kChoiceChunk; }
  unsigned scan_threads() const {  // four values of 16 bytes each
    return ThreadsFor((std::min<int64_t>(vocabulary, kChoiceChunk) + 15) / 16, kChoiceScanThreads);
  }
  unsigned pick_threads() const { return ThreadsFor((vocabulary + 3) / 4, kChoicePickThreads); }
  int64_t scan_waves() const { return scan_threads() / static_cast<unsigned>(wave); }

  int64_t work_stride() const { return (vocabulary + 63) / 64 * 64; }
  int64_t parts_at() const { return outputs * work_stride() * 4; }
  int64_t maxima_at() const {
    return parts_at() + outputs * chunks() * static_cast<int64_t>(sizeof(ChoicePart));
  }
  int64_t bytes() const { return maxima_at() + outputs * chunks() * scan_waves() * 4; }
};

ChoicePlan PlanOf(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                  const DeviceFacts& d) {
  const ir::Shape& logits = g.value(n.inputs[0]).shape;
  return {logits[0].At(b), logits[1].At(b), d.properties.wave};
}

ChoiceSlots SlotsOf(const Context& c, const ir::Node& n, ir::ValueId state) {
  const Context::Slots s = c.SlotsOf(state);
  const ir::SamplerLayout& layout = n.attrs.as<ir::SamplerAttrs>().layout;
  return {.words = s.words,
          .count = static_cast<int32_t>(s.count),
          .history = static_cast<int32_t>(layout.history),
          .lists = static_cast<int32_t>(layout.lists),
          .stride = layout.words(),
          .mask = layout.mask_offset(),
          .breakers = layout.breakers_offset(),
          .lists_at = layout.lists_offset()};
}

void CompileFeed(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const int64_t tokens = c.value(n.outputs[0]).shape[0].At(c.bucket());
  const TokenFeedArgs args = {.header = c.header(),
                              .ids = c.Ints(n.inputs[0]),
                              .slots = SlotsOf(c, n, n.inputs[1]),
                              .out = static_cast<int32_t*>(c.Address(n.outputs[0]))};
  const unsigned threads = ThreadsFor(tokens, 256);
  c.Emit(id, "token_feed", ir::DType::kF32,
         {.grid_x = static_cast<unsigned>((tokens + threads - 1) / threads),
          .threads = threads,
          .early = true},
         args);
}

void CompileArgMax(const Context& c, ir::NodeId id) {
  const ir::Node& n = c.node(id);
  const ArgMaxArgs args = {.header = c.header(),
                           .logits = c.RowsOf(n.inputs[0]),
                           .count = c.CountOf(n.inputs[0]),
                           .out = static_cast<int32_t*>(c.Address(n.outputs[0]))};
  c.Emit(id, "argmax", ir::DType::kF32,
         {.grid_x = static_cast<unsigned>(c.MostRows(n.inputs[0])),
          .threads = ThreadsFor(args.logits.width, 1024),
          .shared_bytes = kChoiceScratch,
          .early = true},
         args);
}

void CompilePasses(const Context& c, ir::NodeId id, bool logprobs) {
  const ir::Node& n = c.node(id);
  const ChoicePlan plan = PlanOf(c.plan.graph, n, c.bucket(), c.device);
  if (plan.outputs == 0) return;
  if (plan.vocabulary > kMostIds)
    return c.Fail(id, fmt::format("has a vocabulary of more than {}", kMostIds));
  const Rows logits = c.RowsOf(n.inputs[0]);
  std::byte* workspace = c.workspace() + c.parts().choice;
  ChoiceArgs args = {.header = c.header(),
                     .logits = static_cast<const float*>(logits.base),
                     .stride = logits.stride,
                     .vocabulary = static_cast<int32_t>(plan.vocabulary),
                     .chunks = static_cast<int32_t>(plan.chunks()),
                     .scan_waves = static_cast<int32_t>(plan.scan_waves()),
                     .aligned = c.Aligned(n.inputs[0]) ? 1 : 0,
                     .params = static_cast<const float*>(c.Address(n.inputs[1])),
                     .slots = {},
                     .work = reinterpret_cast<float*>(workspace),
                     .work_stride = plan.work_stride(),
                     .parts = reinterpret_cast<ChoicePart*>(workspace + plan.parts_at()),
                     .maxima = reinterpret_cast<float*>(workspace + plan.maxima_at())};
  if (logprobs) {
    const Rows values = c.RowsOf(n.outputs[0]);
    args.tokens = const_cast<int32_t*>(c.Ints(n.inputs[2]));
    args.values = static_cast<float*>(values.base);
    args.values_stride = values.stride;
    args.ids = static_cast<int32_t*>(c.Address(n.outputs[1]));
  } else {
    args.slots = SlotsOf(c, n, n.inputs[2]);
    args.tokens = static_cast<int32_t*>(c.Address(n.outputs[0]));
  }
  const auto rows = static_cast<unsigned>(plan.outputs);
  const int scan_shared = logprobs ? kChoiceScratch : kChoiceScanShared;
  c.Emit(id, logprobs ? "top_logprobs_scan" : "sample_scan", ir::DType::kF32,
         {.grid_x = static_cast<unsigned>(plan.chunks()),
          .grid_y = rows,
          .threads = plan.scan_threads(),
          .shared_bytes = static_cast<unsigned>(scan_shared),
          .early = true},
         args);
  c.Emit(id, logprobs ? "top_logprobs_list" : "sample_pick", ir::DType::kF32,
         {.grid_x = rows,
          .threads = plan.pick_threads(),
          .shared_bytes = kChoicePickShared,
          .early = true},
         args);
}

}  // namespace

void CompileChoice(const Context& c, ir::NodeId id) {
  switch (c.node(id).op) {
    case Op::kTokenFeed:
      return CompileFeed(c, id);
    case Op::kArgMax:
      return CompileArgMax(c, id);
    case Op::kSample:
      return CompilePasses(c, id, false);
    default:
      return CompilePasses(c, id, true);
  }
}

int64_t ChoiceWorkspace(const ir::Graph& g, const ir::Bucket& b, const DeviceFacts& d) {
  int64_t bytes = 0;
  for (const ir::Node& n : g.nodes) {
    if (n.op == Op::kSample || n.op == Op::kTopLogprobs)
      bytes = std::max(bytes, PlanOf(g, n, b, d).bytes());
  }
  return (bytes + 255) / 256 * 256;
}

}  // namespace vt::gpu
