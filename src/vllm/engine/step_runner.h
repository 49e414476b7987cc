// Runs steps of a loaded model: builds the packed input, picks the bucket, runs its Executable.
//
// One for every model and every device. Buckets are compiled when the runner is made; a step goes
// to the smallest bucket that holds it. Rows past a step's counts are padding (slot -1, length 0).
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "vllm/engine/kv_blocks.h"
#include "vllm/engine/options.h"
#include "vt/device/backend.h"
#include "vt/device/step_layout.h"

namespace vllm::engine {

struct StepResult {
  // Rows in the order of the chunks (kLast: one, kAll: one a token, kNone: none). Valid until the
  // next step.
  const float* logits = nullptr;    // [outputs, vocab], on the host
  const int32_t* tokens = nullptr;  // [outputs]: the sampled token of each row
  int64_t outputs = 0;
};

class StepRunner {
 public:
  struct Memory {
    int64_t weights = 0, state = 0, arena = 0;  // bytes
  };

  // `graph`'s outputs are the logits [O, V] and the sampled tokens [O]. `weights` must outlive it.
  static base::Result<std::unique_ptr<StepRunner>> Create(
      vt::Backend& backend, const vt::ir::Graph& graph,
      std::map<std::string, vt::DeviceWeight> weights, const LoadOptions& options);
  ~StepRunner();

  // REQUIRES: all tokens together fit Limits(), blocks are reserved, ids are inside the vocabulary.
  base::Result<StepResult> Run(std::span<const Chunk> chunks, const KvBlocks& blocks);

  // The largest step: tokens, requests, output rows.
  const vt::ir::Bucket& Limits() const { return limits_; }
  const Memory& memory() const { return memory_; }
  int64_t vocab_size() const { return vocab_; }
  const vt::Executable& ExecutableFor(const vt::ir::Bucket& step) const;
  vt::Executable& ExecutableFor(const vt::ir::Bucket& step);
  vt::Queue& queue() { return *queue_; }

 private:
  struct Compiled {
    vt::ir::Bucket bucket;
    vt::StepLayout layout;
    std::unique_ptr<vt::Executable> executable;
  };

  explicit StepRunner(vt::Backend& backend) : backend_(backend) {}
  size_t Pick(const vt::ir::Bucket& step) const;
  base::Result<void*> Own(int64_t bytes);
  void Pack(const Compiled& c, std::span<const Chunk> chunks, const KvBlocks& blocks);

  vt::Backend& backend_;
  vt::Bindings bindings_;
  std::vector<Compiled> compiled_;  // ascending
  std::vector<void*> owned_;
  std::unique_ptr<vt::Queue> queue_;
  std::vector<std::byte> packed_;  // the host's copy of the input buffer
  std::vector<float> logits_;      // staging, for devices whose memory the host cannot read
  std::vector<int32_t> tokens_;
  vt::ir::Bucket limits_;
  Memory memory_;
  int64_t vocab_ = 0;
  size_t groups_ = 0;
};

}  // namespace vllm::engine
