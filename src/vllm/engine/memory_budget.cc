#include "vllm/engine/memory_budget.h"

#include <algorithm>

#include "base/strings.h"

namespace vllm::engine {
namespace {

// A conversation has a snapshot behind its last prompt, one behind its last answer, and one on its
// way; a system prompt has another.
constexpr int64_t kFewSnapshots = 4;

std::string Bytes(int64_t n) {
  return base::HumanBytes(static_cast<uint64_t>(std::max<int64_t>(n, 0)));
}

int64_t Usable(const MemoryBudget& b) {
  return static_cast<int64_t>(static_cast<double>(b.free) * b.utilization);
}

// What the states of sequences and the snapshots that were asked for take.
int64_t States(const MemoryBudget& b) {
  return b.state * (b.max_num_seqs + std::max<int64_t>(b.snapshots, 0));
}

base::Error Refuse(const MemoryBudget& b, int64_t kv, int64_t room) {
  const int64_t fixed = b.weights + b.activations + b.slots + States(b);
  const int64_t blocks = b.block > 0 ? std::max<int64_t>(room, 0) / b.block : 0;
  const int64_t each = b.state + b.slots / b.max_num_seqs;
  // Fewer sequences make room for one request's cache.
  const int64_t over = room - (b.length_asked || b.kv_asked > 0 ? kv : b.block);
  const int64_t sequences =
      b.state == 0 ? 0 : b.max_num_seqs + over / each - (over % each < 0 ? 1 : 0);
  std::string remedy =
      "not even one block of tokens fits: use a smaller model or quantisation, or fewer "
      "--max-num-seqs";
  if (sequences > 0 && sequences < b.max_num_seqs) {
    remedy = fmt::format("at most {} requests at a time fit (--max-num-seqs)", sequences);
  } else if (blocks > 0) {
    remedy = fmt::format("the largest length that fits is {} tokens (--max-model-len)",
                         std::min(blocks * b.block_size, b.max_model_len));
  }
  const std::string states =
      b.state == 0 ? ""
                   : fmt::format(", {} of recurrent state ({} slots of {})", Bytes(States(b)),
                                 States(b) / b.state, Bytes(b.state));
  return {
      base::Code::kResourceExhausted,
      fmt::format("a request of {} tokens needs {} of KV cache beside {} of weights, {} of "
                  "activations{} and {} of sampler state, {} in all, but {} may be used ({} are "
                  "free, --gpu-memory-utilization {}{}): {}",
                  b.max_model_len, Bytes(kv), Bytes(b.weights), Bytes(b.activations), states,
                  Bytes(b.slots), Bytes(fixed + kv), Bytes(Usable(b)), Bytes(b.free), b.utilization,
                  b.kv_asked > 0 ? ", --kv-cache-memory " + Bytes(b.kv_asked) : "", remedy)};
}

// Of `room` bytes for the cache and the snapshots, how many snapshots; `spare`: how much more is
// there beside a cache whose size was asked for.
int64_t FitSnapshots(const MemoryBudget& b, int64_t room, int64_t spare, int64_t one) {
  if (b.snapshots >= 0 || b.state == 0) return std::max<int64_t>(b.snapshots, 0);
  const int64_t few = kFewSnapshots * b.state;
  const int64_t share = b.kv_asked > 0 ? std::min(spare, std::max(room / 3, few))
                                       : std::min(room - one, std::max(room / 4, few));
  const int64_t useful = b.max_num_seqs * (b.max_model_len / b.snapshot_every + kFewSnapshots);
  return std::clamp<int64_t>(share / b.state, 0, useful);
}

}  // namespace

base::Result<KvFit> FitKvCache(const MemoryBudget& b) {
  const int64_t fixed = b.weights + b.activations + b.slots + States(b);
  const int64_t per_request = (b.max_model_len + b.block_size - 1) / b.block_size;
  const int64_t one = per_request * b.block;
  int64_t room = Usable(b) - fixed;
  KvFit fit{.max_model_len = b.max_model_len};
  if (b.block == 0) {  // no paged state
    if (b.state > 0 && room < 0) return Refuse(b, 0, room);
    fit.blocks = per_request * b.max_num_seqs;
    fit.snapshots = FitSnapshots(b, room, room, 0);
    return fit;
  }
  const int64_t left = room;
  if (b.kv_asked > 0) {
    // What was asked for may go up to the last free byte, and not beyond.
    if (b.kv_asked > b.free - fixed) return Refuse(b, std::max(one, b.kv_asked), b.free - fixed);
    room = b.kv_asked;
  } else if (b.kv_default > 0) {
    room = std::min(room, std::max(b.kv_default, one));
  }
  if (room < b.block || (b.length_asked && room < one)) return Refuse(b, one, room);
  fit.snapshots = FitSnapshots(b, room, left - room, one);
  if (b.snapshots < 0 && b.kv_asked == 0) room -= fit.snapshots * b.state;
  fit.blocks = std::min(room / b.block, per_request * b.max_num_seqs);
  fit.max_model_len = std::min(b.max_model_len, fit.blocks * b.block_size);
  return fit;
}

int64_t FitSequences(const MemoryBudget& b, int64_t most) {
  if (b.state == 0) return most;
  return std::clamp<int64_t>((Usable(b) - b.weights) / 4 / b.state, 1, most);
}

}  // namespace vllm::engine
