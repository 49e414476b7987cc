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

// Pages of so many blocks of layers without windows.
int64_t PagesOf(const MemoryBudget& b, int64_t blocks) {
  return (blocks + b.page_blocks - 1) / b.page_blocks;
}

// Bytes of a request of so many blocks.
int64_t CacheOf(const MemoryBudget& b, int64_t request) {
  if (b.page > 0) return (PagesOf(b, request) + AtOnce(b, request)) * b.page;
  return request * b.block + AtOnce(b, request) * b.window_block;
}

// Blocks of the longest request that `room` bytes hold.
int64_t LongestRequest(const MemoryBudget& b, int64_t room) {
  int64_t fits = 0, more = BlocksOf(b, b.max_model_len) + 1;  // the first that does not
  while (more - fits > 1) {
    const int64_t middle = fits + (more - fits) / 2;
    (CacheOf(b, middle) <= room ? fits : more) = middle;
  }
  return fits;
}

// Blocks of layers with windows that all sequences hold together, at most, where requests have up
// to so many blocks: their windows, the steps in flight, and one sequence's largest need.
int64_t MostWindowBlocks(const MemoryBudget& b, int64_t request) {
  const int64_t each = std::min(request, BlocksOf(b, b.window - 1) + 2);
  return std::max(
      AtOnce(b, request),
      std::min(request * b.max_num_seqs, each * b.max_num_seqs + BlocksOf(b, 2 * b.step_tokens)));
}

// Of `room` bytes, blocks of layers with windows, where there are no pages and requests have up to
// so many blocks. Short requests want as many of either kind, and long ones few of these: they get
// what long ones want, or what short ones want but no more than half of the room, and no more than
// all sequences can hold; and leave enough for one request.
int64_t WindowBlocks(const MemoryBudget& b, int64_t room, int64_t request) {
  if (b.window_block == 0) return 0;
  const int64_t each = std::min(request, BlocksOf(b, b.window - 1) + 2), least = AtOnce(b, request);
  const int64_t all = request * b.max_num_seqs, most = MostWindowBlocks(b, request);
  const auto part_of = [&](int64_t windows, int64_t others) {
    const auto bytes = static_cast<double>(windows * b.window_block);
    return bytes / (bytes + static_cast<double>(others * b.block));
  };
  const double part = std::max(std::min(0.5, part_of(1, 1)), part_of(each, request));
  const auto share = static_cast<int64_t>(static_cast<double>(room) * part);
  // The other layers cannot use more than all requests have.
  const int64_t unused = room - all * b.block, left = room - request * b.block;
  return std::clamp(std::min(std::max(share, unused), left) / b.window_block, least, most);
}

base::Error Refuse(const MemoryBudget& b, int64_t kv, int64_t room) {
  const int64_t fixed = b.weights + b.activations + b.slots + States(b);
  const int64_t one_block = CacheOf(b, 1);
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
  const int64_t one = CacheOf(b, per_request), one_block = CacheOf(b, 1);
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
  fit.max_model_len = std::min(b.max_model_len, longest * b.block_size);
  if (b.page > 0) {
    const int64_t most =
        PagesOf(b, per_request) * b.max_num_seqs + MostWindowBlocks(b, per_request);
    fit.blocks = std::min(most, room / b.page);
    return fit;
  }
  fit.window_blocks = WindowBlocks(b, room, longest);
  fit.blocks = per_request * b.max_num_seqs;
  if (b.block > 0)
    fit.blocks = std::min(fit.blocks, (room - fit.window_blocks * b.window_block) / b.block);
  return fit;
}

int64_t FitSequences(const MemoryBudget& b, int64_t most) {
  if (b.state == 0) return most;
  return std::clamp<int64_t>((Usable(b) - b.weights) / 4 / b.state, 1, most);
}

}  // namespace vllm::engine
