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

int64_t BlocksOf(const MemoryBudget& b, int64_t tokens) {
  return (tokens + b.block_size - 1) / b.block_size;
}

// Blocks of layers with windows that a request of so many blocks holds at a time, at most: its
// window, and a step's tokens. WindowPool counts alike.
int64_t AtOnce(const MemoryBudget& b, int64_t request) {
  return std::min(request, BlocksOf(b, b.window - 1 + b.step_tokens) + 1);
}

// Bytes of a request of so many blocks.
int64_t CacheOf(const MemoryBudget& b, int64_t request) {
  return request * b.block + AtOnce(b, request) * b.window_block;
}

// Blocks of the longest request that `room` bytes hold. REQUIRES: blocks take room.
int64_t LongestRequest(const MemoryBudget& b, int64_t room) {
  const int64_t asked = BlocksOf(b, b.max_model_len), in_window = AtOnce(b, asked);
  const int64_t each = b.block + b.window_block;
  if (room < in_window * each) return std::max<int64_t>(room, 0) / each;
  return b.block == 0 ? asked : std::min(asked, (room - in_window * b.window_block) / b.block);
}

// Of `room` bytes, blocks of layers with windows, where requests have up to so many blocks. Short
// requests want as many of either kind, and long ones few of these: they get what long ones want,
// or half of the room, but no more than all sequences can hold, and leave enough for one request.
int64_t WindowBlocks(const MemoryBudget& b, int64_t room, int64_t request) {
  if (b.window_block == 0) return 0;
  const int64_t each = std::min(request, BlocksOf(b, b.window - 1) + 2), least = AtOnce(b, request);
  const int64_t all = request * b.max_num_seqs;
  const int64_t most =
      std::max(least, std::min(all, each * b.max_num_seqs + BlocksOf(b, 2 * b.step_tokens)));
  const auto windows = static_cast<double>(each * b.window_block);
  const double part = std::max(0.5, windows / (windows + static_cast<double>(request * b.block)));
  const auto share = static_cast<int64_t>(static_cast<double>(room) * part);
  // The other layers cannot use more than all requests have.
  const int64_t unused = room - all * b.block, left = room - request * b.block;
  return std::clamp(std::min(std::max(share, unused), left) / b.window_block, least, most);
}

base::Error Refuse(const MemoryBudget& b, int64_t kv, int64_t room) {
  const int64_t fixed = b.weights + b.activations + b.slots + States(b);
  const int64_t one_block = b.block + b.window_block;
  const int64_t blocks = one_block > 0 ? LongestRequest(b, room) : 0;
  const int64_t each = b.state + b.slots / b.max_num_seqs;
  // Fewer sequences make room for one request's cache.
  const int64_t over = room - (b.length_asked || b.kv_asked > 0 ? kv : one_block);
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
  const int64_t per_request = BlocksOf(b, b.max_model_len);
  const int64_t one = CacheOf(b, per_request), one_block = b.block + b.window_block;
  int64_t room = Usable(b) - fixed;
  KvFit fit{.max_model_len = b.max_model_len};
  if (one_block == 0) {  // no paged state
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
  if (room < one_block || (b.length_asked && room < one)) return Refuse(b, one, room);
  fit.snapshots = FitSnapshots(b, room, left - room, one);
  if (b.snapshots < 0 && b.kv_asked == 0) room -= fit.snapshots * b.state;
  const int64_t longest = LongestRequest(b, room);
  fit.window_blocks = WindowBlocks(b, room, std::min(longest, per_request));
  fit.blocks = per_request * b.max_num_seqs;
  if (b.block > 0)
    fit.blocks = std::min(fit.blocks, (room - fit.window_blocks * b.window_block) / b.block);
  fit.max_model_len = std::min(b.max_model_len, longest * b.block_size);
  return fit;
}

int64_t FitSequences(const MemoryBudget& b, int64_t most) {
  if (b.state == 0) return most;
  return std::clamp<int64_t>((Usable(b) - b.weights) / 4 / b.state, 1, most);
}

}  // namespace vllm::engine
