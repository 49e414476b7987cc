#include "vllm/engine/memory_budget.h"

#include <algorithm>

#include "base/strings.h"

namespace vllm::engine {
namespace {

std::string Bytes(int64_t n) {
  return base::HumanBytes(static_cast<uint64_t>(std::max<int64_t>(n, 0)));
}

}  // namespace

base::Result<KvFit> FitKvCache(const MemoryBudget& b) {
  const int64_t fixed = b.weights + b.activations + b.slots;
  const auto usable = static_cast<int64_t>(static_cast<double>(b.free) * b.utilization);
  const int64_t per_request = (b.max_model_len + b.block_size - 1) / b.block_size;
  const auto refuse = [&](int64_t kv, int64_t room) {
    const int64_t blocks = std::max<int64_t>(room, 0) / b.block;
    const std::string remedy =
        blocks > 0 ? fmt::format("the largest length that fits is {} tokens (--max-model-len)",
                                 std::min(blocks * b.block_size, b.max_model_len))
                   : "not even one block of tokens fits: use a smaller model or quantisation, or "
                     "fewer --max-num-seqs";
    return base::Error{
        base::Code::kResourceExhausted,
        fmt::format("a request of {} tokens needs {} of KV cache beside {} of weights, {} of "
                    "activations and {} of sampler state, {} in all, but {} may be used ({} are "
                    "free, --gpu-memory-utilization {}{}): {}",
                    b.max_model_len, Bytes(kv), Bytes(b.weights), Bytes(b.activations),
                    Bytes(b.slots), Bytes(fixed + kv), Bytes(usable), Bytes(b.free), b.utilization,
                    b.kv_asked > 0 ? ", --kv-cache-memory " + Bytes(b.kv_asked) : "", remedy)};
  };
  if (b.block == 0) return KvFit{per_request * b.max_num_seqs, b.max_model_len};  // no paged state

  const int64_t one = per_request * b.block;
  int64_t room = usable - fixed;
  if (b.kv_asked > 0) {
    // What was asked for may go up to the last free byte, and not beyond.
    if (b.kv_asked > b.free - fixed) return refuse(std::max(one, b.kv_asked), b.free - fixed);
    room = b.kv_asked;
  } else if (b.kv_default > 0) {
    room = std::min(room, std::max(b.kv_default, one));
  }
  if (room < b.block || (b.length_asked && room < one)) return refuse(one, room);
  KvFit fit;
  fit.blocks = std::min(room / b.block, per_request * b.max_num_seqs);
  fit.max_model_len = std::min(b.max_model_len, fit.blocks * b.block_size);
  return fit;
}

}  // namespace vllm::engine
